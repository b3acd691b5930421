"""How far the calls are: one log line now and then."""

import contextlib
import logging
import time
from collections.abc import Iterator
from decimal import Decimal

from transforms.openrouter.faults import Judged

_LOG = logging.getLogger(__name__)
_EVERY_S = 10.0


class Progress:
    """Counts of this process, since it started. Used on the event loop's thread alone."""

    def __init__(self) -> None:
        self._answers = 0
        self._faults = 0
        self._in_flight = 0
        self._cost_usd = Decimal(0)
        self._said_at = self._started_at = time.monotonic()

    @contextlib.contextmanager
    def in_flight(self) -> Iterator[None]:
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def count(self, judged: Judged) -> None:
        if judged.reply is None:
            self._faults += 1
        else:
            self._answers += 1
        self._cost_usd += judged.cost_usd
        self._say()

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said_at < _EVERY_S:
            return
        self._said_at = now
        seconds = now - self._started_at
        _LOG.info(
            "%d answers in %.0f s (%.1f/s), %d in flight, %d faults, $%.4f",
            self._answers,
            seconds,
            self._answers / seconds,
            self._in_flight,
            self._faults,
            self._cost_usd,
        )
