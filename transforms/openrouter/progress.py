"""How far the calls are: a line that is rewritten on a terminal, else a log line a minute."""

import logging
import sys
import time
from collections import Counter
from decimal import Decimal

from transforms.openrouter.faults import Judged
from transforms.openrouter.gate import Gate

_LOG = logging.getLogger(__name__)
_LOG_EVERY_S = 60.0
_LINE_EVERY_S = 0.5


class Progress:
    """Counts of this process, since it started. Used on the event loop's thread alone."""

    def __init__(self, gate: Gate, prompts: int | None) -> None:
        self._gate = gate
        self._prompts = prompts
        self._answers = 0
        self._reused = 0
        self._tokens = 0
        self._cost_usd = Decimal(0)
        self._faults: Counter[str] = Counter()
        self._on_terminal = sys.stderr.isatty()
        self._said_at = self._started_at = time.monotonic()

    def reuse(self) -> None:
        """An answer was in the store."""
        self._reused += 1
        self._say()

    def count(self, judged: Judged) -> None:
        """A try is over."""
        self._cost_usd += judged.cost_usd or 0
        if judged.fault is not None:
            self._faults[judged.fault.name] += 1
        else:
            self._answers += 1
            tokens = (judged.reply.get("usage") or {}).get("completion_tokens")
            self._tokens += tokens if isinstance(tokens, int) else 0
        self._say()

    def close(self) -> None:
        """Ends the line on the terminal."""
        if self._on_terminal and self._said_at != self._started_at:
            sys.stderr.write("\n")

    def describe(self, seconds: float) -> str:
        """The line: done, in flight, rates, money spent and expected, time left, faults."""
        done = self._answers + self._reused
        rate = self._answers / max(seconds, 0.001)
        parts = [
            f"{done}/{self._prompts or '?'} answers ({self._reused} from the store)",
            f"{self._gate.limiter.in_flight} in flight of {int(self._gate.limiter.limit)}",
            f"{rate:.1f}/s",
            f"{self._tokens / max(seconds, 0.001):.0f} tokens/s",
            f"${self._cost_usd:.4f}{self._expected(done, rate)}",
        ]
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self._faults.items()))
        return " · ".join([*parts, *([f"faults: {faults}"] if faults else [])])

    def _expected(self, done: int, rate: float) -> str:
        if not self._prompts or not self._answers:
            return ""
        left = max(0, self._prompts - done)
        expected = self._cost_usd + self._cost_usd / self._answers * left
        return f" of about ${expected:.4f}, {left / rate:.0f} s left"

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said_at < (_LINE_EVERY_S if self._on_terminal else _LOG_EVERY_S):
            return
        self._said_at = now
        line = self.describe(now - self._started_at)
        if self._on_terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        else:
            _LOG.info(line)
