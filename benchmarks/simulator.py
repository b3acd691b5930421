"""Answers a second of `python -m simulator`, asked over many connections at once.

`python -m benchmarks.simulator [--connections 1000] [--requests 20000] [--processes 2]`

The client writes ready-made requests and looks for the end of each answer, nothing more: it runs
on the same cores.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import uvloop

from benchmarks.serving import allow_many_connections, serving

_END = b"0\r\n\r\n"


class _Connection(asyncio.Protocol):
    """Asks one request after the other until none is left."""

    def __init__(self, requests: Iterator[bytes], over: asyncio.Future[None]) -> None:
        self._requests = requests
        self._over = over

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        if data.endswith(_END):
            self._ask()

    def _ask(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._over.set_result(None)
        else:
            self._transport.write(request)


def main(argv: list[str]) -> int:
    """Prints the rate."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator", description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--processes", type=int, default=2)
    flags = parser.parse_args(argv)
    allow_many_connections()
    with serving("simulator", "--processes", str(flags.processes)) as base_url:
        seconds = uvloop.run(_ask_all(base_url, flags))
    print(
        f"{flags.requests} requests over {flags.connections} connections, {flags.processes} "
        f"processes: {flags.requests / seconds:.0f}/s"
    )
    return 0


async def _ask_all(base_url: str, flags: argparse.Namespace) -> float:
    """Seconds until all are answered."""
    address, loop = urlsplit(base_url), asyncio.get_running_loop()
    requests = (_request(address.path, number) for number in range(flags.requests))
    over = [loop.create_future() for _ in range(flags.connections)]
    began = time.monotonic()
    for one in over:
        connect = partial(_Connection, requests, one)
        await loop.create_connection(connect, address.hostname or "", address.port or 0)
    await asyncio.gather(*over)
    return time.monotonic() - began


def _request(path: str, number: int) -> bytes:
    messages = [{"role": "user", "content": f"Question {number}"}]
    asked = {"model": "moonshotai/kimi-k2.5", "messages": messages, "max_tokens": 4000}
    body = json.dumps(asked).encode()
    head = f"POST {path}/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
