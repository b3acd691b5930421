"""The laws of the calls at length: minutes each, because faults take their real time."""

import asyncio
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.programs import (
    KEY,
    ROOT,
    Server,
    assert_whole,
    command_of,
    many_prompts,
    rejections,
    run_pipeline,
    samples,
    serve_simulator,
    summary,
    write_prompts,
)
from tests.scripted import Reply, Script, answer, serve
from tests.test_client import KEY as CLIENT_KEY
from tests.test_client import REQUEST, config
from transforms.codes import IssueCode
from transforms.failures import FailureKind
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.sqlite_store import SqliteStore

pytestmark = pytest.mark.slow

_REASONS = {str(reason) for reason in (*FailureKind, *IssueCode)}


def assert_each_prompt_once(folder: Path, rows: list[dict[str, Any]]) -> None:
    assert_whole(folder, len(rows))
    good = samples(folder / "out")
    refused = rejections(folder / "out")
    assert sorted([*good, *(row["id"] for row in refused)]) == sorted(row["id"] for row in rows)
    assert {row["rejection"]["code"] for row in refused} <= _REASONS


def test_hostile(tmp_path: Path) -> None:
    """10,000 prompts, every fault at 1 %. 15 minutes: of the calls 3 % hang for 90 to 300 s."""
    rows = many_prompts(10_000)
    write_prompts(tmp_path, rows)
    with serve_simulator("--preset", "hostile") as server:
        done = run_pipeline(
            tmp_path, server.base_url, "--max_in_flight", "128", "--max_bad_ratio", "1"
        )
        assert done.returncode == 0, done.stderr
        assert_each_prompt_once(tmp_path, rows)
        assert_nothing_is_paid_for_nothing(server, tmp_path)
        truth = server.truth()
    good = samples(tmp_path / "out")
    # Content that a host moves into the thought of a calling answer costs as many tokens as before
    # (`answer_in_reasoning`): the count of the thought tells.
    assert [i for i, row in good.items() if row["input_ids"] != truth[row["generation_id"]]] == []
    assert len(good) > 8000


def assert_nothing_is_paid_for_nothing(server: Server, folder: Path) -> None:
    """Nothing is asked again that was answered; `cost_usd` knows what the answers told."""
    ledger = server.ledger()
    told = summary(folder / "out")
    assert ledger["early_retries"] == 0
    assert told["requests_sent"] == ledger["requests"]
    assert told["cost_usd"] <= ledger["charged_usd"] + 1e-6


def test_hostile_under_a_cap(tmp_path: Path) -> None:
    """The run stops in time: what was charged is the cap and what was in flight at most."""
    write_prompts(tmp_path, many_prompts(3000))
    with serve_simulator("--preset", "hostile") as server:
        short = ("--max_tokens", "1000", "--max_in_flight", "128", "--max_bad_ratio", "1")
        done = run_pipeline(tmp_path, server.base_url, *short, "--max_cost_usd", "0.5")
        assert done.returncode == 4, done.stderr
        dearest = 1000 * 3.0e-6 + 0.001
        assert 0.3 < server.ledger()["charged_usd"] <= 0.5 + 128 * dearest


def moments(count: int) -> Iterator[float]:
    rng = random.Random(5)
    return (rng.uniform(0, 8) for _ in range(count))


def test_kill_9_at_twenty_moments(tmp_path: Path) -> None:
    """Four minutes: each of 20 runs starts Beam anew. Answers take 2 s, as many as 128 at once."""
    rows = many_prompts(5000)
    write_prompts(tmp_path, rows)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("latency: {median_s: 2, sigma: 0.7}\n", "utf-8")
    ceiling = ("--max_in_flight", "128")
    in_flight: list[int] = []
    with serve_simulator("--scenario", str(scenario)) as server:
        for seconds in moments(20):
            in_flight += [kill_after(seconds, tmp_path, server, sum(in_flight), *ceiling)]
        finished = run_pipeline(tmp_path, server.base_url, *ceiling)
        assert finished.returncode == 0, finished.stderr
        assert_each_prompt_once(tmp_path, rows)
        truth, ledger = server.truth(), server.ledger()
    good = samples(tmp_path / "out")
    assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())
    assert 100 <= max(in_flight) <= 128
    assert ledger["duplicates"] <= sum(in_flight), in_flight


def kill_after(
    seconds: float, folder: Path, server: Server, already_lost: int, *arguments: str
) -> int:
    """So long after the first request of a run; gives how many requests it had on their way."""
    before = server.ledger()["requests"]
    process = subprocess.Popen(
        command_of(folder, server.base_url, *arguments),
        cwd=ROOT,
        env=os.environ | {"OPENROUTER_API_KEY": KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    polled = threading.Event()
    while server.ledger()["requests"] == before:
        assert process.poll() is None
        polled.wait(0.02)
    polled.wait(seconds)
    assert process.poll() is None, "it ended by itself"
    seen = server.ledger()["in_flight"]
    process.kill()
    process.wait()
    paid, stored = server.ledger()["requests"], SqliteStore(f"{folder}/out.store").all_attempts()
    lost = paid - already_lost - sum(1 for _ in stored)
    assert abs(lost - seen) <= 64  # what was answered or sent meanwhile
    return lost


def test_six_hundred_a_minute(tmp_path: Path) -> None:
    """300 prompts, 32 in flight, in 35 s of real time, and hardly anything refused."""
    rows = many_prompts(300)
    write_prompts(tmp_path, rows)
    flags = ("--max_in_flight", "32", "--requests_per_minute", "600")
    with serve_simulator("--preset", "rpm-600") as server:
        started = time.monotonic()
        done = run_pipeline(tmp_path, server.base_url, *flags)
        seconds = time.monotonic() - started
        assert done.returncode == 0, done.stderr
        assert server.ledger()["statuses"].get("429", 0) <= 5
    assert_each_prompt_once(tmp_path, rows)
    assert len(samples(tmp_path / "out")) == 300
    assert seconds <= 35


def test_retry_after_120_is_obeyed_in_real_time(tmp_path: Path) -> None:
    """Two minutes: by the arrival times at the server, within 5 % and never too early."""
    (tmp_path / "key").write_text(CLIENT_KEY, "utf-8")
    limited = Reply(
        status=429,
        body=json.dumps({"error": {"code": 429}}).encode(),
        headers={"Retry-After": "120"},
    )
    script = Script([limited, answer()])

    async def ask() -> Any:
        async with serve(script):
            client = OpenRouterClient(config(script.base_url, tmp_path))
            found = await client.answer(REQUEST)
            await client.close()
            return found

    assert asyncio.run(ask()).reply["id"] == "gen-1"
    first, second = script.arrived_at
    assert 120 <= second - first <= 126
