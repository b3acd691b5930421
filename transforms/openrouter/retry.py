"""How often and when a prompt is tried again, by the class of its faults."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field

import tenacity

from transforms.openrouter.faults import Fault, Judged

_SHORTEST_WAIT_S = 1.0


class AskAgainError(Exception):
    """A fault that the next attempt may not meet."""

    def __init__(self, judged: Judged, fault: Fault, hint: float | None) -> None:
        super().__init__(judged.detail)
        self.judged = judged
        self.fault = fault
        self.hint_s = hint


@dataclass(slots=True)
class Tries:
    """What one prompt has met so far; each class of faults has its own measure of patience."""

    counts: Counter[str] = field(default_factory=Counter)
    since: dict[str, float] = field(default_factory=dict)

    def used_up(self, state: tenacity.RetryCallState) -> bool:
        fault = error_of(state).fault
        self.counts[fault.name] += 1
        first = self.since.setdefault(fault.name, time.monotonic())
        too_many = fault.attempts is not None and self.counts[fault.name] >= fault.attempts
        return too_many or time.monotonic() - first > fault.patience_s

    def wait_s(self, state: tenacity.RetryCallState) -> float:
        """What the service asks for and a little more, else full jitter over a doubling window."""
        error = error_of(state)
        if error.hint_s is not None:
            return max(error.hint_s, _SHORTEST_WAIT_S) * random.uniform(1.0, 1.04)
        window = error.fault.base_s * 2 ** min(self.counts[error.fault.name] - 1, 20)
        least = _SHORTEST_WAIT_S if error.fault.slows else 0.0
        return max(least, random.uniform(0, min(window, error.fault.cap_s)))


def error_of(state: tenacity.RetryCallState) -> AskAgainError:
    """What the last try met."""
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, AskAgainError):
        raise TypeError(f"asked about {error!r}")  # another error is never retried
    return error
