"""One request's life: ask the store, send, keep the bytes, judge, try again."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from decimal import Decimal
from urllib.parse import urlsplit

import tenacity

from transforms.failures import FailureKind, RecordError, StoreError
from transforms.openrouter.accounts import Accounts
from transforms.openrouter.call_config import CallConfig, gate_of, hosts_of
from transforms.openrouter.catalogue import others_than
from transforms.openrouter.claims import Claims
from transforms.openrouter.faults import MAYBE_PAID, Judged, judge
from transforms.openrouter.gate import Pass
from transforms.openrouter.health import Health
from transforms.openrouter.hints import hint_s
from transforms.openrouter.open_store import host_folder, open_store
from transforms.openrouter.preflight import preflight
from transforms.openrouter.progress import Progress
from transforms.openrouter.projection import Prices, project
from transforms.openrouter.retry import AskAgainError, Tries, error_of
from transforms.openrouter.sender import Sender
from transforms.openrouter.store import Attempt
from transforms.openrouter.wire import Request

_LOG = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.25
_DRAIN_S = 120.0
"""After a stop, so long for what is on its way; then it is abandoned."""


class OpenRouterClient:
    """Answers requests from the store, else from the service. Belongs to one event loop.

    `sleep` waits between tries, by default not beyond a stop, and for what is told later.
    """

    def __init__(
        self, config: CallConfig, sleep: Callable[[float], Awaitable[None]] | None = None
    ) -> None:
        self._config = config
        self._store = open_store(config.store)
        self._gate = gate_of(config)
        self._claims = Claims(host_folder(config.store) / "claims") if config.has_peers else None
        self._sleep = sleep or self._gate.rest
        self._sender = Sender(config.wire) if config.send else None
        # A stop is no reason not to wait: asked at once, the service knows no generation yet.
        self._accounts = Accounts(self._store, self._sender, config.run_id, sleep or asyncio.sleep)
        self._gate.on_stop = self._drain
        self._hosts = hosts_of(config.wire)
        self._ignored = frozenset(json.loads(config.wire.hosts).get("ignore") or ())
        self._health = Health()
        self._ahead: asyncio.Task[None] | None = None
        self._asking: dict[str, asyncio.Task[Judged]] = {}
        self._progress = Progress(self._gate, config.prompts)
        self._saying = asyncio.ensure_future(self._progress.run()) if config.send else None

    @property
    def host(self) -> str:
        """The server's name: the provider of answers that name none."""
        return urlsplit(self._config.wire.base_url).hostname or ""

    async def answer(self, request: Request) -> Judged:
        """The answer: its JSON as `reply`, and when it came.

        Raises:
            RecordError: With the kind of the last fault, or of the stop; `NOT_COLLECTED` if
                nothing may be sent and the store has nothing.
            StoreError: The store is damaged, or cannot keep an answer.
        """
        judged = await self._once(request)
        if judged.reply is not None:
            return judged
        kind = judged.fault.kind if judged.fault else FailureKind.NOT_COLLECTED
        raise RecordError(kind, judged.detail or "no answer in the store; run --job collect")

    def see_model(self, wrong: str | None) -> None:
        """An answer came, `wrong` if it is of another model than was asked."""
        self._gate.see_model(wrong)

    def tell_good(self, count: int) -> None:
        """So many answers are good as far as it is known. From any thread."""
        self._progress.good = count

    def leave_out(self) -> None:
        """A later turn will not be asked; the progress line counts it."""
        self._progress.fail()

    def stop(self, kind: FailureKind, detail: str) -> None:
        """Nothing more is sent; what is on its way has two minutes."""
        self._gate.close(kind, detail)

    def _drain(self) -> None:
        if self._sender is not None:
            asyncio.get_running_loop().call_later(_DRAIN_S, self._sender.abandon)

    async def close(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            self._progress.close()
        await self._accounts.close()
        if self._sender is not None:
            await self._sender.close()
        if self._claims is not None:
            self._claims.close()
        self._store.close()

    def _once(self, request: Request) -> asyncio.Task[Judged]:
        """Prompts of the same text, at the same time, are one request."""
        key = request.sha256
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._find(request))
            task.add_done_callback(lambda _: self._asking.pop(key))
        return task

    async def _find(self, request: Request) -> Judged:
        tries = await self._known(request)
        if self._sender is not None and not self._is_settled(tries):
            await self._ask(request, tries, self._sender)
        judged = tries.best()
        if judged.reply is None or judged.fault is not None:
            self._progress.fail()
        return await self._accounts.complete(judged, request.sha256)

    async def _known(self, request: Request) -> Tries:
        attempts = await self._store.look_up(request.sha256)
        tries = Tries([self._judge(attempt) for attempt in attempts])
        judged = tries.best()
        if judged.reply is not None and judged.fault is None:
            self._progress.reuse(judged.reply)
        return tries

    def _judge(self, attempt: Attempt) -> Judged:
        return judge(attempt, thinks=self._config.wire.thinks)

    async def _ask(self, request: Request, tries: Tries, sender: Sender) -> None:
        """The first try is made here: an answer at once needs no tenacity, which costs 0.1 ms."""
        try:
            await self._try(request, tries, sender)
        except AskAgainError as error:
            await self._ask_again(request, tries, sender, error)

    async def _ask_again(
        self, request: Request, tries: Tries, sender: Sender, first: AskAgainError
    ) -> None:
        with contextlib.suppress(AskAgainError):  # the last one: `tries` tells
            async for attempt in tenacity.AsyncRetrying(
                stop=tries.used_up,
                wait=tries.wait_s,
                retry=tenacity.retry_if_exception_type(AskAgainError),
                sleep=self._sleep,
                before_sleep=self._note_retry,
                reraise=True,
            ):
                with attempt:
                    if attempt.retry_state.attempt_number == 1:
                        raise first
                    await self._try(request, tries, sender)

    def _note_retry(self, state: tenacity.RetryCallState) -> None:
        self._progress.retry(error_of(state).fault)

    async def _look_ahead(self, sender: Sender) -> None:
        """What the service tells, before the first paid request of this process."""
        found = await preflight(sender, self._config.wire)
        if found.stop is not None:
            self._gate.close(FailureKind.SERVICE_STOPPED, found.stop)
        if self._hosts is None:
            self._hosts = found.hosts
        if found.prices is not None:
            self._gate.budget.longest_usd = found.prices.longest_usd(self._config.wire.max_tokens)
            self._say_projected(found.prices)

    def _say_projected(self, prices: Prices) -> None:
        """What the store does not answer may cost so much; it is the budget that keeps the cap."""
        config = self._config
        if config.prompts is None:
            return
        cap = config.max_cost_usd
        left_usd = None if cap is None else max(Decimal(0), cap - config.spent_usd)
        projected = project(prices, config.prompts, config.prompt_tokens, config.wire.max_tokens)
        level = logging.WARNING if projected.is_beyond(left_usd) else logging.INFO
        _LOG.log(level, projected.describe(left_usd))

    async def _try(self, request: Request, tries: Tries, sender: Sender) -> None:
        if self._config.wire.source.has_catalogue:
            self._ahead = self._ahead or asyncio.ensure_future(self._look_ahead(sender))
            await asyncio.shield(self._ahead)
        held = None if self._is_settled(tries) else await self._enter(request, tries)
        if held is None:
            return
        judged, hint = Judged(fault=MAYBE_PAID, detail="abandoned"), None
        try:
            attempt = await sender.send(
                request, self._config.run_id, self._avoided(tries), anew=tries.repeats_a_fault()
            )
            await self._store.put(attempt)
            judged = self._judge(attempt)
            if judged.fault is not None:
                hint = hint_s(attempt.headers, attempt.body)
        except StoreError as error:  # what cannot be kept must not be paid for
            self._gate.close(FailureKind.SERVICE_STOPPED, str(error))
            raise
        finally:
            self._gate.leave(held, judged, hint)
            if self._claims is not None:
                self._claims.give_back(request.sha256)
        tries.met.append(judged)
        self._progress.count(judged)
        self._health.learn(tries.met)
        if judged.fault is not None and judged.fault.maybe_paid and judged.cost_usd is None:
            self._accounts.settle(attempt, self._gate.budget)
        if judged.fault is not None and not self._is_settled(tries):
            raise AskAgainError(judged, judged.fault, hint)

    def _is_settled(self, tries: Tries) -> bool:
        """To ask again would give no more, or there is no other host to ask."""
        if tries.is_settled() or not tries.needs_another_host():
            return tries.is_settled()
        must, _ = tries.hosts_to_avoid()
        is_unknown = self._hosts is None and bool(must)
        return not is_unknown and not self._slugs(must, tries)

    def _avoided(self, tries: Tries) -> tuple[str, ...]:
        """Slugs of the hosts that the next try leaves out; what was lost is sent as it was."""
        if (lost := tries.lost()) is not None:
            return lost.left_out
        must, may = tries.hosts_to_avoid()
        wishes = (must | may | self._health.left_out(), must | may, must)
        return next(filter(None, (self._slugs(names, tries) for names in wishes)), ())

    def _slugs(self, names: frozenset[str], tries: Tries) -> tuple[str, ...]:
        """Of these hosts; none if there is no other, as listed or as the service said."""
        slugs = others_than(names, self._hosts or ())
        return () if tries.found_nobody(self._ignored.union(slugs)) else slugs

    async def _enter(self, request: Request, tries: Tries) -> Pass | None:
        """A place, and the right to ask; none if another process was told enough meanwhile."""
        while True:
            held = await self._gate.enter()
            if self._claims is None:
                return held
            known: Tries | None = None
            try:
                known = await self._claim(request, self._claims)
            finally:
                if known is None or self._is_settled(known):
                    self._gate.hand_back(held)
            if known is not None:
                tries.met = known.met
                return None if self._is_settled(tries) else held
            await self._gate.rest(_LOOK_AGAIN_S)

    async def _claim(self, request: Request, claims: Claims) -> Tries | None:
        """What is known of a request that nobody else asks now; it stays claimed if not enough."""
        if not claims.take(request.sha256):
            return None
        try:
            known = await self._known(request)
        except BaseException:
            claims.give_back(request.sha256)
            raise
        if self._is_settled(known):
            claims.give_back(request.sha256)
        return known
