"""How long answers take, and from when on a call is stuck: it waits, but for no answer."""

import math
from collections import deque
from dataclasses import dataclass, field

_SEEN = 200
_ENOUGH = 20
_QUANTILE = 0.95
_MULTIPLE = 4.0
"""Of answers whose times are log-normal with sigma 0.7, one in 3,000 takes longer than that."""
_LEAST_S = 2.0
"""What a busy machine may add."""


@dataclass(slots=True)
class Latency:
    """The times of the last answers, in seconds.

    Attributes:
        stuck_after_s: Four times the 95th percentile; endless before 20 answers are known.
    """

    stuck_after_s: float = math.inf
    _seen: deque[float] = field(default_factory=lambda: deque(maxlen=_SEEN))
    _new: int = 0

    def add(self, seconds: float) -> None:
        """An answer took so long; every twentieth moves the percentile."""
        self._seen.append(seconds)
        self._new += 1
        if self._new >= _ENOUGH:
            self._new = 0
            high = sorted(self._seen)[int(len(self._seen) * _QUANTILE)]
            self.stuck_after_s = max(_LEAST_S, _MULTIPLE * high)
