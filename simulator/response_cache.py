"""OpenRouter's response cache: the same bytes asked again cost nothing, where it is asked for."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.engine import Generation
from simulator.reply import write_json
from simulator.scenario import Provider

_DEFAULT_TTL_S = 300
_MAX_TTL_S = 86400


@dataclass(frozen=True, slots=True)
class Cached:
    """A stored generation, where it is from, and from which moment of the clock on it is there."""

    generation: Generation
    provider: Provider
    source_id: str
    stored_s: float
    ttl_s: int


class ResponseCache:
    """Generations by key and body; only those that were generated whole come in."""

    def __init__(self) -> None:
        self._stored: dict[str, Cached] = {}

    def key(self, headers: Mapping[str, str], body: dict[str, Any]) -> str | None:
        """None unless the request asks for the cache.

        The body tells model and stream mode; its blanks do not count, the order of its keys does.
        """
        if headers.get("X-OpenRouter-Cache", "").lower() != "true":
            return None
        digest = hashlib.sha256(headers.get("Authorization", "").encode())
        digest.update(write_json(body))
        if headers.get("X-OpenRouter-Cache-Clear", "").lower() == "true":
            self._stored.pop(digest.hexdigest(), None)
        return digest.hexdigest()

    def find(self, key: str | None) -> Cached | None:
        """What is generated and not too old."""
        found = self._stored.get(key or "")
        is_there = found is not None and 0 <= time.monotonic() - found.stored_s <= found.ttl_s
        return found if is_there else None

    def store(self, key: str, cached: Cached) -> None:
        """Keeps a generation, from its moment on."""
        self._stored[key] = cached


def ttl_of(headers: Mapping[str, str]) -> int:
    """How long a request wants its answer to be kept, in seconds."""
    given = headers.get("X-OpenRouter-Cache-TTL", "")
    return min(int(given), _MAX_TTL_S) if given.isdigit() else _DEFAULT_TTL_S


def hit_headers(cached: Cached) -> dict[str, str]:
    """What tells a client that nothing was sampled."""
    return {
        "X-OpenRouter-Cache-Status": "HIT",
        "X-OpenRouter-Cache-Age": str(int(time.monotonic() - cached.stored_s)),
        "X-OpenRouter-Cache-TTL": str(cached.ttl_s),
        "X-OpenRouter-Cache-Source-Id": cached.source_id,
    }
