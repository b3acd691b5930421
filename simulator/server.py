"""The HTTP side: completions on the API's path, ledger and truth on paths of their own."""

import json

from aiohttp import web

from simulator.catalog import Catalog
from simulator.ledger import bodies, report
from simulator.peers import Peers, SharedSeen, add_up
from simulator.replay import Replay
from simulator.scenario import Scenario
from simulator.sending import ClientLeft, send
from simulator.service import Exchange, Service

_MAX_BODY = 64 * 2**20
_ROWS_A_WRITE = 500
_NO_STATUS = 0
"""A connection that was reset before its headers has none."""


class Simulator:
    """One simulated service behind aiohttp."""

    def __init__(
        self, scenario: Scenario, replay: Replay | None = None, dialect: str = "openrouter",
        peers: Peers | None = None, shared: SharedSeen | None = None,
    ) -> None:  # fmt: skip
        self._service = Service(scenario, replay, dialect, shared)
        self._catalog = Catalog(self._service, peers)
        self._peers = peers
        self._shared = shared

    def application(self) -> web.Application:
        application = web.Application(client_max_size=_MAX_BODY)
        application.add_routes(
            [
                web.post("/api/v1/chat/completions", self._complete),
                web.post("/v1/chat/completions", self._complete),
                web.get("/__sim/ledger", self._report),
                web.get("/__sim/truth", self._tell),
                web.post("/__sim/reset", self._reset),
                *self._catalog.routes(),
            ]
        )
        return application

    def own(self) -> web.Application:
        """What the other processes of the service ask this one."""
        application = web.Application()
        application.add_routes(
            [
                web.get("/own/ledger", self._own_ledger),
                web.get("/own/truth", self._own_truth),
                web.get("/own/generation", self._own_generation),
                web.get("/own/content", self._own_content),
                web.post("/own/reset", self._own_reset),
            ]
        )
        return application

    async def _own_ledger(self, _request: web.Request) -> web.Response:
        return web.json_response(self._service.ledger.parts())

    async def _own_truth(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await self._write_truth(response)
        return response

    async def _own_generation(self, request: web.Request) -> web.Response:
        return web.json_response(self._catalog.account(request.query["id"]))

    async def _own_content(self, request: web.Request) -> web.Response:
        return web.json_response(self._service.content_of(request.query["id"]))

    async def _own_reset(self, _request: web.Request) -> web.Response:
        self._service.reset()
        return web.json_response({})

    async def _report(self, request: web.Request) -> web.Response:
        parts = self._service.ledger.parts()
        if self._peers is not None:
            parts = add_up(list(map(json.loads, await self._peers.ask("GET", "/own/ledger"))))
        told = {"bodies": bodies(parts)} if "bodies" in request.query else {}
        return web.json_response({**report(parts), **told})

    async def _tell(self, request: web.Request) -> web.StreamResponse:
        """JSON lines; some at a time, so that answers go on meanwhile."""
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
        await response.prepare(request)
        if self._peers is None:
            await self._write_truth(response)
        else:
            for told in await self._peers.ask("GET", "/own/truth"):
                await response.write(told)
        await response.write_eof()
        return response

    async def _write_truth(self, response: web.StreamResponse) -> None:
        rows = list(self._service.ledger.truth)
        for start in range(0, len(rows), _ROWS_A_WRITE):
            lines = (json.dumps(row.truth()) for row in rows[start : start + _ROWS_A_WRITE])
            await response.write("".join(line + "\n" for line in lines).encode())

    async def _reset(self, request: web.Request) -> web.Response:
        if self._shared is not None:
            self._shared.clear()
        if self._peers is None:
            return await self._own_reset(request)
        await self._peers.ask("POST", "/own/reset")
        return web.json_response({})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        service, ledger = self._service, self._service.ledger
        ledger.requests += 1
        ledger.enter()
        try:
            exchange = service.take(request.headers, await request.read())
            reply = exchange.reply
            ledger.statuses[reply.status if reply.sends_headers else _NO_STATUS] += 1
            return await self._send(request, exchange)
        finally:
            ledger.leave()

    async def _send(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        try:
            return await send(request, exchange.reply, lambda: self._service.deliver(exchange))
        except ClientLeft as left:
            self._service.leave(exchange, left.tokens)
            return web.Response()  # nobody hears it
        finally:
            exchange.release()
