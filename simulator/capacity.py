"""What the service can take at once and in a minute, and what the account may spend."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from simulator.faults.refusals import Refusal
from simulator.ledger import Ledger
from simulator.scenario import Limits, Provider, Scenario

_PER_MINUTE = Refusal(
    name="limit_rpm", about="More requests than the minute allows.", status=429,
    message="Rate limit exceeded: requests-per-min. ",
    metadata={"error_type": "rate_limit_exceeded"},
)  # fmt: skip
_PER_SECOND = Refusal(
    name="limit_rps", about="Cloudflare's protection.", status=429, page=1015,
    message="You are being rate limited",
)  # fmt: skip
_FREE = Refusal(
    name="limit_free", about="More requests of a free variant than the minute allows.", status=429,
    message="Rate limit exceeded: free-models-per-min. ",
    metadata={"error_type": "rate_limit_exceeded"},
)  # fmt: skip
_FULL = Refusal(
    name="limit_slots", about="Every host is full.", status=429, message="Provider returned error",
    metadata={"error_type": "rate_limit_exceeded"},
)  # fmt: skip
_IN_FLIGHT = Refusal(
    name="limit_in_flight", about="Running requests have reserved the budget.", status=402,
    message="In-flight budget exhausted. Please retry later.",
    metadata={"reason": "in_flight_budget_exhausted", "error_type": "payment_required",
              "limit_source": "openrouter_in_flight_budget"},
)  # fmt: skip
_WEIGHT = Refusal(
    name="limit_weight", about="One request could cost more than there is.", status=402,
    message="This request requires more credits, or fewer max_tokens.",
    metadata={"reason": "weight_exceeds_budget", "error_type": "payment_required"},
)  # fmt: skip
_SPENT = Refusal(
    name="limit_credits", about="The balance is spent.", status=402,
    message="Insufficient credits. Add more using https://openrouter.ai/settings/credits",
    metadata={"limit_source": "openrouter_credits", "error_type": "payment_required"},
)  # fmt: skip
_KEY = Refusal(
    name="limit_key", about="The key has spent what it may.", status=403,
    message="Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys",
    metadata={"limit_source": "openrouter_key_limit", "error_type": "permission_denied"},
)  # fmt: skip


_LOW_USD = 10.0


def _reset(now: float) -> str:
    """When one more may come, in milliseconds of the epoch: 20 a minute are one in 3 s."""
    return str(int(now * 1000) + 3000)


class TokenBucket:
    """Fills at `per_s` up to `burst`."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Whether one was left."""
        elapsed = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._left = min(self._burst, self._left + elapsed * self._per_s)
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _bucket(per_s: float | None, burst: float) -> TokenBucket | None:
    return None if per_s is None else TokenBucket(per_s, burst)


def _a_second(per_minute: float | None) -> float | None:
    return None if per_minute is None else per_minute / 60


class Capacity:
    """Counts what runs; refuses what is too much."""

    def __init__(self, scenario: Scenario) -> None:
        self._limits: Limits = scenario.limits
        self._minute = _bucket(_a_second(self._limits.requests_per_minute), self._limits.burst)
        free = self._limits.free_per_minute
        self._free = TokenBucket(free / 60, max(1, free))
        per_s = self._limits.requests_per_second
        self._second = _bucket(per_s, per_s or 0)
        self._of_provider = {
            p.name: _bucket(_a_second(p.requests_per_minute), self._limits.burst)
            for p in scenario.providers
        }
        self._running: Counter[str] = Counter()
        self._reserved_usd = 0.0

    def refuse_early(
        self, now_s: float, ledger: Ledger, weight_usd: float, *, is_free: bool = False
    ) -> Refusal | None:
        """What the gateway says before it looks for a host."""
        if is_free and not self._free.take(now_s):
            return self._per_minute(_FREE, self._limits.free_per_minute)
        if self._second and not self._second.take(now_s):
            return _PER_SECOND
        if self._minute and not self._minute.take(now_s):
            return self._hinted(_PER_MINUTE)
        return self._refuse_unpaid(ledger.charged_usd, weight_usd) or self._refuse_full()

    def _refuse_unpaid(self, spent_usd: float, weight_usd: float) -> Refusal | None:
        limits = self._limits
        if limits.key_limit_usd is not None and spent_usd >= limits.key_limit_usd:
            return _KEY
        if limits.credits_usd is not None and spent_usd >= limits.credits_usd:
            return _SPENT
        budget = limits.in_flight_budget_usd
        if budget is None or self._reserved_usd + weight_usd <= budget:
            return None
        return _WEIGHT if weight_usd > budget else self._hinted(_IN_FLIGHT)

    def _refuse_full(self) -> Refusal | None:
        slots = self._limits.slots
        return self.full() if slots is not None and self._running.total() >= slots else None

    def _per_minute(self, refusal: Refusal, limit: float) -> Refusal:
        """With the headers of a limit of the platform, its reset in milliseconds."""
        said = {"X-RateLimit-Limit": f"{limit:g}", "X-RateLimit-Remaining": "0"}
        metadata = refusal.metadata | {"headers": said}
        return replace(refusal, metadata=metadata, headers={**said, "X-RateLimit-Reset": _reset})

    def slowdown_s(self, ledger: Ledger) -> float:
        """What a low balance, or a low limit of the key, adds to an answer."""
        limits = [self._limits.credits_usd, self._limits.key_limit_usd]
        left = [limit - ledger.charged_usd for limit in limits if limit is not None]
        return self._limits.low_balance_s if any(usd < _LOW_USD for usd in left) else 0.0

    def _hinted(self, refusal: Refusal) -> Refusal:
        return replace(refusal, headers={"Retry-After": f"{self._limits.retry_after_s:g}"})

    def full(self) -> Refusal:
        """429 capacity_exhausted, with its hint in both places."""
        seconds = self._limits.retry_after_s
        availability = {"code": "capacity_exhausted", "retryable": True, "retry_after": seconds}
        return replace(self._hinted(_FULL), more={"availability": availability})

    def has_room(self, provider: Provider, now_s: float) -> bool:
        """Whether a host takes one more; asking takes it from the host's bucket."""
        if provider.slots is not None and self._running[provider.name] >= provider.slots:
            return False
        bucket = self._of_provider[provider.name]
        return bucket is None or bucket.take(now_s)

    def start(self, provider: Provider, weight_usd: float) -> Callable[[], None]:
        """Takes a slot and a reservation; returns what gives them back."""
        self._count(provider.name, 1, weight_usd)
        return lambda: self._count(provider.name, -1, -weight_usd)

    def _count(self, name: str, one: int, usd: float) -> None:
        self._running[name] += one
        self._reserved_usd = max(0.0, self._reserved_usd + usd)
