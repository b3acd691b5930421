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
_WRONG_MODEL_AFTER = 3


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
    _faults_in_a_row: int = 0
    _unreached_in_a_row: int = 0
    _answered_at: float = 0.0
    _wrong_models: int = 0

    def __post_init__(self) -> None:
        self._answered_at = self.clock()

    async def enter(self) -> Pass:
        """Waits for a place.

        Raises:
            RecordError: With the kind of the stop, once there is one.
        """
        if self.pace is not None and self.stop is None:
            await self.rest(self.pace.reserve_s())
        self._refuse_after_stop()
        admission = await self.limiter.admit()
        try:
            self._refuse_after_stop()
            return Pass(admission, self._reserve())
        except RecordError:
            self.limiter.release()
            raise

    def leave(self, held: Pass, judged: Judged, hint_s: float | None) -> None:
        """Gives the place back, and books what came."""
        fault = judged.fault
        maybe_paid = fault is not None and fault.maybe_paid
        self.budget.settle(held.reservation, judged.cost_usd, maybe_paid=maybe_paid)
        if fault is None:
            self.limiter.succeed(held.admission)
            self._faults_in_a_row = self._unreached_in_a_row = 0
            self._answered_at = self.clock()
        else:
            self._learn(held, fault, judged.detail, hint_s)
        self.limiter.release()

    def close(self, kind: FailureKind, detail: str) -> None:
        """Nothing more is sent; the first reason stands."""
        self.stop = self.stop or Stop(kind, detail)
        self.stopping.set()
        self.limiter.open()

    def see_wrong_model(self, detail: str) -> None:
        """An answer of another model: a redirect of the whole run, if it comes again."""
        self._wrong_models += 1
        if self._wrong_models >= _WRONG_MODEL_AFTER:
            self.close(FailureKind.SERVICE_STOPPED, detail)

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

    def _reserve(self) -> Decimal:
        reservation = self.budget.reserve()
        if reservation is None:
            detail = f"--max_cost_usd {self.budget.cap_usd}: ${self.budget.spent_usd:.4f} spent"
            self.close(FailureKind.SPEND_CAP, detail)
            self._refuse_after_stop()
        return reservation or Decimal(0)

    def _learn(self, held: Pass, fault: Fault, detail: str, hint_s: float | None) -> None:
        if fault.slows:
            self.limiter.slow_down(held.admission, hint_s)
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
