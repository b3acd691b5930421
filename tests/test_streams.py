"""Streams end to end: the texts and the edges of their chunks are what the simulator sampled."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from tests.programs import Server, run_pipeline, serve_simulator, write_prompts
from transforms.openrouter.events import assemble_events
from transforms.openrouter.faults import judge
from transforms.openrouter.sqlite_store import SqliteStore

FAULTS = """
latency: {median_s: 0.05, sigma: 0.5}
speed: 200
faults:
  stream_error: 0.06
  stream_token_limit: 0.06
  stream_idle: 0.06
  stream_no_done: 0.06
  stream_no_finish: 0.06
  stream_cut: 0.06
  stream_stall: 0.06
  stream_crlf: 0.06
  stream_cr: 0.06
  stream_split: 0.06
"""
PROMPTS = 150


def edges_of(server: Server) -> dict[str, list[str]]:
    """generation_id -> the texts of the chunks that were sampled for it."""
    root = server.base_url.removesuffix("/api/v1")
    with urllib.request.urlopen(f"{root}/__sim/truth") as reply:  # noqa: S310 - loopback
        rows = [json.loads(line) for line in reply.read().splitlines()]
    return {row["generation_id"]: row["chunks"] for row in rows}


def test_texts_and_edges_are_the_sampled_ones_under_every_fault_of_streams(tmp_path: Path) -> None:
    """Every attempt is looked at. The simulator's truth has no row of an answer that it cut off."""
    scenario = tmp_path / "faults.yaml"
    scenario.write_text(FAULTS, "utf-8")
    write_prompts(tmp_path, [{"prompt": f"Tell me of 数{n} 😀"} for n in range(PROMPTS)])
    flags = ("--job", "collect", "--delivery", "stream", "--max_in_flight", "32")
    with serve_simulator("--scenario", str(scenario)) as server:
        done = run_pipeline(tmp_path, server.base_url, *flags)
        assert done.returncode == 0, done.stderr
        edges, faults = edges_of(server), server.ledger()["faults"]
    assert set(faults) == {line.split(":")[0].strip() for line in FAULTS.split("\n")[4:-1]}
    answered, cut_off = set(), set()
    for attempt in SqliteStore(str(tmp_path / "out.store")).all_attempts():
        judged = judge(attempt)
        if judged.reply is not None and judged.reply["choices"][0]["finish_reason"] == "length":
            cut_off.add(attempt.request_sha256)
        elif judged.reply is not None:
            answered.add(attempt.request_sha256)
            assert_said(judged.reply, edges[judged.reply["id"]])
        elif b"data:" in attempt.body and b"finish_reason" in attempt.body:  # no account
            begun = assemble_events(attempt.body[: attempt.body.rfind(b"\n")])
            whole = edges.get(begun["id"])
            assert_said(begun, whole and whole[: len(begun["choices"][0]["chunks"]["texts"])])
    assert len(answered | cut_off) == PROMPTS
    assert 0 < len(cut_off) < PROMPTS / 5


def assert_said(reply: dict[str, Any], edges: list[str] | None) -> None:
    choice = reply["choices"][0]
    fields, texts = choice["chunks"]["fields"], choice["chunks"]["texts"]
    assert edges is None or texts == edges
    for name in ("reasoning", "content"):
        told = "".join(t for field, t in zip(fields, texts, strict=True) if field == name)
        assert (choice["message"].get(name) or "") == told
