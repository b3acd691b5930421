"""OpenRouter's response cache: the same bytes asked again cost nothing, where it is asked for."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

from simulator.engine import Generation
from simulator.scenario import Provider

_DEFAULT_TTL_S = 300
_MAX_TTL_S = 86400


@dataclass(frozen=True, slots=True)
class Cached:
    """A stored generation and where it is from."""

    generation: Generation
    provider: Provider
    source_id: str
    stored_s: float
    ttl_s: int


class ResponseCache:
    """Generations by key and body; only those that were delivered whole come in."""

    def __init__(self) -> None:
        self._stored: dict[str, Cached] = {}

    def key(self, headers: Mapping[str, str], raw: bytes) -> str | None:
        """None unless the request asks for the cache. The body tells whether it is a stream."""
        if headers.get("X-OpenRouter-Cache", "").lower() != "true":
            return None
        digest = hashlib.sha256(headers.get("Authorization", "").encode() + b"\n" + raw)
        if headers.get("X-OpenRouter-Cache-Clear", "").lower() == "true":
            self._stored.pop(digest.hexdigest(), None)
        return digest.hexdigest()

    def find(self, key: str | None) -> Cached | None:
        """What is stored and not too old."""
        found = self._stored.get(key or "")
        if found and time.monotonic() - found.stored_s > found.ttl_s:
            del self._stored[key or ""]
            return None
        return found

    def store(
        self, key: str, headers: Mapping[str, str], generation: Generation,
        provider: Provider, source_id: str,
    ) -> None:  # fmt: skip
        """Keeps a delivered generation."""
        given = headers.get("X-OpenRouter-Cache-TTL", "")
        ttl_s = min(int(given), _MAX_TTL_S) if given.isdigit() else _DEFAULT_TTL_S
        self._stored[key] = Cached(generation, provider, source_id, time.monotonic(), ttl_s)


def hit_headers(cached: Cached) -> dict[str, str]:
    """What tells a client that nothing was sampled."""
    return {
        "X-OpenRouter-Cache-Status": "HIT",
        "X-OpenRouter-Cache-Age": str(int(time.monotonic() - cached.stored_s)),
        "X-OpenRouter-Cache-TTL": str(cached.ttl_s),
        "X-OpenRouter-Cache-Source-Id": cached.source_id,
    }
