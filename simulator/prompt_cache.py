"""Prompt caching and sticky routing: a conversation goes on at the host that knows how it began."""

import hashlib
import json
import time
from array import array
from itertools import takewhile
from operator import eq

from simulator.orders import Order
from simulator.scenario import Provider

_STICKY_S = 600.0
_BLOCK = 16
"""Tokens that a host keeps or forgets together, as engines do."""


class PromptCache:
    """What hosts have seen of conversations; it depends on the order in which requests come."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], array[int]] = {}
        self._sticky: dict[str, tuple[str, float]] = {}

    def prefer(self, order: Order, providers: list[Provider]) -> list[Provider]:
        """The host of the last hit first, for ten minutes, unless the request says whom to ask."""
        wishes = order.body.get("provider") or {}
        name, until_s = self._sticky.get(_conversation(order), ("", 0.0))
        if wishes.get("order") or wishes.get("sort") or time.monotonic() > until_s:
            return providers
        return sorted(providers, key=lambda provider: provider.name != name)

    def count(self, order: Order, provider: Provider, prompt_ids: list[int]) -> int:
        """Tokens of a prompt that its host has seen, in blocks; now it has seen all of them."""
        conversation = _conversation(order)
        before = self._seen.get((conversation, provider.name), array("i"))
        same = sum(takewhile(bool, map(eq, before, prompt_ids)))
        self._seen[conversation, provider.name] = array("i", prompt_ids)
        cached = same // _BLOCK * _BLOCK
        if cached:
            self._sticky[conversation] = (provider.name, time.monotonic() + _STICKY_S)
        return cached


def _conversation(order: Order) -> str:
    """A session if one is named, else how it begins: first system and first other message."""
    named = order.body.get("session_id") or order.headers.get("x-session-id")
    messages = order.body["messages"]
    system = next((one for one in messages if one["role"] == "system"), None)
    other = next((one for one in messages if one["role"] != "system"), None)
    whose = [order.headers.get("Authorization"), order.model, named or [system, other]]
    return hashlib.sha256(json.dumps(whose).encode()).hexdigest()
