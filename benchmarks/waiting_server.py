"""A server that only waits and answers, on 127.0.0.1: what the calls are measured against.

`python -m benchmarks.waiting_server [--latency_s 0.05] [--stream [--writes 100]]` prints its base
URL. `GET /seen` there tells when requests and answers came since it was asked last.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from benchmarks.serving import allow_many_connections

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
USAGE = {"prompt_tokens": 9, "completion_tokens": 272, "cost": 0.001}
ANSWER = json.dumps(
    {
        "id": "gen-1",
        "model": "m",
        "provider": "P",
        "choices": [
            {
                "finish_reason": "stop",
                "message": {
                    "content": f"Oi! {CONTENT}{THOUGHT}".strip(),
                    "reasoning": f"Oi! {THOUGHT}{CONTENT}".strip(),
                },
            }
        ],
        "usage": USAGE,
    }
).encode()
"""1.6 KB and 272 tokens, as an API's answer to a short question. A blank that was trimmed before
"Oi!" would show in the count: the rows become good."""
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


def main(argv: list[str]) -> int:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.waiting_server", description=__doc__
    )
    parser.add_argument("--latency_s", type=float, default=0.05)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--writes", type=int, default=100)
    flags = parser.parse_args(argv)
    allow_many_connections()
    asyncio.run(_serve(flags))
    return 0


async def _serve(flags: argparse.Namespace) -> None:
    seen = _Seen()
    application = web.Application()
    handler = _streaming(flags, seen) if flags.stream else _answering(flags, seen)
    application.router.add_post("/v1/chat/completions", handler)
    application.router.add_get("/v1/seen", seen.tell)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


@dataclass(slots=True)
class _Seen:
    """When each request and each answer came, and how many were asked for then."""

    asked: list[float] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    asking: int = 0

    def ask(self) -> None:
        self.asked.append(time.monotonic())
        self.asking += 1

    def answer(self) -> None:
        self.came.append(time.monotonic())
        self.in_flight.append(self.asking)
        self.asking -= 1

    async def tell(self, _request: web.Request) -> web.Response:
        """Tells it, and forgets it."""
        told = [self.asked, self.came, self.in_flight]
        self.asked, self.came, self.in_flight = [], [], []
        return web.json_response(told)


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _answering(flags: argparse.Namespace, seen: _Seen) -> _Handler:
    async def answer(request: web.Request) -> web.Response:
        seen.ask()
        await request.read()
        await asyncio.sleep(flags.latency_s)
        seen.answer()
        return web.Response(body=ANSWER, content_type="application/json")

    return answer


def _streaming(flags: argparse.Namespace, seen: _Seen) -> _Handler:
    events = _stream()
    size = -(-len(events) // flags.writes)
    writes = [b"".join(events[at : at + size]) for at in range(0, len(events), size)]

    async def stream(request: web.Request) -> web.StreamResponse:
        seen.ask()
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        started = asyncio.get_running_loop().time()
        for number, data in enumerate(writes, start=1):
            await response.write(data)
            due = started + flags.latency_s * number / len(writes)
            await asyncio.sleep(due - asyncio.get_running_loop().time())
        seen.answer()
        return response

    return stream


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
