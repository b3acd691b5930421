"""The response store on a local disk.

SQLite in WAL mode, one writer thread a process with group commit; several processes of one host may
share it.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import zstandard

from transforms.failures import ConfigError, StoreError
from transforms.openrouter.sqlite_rows import (
    ADD_SENT,
    ATTEMPTS,
    COLUMNS,
    INSERT,
    SPEND,
    SPENT,
    read_row,
    spent_by_run,
    write_row,
)
from transforms.openrouter.store import IMPORTED, Attempt

T = TypeVar("T")
_FORMAT = 1
"""`user_version` of the database; another one is another release's."""
_OURS = 0x45334150
"""`application_id` of the database; another one is another program's."""
_MAX_GROUP = 512
"""Most attempts a commit or a query; a commit takes as long as the next group needs to gather."""


class SqliteStore:
    """Attempts by request, in `FOLDER/responses.sqlite`.

    Raises:
        ConfigError: The file is no such store.
    """

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "responses.sqlite"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--store {folder}: cannot be written: {error}") from error
        self._local = threading.local()
        self._queue: queue.SimpleQueue[_Put | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._wanted: list[tuple[str, asyncio.Future[tuple[Attempt, ...]]]] = []
        self._open()

    def attempts(self, request_sha256: str) -> tuple[Attempt, ...]:
        """All attempts at a request, oldest first.

        Raises:
            StoreError: The file is damaged.
        """
        return tuple(self._select("request_sha256", bytes.fromhex(request_sha256)))

    async def look_up(self, request_sha256: str) -> tuple[Attempt, ...]:
        """The same on the loop's own thread: 5 µs, less than a hop to another one.

        Requests of one turn of the loop are one query: each query gives up the interpreter's lock
        and waits for it again, 50 µs beside a busy thread.
        """
        loop = asyncio.get_running_loop()
        found: asyncio.Future[tuple[Attempt, ...]] = loop.create_future()
        self._wanted.append((request_sha256, found))
        loop.call_soon(self._look_up_wanted)
        return await found

    def _look_up_wanted(self) -> None:
        """The first call of a turn serves all."""
        wanted, self._wanted = self._wanted[:_MAX_GROUP], self._wanted[_MAX_GROUP:]
        if not wanted:
            return
        attempts: dict[str, list[Attempt]] = {request: [] for request, _ in wanted}
        error: StoreError | None = None
        try:
            for attempt in self._select("request_sha256", *map(bytes.fromhex, attempts)):
                attempts[attempt.request_sha256].append(attempt)
        except StoreError as caught:
            error = caught
        for request, found in wanted:
            _give(found, tuple(attempts[request]), error)

    def attempts_of_run(self, run_id: str) -> Iterator[Attempt]:
        """All attempts that a run made.

        Raises:
            StoreError: The file is damaged.
        """
        return self._select("run_id", run_id)

    def all_attempts(self) -> Iterator[Attempt]:
        """Every attempt that is kept.

        Raises:
            StoreError: The file is damaged.
        """
        return self._select("1", 1)

    def _select(self, column: str, *values: object) -> Iterator[Attempt]:
        marks = ",".join("?" * len(values))
        query = f"select {COLUMNS} from attempts where {column} in ({marks})"  # noqa: S608 - ours
        order = " order by request_sha256, attempt"
        with self._or_store_error():
            for row in self._connection().execute(query + order, values):
                yield read_row(row)

    @contextlib.contextmanager
    def _or_store_error(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, zstandard.ZstdError, ValueError) as error:
            raise StoreError(
                f"--store {self.path} is damaged: {error}; take a copy, and repair it with "
                "sqlite3 .recover"
            ) from error

    def spent_usd(self) -> Decimal | None:
        """What all attempts cost; `None` if some were put by a release that kept no count.

        Raises:
            StoreError: The file is damaged.
        """
        query = """
            select sum(iif(substr(run_id, 1, ?) = ?, 0, cost_usd)),
                   sum(attempts) is (select nullif(count(*), 0) from attempts)
            from spent
        """
        with self._or_store_error():
            usd, is_complete = (
                self._connection().execute(query, (len(IMPORTED), IMPORTED)).fetchone()
            )
        return Decimal(str(round(usd or 0, 9))) if is_complete else None

    async def put(self, attempt: Attempt) -> None:
        """Returns when the attempt is on disk.

        Raises:
            StoreError: It cannot be kept, as on a full disk.
        """
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, daemon=True, name="store-writer")
            self._writer.start()
        loop = asyncio.get_running_loop()
        committed = loop.create_future()
        self._queue.put(_Put(attempt, loop, committed))
        await committed

    def close(self) -> None:
        """Stops the writer after what is queued; the file stays usable."""
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join()
            self._writer = None

    def _open(self) -> None:
        is_new = not self.path.exists()
        if not is_new and self.path.stat().st_size == 0:
            raise ConfigError(
                f"--store {self.path}: is empty, as if it had been cut; remove it to start anew"
            )
        try:
            connection = self._connection()
            found = [
                connection.execute(f"pragma {name}").fetchone()[0]
                for name in ("application_id", "user_version")
            ]
            if not is_new and found != [_OURS, _FORMAT]:
                raise ConfigError(
                    f"--store {self.path}: not a response store of this program (found {found}, "
                    f"expected {[_OURS, _FORMAT]}); nothing was changed, name another folder"
                )
            if is_new:
                connection.execute(f"pragma application_id={_OURS}")
                connection.execute(f"pragma user_version={_FORMAT}")
                connection.execute("pragma journal_mode=wal")
            connection.execute(ATTEMPTS)
            _complete(connection)
            connection.execute(SPENT)
        except sqlite3.OperationalError as error:
            raise ConfigError(f"--store {self.path}: cannot be used now: {error}") from error
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                f"--store {self.path}: cannot be used: {error}; nothing was changed, "
                "repair it (sqlite3 .recover) or name another folder"
            ) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            connection.execute("pragma synchronous=full")
            self._local.connection = connection
        return connection

    def _write(self) -> None:
        """The writer thread: whatever goes wrong reaches those who wait, and it goes on."""
        compress = zstandard.ZstdCompressor(level=1).compress
        while (first := self._queue.get()) is not None:
            group, stop = self._gather(first)
            error: Exception | None = None
            try:
                _commit(self._connection(), [write_row(put.attempt, compress) for put in group])
            except Exception as caught:  # noqa: BLE001 - raised again where the answer is awaited
                error = StoreError(f"--store {self.path}: an answer cannot be kept: {caught}")
            first.loop.call_soon_threadsafe(_settle, group, error)
            if stop:
                break
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def _gather(self, first: "_Put") -> tuple[list["_Put"], bool]:
        group = [first]
        while len(group) < _MAX_GROUP:
            try:
                put = self._queue.get_nowait()
            except queue.Empty:
                return group, False
            if put is None:
                return group, True
            group.append(put)
        return group, False


def _complete(connection: sqlite3.Connection) -> None:
    """Adds the column that a store of an earlier release lacks, whoever comes first."""
    if _lacks_sent(connection):
        connection.execute("begin immediate")
        if _lacks_sent(connection):
            connection.execute(ADD_SENT)
        connection.execute("commit")


def _lacks_sent(connection: sqlite3.Connection) -> bool:
    columns = connection.execute("pragma table_info(attempts)").fetchall()
    return "sent" not in {name for _, name, *_ in columns}


@dataclass(frozen=True, slots=True)
class _Put:
    attempt: Attempt
    loop: asyncio.AbstractEventLoop
    committed: asyncio.Future[None]


def _commit(connection: sqlite3.Connection, rows: list[dict[str, object]]) -> None:
    connection.execute("begin immediate")
    try:
        connection.executemany(INSERT, rows)
        connection.executemany(SPEND, spent_by_run(rows))
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _settle(group: list[_Put], error: Exception | None) -> None:
    for put in group:
        _give(put.committed, None, error)


def _give(future: asyncio.Future[T], result: T, error: Exception | None) -> None:
    if future.done():  # its task was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
