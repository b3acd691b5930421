"""The HTTP side: completions on the API's path, ledger and truth on paths of their own."""

import asyncio
import contextlib
import hashlib
import json
import random
import time
from typing import Any

from aiohttp import web

from simulator import wire
from simulator.engine import Generation, sample
from simulator.ledger import Ledger
from simulator.replay import Recording, Replay
from simulator.scenario import Provider, Scenario
from simulator.tokens import Kimi

MODELS = {"moonshotai/kimi-k2.5": "moonshotai/kimi-k2.5-0127"}
"""Slug -> the dated name that answers carry."""
_PADDING_EVERY_S = 0.25


class Simulator:
    """One simulated service; every decision is a function of seed, body and asking."""

    def __init__(self, scenario: Scenario, replay: Replay | None = None) -> None:
        self._scenario = scenario
        self._replay = replay
        self._kimi = Kimi()
        self._ledger = Ledger()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=64 * 2**20)
        application.router.add_post("/api/v1/chat/completions", self._complete)
        application.router.add_get("/__sim/ledger", self._report)
        application.router.add_get("/__sim/truth", self._tell)
        application.router.add_post("/__sim/reset", self._reset)
        return application

    async def _report(self, _request: web.Request) -> web.Response:
        return web.json_response(self._ledger.report())

    async def _tell(self, _request: web.Request) -> web.Response:
        lines = "".join(json.dumps(row) + "\n" for row in self._ledger.truth)
        return web.Response(text=lines, content_type="application/jsonl")

    async def _reset(self, _request: web.Request) -> web.Response:
        self._ledger = Ledger()
        return web.json_response({})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self._ledger.requests += 1
        self._ledger.enter()
        try:
            response = await self._answer(request)
        finally:
            self._ledger.leave()
        self._ledger.statuses[response.status] += 1
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            return _error(401, "No auth credentials found")
        raw = await request.read()
        try:
            body = json.loads(raw)
            messages = body["messages"]
        except (ValueError, KeyError, TypeError):
            return _error(400, "the body is not a JSON object with messages")
        if not isinstance(messages, list) or not messages:
            return _error(400, "messages is empty")
        body_hash = hashlib.sha256(raw).hexdigest()
        seen = self._ledger.seen[body_hash]
        self._ledger.seen[body_hash] += 1
        if self._replay is not None:
            return await self._serve_recording(request, body, seen, self._replay)
        if body.get("model") not in MODELS:
            return _error(400, f"{body.get('model')} is not a valid model ID")
        rng = random.Random(f"{self._scenario.seed} {body_hash} {seen}")
        return await self._serve_generation(request, body, body_hash, rng)

    async def _serve_generation(
        self, request: web.Request, body: dict[str, Any], body_hash: str, rng: random.Random
    ) -> web.StreamResponse:
        provider = self._pick_provider(rng)
        try:
            generation = sample(body, self._scenario, rng, self._kimi)
        except (ValueError, KeyError, TypeError) as error:
            return _error(400, f"cannot render: {error}", provider_name=provider.name)
        created = int(time.time())
        identity = wire.generation_id(created, rng)
        self._book(generation, identity, body_hash, provider)
        label = wire.Label(identity, created, MODELS[body["model"]], provider)
        answer = wire.write_answer(generation, label, self._kimi)
        latency = self._scenario.latency
        seconds = latency.median * rng.lognormvariate(0, latency.sigma) / self._scenario.speed
        return await _send_slowly(request, identity, json.dumps(answer).encode(), seconds, rng)

    async def _serve_recording(
        self, request: web.Request, body: dict[str, Any], seen: int, replay: Replay
    ) -> web.StreamResponse:
        recording: Recording | None = replay.find(body, seen)
        if recording is None:
            return _error(400, "no recording answers this prompt")
        self._ledger.charge(hashlib.sha256(await request.read()).hexdigest(), "replay", 0.0)
        kind = "text/event-stream" if recording.is_stream else "application/json"
        return web.Response(status=recording.status, body=recording.body, content_type=kind)

    def _pick_provider(self, rng: random.Random) -> Provider:
        """By 1/price², as OpenRouter does among healthy hosts."""
        providers = self._scenario.providers
        weights = [1 / max(provider.output_price, 1e-6) ** 2 for provider in providers]
        return rng.choices(providers, weights)[0]

    def _book(
        self, generation: Generation, identity: str, body_hash: str, provider: Provider
    ) -> None:
        self._ledger.charge(body_hash, provider.name, wire.cost_usd(generation, provider))
        self._ledger.truth.append(
            {
                "generation_id": identity,
                "provider": provider.name,
                "prompt_ids": generation.prompt_ids,
                "completion_ids": generation.completion_ids,
            }
        )


def _error(status: int, message: str, **metadata: Any) -> web.Response:
    return web.json_response(wire.write_error(status, message, **metadata), status=status)


async def _send_slowly(
    request: web.Request, identity: str, body: bytes, seconds: float, rng: random.Random
) -> web.StreamResponse:
    """Headers at once, padding while it generates, then the body; no Content-Length."""
    response = web.StreamResponse(headers={"X-Generation-Id": identity, "Server": "cloudflare"})
    response.content_type = "application/json"
    response.enable_chunked_encoding()
    with contextlib.suppress(ConnectionResetError):  # the client left; it is charged all the same
        await _write_slowly(response, request, body, seconds, rng)
    return response


async def _write_slowly(
    response: web.StreamResponse,
    request: web.Request,
    body: bytes,
    seconds: float,
    rng: random.Random,
) -> None:
    await response.prepare(request)
    for _ in range(rng.choice((0, 1, 2, 6))):
        await response.write(wire.PADDING)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _PADDING_EVERY_S))
        await response.write(wire.PADDING)
    await response.write(body)
    await response.write_eof()
