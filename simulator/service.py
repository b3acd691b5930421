"""Decides what a request gets: host, answer, fault, price. Knows nothing of sockets."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simulator import wire
from simulator.answering import Answerer, Written
from simulator.capacity import Capacity
from simulator.dialects import DIALECTS, Dialect
from simulator.engine import Generation, sample
from simulator.faults import FAULTS, Fault, choose
from simulator.faults.refusals import Refused, refuse
from simulator.habits import hear
from simulator.ledger import Entry, Ledger
from simulator.orders import Order, bad_request, check_order, demand_key, read_order
from simulator.peers import SharedSeen
from simulator.prompt_cache import PromptCache
from simulator.replay import Replay
from simulator.reply import Piece, Reply, write_json
from simulator.response_cache import Cached, ResponseCache, hit_headers, ttl_of
from simulator.routing import route, timed_fault
from simulator.scenario import Provider, Scenario
from simulator.tokens import load_kimi

_CANCELLABLE = frozenset(
    ("OpenAI", "Azure", "Anthropic", "Fireworks", "Novita", "DeepInfra", "Together", "Cohere",
     "Hyperbolic", "Avian", "xAI", "Cloudflare", "Friendli", "Chutes", "DeepSeek", "SFCompute",
     "Liquid")
)  # fmt: skip
"""Hosts that stop, and stop charging, when a stream's client leaves."""
_BYTES_PER_TOKEN = 4


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A reply on its way, and what is to be booked when it ends.

    Attributes:
        keeps_text: The reply holds the whole text that was sampled.
        release: Gives the host its room back.
        store: Where the generation goes in the response cache.
        whole_s: When it is whole, by the monotonic clock.
    """

    reply: Reply
    order: Order | None = None
    entry: Entry | None = None
    generation: Generation | None = None
    provider: Provider | None = None
    release: Callable[[], None] = lambda: None
    keeps_text: bool = False
    store: str | None = None
    whole_s: float = 0.0


class Service:
    """One simulated service; every decision is a function of seed, body and asking."""

    def __init__(
        self, scenario: Scenario, replay: Replay | None = None, dialect: str = "openrouter",
        shared: SharedSeen | None = None,
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self._shared = shared
        self.dialect: Dialect = DIALECTS[dialect]
        self._replay = replay
        self._kimi = load_kimi()
        self._answerer = Answerer(scenario, self.dialect, self._kimi)
        self.reset()

    def reset(self) -> None:
        """Forgets everything; the timetable starts again with the next request."""
        self.ledger = Ledger(self._shared)
        self._capacity = Capacity(self.scenario)
        self._cache = ResponseCache()
        self._prompts = PromptCache()
        self._first_s: float | None = None

    def take(self, headers: Mapping[str, str], raw: bytes) -> Exchange:
        """What a request gets; never raises."""
        digest = ""
        try:
            demand_key(headers, self.dialect)
            order = read_order(headers, raw, self.ledger, self.scenario)
            digest = order.digest
            return self._serve(order)
        except Refused as refused:
            reply = self._refuse(refused)
            self._note_hint(digest, reply)
            return Exchange(reply=reply)

    def _refuse(self, refused: Refused) -> Reply:
        refusal = refused.refusal
        reply = refuse(refusal, refused.provider, 0.0)
        if self.dialect.refusal is None:
            return reply
        return reply.with_body(write_json(self.dialect.refusal(refusal.status, refusal.message)))

    def _note_hint(self, digest: str, reply: Reply) -> None:
        if (seconds := reply.hint_s(time.time())) is not None:
            self.ledger.hint(digest, seconds)

    def _serve(self, order: Order) -> Exchange:
        if self._replay is not None:
            return self._serve_recording(order, self._replay)
        check_order(order, self.scenario, self.dialect)
        key = self._cache.key(order.headers, order.body)
        if cached := self._cache.find(key):
            return self._serve_cached(order, cached)
        weight_usd = self._weigh(order)
        now_s, is_free = time.monotonic(), order.is_free
        refusal = self._capacity.refuse_early(now_s, self.ledger, weight_usd, is_free=is_free)
        if refusal is not None:
            raise Refused(refusal)
        providers = route(self.scenario, order.body, self._elapsed_s(), order.rng)
        if self.scenario.prompt_caching:
            providers = self._prompts.prefer(order, providers)
        fault = self._choose(order, providers[0])
        if fault and fault.is_refusal:
            return self._serve_refusal(order, fault, providers[0])
        provider = self._find_room(providers)
        exchange = self._generate(order, provider, fault, key)
        exchange.release = self._capacity.start(provider, weight_usd)
        return exchange

    def _elapsed_s(self) -> float:
        now = time.monotonic()
        self._first_s = now if self._first_s is None else self._first_s
        return (now - self._first_s) * self.scenario.speed

    def _weigh(self, order: Order) -> float:
        """What the request could cost at the dearest host."""
        dearest = max(self.scenario.providers, key=lambda provider: provider.output_price)
        return wire.cost_of(len(order.raw) // _BYTES_PER_TOKEN, order.max_tokens, dearest).total

    def _choose(self, order: Order, provider: Provider) -> Fault | None:
        """Forced by the scenario's row, by its timetable, or drawn."""
        for force in self.scenario.force:
            if order.seen < force.times and force.match.encode() in order.raw:
                return FAULTS[force.fault]
        if timed := timed_fault(self.scenario, provider, self._elapsed_s()):
            return FAULTS[timed]
        rng = random.Random(f"{self.scenario.seed} {order.digest} {order.seen} fault")
        return choose(self.scenario.faults, rng) or choose(provider.faults, rng)

    def _serve_refusal(self, order: Order, fault: Fault, provider: Provider) -> Exchange:
        self.ledger.faults[fault.name] += 1
        told = self._answerer.told_nothing(order, provider)
        reply = fault.spoil(Reply(pieces=()), told)
        self._note_hint(order.digest, reply)
        return Exchange(reply=reply)

    def _find_room(self, providers: list[Provider]) -> Provider:
        now_s = time.monotonic()
        for provider in providers:
            if self._capacity.has_room(provider, now_s):
                return provider
        raise Refused(self._capacity.full(), providers[0].name)

    def _generate(
        self, order: Order, provider: Provider, fault: Fault | None, key: str | None
    ) -> Exchange:
        try:
            heard = hear(self.dialect.read_messages(order.body), provider.habits)
            generation = sample(heard, self.scenario, order.rng, self._kimi)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise bad_request(f"cannot render: {error}") from error
        known = self._known(order, provider, generation)
        slower_s = self._capacity.slowdown_s(self.ledger)
        written = self._answerer.write(
            order, generation, provider, cached_tokens=known, slower_s=slower_s
        )
        status = {"X-OpenRouter-Cache-Status": "MISS"} if key else {}
        written.reply = replace(written.reply, headers={**written.reply.headers, **status})
        fault = fault if fault and fault.fits(written.told) else None
        exchange = self._exchange(order, generation, provider, written, fault)
        exchange.store = key if fault is None or fault.of_connection else None
        exchange.whole_s = time.monotonic() + written.reply.seconds
        return exchange

    def _known(self, order: Order, provider: Provider, generation: Generation) -> int:
        """Tokens of the prompt that the host has kept."""
        if not self.scenario.prompt_caching:
            return 0
        return self._prompts.count(order, provider, generation.prompt_ids)

    def _exchange(
        self, order: Order, generation: Generation, provider: Provider,
        written: Written, fault: Fault | None,
    ) -> Exchange:  # fmt: skip
        entry = self._entry(order, generation, provider, written)
        reply = written.reply
        if fault:
            self.ledger.faults[fault.name] += 1
            entry.is_charged = fault.is_charged
            reply = fault.spoil(reply, written.told)
        self.ledger.book(entry)
        return Exchange(
            reply=reply, order=order, entry=entry, generation=generation, provider=provider,
            keeps_text=fault is None or fault.keeps_text,
        )  # fmt: skip

    def _entry(
        self, order: Order, generation: Generation, provider: Provider, written: Written
    ) -> Entry:
        return Entry(
            generation_id=written.label.identity, body_hash=order.digest, provider=provider.name,
            model=order.model, usd=written.cost.total, prompt_ids=generation.prompt_ids,
            completion_ids=generation.completion_ids, is_stream=order.is_stream,
            finish_reason=generation.finish_reason, chunks=written.chunks,
            prompt_tokens=written.said.prompt_tokens,
            completion_tokens=written.said.completion_tokens,
            reasoning_tokens=written.said.reasoning_tokens,
            cached_tokens=written.said.cached_tokens,
        )  # fmt: skip

    def _serve_cached(self, order: Order, cached: Cached) -> Exchange:
        written = self._answerer.write(order, cached.generation, cached.provider, is_hit=True)
        headers = {**written.reply.headers, **hit_headers(cached)}
        written.reply = replace(written.reply, headers=headers)
        entry = self._entry(order, cached.generation, cached.provider, written)
        entry.is_charged = False
        entry.source_id = cached.source_id
        self.ledger.book(entry)
        return Exchange(reply=written.reply, order=order, entry=entry, keeps_text=True)

    def _serve_recording(self, order: Order, replay: Replay) -> Exchange:
        recording = replay.find(order.body, order.seen)
        if recording is None:
            raise bad_request("no recording answers this prompt")
        self.ledger.charge(order.digest, "replay", 0.0)
        kind = "text/event-stream" if recording.is_stream else "application/json"
        pieces = (Piece(0.0, recording.body),)
        return Exchange(reply=Reply(status=recording.status, pieces=pieces, kind=kind))

    def deliver(self, exchange: Exchange) -> None:
        """The last bytes go out."""
        if exchange.entry is None:
            return
        if exchange.keeps_text:
            self.ledger.deliver(exchange.entry)
            self._cache_from(exchange, time.monotonic())
        else:
            self._cache_abandoned(exchange)

    def _cache_from(self, exchange: Exchange, moment_s: float) -> None:
        entry, order, generation = exchange.entry, exchange.order, exchange.generation
        if exchange.store and entry and order and generation and exchange.provider:
            source, ttl_s = entry.generation_id, ttl_of(order.headers)
            cached = Cached(generation, exchange.provider, source, moment_s, ttl_s)
            self._cache.store(exchange.store, cached)

    def _cache_abandoned(self, exchange: Exchange) -> None:
        """What goes on though nobody hears it."""
        if self.scenario.caches_abandoned and not _stops(exchange):
            self._cache_from(exchange, max(exchange.whole_s, time.monotonic()))

    def leave(self, exchange: Exchange, tokens: int) -> None:
        """The client left after so many tokens of a stream; whole answers are charged in full."""
        entry, provider = exchange.entry, exchange.provider
        if entry is None or provider is None:
            return
        entry.is_cancelled = True
        self._cache_abandoned(exchange)
        if _stops(exchange):
            self.ledger.cancel(entry, wire.cost_of(len(entry.prompt_ids), tokens, provider).total)

    def find_entry(self, identity: str) -> Entry | None:
        """A generation that was booked."""
        return self.ledger.entries.get(identity)

    def content_of(self, identity: str) -> dict[str, Any] | None:
        """What was read and written, as the account's log has it."""
        if (entry := self.find_entry(identity)) is None:
            return None
        thought, _, answer = self._kimi.decode(entry.completion_ids).rpartition("</think>")
        return {
            "input": {"prompt": self._kimi.decode(entry.prompt_ids)},
            "output": {"completion": answer, "reasoning": thought},
        }


def _stops(exchange: Exchange) -> bool:
    """Whether the host stops generating when the client leaves."""
    entry = exchange.entry
    return entry is not None and entry.is_stream and entry.provider in _CANCELLABLE
