"""Requests a minute, shared by all processes of this host that share a store."""

import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path


class Pace:
    """A token bucket (GCRA): so many requests a minute, half a second's worth at once.

    The time of the next free request stands in one file, locked while it is changed; on Linux the
    monotonic clock is the same for all processes of a host, and starts anew with it.
    """

    def __init__(
        self, file: Path, per_minute: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s = 60.0 / per_minute
        self._burst_s = max(0.5, self._every_s)
        self._clock = clock
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)

    def reserve_s(self) -> float:
        """Takes one request and returns the seconds to wait before it may be sent."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            now = self._clock()
            stored = os.pread(self._file, 8, 0)
            free_at = struct.unpack("<d", stored)[0] if len(stored) == 8 else 0.0  # noqa: PLR2004
            if free_at > now + 3600:  # another boot's clock
                free_at = 0.0
            free_at = max(free_at, now - self._burst_s)
            os.pwrite(self._file, struct.pack("<d", free_at + self._every_s), 0)
            return max(0.0, free_at - now)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)
