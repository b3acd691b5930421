"""How many requests may be on their way: additive increase, multiplicative decrease.

A slow start doubles each round while nothing is refused for load; after a refusal it is one more
for as many successes as the limit. (Doubling to half of the ceiling and one more a round from there
takes 1,500 rounds of 10 s to 3,000 in flight.) On refusals for load (`refusals.py`) the limit is
cut, at most once a cool-down, and only by a request that was admitted under the current limit:
otherwise one burst of refusals takes it to one. Calls that are stuck (`latency.py`) say nothing of
load: they count against the ceiling alone.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from transforms.openrouter.latency import Latency
from transforms.openrouter.refusals import Refusals

_START = 32
_COOL_DOWN_S = 1.0
_LONGEST_COOL_DOWN_S = 10.0
_LONGEST_PAUSE_S = 600.0
_LEAST_TIMER_S = 0.5


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that was let through, under which limit and when (seconds of the clock)."""

    number: int
    epoch: int
    at: float


@dataclass(slots=True)
class Limiter:
    """Admits requests. Used on one event loop.

    Attributes:
        ceiling: Most requests at once.
        limit: Most at once for now, beside those that are stuck.
        in_flight: How many are.
    """

    ceiling: int
    clock: Callable[[], float] = time.monotonic
    limit: float = 0.0
    in_flight: int = 0
    _is_open: bool = False
    _epoch: int = 0
    _quick_until: float = 0.0
    _decreased_at: float = float("-inf")
    _paused_until: float = float("-inf")
    _pauses_in_a_row: int = 0
    _waiting: deque[asyncio.Future[Admission]] = field(default_factory=deque)
    _admitted: int = 0
    _moving: OrderedDict[int, float] = field(default_factory=OrderedDict)
    _timer: asyncio.TimerHandle | None = None
    _latency: Latency = field(default_factory=Latency)
    _refusals: Refusals = field(default_factory=Refusals)

    def __post_init__(self) -> None:
        self.limit = float(min(_START, self.ceiling))
        self._quick_until = float(self.ceiling)
        self._refusals.clock = self.clock

    async def admit(self) -> Admission:
        """Waits for a place, first come first served, and for the end of a pause."""
        if not self._waiting and self._has_place():
            return self._let_through()
        place: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._look_again_when_one_is_stuck()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was given, and is not taken
                self.release(place.result())
            else:
                self._wake()
            raise

    def _let_through(self) -> Admission:
        self._admitted += 1
        self._go_to(self._refusals.admit(self._admitted, self.limit))
        self.in_flight += 1
        self._moving[self._admitted] = self.clock()
        return Admission(self._admitted, self._epoch, self.clock())

    def succeed(self, admission: Admission) -> None:
        """An answer came."""
        self._pauses_in_a_row = 0
        seconds = self.clock() - admission.at
        self._latency.add(seconds)
        is_new = admission.epoch == self._epoch
        self._go_to(self._refusals.answer(seconds, self.limit, is_new=is_new))
        if not self._refusals.is_settling:
            self._grow()

    def _grow(self) -> None:
        if self.limit < self._quick_until:
            self.limit = min(self.limit + 1, self._quick_until)
        else:
            self.limit = min(self.limit + 1 / self.limit, float(self.ceiling))

    def slow_down(
        self, admission: Admission, hint_s: float | None, *, is_told: bool = False
    ) -> None:
        """It was refused: too many were on their way (`is_told`: surely), or it was chance."""
        if admission.epoch != self._epoch:
            return
        cool_down = min(max(_COOL_DOWN_S, hint_s or 0.0), _LONGEST_COOL_DOWN_S)
        is_over = self._refusals.is_refused or self.clock() - self._decreased_at >= cool_down
        are_load = self._refusals.are_load(admission.number, self.limit)
        if self.limit < 2:  # noqa: PLR2004 - fewer than one at once is one after a while
            self.pause(cool_down)
        if is_over and (is_told or are_load):
            self._decreased_at = self.clock()
            self._go_to(self._refusals.cut(self.limit, max(self.limit, self._quick_until)))

    def _go_to(self, aim: float) -> None:
        """Down at once, up by one for each answer."""
        if aim > self.limit:
            self._quick_until = max(self._quick_until, aim)
        elif aim < self.limit:
            self.limit = aim
            self._quick_until = 0.0
            self._epoch += 1

    def pause(self, seconds: float, *, doubling: bool = False) -> None:
        """Nothing is admitted for so long; `doubling`: longer each time in a row."""
        if doubling:
            seconds = min(seconds * 2**self._pauses_in_a_row, _LONGEST_PAUSE_S)
            self._pauses_in_a_row += 1
        self._paused_until = max(self._paused_until, self.clock() + seconds)
        asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        """After a pause; a timer of libuv may be up to a millisecond early."""
        left_s = self._paused_until - self.clock()
        if left_s > 0:
            asyncio.get_running_loop().call_later(left_s, self._go_on)
        else:
            self._wake()

    def release(self, admission: Admission) -> None:
        """A request that was admitted is over, however."""
        self._moving.pop(admission.number, None)
        self.in_flight -= 1
        self._wake()

    def open(self) -> None:
        """Nobody waits any more: there was a stop, and who comes is told so."""
        self._is_open = True
        self._wake()

    def _has_place(self) -> bool:
        if self._is_open:
            return True
        if self.in_flight >= self.ceiling or self.clock() < self._paused_until:
            return False
        if len(self._moving) >= int(self.limit):
            self._set_stuck_aside()
        return len(self._moving) < int(self.limit)

    def _set_stuck_aside(self) -> None:
        long_ago = self.clock() - self._latency.stuck_after_s
        while self._moving and next(iter(self._moving.values())) <= long_ago:
            self._moving.popitem(last=False)

    def _wake(self) -> None:
        """Gives free places to those who wait."""
        while self._waiting and self._has_place():
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(self._let_through())
        self._look_again_when_one_is_stuck()

    def _look_again_when_one_is_stuck(self) -> None:
        """Nothing else wakes those who wait if all that are on their way hang."""
        wait_s = self._latency.stuck_after_s
        if self._timer is not None or not (self._waiting and self._moving) or wait_s == math.inf:
            return
        oldest = next(iter(self._moving.values()))
        seconds = max(_LEAST_TIMER_S, oldest + wait_s - self.clock())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._wake()
