"""Several processes that are one service: one port, and what they must know of each other.

The kernel gives each connection to one of them (SO_REUSEPORT). How often a body was seen is counted
in memory that all share, since every decision is a function of it; ledgers are added up when they
are asked for, over sockets in a folder. Limits are divided; caches are each process's own.
"""

import mmap
import multiprocessing
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

_SLOTS = 1 << 20
_SLOT = struct.Struct("<8sQ")
"""The first bytes of a body's digest, and how often it was seen."""


class SharedSeen:
    """How often each body was seen, by all processes that are forked after it was made.

    Holds a million bodies: 16 MB, of which only what is written to takes memory.
    """

    def __init__(self) -> None:
        self._table = mmap.mmap(-1, _SLOTS * _SLOT.size)
        self._lock = multiprocessing.Lock()

    def add(self, digest: str) -> int:
        """Counts a body once more, and gives how often it was seen before.

        Raises:
            OverflowError: It is another one after a million.
        """
        key = bytes.fromhex(digest)[:8]
        first = int.from_bytes(key, "little")
        with self._lock:
            for slot in range(first, first + _SLOTS):
                place = slot % _SLOTS * _SLOT.size
                found, seen = _SLOT.unpack_from(self._table, place)
                if not seen or found == key:
                    _SLOT.pack_into(self._table, place, key, seen + 1)
                    return int(seen)
        raise OverflowError(f"more than {_SLOTS} bodies in one run of several processes")

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._table[:] = bytes(len(self._table))


class Peers:
    """The processes of one service, each behind a socket of this folder."""

    def __init__(self, folder: Path, count: int) -> None:
        self._sockets = [folder / f"{number}.sock" for number in range(count)]

    def socket(self, number: int) -> Path:
        """Where a process hears the others."""
        return self._sockets[number]

    async def ask(self, method: str, path: str) -> list[bytes]:
        """What each of them answers, in order."""
        return [await self._ask(socket, method, path) for socket in self._sockets]

    async def _ask(self, socket: Path, method: str, path: str) -> bytes:
        connector = aiohttp.UnixConnector(str(socket))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, f"http://peer{path}") as response,
        ):
            return await response.read()


def add_up(ledgers: list[dict[str, Any]]) -> dict[str, Any]:
    """The ledger of all from those of each, as `Ledger.parts` gives them.

    `max_in_flight` is the sum of each one's: at most so many were there at once.
    """
    whole: dict[str, Any] = {}
    for ledger in ledgers:
        for name, value in ledger.items():
            if isinstance(value, dict):
                whole[name] = dict(Counter(whole.get(name, {})) + Counter(value))
            else:
                whole[name] = whole.get(name, 0) + value
    return whole
