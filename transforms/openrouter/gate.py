"""Who may send: not more at once, a minute or in dollars than allowed, and nobody after a stop."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from transforms.failures import FailureKind, RecordError
from transforms.openrouter.budget import Budget
from transforms.openrouter.faults import UNREACHED, Fault, Judged
from transforms.openrouter.limiter import Admission, Limiter
from transforms.openrouter.pace import Pace

_DEAD_AFTER = 200
_DEAD_AFTER_S = 30.0
"""So many faults, for so long, without one answer between them: the service or the model is dead.
(Hosts that were torn down answered 500 on every call while the catalogue still listed them.)"""
_UNREACHED_AFTER = 20
"""The same for connections that were never made."""
_WRONG_MODEL_AFTER = 5


@dataclass(frozen=True, slots=True)
class Stop:
    """Why nothing more is sent."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True, slots=True)
class Pass:
    """What a request holds while it is on its way."""

    admission: Admission
    reservation: Decimal


@dataclass(slots=True)
class Gate:
    """Admits requests, learns from what they came to. Used on one event loop."""

    limiter: Limiter
    budget: Budget
    pace: Pace | None = None
    clock: Callable[[], float] = time.monotonic
    stop: Stop | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    on_stop: Callable[[], None] = lambda: None
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    _faults_in_a_row: int = 0
    _unreached_in_a_row: int = 0
    _fatal: int = 0
    _answered_at: float = 0.0
    _wrong_models: int = 0

    def __post_init__(self) -> None:
        self._answered_at = self.clock()

    async def enter(self) -> Pass:
        """Waits for a place.

        Raises:
            RecordError: With the kind of the stop, once there is one.
        """
        while True:
            self._refuse_after_stop()
            admission = await self.limiter.admit()
            reservation = None if self.stop else self.budget.reserve()
            if reservation is not None:
                return await self._in_pace(Pass(admission, reservation))
            self.limiter.release(admission)
            await self._wait_for_money()

    def leave(self, held: Pass, judged: Judged, hint_s: float | None) -> None:
        """Gives the place back, and books what came."""
        fault = judged.fault
        maybe_paid = fault is not None and fault.maybe_paid
        self.budget.settle(held.reservation, judged.cost_usd, maybe_paid=maybe_paid)
        self._settled.set()
        self._settled = asyncio.Event()
        if fault is None:
            self.limiter.succeed(held.admission)
            self._faults_in_a_row = self._unreached_in_a_row = self._fatal = 0
            self._answered_at = self.clock()
        else:
            self._learn(held, fault, judged.detail, hint_s)
        self.limiter.release(held.admission)

    def hand_back(self, held: Pass) -> None:
        """Nothing was sent."""
        self.budget.settle(held.reservation, None, maybe_paid=False)
        self.limiter.release(held.admission)

    def close(self, kind: FailureKind, detail: str) -> None:
        """Nothing more is sent; the first reason stands."""
        if self.stop is None:
            self.stop = Stop(kind, detail)
            self.on_stop()
        self.stopping.set()
        self._settled.set()
        self.limiter.open()

    def see_model(self, wrong: str | None) -> None:
        """Which model an answer was of: `wrong` says so; several in a row are a redirect."""
        self._wrong_models = self._wrong_models + 1 if wrong else 0
        if wrong and self._wrong_models >= _WRONG_MODEL_AFTER:
            self.close(FailureKind.SERVICE_STOPPED, wrong)

    async def rest(self, seconds: float) -> None:
        """Waits, but not beyond a stop."""
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    def _refuse_after_stop(self) -> None:
        if self.stop is not None:
            raise RecordError(self.stop.kind, self.stop.detail)

    async def _in_pace(self, held: Pass) -> Pass:
        """Waits with its place: times are taken by those who are next, not by all who come."""
        if self.pace is not None:
            await self.rest(self.pace.reserve_s())
            if self.stop is not None:
                self.hand_back(held)
                self._refuse_after_stop()
        return held

    async def _wait_for_money(self) -> None:
        """Until something that is on its way is settled; if that gives no room, it is the cap."""
        if self.stop is None and not self.budget.is_used_up():
            await self._settled.wait()
        elif self.stop is None:
            spent = f"${self.budget.spent_usd:.4f} spent, one more may cost "
            detail = (
                f"--max_cost_usd {self.budget.cap_usd}: {spent}${self.budget.estimate_usd():.4f}"
            )
            self.close(FailureKind.SPEND_CAP, detail)

    def _learn(self, held: Pass, fault: Fault, detail: str, hint_s: float | None) -> None:
        if fault.fatal:
            self._fatal += 1
            if self._fatal >= (fault.attempts or 1):  # said once, or confirmed by another
                self.close(fault.kind, detail)
        if fault.slows:
            self.limiter.slow_down(held.admission, hint_s, is_told=fault.pause_s is not None)
        if fault.pause_s is not None:
            self.limiter.pause(max(fault.pause_s, hint_s or 0.0), doubling=fault.pause_s > 0)
        if not fault.slows:
            self._faults_in_a_row += 1
            self._unreached_in_a_row += fault is UNREACHED
            self._stop_if_dead(detail)

    def _stop_if_dead(self, detail: str) -> None:
        many = self._faults_in_a_row >= _DEAD_AFTER
        unreached = self._unreached_in_a_row >= _UNREACHED_AFTER
        if (many or unreached) and self.clock() - self._answered_at >= _DEAD_AFTER_S:
            said = f"no answer in {self._faults_in_a_row} tries, the last: {detail}"
            self.close(FailureKind.SERVICE_STOPPED, said)
