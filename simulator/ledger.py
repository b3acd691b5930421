"""What was asked and charged, whether or not the client stayed to hear it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Ledger:
    """Counts since the start or the last reset. A generation is charged when it begins."""

    requests: int = 0
    charged_usd: float = 0.0
    in_flight: int = 0
    max_in_flight: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    charged: Counter[str] = field(default_factory=Counter)
    providers: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    truth: list[dict[str, Any]] = field(default_factory=list)

    def charge(self, body_hash: str, provider: str, usd: float) -> None:
        self.charged[body_hash] += 1
        self.providers[provider] += 1
        self.charged_usd += usd

    def enter(self) -> None:
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def leave(self) -> None:
        self.in_flight -= 1

    def report(self) -> dict[str, Any]:
        """The ledger as the admin path gives it; `duplicates` were charged for the same body."""
        return {
            "requests": self.requests,
            "charged": sum(self.charged.values()),
            "charged_usd": round(self.charged_usd, 10),
            "duplicates": sum(count - 1 for count in self.charged.values()),
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "providers": dict(self.providers),
            "statuses": {str(status): count for status, count in self.statuses.items()},
        }
