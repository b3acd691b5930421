"""Data sets of the Hugging Face hub: a server on loopback that speaks the part of its API."""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.inputs import find_files
from tests.programs import ROOT
from transforms.failures import ConfigError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "data/train-0.jsonl": b'{"id": "t0", "prompt": "Name a river."}\n',
    "data/train-1.jsonl": b'{"id": "t1", "prompt": "Name a lake."}\n',
    "data/test.jsonl": b'{"id": "e", "prompt": "Name a sea."}\n',
    "README.md": b"# A data set\n",
}


class _Hub(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> bytes:
        path = self.path.partition("?")[0]
        if path.startswith(f"/api/datasets/owner/name/revision/{COMMIT}"):
            siblings = [{"rfilename": name} for name in FILES]
            return self._send(json.dumps({"id": "owner/name", "sha": COMMIT, "siblings": siblings}))
        if path.startswith(f"/api/datasets/owner/name/tree/{COMMIT}"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": f"{number:040x}"}
                for number, (name, data) in enumerate(FILES.items())
            ]
            return self._send(json.dumps(tree))
        name = path.partition(f"/datasets/owner/name/resolve/{COMMIT}/")[2]
        if name not in FILES:
            self.send_error(404)
            return b""
        return self._send(
            FILES[name].decode(), ETag=f'"{hash(name):x}"', **{"X-Repo-Commit": COMMIT}
        )

    def _send(self, text: str, **headers: str) -> bytes:
        body = text.encode()
        self.send_response(200)
        for header, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(header, value)
        self.end_headers()
        return body

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def hub() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def explain(pattern: str, hub: str, cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline.main", "--input", pattern, "--explain_input"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"HF_ENDPOINT": hub, "HF_HOME": str(cache)} | more,
        check=False,
    )


def test_the_files_of_a_pinned_data_set_are_read(hub: str, tmp_path: Path) -> None:
    told = explain(f"hf://datasets/owner/name@{COMMIT}/data/train-*.jsonl", hub, tmp_path)
    assert told.returncode == 0, told.stderr
    rows = [line.split()[:4] for line in told.stdout.splitlines()[1:]]
    assert rows == [
        ["train-0.jsonl", "1", "prompt", "t0"],
        ["train-1.jsonl", "1", "prompt", "t1"],
    ]


def test_a_folder_is_all_its_files_and_nothing_else_is_said(hub: str, tmp_path: Path) -> None:
    told = explain(f"set=hf://datasets/owner/name@{COMMIT}/data", hub, tmp_path)
    names = [line.split()[0] for line in told.stdout.splitlines()[1:]]
    assert names == ["test.jsonl", "train-0.jsonl", "train-1.jsonl"]
    assert "Fetching" not in told.stderr


def test_what_is_in_the_cache_needs_no_network_and_is_whole(hub: str, tmp_path: Path) -> None:
    """One of two files is in the cache: both, or none."""
    data = f"hf://datasets/owner/name@{COMMIT}/data"
    assert explain(f"{data}/train-0.jsonl", hub, tmp_path).returncode == 0
    for files, code in (("train-0.jsonl", 0), ("train-*.jsonl", 2)):
        told = explain(f"{data}/{files}", hub, tmp_path, HF_HUB_OFFLINE="1")
        assert (told.returncode, "Traceback" in told.stderr) == (code, False)


def test_a_hub_that_cannot_be_reached_is_said_in_one_line(tmp_path: Path) -> None:
    pattern = f"hf://datasets/owner/name@{COMMIT}/data/test.jsonl"
    told = explain(pattern, "http://127.0.0.1:9", tmp_path)
    assert told.returncode == 2
    assert "refused" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("s3://bucket/data.jsonl", "s3://bucket/data.jsonl"),
        (f"hf://datasets/owner/other@{COMMIT}/a.jsonl", "owner/other"),
        (f"hf://datasets/owner/name@{COMMIT}/none-*.jsonl", "no such file"),
    ],
)
def test_what_is_not_there_or_not_pinned_is_refused(
    pattern: str, said: str, hub: str, tmp_path: Path
) -> None:
    told = explain(pattern, hub, tmp_path)
    assert told.returncode == 2
    assert said in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    "pattern",
    [
        "hf://datasets/owner/name/data/train-0.jsonl",
        "hf://owner/name@main/data.jsonl",
        "hf://datasets/owner/name@main/data/test.jsonl",
        f"hf://datasets/owner/name@{COMMIT[:8]}/data/test.jsonl",
        f"hf://datasets/owner/name@{COMMIT}",
    ],
)
def test_a_revision_that_may_move_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"pin its commit .* name files"):
        find_files(pattern)
