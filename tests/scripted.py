"""A server that answers from a script: each reply once, the last one for ever."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(slots=True)
class Reply:
    """What is sent, after so long; `cut` closes in mid-body, `hangs` never answers."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    hangs: bool = False
    after_s: float = 0.0


@dataclass(slots=True)
class Script:
    """Replies in order, and what was received.

    `costs`: what generations cost, by their ids; `names`: as their accounts call them, if not so.
    """

    replies: list[Reply]
    costs: dict[str, float] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    arrived_at: list[float] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    base_url: str = ""
    in_flight: int = 0
    max_in_flight: int = 0
    echo_key: bool = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            return await self._answer(request)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.arrived_at.append(asyncio.get_running_loop().time())
        self.keys.append(request.headers.get("Authorization"))
        self.headers.append(request.headers)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        await (asyncio.Event().wait() if reply.hangs else asyncio.sleep(reply.after_s))
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        body = reply.body
        if self.echo_key:
            body += (self.keys[-1] or "").encode()
        await response.write(body[: len(body) // 2] if reply.cut else body)
        if reply.cut:
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write_eof()
        return response

    async def tell(self, request: web.Request) -> web.Response:
        identity = request.query["id"]
        if identity not in self.costs:
            return web.json_response({"error": {"code": 404}}, status=404)
        name = self.names.get(identity, identity)
        return web.json_response({"data": {"id": name, "total_cost": self.costs[identity]}})


@contextlib.asynccontextmanager
async def serve(script: Script) -> AsyncIterator[Script]:
    application = web.Application()
    application.router.add_post("/v1/chat/completions", script.answer)
    application.router.add_get("/v1/generation", script.tell)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    script.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield script
    finally:
        await runner.cleanup()


def answer(content: str = "Oi!", tokens: int = 4) -> Reply:
    body: dict[str, Any] = {
        "id": "gen-1",
        "model": "m",
        "provider": "P",
        "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": tokens, "cost": 0.25},
    }
    return Reply(body=b"\n         \n" + json.dumps(body).encode())
