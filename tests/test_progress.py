"""The progress line: what it says, on a terminal and in a log."""

import asyncio
import logging
import os
import pty
import re
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.programs import (
    KEY,
    ROOT,
    assert_whole,
    command_of,
    example_prompts,
    serve_simulator,
    write_prompts,
)
from transforms.openrouter.budget import Budget
from transforms.openrouter.faults import BROKEN, RATE, REFUSED, Judged
from transforms.openrouter.gate import Gate
from transforms.openrouter.limiter import Limiter
from transforms.openrouter.progress import Progress


def reply(finish: Any, tokens: Any = 50) -> dict[str, Any]:
    return {"choices": [{"finish_reason": finish}], "usage": {"completion_tokens": tokens}}


def answered(finish: Any, cost: str, tokens: Any = 50) -> Judged:
    return Judged(reply=reply(finish, tokens), cost_usd=Decimal(cost))


def gate() -> Gate:
    return Gate(limiter=Limiter(8), budget=Budget(None))


def test_the_line_says_everything() -> None:
    progress = Progress(gate(), 100)
    for finish in ("stop", "length", "tool_calls"):
        progress.reuse(reply(finish))
    for finish in ("stop", "stop", "length", "eos"):
        progress.count(answered(finish, "0.5"))
    for fault, retried in ((RATE, True), (RATE, True), (BROKEN, True), (REFUSED, False)):
        progress.count(Judged(fault=fault, cost_usd=Decimal("0.25") if fault is BROKEN else None))
        if retried:
            progress.retry(fault)
        else:
            progress.fail()
    progress.good = 3
    # Eight are done in 40 s, four of them answered now; 92 are left.
    assert progress.describe(40) == (
        "8/100 done (3 good so far by their counts, 4 ended by the model itself, 1 failed, "
        "3 from the store) · "
        "0 in flight of 8 · 0.2 requests/s · 5 tokens/s · "
        "$2.2500 spent of about $54.0000 · 15 min left · retries: broken 1, rate 2"
    )


@pytest.mark.parametrize("odd", [[], {}, None, "many", 3.5])
def test_what_a_server_may_say_does_not_stop_it(odd: Any) -> None:
    progress = Progress(gate(), None)
    progress.count(answered(odd, "0", tokens=odd))
    progress.count(Judged(reply={"choices": [{"finish_reason": "stop"}], "usage": odd}))
    assert progress.describe(0).startswith("2/? done (1 ended by the model itself, 0 failed, 0 ")


def test_nothing_known_is_nothing_promised() -> None:
    line = Progress(gate(), 7).describe(0)
    assert line.startswith("0/7 done")
    assert line.endswith("$0.0000 spent · retries: none")


def test_a_log_line_comes_again_and_again_while_nothing_comes() -> None:
    lines: list[str] = []
    enough = asyncio.Event()

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            if len(lines) == 3:
                enough.set()

    async def watch() -> None:
        saying = asyncio.ensure_future(Progress(gate(), 9, every_s=0.001).run())
        await asyncio.wait_for(enough.wait(), 20)
        saying.cancel()

    log = logging.getLogger("transforms.openrouter.progress")
    handler, level = Kept(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        asyncio.run(watch())
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert all(line.startswith("0/9 done") for line in lines)


def read_all(terminal: int) -> str:
    """What was written, until the other side is closed (EIO on Linux)."""
    parts = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:
        pass
    os.close(terminal)
    return b"".join(parts).decode()


def test_a_terminal_shows_the_run_as_it_goes(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "latency: {median_s: 0.5, sigma: 0.3}\nfaults: {bad_gateway: 0.1}\n", "utf-8"
    )
    write_prompts(tmp_path, example_prompts(80))
    terminal, side = pty.openpty()
    with serve_simulator("--scenario", str(scenario)) as server:
        process = subprocess.Popen(
            command_of(tmp_path, server.base_url, "--max_in_flight", "16", "--delivery", "whole"),
            cwd=ROOT, env=os.environ | {"OPENROUTER_API_KEY": KEY},
            stdout=subprocess.DEVNULL, stderr=side,
        )  # fmt: skip
        os.close(side)
        shown = read_all(terminal)
        assert process.wait() == 0, shown
        spent = server.ledger()["charged_usd"]
        faults = server.ledger()["faults"]["bad_gateway"]
    assert_whole(tmp_path, 80)
    lines = re.findall(r"\x1b\[J([^\r\n]*)", shown)
    middle = re.compile(
        r"\d+/80 done \((\d+ good so far by their counts, )?\d+ ended by the model itself, "
        r"0 failed, 0 from the store\) · "
        r"\d+ in flight of \d+ · [\d.]+ requests/s · \d+ tokens/s · "
        r"\$[\d.]+ spent of about \$[\d.]+ · \d+ s left · retries: (none|unavailable \d+)"
    )
    assert len(lines) >= 3
    assert any(middle.fullmatch(line) for line in lines[:-1])
    done, cost, retries = re.fullmatch(
        r"(\d+)/80 done .* · \$([\d.]+) spent .* · 0 s left · retries: unavailable (\d+)", lines[-1]
    ).groups()  # type: ignore[union-attr]
    assert done == "80"
    assert float(cost) == pytest.approx(spent, abs=1e-4)
    assert int(retries) == faults
