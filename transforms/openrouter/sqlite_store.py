"""The response store on a local disk.

SQLite in WAL mode, one writer thread a process with group commit; several processes of one host may
share it.
"""

import asyncio
import json
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from transforms.failures import ConfigError
from transforms.openrouter.store import Attempt

_FORMAT = 1
"""`user_version` of the database; another one is another program's, or another release's."""
_MAX_GROUP = 512
"""Most attempts a commit; a commit takes as long as the next group needs to gather."""

_SCHEMA = """
create table if not exists attempts(
    request_sha256 blob not null,
    attempt integer not null,
    run_id text not null,
    status integer,
    error text,
    headers text not null,
    body blob not null,
    started_at real not null,
    ended_at real not null,
    primary key(request_sha256, attempt)
) without rowid
"""
_INSERT = """
insert into attempts
select :request, coalesce(max(attempt), 0) + 1, :run_id, :status, :error, :headers, :body,
       :started_at, :ended_at
from attempts where request_sha256 = :request
"""
_COLUMNS = "request_sha256, attempt, run_id, status, error, headers, body, started_at, ended_at"


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
        self._open()

    def attempts(self, request_sha256: str) -> tuple[Attempt, ...]:
        """All attempts at a request, oldest first."""
        query = f"select {_COLUMNS} from attempts where request_sha256 = ? order by attempt"  # noqa: S608
        rows = self._connection().execute(query, (bytes.fromhex(request_sha256),))
        return tuple(_read(row) for row in rows)

    async def look_up(self, request_sha256: str) -> tuple[Attempt, ...]:
        """The same on the loop's own thread: 5 µs, less than a hop to another one."""
        return self.attempts(request_sha256)

    def attempts_of_run(self, run_id: str) -> Iterator[Attempt]:
        """All attempts that a run made."""
        query = f"select {_COLUMNS} from attempts where run_id = ?"  # noqa: S608
        return (_read(row) for row in self._connection().execute(query, (run_id,)))

    async def put(self, attempt: Attempt) -> None:
        """Returns when the attempt is on disk."""
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
        try:
            connection = self._connection()
            version = connection.execute("pragma user_version").fetchone()[0]
            tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
            if version not in {0, _FORMAT} or (version == 0 and tables):
                raise ConfigError(
                    f"--store {self.path}: not a response store of this program (format {version}, "
                    f"expected {_FORMAT}); nothing was changed, name another folder"
                )
            connection.execute("pragma journal_mode=wal")
            connection.execute(_SCHEMA)
            connection.execute(f"pragma user_version={_FORMAT}")
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
        compress = zstandard.ZstdCompressor(level=1).compress
        connection = self._connection()
        while (first := self._queue.get()) is not None:
            group, stop = self._gather(first)
            error = _commit(connection, [_row(put.attempt, compress) for put in group])
            first.loop.call_soon_threadsafe(_settle, group, error)
            if stop:
                break
        connection.close()
        del self._local.connection

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


@dataclass(frozen=True, slots=True)
class _Put:
    attempt: Attempt
    loop: asyncio.AbstractEventLoop
    committed: asyncio.Future[None]


def _commit(connection: sqlite3.Connection, rows: list[dict[str, object]]) -> Exception | None:
    try:
        connection.execute("begin immediate")
        connection.executemany(_INSERT, rows)
        connection.execute("commit")
    except sqlite3.Error as error:  # a full disk: nobody may go on as if the answer were kept
        if connection.in_transaction:
            connection.execute("rollback")
        return error
    return None


def _settle(group: list[_Put], error: Exception | None) -> None:
    for put in group:
        if put.committed.done():  # its task was cancelled
            continue
        if error is None:
            put.committed.set_result(None)
        else:
            put.committed.set_exception(error)


def _row(attempt: Attempt, compress: Callable[[bytes], bytes]) -> dict[str, object]:
    return {
        "request": bytes.fromhex(attempt.request_sha256),
        "run_id": attempt.run_id,
        "status": attempt.status,
        "error": attempt.error,
        "headers": json.dumps(attempt.headers),
        "body": compress(attempt.body),
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
    }


def _read(row: tuple[bytes, int, str, int | None, str | None, str, bytes, float, float]) -> Attempt:
    request, number, run_id, status, error, headers, body, started_at, ended_at = row
    return Attempt(
        request_sha256=request.hex(),
        number=number,
        run_id=run_id,
        status=status,
        error=error,
        headers=tuple((name, value) for name, value in json.loads(headers)),
        body=zstandard.decompress(body),
        started_at=started_at,
        ended_at=ended_at,
    )
