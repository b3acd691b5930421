"""The response store: every attempt, byte for byte, kept before anything else happens to it.

The answer to a request is the first attempt that was one; which that is, is judged when it is read,
so that nothing stands between the arrival of the bytes and the disk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

IMPORTED = "import-"
"""How the ids of runs begin that paid nothing: their answers were recorded by others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one request, as it went over the wire.

    Attributes:
        number: 1 for the first try; given by the store, `None` before.
        status: HTTP status; `None` if no header came.
        error: What the transport said, if it failed.
        headers: The ones that are kept, names in lower case.
        body: The bytes that came, whole or not.
        sent: The body that was sent, if it was another than the request's own: it left out hosts.
        started_at, ended_at: Unix seconds.
        first_at, last_at: When the first and the last block with text came; padding has none.
    """

    request_sha256: str
    run_id: str
    status: int | None
    error: str | None
    headers: tuple[tuple[str, str], ...]
    body: bytes
    started_at: float
    ended_at: float
    first_at: float | None = None
    last_at: float | None = None
    sent: str | None = None
    number: int | None = None


class ResponseStore(Protocol):
    """Attempts by request; any number of threads and processes may share one.

    Nothing is ever changed or removed, and no key, token or user id is put in. What cannot be read
    or kept any more raises `StoreError`.
    """

    def attempts(self, request_sha256: str) -> tuple[Attempt, ...]:
        """All attempts at a request, oldest first."""

    async def look_up(self, request_sha256: str) -> tuple[Attempt, ...]:
        """`attempts` for an event loop, which must not wait for a network."""

    async def put(self, attempt: Attempt) -> None:
        """Returns when the attempt is durable; its `number` is the store's to give."""

    def attempts_of_run(self, run_id: str) -> Iterator[Attempt]:
        """All attempts that a run made."""

    def all_attempts(self) -> Iterator[Attempt]:
        """Every attempt that is kept."""

    def spent_usd(self) -> Decimal | None:
        """What all attempts cost by their own account, imported ones nothing.

        `None`: it is not kept, read them all.
        """

    def close(self) -> None:
        """Returns when what was put is durable."""
