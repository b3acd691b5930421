"""How many requests may be on their way: additive increase, multiplicative decrease.

A slow start doubles each round up to half of the ceiling; then one more for as many successes as
the limit. On a rate fault the limit is cut to 0.7, at most once a cool-down, and only by a request
that was admitted under the current limit: otherwise one burst of refusals takes it to one.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

_START = 32
_DECREASE = 0.7
_COOL_DOWN_S = 1.0
_LONGEST_PAUSE_S = 600.0


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that was let through, under which limit and when (seconds of the clock)."""

    epoch: int
    at: float


@dataclass(slots=True)
class Limiter:
    """Admits requests. Used on one event loop.

    Attributes:
        ceiling: Most requests at once.
        limit: Most at once for now.
        in_flight: How many are.
    """

    ceiling: int
    clock: Callable[[], float] = time.monotonic
    limit: float = 0.0
    in_flight: int = 0
    _is_open: bool = False
    _epoch: int = 0
    _is_slow_start: bool = True
    _decreased_at: float = float("-inf")
    _paused_until: float = float("-inf")
    _pauses_in_a_row: int = 0
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.limit = float(min(_START, self.ceiling))

    async def admit(self) -> Admission:
        """Waits for a place, first come first served, and for the end of a pause."""
        if self._waiting or self._has_no_place():
            await self._wait()
        else:
            self.in_flight += 1
        return Admission(self._epoch, self.clock())

    async def _wait(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was given, and is not taken
                self.in_flight -= 1
            self._wake()
            raise

    def succeed(self, _admission: Admission) -> None:
        """An answer came."""
        self._pauses_in_a_row = 0
        grown = self.limit + (1.0 if self._is_slow_start else 1.0 / self.limit)
        half = self.ceiling / 2
        if self._is_slow_start and grown >= half:
            self._is_slow_start = False
            grown = max(self.limit, half)
        self.limit = min(float(self.ceiling), grown)

    def slow_down(self, admission: Admission, hint_s: float | None) -> None:
        """Too many were on their way."""
        cool_down = max(_COOL_DOWN_S, hint_s or 0.0, self.clock() - admission.at)
        is_new = admission.epoch == self._epoch
        if is_new and self.clock() - self._decreased_at >= min(cool_down, _COOL_DOWN_S * 10):
            self.limit = max(1.0, self.limit * _DECREASE)
            self._epoch += 1
            self._decreased_at = self.clock()
            self._is_slow_start = False

    def pause(self, seconds: float, *, doubling: bool = False) -> None:
        """Nothing is admitted for so long; `doubling`: longer each time in a row."""
        if doubling:
            seconds = min(seconds * 2**self._pauses_in_a_row, _LONGEST_PAUSE_S)
            self._pauses_in_a_row += 1
        self._paused_until = max(self._paused_until, self.clock() + seconds)
        asyncio.get_running_loop().call_later(seconds, self._wake)

    def release(self) -> None:
        """A request that was admitted is over, however."""
        self.in_flight -= 1
        self._wake()

    def open(self) -> None:
        """Nobody waits any more: there was a stop, and who comes is told so."""
        self._is_open = True
        self._wake()

    def _has_no_place(self) -> bool:
        is_full = self.in_flight >= max(1, int(self.limit))
        return not self._is_open and (is_full or self.clock() < self._paused_until)

    def _wake(self) -> None:
        """Gives free places to those who wait."""
        while self._waiting and not self._has_no_place():
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)
