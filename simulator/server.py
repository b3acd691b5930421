"""The HTTP side: completions on the API's path, ledger and truth on paths of their own."""

import json

from aiohttp import web

from simulator.catalog import Catalog
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
        self, scenario: Scenario, replay: Replay | None = None, dialect: str = "openrouter"
    ) -> None:
        self._service = Service(scenario, replay, dialect)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=_MAX_BODY)
        application.add_routes(
            [
                web.post("/api/v1/chat/completions", self._complete),
                web.post("/v1/chat/completions", self._complete),
                web.get("/__sim/ledger", self._report),
                web.get("/__sim/truth", self._tell),
                web.post("/__sim/reset", self._reset),
                *Catalog(self._service).routes(),
            ]
        )
        return application

    async def _report(self, request: web.Request) -> web.Response:
        ledger = self._service.ledger
        bodies = {"bodies": ledger.bodies()} if "bodies" in request.query else {}
        return web.json_response({**ledger.report(), **bodies})

    async def _tell(self, request: web.Request) -> web.StreamResponse:
        """JSON lines; some at a time, so that answers go on meanwhile."""
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
        await response.prepare(request)
        rows = list(self._service.ledger.truth)
        for start in range(0, len(rows), _ROWS_A_WRITE):
            lines = (json.dumps(row.truth()) for row in rows[start : start + _ROWS_A_WRITE])
            await response.write("".join(line + "\n" for line in lines).encode())
        await response.write_eof()
        return response

    async def _reset(self, _request: web.Request) -> web.Response:
        self._service.reset()
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
