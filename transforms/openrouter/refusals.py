"""Whether a service refuses for load or by chance.

Hosts refuse some requests whatever the load (a pool that others share, a fault): who sends less
for it is refused as often, and stands still. The two are told apart by an experiment. When more are
refused than chance explains, the limit is cut below the number that the service has just *served*
at once, and held for a round. Refusals that go on there are chance: their share is known from then
on, and if it explains what the limit was cut for, the limit goes back. If they end, it was load.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_CUT, _DEEPEST_CUT = 0.7, 0.5
_BELOW = 0.9
"""Of what was served at once: a service that refuses there has no reason in the load."""
_MOST = 0.5
"""A greater share than this is no chance: the service serves less than it did, or nothing."""
_PRIOR_SENT, _PRIOR_REFUSED = 50, 1
"""What is believed of any service: without it one refusal in a hundred, which is usual, cuts."""
_WELL_KNOWN = 150
"""Requests, with those of the prior, before the share is relied on."""
_SIGMAS = 4.0
"""A round is looked at as often as one is refused in it: at three, one in ten is a false alarm."""
_ROUND, _CLEAN_ROUND, _ROUNDS = 30, 10, 1.5
"""Fewest requests of a round, and of one without a refusal; else one and a half times the limit."""
_ROUNDS_KNOWN = 64
"""After so many rounds the experiment is made again: chance may have become load."""


@dataclass(slots=True)
class _Round:
    """Requests from the number `first` on; `served_s` is the sum of the times of answers."""

    first: float = math.inf
    since: float = 0.0
    admitted: int = 0
    refused: int = 0
    answered: int = 0
    served_s: float = 0.0

    @property
    def is_mostly_refused(self) -> bool:
        return self.refused > self.admitted * _MOST + _spread(self.admitted, _MOST)

    @property
    def next(self) -> float:
        """The first number of the next round."""
        return self.first + self.admitted

    def served(self, now: float) -> float:
        """How many at once were answered, on average (Little's law).

        Not more than the answers that came, should the round be shorter than they took.
        """
        return min(self.served_s / max(now - self.since, 1e-9), float(self.answered))


def _prior() -> _Round:
    return _Round(admitted=_PRIOR_SENT, refused=_PRIOR_REFUSED)


@dataclass(slots=True)
class Refusals:
    """Counts what was admitted under a limit and refused. Times in seconds of the clock.

    Attributes:
        is_settling: The experiment is on: the limit must not grow.
        is_refused: Most of the last round was; there is no need to wait for more to know it.
        _round: What is being sent.
        _last: What was sent before it; it is judged when what came of it is known.
        _met: The one of the two that the last refusal is of.
        _served: How many were served at once in the last round.
        _proven: The same before the limit was cut.
        _suspect: The round that it was cut for, and `_cut_from` where it stood.
        _known: What was sent and refused in experiments.
        _is_out: Not even one at once is served; the next answer ends that.
    """

    clock: Callable[[], float] = time.monotonic
    is_settling: bool = False
    is_refused: bool = False
    _round: _Round = field(default_factory=_Round)
    _last: _Round | None = None
    _met: _Round = field(default_factory=_Round)
    _served: float = 0.0
    _proven: float = 0.0
    _suspect: _Round | None = None
    _cut_from: float = 0.0
    _rounds_known: int = 0
    _is_out: bool = False
    _known: _Round = field(default_factory=_prior)

    def admit(self, number: int, limit: float) -> float:
        """One more goes; returns the limit to go to, quickly."""
        if not self._round.admitted:
            self._round = _Round(number, self.clock())
        self._round.admitted += 1
        aim = limit
        last = self._last
        if last is not None and number >= last.next + int(limit):
            self._last = None
            aim = self._judge(last, limit)
        fewest = _ROUND if self._round.refused else _CLEAN_ROUND
        if self._last is None and self._round.admitted >= max(fewest, _ROUNDS * limit):
            self._served = self._round.served(self.clock())
            self._last, self._round = self._round, _Round()
        return aim

    def answer(self, held_s: float, limit: float, *, is_new: bool) -> float:
        """One was answered, after so long; returns the limit to go to, quickly.

        `is_new`: it was admitted under this limit.
        """
        self._round.answered += 1
        self._round.served_s += held_s
        if not (self._is_out and is_new):
            return limit
        self.is_settling = self._is_out = False
        return self._cut_from / 2

    def are_load(self, number: int, limit: float) -> bool:
        """One that was admitted under this limit is refused: whether chance does not explain it."""
        of = self._last if self._last and number < self._last.next else self._round
        if number < of.first:
            return False
        of.refused += 1
        self._met = of
        if self.is_refused:
            return True
        if self.is_settling or limit <= self._below():
            return of.is_mostly_refused
        return not self._explains(of)

    def cut(self, limit: float, aim: float) -> float:
        """The lower limit, and a new round under it; `aim` is where it was going quickly."""
        self._proven = self._served or self._round.served(self.clock())
        if not self.is_settling:
            self._suspect, self._cut_from = self._met, aim
        share = _DEEPEST_CUT if self.is_refused or self._met.is_mostly_refused else _CUT
        self._served, self._round, self._last = 0.0, _Round(), None
        self.is_settling, self.is_refused = True, False
        self._is_out = limit * share < 1
        return max(1.0, limit * share)

    def _below(self) -> float:
        """The limit under which the load is no reason to refuse."""
        return min(_BELOW * self._proven, self._proven - 1)

    def _judge(self, ended: _Round, limit: float) -> float:
        """Where the limit should go from here."""
        self.is_refused = ended.is_mostly_refused
        if self.is_refused:
            return limit
        if limit <= self._below():
            return self._end_experiment(ended, limit)
        if self.is_settling and ended.refused:  # it may be chance, or load still
            self._proven, self._last, self._round = self._served, None, _Round()
            return max(1.0, _DEEPEST_CUT * limit, min(limit, self._below()))
        self.is_settling = False
        self._forget_after_long()
        return limit

    def _end_experiment(self, ended: _Round, limit: float) -> float:
        """The load was no reason to refuse in this round."""
        self._learn(ended)
        self.is_settling = bool(ended.refused) and self._known.admitted < _WELL_KNOWN
        if self.is_settling:
            return limit
        if self._suspect is None or not self._explains(self._suspect):
            return self._below()
        self._suspect = None
        return self._cut_from

    def _explains(self, round_: _Round) -> bool:
        """Whether what is known of chance explains the refusals of a round."""
        share = self._known.refused / self._known.admitted
        spread = _spread(round_.admitted, share, self._known.admitted)
        return round_.refused <= 1 + round_.admitted * share + spread

    def _learn(self, ended: _Round) -> None:
        known = self._known
        share = known.refused / known.admitted
        spread = _spread(ended.admitted, share, known.admitted)
        if abs(ended.refused - ended.admitted * share) > spread:
            self._known = known = _prior()  # it has changed
        known.admitted += ended.admitted
        known.refused += ended.refused
        self._rounds_known = 0

    def _forget_after_long(self) -> None:
        self._rounds_known += 1
        if self._rounds_known > _ROUNDS_KNOWN:
            self._known = _prior()


def _spread(sent: float, share: float, known_by: float = math.inf) -> float:
    """Four sigma of how many of those sent are refused; the share is known by so many."""
    return _SIGMAS * math.sqrt(sent * share * (1 - share) * (1 + sent / max(known_by, 1)))
