"""Requests a second and CPU a request of job 1, beside a bare aiohttp loop on the same server.

`python -m benchmarks.calls [--prompts 2000] [--in_flight 64] [--latency_s 0.05] [--rounds 5]`

The server only waits and answers; it is a process of its own, on the same cores. Ours is the
whole program (`--job collect`), start-up included; its rate is also given without the start-up,
which is measured by a run over one prompt.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

ROOT = Path(__file__).resolve().parents[1]
ANSWER = json.dumps(
    {
        "id": "gen-1",
        "model": "m",
        "provider": "P",
        "choices": [
            {
                "finish_reason": "stop",
                "message": {"content": "It is so. " * 100, "reasoning": "Hm. " * 100},
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 702, "cost": 0.001},
    }
).encode()


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall and CPU seconds of one round (children included, the server not)."""

    wall_s: float
    cpu_s: float


def main(argv: list[str]) -> int:
    """Prints a line a round and the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--prompts", type=int, default=2000)
    parser.add_argument("--in_flight", type=int, default=64)
    parser.add_argument("--latency_s", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args(argv)
    if flags.serve:
        asyncio.run(_serve(flags.latency_s))
        return 0
    command = [sys.executable, "-m", "benchmarks.calls", "--serve"]
    command += ["--latency_s", str(flags.latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            if server.stdout is None:
                raise RuntimeError("no pipe to the server")
            _compare(server.stdout.readline().strip(), flags)
        finally:
            server.kill()
    return 0


def _compare(base_url: str, flags: argparse.Namespace) -> None:
    ideal = flags.in_flight / flags.latency_s
    print(f"{flags.prompts} prompts, {flags.in_flight} in flight, ideal {ideal:.0f}/s")
    start = statistics.median(_ours(base_url, 1, flags.in_flight).wall_s for _ in range(3))
    ours, bare = [], []
    for number in range(flags.rounds):
        bare.append(_measure(lambda: asyncio.run(_bare(base_url, flags.prompts, flags.in_flight))))
        ours.append(_ours(base_url, flags.prompts, flags.in_flight))
        print(f"round {number + 1}: bare {_told(bare[-1], flags)} · ours {_told(ours[-1], flags)}")
    rate = [flags.prompts / (round_.wall_s - start) for round_ in ours]
    bare_rate = [flags.prompts / round_.wall_s for round_ in bare]
    cpu = [round_.cpu_s * 1000 / flags.prompts for round_ in ours]
    print(
        f"medians: ours {statistics.median(rate):.0f}/s after {start:.1f} s of start-up "
        f"({statistics.median(rate) / ideal:.0%} of the ideal, "
        f"{statistics.median(a / b for a, b in zip(rate, bare_rate, strict=True)):.2f} of bare "
        f"aiohttp), {statistics.median(cpu):.2f} ms CPU a request, start-up included"
    )


def _told(measured: Measured, flags: argparse.Namespace) -> str:
    rate = flags.prompts / measured.wall_s
    return f"{rate:.0f}/s, {measured.cpu_s * 1000 / flags.prompts:.2f} ms CPU"


def _ours(base_url: str, prompts: int, in_flight: int) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompts.jsonl"
        path.write_text("".join(f'{{"prompt": "Question {n}"}}\n' for n in range(prompts)), "utf-8")
        command = [
            sys.executable, "-m", "pipeline.main", "--job", "collect", "--source", "openai",
            "--api_key", "none", "--base_url", base_url, "--input", str(path),
            "--output", f"{folder}/out", "--max_in_flight", str(in_flight),
        ]  # fmt: skip
        return _measure(lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT))


def _measure(work: Callable[[], object]) -> Measured:
    began, cpu = time.monotonic(), _cpu_s()
    work()
    return Measured(time.monotonic() - began, _cpu_s() - cpu)


def _cpu_s() -> float:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, who))


async def _bare(base_url: str, prompts: int, in_flight: int) -> None:
    slots = asyncio.Semaphore(in_flight)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> None:
            async with slots:
                body = json.dumps({"messages": [{"role": "user", "content": f"Question {number}"}]})
                async with session.post(f"{base_url}/chat/completions", data=body) as response:
                    json.loads(await response.read())

        await asyncio.gather(*map(one, range(prompts)))


async def _serve(latency_s: float) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(latency_s)
        return web.Response(body=ANSWER, content_type="application/json")

    application = web.Application()
    handler: Callable[[web.Request], Awaitable[web.Response]] = answer
    application.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
