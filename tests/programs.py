"""Runs our own programs as a person would: processes, exit codes, HTTP on loopback."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
KEY = "sk-or-v1-6b1f-only-a-test-key"


@dataclass(frozen=True, slots=True)
class Server:
    """A running simulator."""

    base_url: str

    def ledger(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._get("ledger"))
        return found

    def truth(self) -> dict[str, list[int]]:
        """generation_id -> the ids of prompt and answer that were really sampled."""
        rows = (json.loads(line) for line in self._get("truth").splitlines())
        return {row["generation_id"]: row["prompt_ids"] + row["completion_ids"] for row in rows}

    def _get(self, name: str) -> str:
        root = self.base_url.removesuffix("/api/v1")
        with urllib.request.urlopen(f"{root}/__sim/{name}") as reply:  # noqa: S310 - loopback
            text: str = reply.read().decode()
            return text


@contextlib.contextmanager
def serve_simulator(*arguments: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "simulator", "--port", "0", "--seed", "3", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield Server(process.stdout.readline().strip())
        finally:
            process.kill()


def command_of(folder: Path, base_url: str, *arguments: str) -> list[str]:
    """The command line of a run over `FOLDER/prompts.jsonl` into `FOLDER/out`.

    The examples' recorded answers stand, unless the arguments say otherwise.
    """
    flags = ["--input", f"{folder}/prompts.jsonl", "--output", f"{folder}/out"]
    main = [sys.executable, "-m", "pipeline.main", "--runner", "DirectRunner"]
    return [*main, *flags, "--base_url", base_url, "--turns", "last", *arguments]


def run_pipeline(folder: Path, base_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_of(folder, base_url, *arguments),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OPENROUTER_API_KEY": KEY},
        check=False,
    )


def write_prompts(folder: Path, rows: list[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "prompts.jsonl").write_text(lines, encoding="utf-8")


def example_prompts(count: int) -> list[dict[str, Any]]:
    lines = (ROOT / "examples" / "kimi.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines[:count]]


def many_prompts(count: int) -> list[dict[str, Any]]:
    """So many different ones; most of the texts come with a number."""
    examples = example_prompts(300)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        row = json.loads(json.dumps(examples[number % 300]))
        last = row["messages"][-1]
        last["content"] = f"{last['content']} ({number})"
        rows.append(row | {"id": f"row-{number}"})
    return rows


def samples(output: Path) -> dict[str, dict[str, Any]]:
    """Good rows by id, read by pyarrow."""
    rows: list[dict[str, Any]] = []
    for path in sorted((output / "samples").glob("part-*.parquet")):
        rows += pq.read_table(path).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def rejections(output: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted((output / "rejections").glob("part-*.jsonl"))
        for line in path.read_text("utf-8").split("\n")
        if line
    ]


def summary(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "summary.json").read_text("utf-8"))
    return found


def assert_whole(folder: Path, prompts: int) -> dict[str, Any]:
    """The conservation law on what is on disk; gives the summary."""
    told = summary(folder / "out")
    assert told["prompts"] == prompts == told["good"] + told["bad"] + told["failed"]
    good = samples(folder / "out")
    refused = rejections(folder / "out")
    assert len(good) == told["good"]
    assert len(refused) == told["bad"] + told["failed"]
    assert Counter(row["rejection"]["code"] for row in refused) == told["codes"]
    return told


def slow_simulator(folder: Path) -> contextlib.AbstractContextManager[Server]:
    """Answers take long enough to be in the middle of."""
    scenario = folder / "slow.yaml"
    scenario.write_text("latency: {median_s: 0.4, sigma: 0.7}\n", "utf-8")
    return serve_simulator("--scenario", str(scenario))


def start_and_wait_for(
    folder: Path, server: Server, requests: int, *arguments: str
) -> subprocess.Popen[bytes]:
    """A run that has asked at least so many prompts, and is in the middle of it."""
    process = subprocess.Popen(
        command_of(folder, server.base_url, "--max_in_flight", "16", *arguments),
        cwd=ROOT,
        env=os.environ | {"OPENROUTER_API_KEY": KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    polled = threading.Event()
    while server.ledger()["requests"] < requests:
        assert process.poll() is None, "ended before it was in the middle"
        polled.wait(0.02)
    return process
