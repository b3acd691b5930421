"""Requests a second and CPU a request of job 1, beside a bare aiohttp loop on the same server.

`python -m benchmarks.calls [--prompts 2000] [--in_flight 64] [--latency_s 0.05] [--rounds 5]
[--stream [--writes 100]] [--steady]`

The server only waits and answers; it is a process of its own, on the same cores. Ours is the
whole program (`--job collect`): ask, store, judge, rebuild the ids, count what was spent. Rate and
CPU are given without the start-up, which is measured by runs over one prompt. `--stream`: answers
of 2,000 events of one token, sent in so many writes over the latency. `--steady`: one run of ours,
and the share of the ideal from when the limit is reached until no prompt waits any more, as the
server saw it; what comes before is the slow start.
"""

import argparse
import asyncio
import contextlib
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

ROOT = Path(__file__).resolve().parents[1]
THOUGHT = (
    "The user asks how a kettle knows that its water boils. Steam is led through a duct onto a "
    "strip of two metals; they expand differently, the strip snaps over and opens the contact. "
    "I should say that briefly, name the safety cut-out, and give the temperature at sea level. "
)
CONTENT = (
    "An electric kettle does not measure the water at all. When the water boils, steam streams "
    "down a duct in the handle onto a **bimetallic strip**: two metals, joined, that expand "
    "differently when they get hot. At about 90 °C the strip snaps over and opens the switch. A "
    "second strip under the base protects the element if the kettle is empty. "
)
USAGE = {"prompt_tokens": 9, "completion_tokens": 268, "cost": 0.001}
ANSWER = json.dumps(
    {
        "id": "gen-1",
        "model": "m",
        "provider": "P",
        "choices": [
            {
                "finish_reason": "stop",
                "message": {
                    "content": (CONTENT + THOUGHT).strip(),
                    "reasoning": (THOUGHT + CONTENT).strip(),
                },
            }
        ],
        "usage": USAGE,
    }
).encode()
"""1.6 KB and 268 tokens, as an API's answer to a short question."""
EVENTS = 2000


def _event(**choice: object) -> bytes:
    chunk = {
        "id": "gen-1770000000-abcdefghijklmnopqrst",
        "provider": "P",
        "model": "m",
        "object": "chat.completion.chunk",
        "created": 1770000000,
        "choices": [{"index": 0, "finish_reason": None, "native_finish_reason": None} | choice],
        "usage": USAGE if choice.get("finish_reason") else None,
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def _thought(text: str) -> dict[str, object]:
    details = [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]
    return {"role": "assistant", "content": "", "reasoning": text, "reasoning_details": details}


def _stream() -> list[bytes]:
    words = re.findall(r"\s*\S+", (THOUGHT + CONTENT) * 20)[:EVENTS]
    half = EVENTS // 2
    thoughts = [_event(delta=_thought(word)) for word in words[:half]]
    contents = [_event(delta={"role": "assistant", "content": word}) for word in words[half:]]
    end = _event(delta={"content": ""}, finish_reason="stop")
    return [b": PROCESSING\n\n", *thoughts, *contents, end, b"data: [DONE]\n\n"]


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
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--writes", type=int, default=100)
    parser.add_argument("--steady", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args(argv)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if flags.serve:
        asyncio.run(_serve(flags))
        return 0
    with serving(*argv) as base_url:
        (_say_steady if flags.steady else _compare)(base_url, flags)
    return 0


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """The base URL of a server in a process of its own, with these of our flags."""
    command = [sys.executable, "-m", "benchmarks.calls", "--serve", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            if server.stdout is None:
                raise RuntimeError("no pipe to the server")
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def _compare(base_url: str, flags: argparse.Namespace) -> None:
    ideal = flags.in_flight / flags.latency_s
    print(f"{flags.prompts} prompts, {flags.in_flight} in flight, ideal {ideal:.0f}/s")
    starts = [_ours(base_url, 1, flags) for _ in range(3)]
    start_s = statistics.median(one.wall_s for one in starts) - flags.latency_s
    start_cpu_s = statistics.median(one.cpu_s for one in starts)
    ours, bare = [], []
    for number in range(flags.rounds):
        bare.append(_measure(lambda: asyncio.run(_bare(base_url, flags))))
        whole = _ours(base_url, flags.prompts, flags)
        ours.append(Measured(whole.wall_s - start_s, whole.cpu_s - start_cpu_s))
        print(f"round {number + 1}: bare {_told(bare[-1], flags)} · ours {_told(ours[-1], flags)}")
    rate = statistics.median(flags.prompts / round_.wall_s for round_ in ours)
    ratio = statistics.median(b.wall_s / a.wall_s for a, b in zip(ours, bare, strict=True))
    cpu_ms = [statistics.median(_cpu_ms(one, flags) for one in some) for some in (ours, bare)]
    print(
        f"medians: ours {rate:.0f}/s ({rate / ideal:.0%} of the ideal, {ratio:.2f} of bare "
        f"aiohttp), {cpu_ms[0]:.2f} ms CPU a request (bare {cpu_ms[1]:.2f}); beside a start-up of "
        f"{start_s:.1f} s, {start_cpu_s:.1f} s CPU"
    )


def _say_steady(base_url: str, flags: argparse.Namespace) -> None:
    """The rate while the server is full: it was asked so much at once, and more was to come."""
    whole = _ours(base_url, flags.prompts, flags)
    with urllib.request.urlopen(f"{base_url}/seen") as reply:  # noqa: S310 - loopback
        came, in_flight = json.load(reply)
    full = [
        at for at, count in zip(came, in_flight, strict=True) if count >= flags.in_flight * 0.98
    ]
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


def _told(measured: Measured, flags: argparse.Namespace) -> str:
    return f"{flags.prompts / measured.wall_s:.0f}/s, {_cpu_ms(measured, flags):.2f} ms CPU"


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
        return _measure(lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT))


def _measure(work: Callable[[], object]) -> Measured:
    began, cpu = time.monotonic(), _cpu_s()
    work()
    return Measured(time.monotonic() - began, _cpu_s() - cpu)


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


async def _serve(flags: argparse.Namespace) -> None:
    seen = _Seen()
    application = web.Application()
    handler = _streaming(flags) if flags.stream else _answering(flags, seen)
    application.router.add_post("/v1/chat/completions", handler)
    application.router.add_get("/v1/seen", seen.tell)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


@dataclass(slots=True)
class _Seen:
    """When each answer was given, and how many were asked for then."""

    came: list[float] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    asking: int = 0

    async def tell(self, _request: web.Request) -> web.Response:
        return web.json_response([self.came, self.in_flight])


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _answering(flags: argparse.Namespace, seen: _Seen) -> _Handler:
    async def answer(request: web.Request) -> web.Response:
        seen.asking += 1
        await request.read()
        await asyncio.sleep(flags.latency_s)
        seen.came.append(time.monotonic())
        seen.in_flight.append(seen.asking)
        seen.asking -= 1
        return web.Response(body=ANSWER, content_type="application/json")

    return answer


def _streaming(flags: argparse.Namespace) -> _Handler:
    events = _stream()
    size = -(-len(events) // flags.writes)
    writes = [b"".join(events[at : at + size]) for at in range(0, len(events), size)]

    async def stream(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        started = asyncio.get_running_loop().time()
        for number, data in enumerate(writes, start=1):
            await response.write(data)
            due = started + flags.latency_s * number / len(writes)
            await asyncio.sleep(due - asyncio.get_running_loop().time())
        return response

    return stream


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
