"""Requests a second and CPU a request of job 1, beside a bare aiohttp loop on the same server.

`python -m benchmarks.calls [--prompts 2000] [--in_flight 64] [--latency_s 0.05] [--rounds 5]
[--stream [--writes 100]] [--steady]`

The server only waits and answers; it is a process of its own, on the same cores. Ours is the
whole program (`--job collect`): ask, store, judge, rebuild the ids, count what was spent. Rates are
what the server saw, from the first request to the last answer; CPU is of the whole program without
its start-up, which is measured by runs over one prompt. `--stream`: answers
of 2,000 events of one token, sent in so many writes over the latency. `--steady`: one run of ours,
and the share of the ideal from when the limit is reached until no prompt waits any more, as the
server saw it; what comes before is the slow start.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.serving import ROOT, allow_many_connections, serving


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one round: when the server saw requests and answers, and CPU seconds of the client.

    `in_flight`: at each answer.
    """

    asked: list[float]
    came: list[float]
    in_flight: list[int]
    cpu_s: float

    @property
    def rate(self) -> float:
        """Requests a second, from the first request to the last answer."""
        return len(self.came) / (self.came[-1] - self.asked[0])


def main(argv: list[str]) -> int:
    """Prints a line a round and the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--prompts", type=int, default=2000)
    parser.add_argument("--in_flight", type=int, default=64)
    parser.add_argument("--latency_s", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--writes", type=int, default=100)
    parser.add_argument("--steady", action="store_true")
    flags = parser.parse_args(argv)
    allow_many_connections()
    given = ["--latency_s", str(flags.latency_s), "--writes", str(flags.writes)]
    given += ["--stream"] if flags.stream else []
    with serving("benchmarks.waiting_server", *given) as base_url:
        (_say_steady if flags.steady else _compare)(base_url, flags)
    return 0


def _compare(base_url: str, flags: argparse.Namespace) -> None:
    ideal = flags.in_flight / flags.latency_s
    print(f"{flags.prompts} prompts, {flags.in_flight} in flight, ideal {ideal:.0f}/s")
    start_cpu_s = statistics.median(_ours(base_url, 1, flags).cpu_s for _ in range(3))
    ours, bare = [], []
    for number in range(flags.rounds):
        bare.append(_measure(base_url, lambda: asyncio.run(_bare(base_url, flags))))
        whole = _ours(base_url, flags.prompts, flags)
        ours.append(replace(whole, cpu_s=whole.cpu_s - start_cpu_s))
        print(f"round {number + 1}: bare {_told(bare[-1], flags)} · ours {_told(ours[-1], flags)}")
    rate = statistics.median(round_.rate for round_ in ours)
    ratio = statistics.median(a.rate / b.rate for a, b in zip(ours, bare, strict=True))
    cpu_ms = [statistics.median(_cpu_ms(one, flags) for one in some) for some in (ours, bare)]
    print(
        f"medians: ours {rate:.0f}/s ({rate / ideal:.0%} of the ideal, {ratio:.2f} of bare "
        f"aiohttp), {cpu_ms[0]:.2f} ms CPU a request (bare {cpu_ms[1]:.2f}); beside a start-up of "
        f"{start_cpu_s:.1f} s CPU"
    )


def _say_steady(base_url: str, flags: argparse.Namespace) -> None:
    """The rate while the server is full: it was asked so much at once, and more was to come."""
    whole = _ours(base_url, flags.prompts, flags)
    came, enough = whole.came, flags.in_flight * 0.98
    full = [at for at, count in zip(came, whole.in_flight, strict=True) if count >= enough]
    began, ended = full[0], full[-1]
    if ended - began < flags.latency_s:
        raise SystemExit(f"the limit was reached too late: give more than {flags.prompts} prompts")
    rate = sum(began < at <= ended for at in came) / (ended - began)
    ideal = flags.in_flight / flags.latency_s
    print(
        f"full after {began - came[0] + flags.latency_s:.0f} s, for {ended - began:.0f} s: "
        f"{rate:.0f}/s, {rate / ideal:.0%} of the ideal {ideal:.0f}/s; "
        f"{_cpu_ms(whole, flags):.2f} ms CPU a request, start-up included"
    )


def _seen(base_url: str) -> list[list[Any]]:
    """What the server saw since it was asked last: when requests came and went, how many beside."""
    with urllib.request.urlopen(f"{base_url}/seen") as reply:  # noqa: S310 - loopback
        found: list[list[Any]] = json.load(reply)
    return found


def _told(measured: Measured, flags: argparse.Namespace) -> str:
    return f"{measured.rate:.0f}/s, {_cpu_ms(measured, flags):.2f} ms CPU"


def _cpu_ms(measured: Measured, flags: argparse.Namespace) -> float:
    return measured.cpu_s * 1000 / int(flags.prompts)


def _ours(base_url: str, prompts: int, flags: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompts.jsonl"
        path.write_text("".join(f'{{"prompt": "Question {n}"}}\n' for n in range(prompts)), "utf-8")
        command = [
            sys.executable, "-m", "pipeline.main", "--job", "collect", "--source", "openai",
            "--api_key", "none", "--base_url", base_url, "--input", str(path),
            "--output", f"{folder}/out", "--max_in_flight", str(flags.in_flight),
            "--delivery", "stream" if flags.stream else "whole",
        ]  # fmt: skip
        return _measure(
            base_url, lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        )


def _measure(base_url: str, work: Callable[[], object]) -> Measured:
    _seen(base_url)
    cpu = _cpu_s()
    work()
    cpu_s = _cpu_s() - cpu
    asked, came, in_flight = _seen(base_url)
    return Measured(asked, came, in_flight, cpu_s)


def _cpu_s() -> float:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, who))


async def _bare(base_url: str, flags: argparse.Namespace) -> None:
    slots = asyncio.Semaphore(flags.in_flight)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> None:
            async with slots:
                body = json.dumps({"messages": [{"role": "user", "content": f"Question {number}"}]})
                async with session.post(f"{base_url}/chat/completions", data=body) as response:
                    answer = await response.read()
                    if not flags.stream:
                        json.loads(answer)

        await asyncio.gather(*map(one, range(flags.prompts)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
