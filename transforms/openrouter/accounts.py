"""What the service says of a generation: one that its response cache gave again, or that was lost.

A repeated answer has no counts; those of its first time are told by `GET /generation`. So is what a
call has cost whose answer did not come whole. What was told is kept in the store, byte for byte,
under a key of its own.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from transforms.failures import StoreError
from transforms.openrouter.budget import Budget
from transforms.openrouter.costs import LOST, cost_of, read_account, read_total
from transforms.openrouter.faults import Judged
from transforms.openrouter.sender import Sender, key_of
from transforms.openrouter.store import Attempt, ResponseStore

_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The service does not know a generation for up to several seconds after its end."""
_LOST_WAITS_S = (*_WAITS_S, 16.0, 32.0, 64.0, 128.0)
"""What was lost may have been left before its end: hosts go on with it."""
_AT_ONCE = 32
"""After a stop thousands of calls may be lost in one moment."""


class Accounts:
    """Completes repeated answers; holds no place of those that may be sent."""

    def __init__(
        self,
        store: ResponseStore,
        sender: Sender | None,
        run_id: str,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._store = store
        self._sender = sender
        # Of runs of their own: they are no requests that the run paid for.
        self._run_id = run_id
        self._sleep = sleep
        self._settling: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def complete(self, judged: Judged, request_sha256: str) -> Judged:
        """A repeated answer with its counts; as it is where nothing tells them, and any other."""
        if not judged.repeats or judged.reply is None:
            return judged
        attempts = await self._store.look_up(key_of(_path(judged.repeats)))
        known = [read_account(attempt) for attempt in attempts]
        account = next(filter(None, known), None)
        if account is None:
            kind = await self._kind(judged.repeats, request_sha256)
            account = await self._ask(judged.repeats, kind)
        if account.get("id") != judged.repeats:
            return judged
        return replace(judged, reply=judged.reply | {"usage": usage_of(account)})

    async def _kind(self, generation: str, request_sha256: str) -> str:
        """Whether a call has paid for it of which no account is, and will be, kept."""
        attempts = await self._store.look_up(request_sha256)
        is_lost = any(self._is_lost(one, generation) for one in attempts)
        return LOST if is_lost else "-accounts"

    def _is_lost(self, attempt: Attempt, generation: str) -> bool:
        """Before its headers came, or in a run that ended before it was told."""
        if attempt.error is not None and not attempt.headers:
            return True
        is_it = dict(attempt.headers).get("x-generation-id") == generation
        return is_it and attempt.run_id != self._run_id and not cost_of(attempt)

    def settle(self, lost: Attempt, budget: Budget) -> None:
        """Asks beside all else what a lost call has cost, which was just booked at the mean."""
        generation = dict(lost.headers).get("x-generation-id")
        if generation and self._sender is not None:
            task = asyncio.ensure_future(self._settle(generation, budget, budget.mean_usd()))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _settle(self, generation: str, budget: Budget, booked_usd: Decimal) -> None:
        with contextlib.suppress(StoreError):  # what was booked stays
            cost_usd = read_total(await self._ask(generation, LOST, _LOST_WAITS_S))
            if cost_usd is not None:
                budget.correct(booked_usd, cost_usd)

    async def close(self) -> None:
        """Waits for what is being asked."""
        if self._settling:
            await asyncio.wait(self._settling, timeout=sum(_WAITS_S))
        for task in self._settling:
            task.cancel()

    async def _ask(
        self, generation: str, kind: str, waits_s: tuple[float, ...] = _WAITS_S
    ) -> dict[str, Any]:
        """The first account of it that is told, when it is durable; an empty one if none is."""
        if self._sender is None:
            return {}
        for wait_s in (0.0, *waits_s):
            if wait_s:
                await self._sleep(wait_s)
            async with self._places:
                attempt = await self._sender.ask(_path(generation), self._run_id + kind)
            account = read_account(attempt)
            if account.get("id") == generation:
                await self._store.put(attempt)
                return account
        return {}


def _path(generation: str) -> str:
    return f"/generation?id={quote(generation)}"


def usage_of(account: dict[str, Any]) -> dict[str, Any]:
    """The counts of the model's own tokenizer, as `usage`; to be given it again cost nothing."""
    return {
        "prompt_tokens": account.get("native_tokens_prompt"),
        "completion_tokens": account.get("native_tokens_completion"),
        "completion_tokens_details": {"reasoning_tokens": account.get("native_tokens_reasoning")},
        "cost": 0,
    }
