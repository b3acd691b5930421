"""What was asked and charged, whether or not the client stayed to hear it."""

import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from simulator.peers import SharedSeen

_HINT_SLACK_S = 0.005
"""Clocks of two processes, and a hint that was stamped before it was sent."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """One generation: what it cost, and what was sampled.

    Attributes:
        usd: What is charged for it in the end.
        prompt_tokens, completion_tokens, reasoning_tokens: As its host counted them.
        cached_tokens: Of the prompt, kept by the host.
        source_id: The generation that the response cache gave again.
        chunks: Of a stream, each ended by NUL: a list would be ten times as large.
    """

    generation_id: str
    body_hash: str
    provider: str
    model: str
    usd: float
    prompt_ids: list[int]
    completion_ids: list[int]
    is_stream: bool
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int = 0
    source_id: str | None = None
    chunks: str | None = None
    is_cancelled: bool = False
    is_charged: bool = True
    ended_s: float = field(default_factory=time.monotonic)

    def truth(self) -> dict[str, Any]:
        """A row of `/__sim/truth`."""
        row: dict[str, Any] = {
            "generation_id": self.generation_id,
            "provider": self.provider,
            "prompt_ids": list(self.prompt_ids),
            "completion_ids": list(self.completion_ids),
        }
        return row if self.chunks is None else row | {"chunks": self.chunks.split("\0")[:-1]}


@dataclass(slots=True)
class Ledger:
    """Counts since the start or the last reset. A generation is charged when it begins."""

    shared: SharedSeen | None = None
    requests: int = 0
    charged_usd: float = 0.0
    served_usd: float = 0.0
    early_retries: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    charged: Counter[str] = field(default_factory=Counter)
    providers: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    wait_until: dict[str, float] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    truth: list[Entry] = field(default_factory=list)

    def see(self, body_hash: str) -> int:
        """How often the body came before."""
        if time.monotonic() < self.wait_until.get(body_hash, 0.0) - _HINT_SLACK_S:
            self.early_retries += 1
        seen = self.seen[body_hash]
        self.seen[body_hash] += 1
        return seen if self.shared is None else self.shared.add(body_hash)

    def hint(self, body_hash: str, seconds: float) -> None:
        """A Retry-After was given to a body."""
        self.wait_until[body_hash] = time.monotonic() + seconds

    def charge(self, body_hash: str, provider: str, usd: float) -> None:
        self.charged[body_hash] += 1
        self.providers[provider] += 1
        self.charged_usd += usd

    def book(self, entry: Entry) -> None:
        """Remembers a generation; charges it unless it is insured or cached."""
        entry.prompt_ids = array("i", entry.prompt_ids)  # type: ignore[assignment]
        entry.completion_ids = array("i", entry.completion_ids)  # type: ignore[assignment]
        self.entries[entry.generation_id] = entry
        if entry.is_charged:
            self.charge(entry.body_hash, entry.provider, entry.usd)

    def deliver(self, entry: Entry) -> None:
        """The last byte of its text goes out."""
        entry.ended_s = time.monotonic()
        self.truth.append(entry)
        self.served_usd += entry.usd if entry.is_charged else 0.0

    def cancel(self, entry: Entry, usd: float) -> None:
        """The client left a stream of a host that stops then: only `usd` is charged."""
        entry.ended_s = time.monotonic()
        entry.is_cancelled = True
        if entry.is_charged:
            self.charged_usd += usd - entry.usd
            entry.usd = usd

    def enter(self) -> None:
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def leave(self) -> None:
        self.in_flight -= 1

    def parts(self) -> dict[str, Any]:
        """All that the admin paths are made of; parts of several processes add up."""
        counted = ("seen", "charged", "providers", "faults")
        said = ("requests", "charged_usd", "served_usd", "early_retries", "in_flight",
                "max_in_flight")  # fmt: skip
        return {
            **{name: getattr(self, name) for name in said},
            **{name: dict(getattr(self, name)) for name in counted},
            "statuses": {str(status): count for status, count in self.statuses.items()},
        }

    def report(self) -> dict[str, Any]:
        """The ledger as the admin path gives it."""
        return report(self.parts())


def report(parts: dict[str, Any]) -> dict[str, Any]:
    """`Ledger.parts` as they are told; `duplicates` were charged for the same body."""
    charged = parts["charged"].values()
    charged_usd, served_usd = parts["charged_usd"], parts["served_usd"]
    return {
        "requests": parts["requests"],
        "charged": sum(charged),
        "charged_usd": round(charged_usd, 10),
        "served_usd": round(served_usd, 10),
        "wasted_usd": max(0.0, round(charged_usd - served_usd, 10)),
        "duplicates": sum(count - 1 for count in charged),
        **{name: parts[name] for name in ("early_retries", "in_flight", "max_in_flight",
                                          "providers", "statuses", "faults")},
    }  # fmt: skip


def bodies(parts: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Requests and charges of each body, by its SHA-256."""
    return {
        digest: {"requests": count, "charged": parts["charged"].get(digest, 0)}
        for digest, count in parts["seen"].items()
    }
