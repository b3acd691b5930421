"""What may be spent: reserved before a request is sent, settled by what its answer cost."""

from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal

_SEEN = 200
"""How many of the last costs the estimate rests on."""
_ENOUGH = 20
"""From so many on the dearest of them is the reservation, before it the longest answer's price."""

_BLIND = 8
"""Requests that may be on their way before the first cost and without a price."""
_WAITED_FOR = Decimal("0.95")
"""Of the cap."""


@dataclass(slots=True)
class Budget:
    """Money of one process, in US dollars.

    Attributes:
        cap_usd: Most that may be spent; `None`: no limit.
        longest_usd: Price of the longest answer that is asked for; `None` if no price is known.
        spent_usd: What was paid, by the answers' own account; what may have been paid included.
        reserved_usd: What is on its way.
    """

    cap_usd: Decimal | None
    longest_usd: Decimal | None = None
    spent_usd: Decimal = Decimal(0)
    reserved_usd: Decimal = Decimal(0)
    _on_their_way: int = 0
    _costs: deque[Decimal] = field(default_factory=lambda: deque(maxlen=_SEEN))

    def reserve(self) -> Decimal | None:
        """Takes the price of one more request; `None` if the cap may not hold it."""
        estimate = Decimal(0) if self.cap_usd is None else self.estimate_usd()
        expected = self.spent_usd + self.reserved_usd + estimate
        if self.cap_usd is not None and expected > self.cap_usd:
            return None
        self.reserved_usd += estimate
        self._on_their_way += 1
        return estimate

    def is_used_up(self) -> bool:
        """Whether there will be no room for one more when what is on its way is settled.

        It is taken at its mean cost, and the last twentieth of the cap is not waited for: calls
        that hang hold their reservations for minutes, to send a few more.
        """
        if self.cap_usd is None or not self._on_their_way or len(self._costs) < _ENOUGH:
            return not self._on_their_way
        expected = self.spent_usd + self._on_their_way * self.mean_usd()
        return expected + self.estimate_usd() > self.cap_usd * _WAITED_FOR

    def settle(self, reservation: Decimal, cost_usd: Decimal | None, *, maybe_paid: bool) -> None:
        """Books what a request cost; what may have been paid is booked at its estimate."""
        self.reserved_usd -= reservation
        self._on_their_way -= 1
        if cost_usd is not None:
            self._costs.append(cost_usd)
            self.spent_usd += cost_usd
        elif maybe_paid:
            self.spent_usd += self.mean_usd()

    def correct(self, booked_usd: Decimal, paid_usd: Decimal) -> None:
        """What may have been paid is known now."""
        self.spent_usd += paid_usd - booked_usd

    def estimate_usd(self) -> Decimal:
        """What one more request may cost."""
        dearest = max(self._costs, default=self._unknown_usd())
        if self.longest_usd is None or len(self._costs) >= _ENOUGH:
            return dearest
        return max(dearest, self.longest_usd)

    def _unknown_usd(self) -> Decimal:
        """Before anything is known of prices: a share of the cap, so that few are on their way."""
        return (self.cap_usd or Decimal(0)) / _BLIND

    def mean_usd(self) -> Decimal:
        """Mean cost of the last answers."""
        return sum(self._costs, Decimal(0)) / len(self._costs) if self._costs else Decimal(0)
