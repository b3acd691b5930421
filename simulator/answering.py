"""Puts a generation into a reply: its label, its price, its bytes and when they are due."""

import random
import time
import zlib
from dataclasses import dataclass, replace
from typing import Any

from simulator import wire
from simulator.dialects import Dialect
from simulator.engine import Generation
from simulator.faults import Told
from simulator.habits import Said
from simulator.orders import Order
from simulator.reply import PADDING, Piece, Reply, write_json
from simulator.scenario import LogNormal, Provider, Scenario
from simulator.streaming import COMMENT, Stream, StreamWriter
from simulator.tokens import Kimi
from simulator.wire import Cost, Label

_PADDING_EVERY_S = 0.25
_MAX_PADDING = 4000


@dataclass(slots=True, kw_only=True)
class Written:
    """The good reply, and what a fault needs to break it."""

    reply: Reply
    label: Label
    cost: Cost
    told: Told
    said: Said
    chunks: str | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds after the request."""

    headers_s: float = 0.0
    end_s: float = 0.0

    def spread(self, share: float) -> float:
        """The moment of a share of the answer."""
        return self.headers_s + (self.end_s - self.headers_s) * share


class Answerer:
    """Writes replies of one dialect."""

    def __init__(self, scenario: Scenario, dialect: Dialect, kimi: Kimi) -> None:
        self._scenario = scenario
        self._dialect = dialect
        self._kimi = kimi

    def write(
        self, order: Order, generation: Generation, provider: Provider, *,
        is_hit: bool = False, cached_tokens: int = 0, slower_s: float = 0.0,
    ) -> Written:  # fmt: skip
        """A reply without a fault. A hit of the response cache counts nothing and takes no time."""
        label = self._label(order, provider, is_hit=is_hit)
        said = wire.say(generation, provider, self._kimi)
        if _hides_thought(order.body):
            said = replace(said, thought="")
        said = replace(said, cached_tokens=cached_tokens)
        completion = len(generation.completion_ids)
        cost = wire.cost_of(said.prompt_tokens, completion, provider, cached_tokens)
        if is_hit:
            cost = Cost()
            said = replace(said, prompt_tokens=0, completion_tokens=0, reasoning_tokens=0)
        answer = self._answer(order, generation, said, label, cost)
        timing = Timing() if is_hit else self._time(order.rng, completion, slower_s)
        told = self._told(order, label, answer)
        if not order.is_stream:
            reply = self._whole(label, answer, timing, order.rng)
            return Written(reply=reply, label=label, cost=cost, told=told, said=said)
        stream = self._writer(order, label).write(generation, said, answer["usage"])
        reply = self._spread(label, stream, timing, order.rng)
        chunks = "".join(chunk + "\0" for chunk in stream.chunks)
        return Written(
            reply=reply, label=label, cost=cost, told=told, said=said, chunks=chunks
        )  # fmt: skip

    def told_nothing(self, order: Order, provider: Provider) -> Told:
        """For a refusal: nothing was sampled."""
        return self._told(order, Label("", 0, order.model, provider), {})

    def _label(self, order: Order, provider: Provider, *, is_hit: bool) -> Label:
        created = int(time.time())
        rng = random.Random(f"hit {order.digest} {order.seen}") if is_hit else order.rng
        identity = wire.generation_id(created, rng)
        if not self._dialect.is_gateway:
            identity = f"chatcmpl-{rng.getrandbits(128):032x}"
        return Label(identity, created, order.model, provider)

    def _answer(
        self, order: Order, generation: Generation, said: Said, label: Label, cost: Cost
    ) -> dict[str, Any]:
        answer = wire.write_answer(said, label, cost)
        if order.headers.get("X-OpenRouter-Metadata", "").lower() == "enabled" and cost.total:
            answer["openrouter_metadata"] = self._metadata(order, label)
        return self._dialect.adapt(answer, order.body, generation, self._kimi)

    def _metadata(self, order: Order, label: Label) -> dict[str, Any]:
        """The only word in an answer on how it was routed."""
        hosts = self._scenario.providers
        available = [
            {"provider": host.name, "model": label.model, "selected": host == label.provider}
            for host in hosts
        ]
        attempt = {"provider": label.provider.name, "model": label.model, "status": 200}
        return {
            "requested": order.body.get("model"), "strategy": "direct", "region": "iad",
            "summary": f"available={len(hosts)}, selected={label.provider.name}", "attempt": 1,
            "is_byok": False, "endpoints": {"total": len(hosts), "available": available},
            "attempts": [attempt],
        }  # fmt: skip

    def _told(self, order: Order, label: Label, answer: dict[str, Any]) -> Told:
        rng = random.Random(f"{self._scenario.seed} {order.digest} {order.seen} spoil")
        return Told(
            answer=answer, provider=label.provider.name, is_stream=order.is_stream,
            speed=self._scenario.speed, rng=rng, chunk=self._writer(order, label).chunk,
        )  # fmt: skip

    def _writer(self, order: Order, label: Label) -> StreamWriter:
        return StreamWriter(
            label=label, dialect=self._dialect, kimi=self._kimi,
            tokens_per_chunk=max(1, self._scenario.tokens_per_chunk),
            shows_ids=self._dialect.streams_ids and bool(order.body.get("return_token_ids")),
        )  # fmt: skip

    def _time(self, rng: random.Random, tokens: int, slower_s: float) -> Timing:
        scenario = self._scenario
        headers_s = _draw(rng, scenario.time_to_headers) + slower_s
        seconds = _draw(rng, scenario.latency)
        if scenario.tokens_per_s:
            seconds = tokens / max(_draw(rng, scenario.tokens_per_s), 1e-3)
        return Timing(headers_s / scenario.speed, (headers_s + seconds) / scenario.speed)

    def _headers(self, label: Label) -> dict[str, str]:
        if not self._dialect.is_gateway:
            return {}
        ray = f"{zlib.crc32(label.identity.encode()):016x}-LIS"
        return {"X-Generation-Id": label.identity, "X-Provider-Name": label.provider.name,
                "Server": "cloudflare", "cf-ray": ray}  # fmt: skip

    def _whole(
        self, label: Label, answer: dict[str, Any], timing: Timing, rng: random.Random
    ) -> Reply:
        pieces = [Piece(timing.end_s, write_json(answer))]
        if self._dialect.pads:
            first = [Piece(timing.headers_s, PADDING * rng.choice((0, 1, 2, 6)))]
            count = min(int((timing.end_s - timing.headers_s) / _PADDING_EVERY_S), _MAX_PADDING)
            later = (timing.headers_s + (i + 1) * _PADDING_EVERY_S for i in range(count))
            pieces = [*first, *(Piece(at_s, PADDING) for at_s in later), *pieces]
        return Reply(
            pieces=tuple(pieces), headers=self._headers(label), headers_at_s=timing.headers_s
        )

    def _spread(self, label: Label, stream: Stream, timing: Timing, rng: random.Random) -> Reply:
        """Each event when its last token is sampled."""
        total = max(stream.events[-1].tokens, 1)
        pieces = [
            Piece(timing.spread(event.tokens / total), event.data, event.tokens)
            for event in stream.events
        ]
        if self._dialect.pads:
            pieces.insert(0, Piece(timing.headers_s, COMMENT * rng.choice((1, 2, 3, 6))))
        return Reply(
            pieces=tuple(pieces), headers=self._headers(label), headers_at_s=timing.headers_s,
            kind="text/event-stream",
        )  # fmt: skip


def _hides_thought(body: dict[str, Any]) -> bool:
    """It thinks and is paid for it, and says nothing of it."""
    excluded = (body.get("reasoning") or {}).get("exclude") is True
    return excluded or body.get("include_reasoning") is False


def _draw(rng: random.Random, quantity: LogNormal | None) -> float:
    return 0.0 if quantity is None else quantity.median * rng.lognormvariate(0, quantity.sigma)
