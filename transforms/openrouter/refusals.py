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
_ROUND, _CLEAN_ROUND = 30, 10
"""Fewest requests of a round, and of one without a refusal; else twice the limit."""
_ROUNDS_KNOWN = 64
"""After so many rounds the experiment is made again: chance may have become load."""


@dataclass(slots=True)
class _Round:
    """Requests from the number `first` on; `served_s` is the sum of the times of answers."""

    first: int
    since: float
    admitted: float = 0
    refused: float = 0
    served_s: float = 0.0

    @property
    def is_mostly_refused(self) -> bool:
        return self.refused > self.admitted * _MOST + _spread(self.admitted, _MOST)

    def served(self, now: float) -> float:
        """How many at once were answered, on average (Little's law)."""
        return self.served_s / (now - self.since) if now > self.since else 0.0


def _prior() -> _Round:
    return _Round(first=0, since=0.0, admitted=_PRIOR_SENT, refused=_PRIOR_REFUSED)


@dataclass(slots=True)
class Refusals:
    """Counts what was admitted under a limit and refused. Times in seconds of the clock.

    Attributes:
        is_settling: The experiment is on: the limit must not grow.
        _served: How many were served at once in the last round.
        _proven: The same before the limit was cut.
        _suspect: The round that it was cut for, and `_cut_from` where it stood.
        _known: What was sent and refused in experiments.
        _was_out: Nothing at all was answered.
    """

    clock: Callable[[], float] = time.monotonic
    is_settling: bool = False
    _round: _Round | None = None
    _served: float = 0.0
    _proven: float = 0.0
    _suspect: _Round | None = None
    _cut_from: float = 0.0
    _rounds_known: int = 0
    _was_out: bool = False
    _known: _Round = field(default_factory=_prior)

    def admit(self, number: int, limit: float) -> float:
        """One more goes; returns the limit to go to, quickly."""
        if self._round is None:
            self._round = _Round(number, self.clock())
        self._round.admitted += 1
        fewest = _ROUND if self._round.refused else _CLEAN_ROUND
        is_over = self._round.admitted >= max(fewest, 2 * limit)
        return self._end_round(self._round, limit) if is_over else limit

    def answer(self, held_s: float) -> None:
        """One was answered, after so long."""
        if self._round is not None:
            self._round.served_s += held_s

    def are_load(self, number: int, limit: float) -> bool:
        """One that was admitted under this limit is refused: whether chance does not explain it."""
        now = self._round
        if now is None or number < now.first:  # of a round that was judged
            return False
        now.refused += 1
        if self.is_settling or limit <= self._below():
            return now.is_mostly_refused
        return not self._explains(now)

    def cut(self, limit: float, aim: float) -> float:
        """The lower limit, and a new round under it; `aim` is where it was going quickly."""
        now = self._round or _Round(0, self.clock())
        self._proven = self._served or now.served(self.clock())
        if not self.is_settling:
            self._suspect, self._cut_from = now, aim
        self._served, self._round = 0.0, None
        self.is_settling = True
        return max(1.0, limit * (_DEEPEST_CUT if now.is_mostly_refused else _CUT))

    def _below(self) -> float:
        """The limit under which the load is no reason to refuse."""
        return min(_BELOW * self._proven, self._proven - 1)

    def _end_round(self, ended: _Round, limit: float) -> float:
        """Where the limit should go from here."""
        self._round = None
        self._served = ended.served(self.clock())
        if ended.is_mostly_refused:
            self._was_out = self._was_out or not ended.served_s
            return limit
        if limit <= self._below():
            return self._judge(ended, limit)
        if self.is_settling and ended.refused:  # it may be chance, or load still
            self._proven = self._served
            return max(1.0, _DEEPEST_CUT * limit, min(limit, self._below()))
        aim = self._cut_from / 2 if self.is_settling and self._was_out else limit
        self.is_settling = self._was_out = False
        self._forget_after_long()
        return aim

    def _judge(self, ended: _Round, limit: float) -> float:
        """A round in which the load was no reason to refuse."""
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
