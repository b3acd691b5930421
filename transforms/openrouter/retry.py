"""How often and when a prompt is tried again, by the class of its faults."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field

import tenacity

from transforms.openrouter.faults import NOBODY_ELSE, Fault, Judged

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
    """What one request has met so far.

    Attributes:
        met: All of it, in earlier runs too, oldest first; the next try follows from it alone.
        counts, since: Of this run: each class of faults has its own measure of patience.
    """

    met: list[Judged] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    since: dict[str, float] = field(default_factory=dict)

    def best(self) -> Judged:
        """The first answer, else the first that cannot be used, else the last fault."""
        answers = [judged for judged in self.met if judged.reply is not None]
        good = [judged for judged in answers if judged.fault is None]
        return next(iter((*good, *answers, *reversed(self.met))), Judged())

    def is_settled(self) -> bool:
        """To ask again would give no more."""
        if not self.met:
            return False
        counts = self._counts_of_all()
        faults = [judged.fault for judged in self.met]
        return any(
            f is None or (f.permanent and counts[f.name] >= (f.attempts or 1)) for f in faults
        )

    def needs_another_host(self) -> bool:
        """Whether a host that answered would give the same again."""
        return any(judged.fault is not None and judged.fault.only_elsewhere for judged in self.met)

    def hosts_to_avoid(self) -> tuple[frozenset[str], frozenset[str]]:
        """Names of hosts that must not answer the next try, and of those that rather should not."""
        counts = self._counts_of_all()
        met = [(judged.host, judged.fault) for judged in self.met if judged.host and judged.fault]
        avoided = [
            (host, fault.only_elsewhere)
            for host, fault in met
            if fault.avoids_after is not None and counts[fault.name] >= fault.avoids_after
        ]
        must = frozenset(host for host, is_useless in avoided if is_useless)
        return must, frozenset(host for host, _ in avoided) - must

    def found_nobody(self, left_out: frozenset[str]) -> bool:
        """Whether no host was left for a body that left out these, or some of them."""
        refused = (judged.left_out for judged in self.met if judged.fault is NOBODY_ELSE)
        return any(left_out.issuperset(slugs) for slugs in refused)

    def lost(self) -> Judged | None:
        """The call whose answer the service's response cache may hold, if no host said more."""
        for judged in reversed(self.met):
            if judged.fault is None or judged.fault.maybe_paid:
                return judged if judged.fault else None
            if judged.fault is NOBODY_ELSE or judged.fault.avoids_after is not None:
                return None
        return None

    def repeats_a_fault(self) -> bool:
        """Whether the service's response cache gave what is of no use."""
        return bool(self.met) and self.met[-1].repeats is not None

    def _counts_of_all(self) -> Counter[str]:
        return Counter(judged.fault.name for judged in self.met if judged.fault is not None)

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
