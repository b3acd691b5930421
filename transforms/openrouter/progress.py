"""How far the calls are: a line that is rewritten on a terminal, else a log line a minute."""

import asyncio
import logging
import shutil
import sys
import time
from collections import Counter
from decimal import Decimal
from typing import Any

from transforms.openrouter.faults import Fault, Judged
from transforms.openrouter.gate import Gate

_LOG = logging.getLogger(__name__)
_LOG_EVERY_S = 60.0
_LINE_EVERY_S = 0.5
_NATURAL = ("stop", "tool_calls")
"""Finish reasons of answers that the model ended itself. Which of them are good is judged later."""


class Progress:
    """Counts of this process, since it started. Used on the event loop's thread alone.

    Attributes:
        good: Answers that are good as far as it is known, told by who looks at their counts.
    """

    def __init__(self, gate: Gate, prompts: int | None, every_s: float | None = None) -> None:
        self._gate = gate
        self._prompts = prompts
        self._requests = self._answers = self._reused = self._failed = self._natural = 0
        self.good: int | None = None
        self._tokens = 0
        self._cost_usd = Decimal(0)
        self._retries: Counter[str] = Counter()
        self._on_terminal = sys.stderr.isatty()
        self._every_s = every_s or (_LINE_EVERY_S if self._on_terminal else _LOG_EVERY_S)
        self._rows = 0
        self._started_at = time.monotonic()

    async def run(self) -> None:
        """Says the line again and again, also while nothing comes."""
        while True:
            await asyncio.sleep(self._every_s)
            self._say()

    def reuse(self, reply: Any) -> None:
        """An answer was in the store."""
        self._reused += 1
        self._natural += _finish_of(reply) in _NATURAL

    def count(self, judged: Judged) -> None:
        """A request is over."""
        self._requests += 1
        self._cost_usd += judged.cost_usd or 0
        if judged.reply is not None and judged.fault is None:
            self._answers += 1
            self._natural += _finish_of(judged.reply) in _NATURAL
            self._tokens += _tokens_of(judged.reply)

    def retry(self, fault: Fault) -> None:
        """A prompt will be tried again."""
        self._retries[fault.name] += 1

    def fail(self) -> None:
        """A prompt's tries are used up."""
        self._failed += 1

    def close(self) -> None:
        """The last line on a terminal stays."""
        if self._rows:
            self._say()
            sys.stderr.write("\n")

    def describe(self, seconds: float) -> str:
        """The line, for so many seconds since the start."""
        seconds = max(seconds, 0.001)
        done = self._answers + self._reused + self._failed
        total = "?" if self._prompts is None else self._prompts
        good = "" if self.good is None else f"{self.good} good so far by their counts, "
        kinds = f"{good}{self._natural} ended by the model itself, {self._failed} failed"
        parts = [
            f"{done}/{total} done ({kinds}, {self._reused} from the store)",
            f"{self._gate.limiter.in_flight} in flight of {int(self._gate.limiter.limit)}",
            f"{self._requests / seconds:.1f} requests/s",
            f"{self._tokens / seconds:.0f} tokens/s",
            f"${self._cost_usd:.4f} spent{self._expected(done, seconds)}",
            f"retries: {_listed(self._retries)}",
        ]
        return " · ".join(parts)

    def _expected(self, done: int, seconds: float) -> str:
        if self._prompts is None or not self._answers:
            return ""
        left = max(0, self._prompts - done)
        expected = self._cost_usd + self._cost_usd / self._answers * left
        return f" of about ${expected:.4f} · {_duration(left * seconds / self._answers)} left"

    def _say(self) -> None:
        line = self.describe(time.monotonic() - self._started_at)
        if self._on_terminal:
            self._rewrite(line)
        else:
            _LOG.info(line)

    def _rewrite(self, line: str) -> None:
        """Over the line before, which may have taken several rows of the terminal."""
        up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
        sys.stderr.write(f"\r{up}\x1b[J{line}")
        sys.stderr.flush()
        self._rows = -(-len(line) // shutil.get_terminal_size().columns)


def _finish_of(reply: Any) -> Any:
    return reply["choices"][0].get("finish_reason")


def _tokens_of(reply: Any) -> int:
    usage = reply.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else 0


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _duration(seconds: float) -> str:
    """Seconds of a short time, else hours and minutes."""
    minutes = round(seconds / 60)
    if minutes < 2:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004
