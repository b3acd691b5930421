"""What the service says of a generation that its response cache gave again.

A repeated answer has no counts; those of its first time are told by `GET /generation`. What was
told is kept in the store, byte for byte, under a key of its own.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from transforms.openrouter.catalogue import as_dict
from transforms.openrouter.faults import Judged
from transforms.openrouter.sender import Sender, key_of
from transforms.openrouter.store import Attempt, ResponseStore

_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The service does not know a generation for up to several seconds after its end."""


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
        # Of a run of their own: they are no requests that the run paid for.
        self._run_id = f"{run_id}-accounts"
        self._sleep = sleep

    async def complete(self, judged: Judged) -> Judged:
        """A repeated answer with its counts; as it is where nothing tells them, and any other."""
        if not judged.repeats or judged.reply is None:
            return judged
        path = f"/generation?id={quote(judged.repeats)}"
        known = [read_account(attempt) for attempt in await self._store.look_up(key_of(path))]
        account = next(filter(None, known), None) or await self._ask(path)
        if account.get("id") != judged.repeats:
            return judged
        return replace(judged, reply=judged.reply | {"usage": usage_of(account)})

    async def _ask(self, path: str) -> dict[str, Any]:
        """The first account that is told, when it is durable; an empty one if none is."""
        if self._sender is None:
            return {}
        for wait_s in (0.0, *_WAITS_S):
            if wait_s:
                await self._sleep(wait_s)
            attempt = await self._sender.ask(path, self._run_id)
            if account := read_account(attempt):
                await self._store.put(attempt)
                return account
        return {}


def read_account(attempt: Attempt) -> dict[str, Any]:
    """The object that a generation is told by; an empty one if it is not told."""
    if attempt.status != HTTPStatus.OK or attempt.error is not None:
        return {}
    try:
        return as_dict(as_dict(msgspec.json.decode(attempt.body)).get("data"))
    except ValueError:
        return {}


def usage_of(account: dict[str, Any]) -> dict[str, Any]:
    """The counts of the model's own tokenizer, as `usage`; to be given it again cost nothing."""
    return {
        "prompt_tokens": account.get("native_tokens_prompt"),
        "completion_tokens": account.get("native_tokens_completion"),
        "completion_tokens_details": {"reasoning_tokens": account.get("native_tokens_reasoning")},
        "cost": 0,
    }
