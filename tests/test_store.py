"""The response store: what is put is there, byte for byte, whoever shares it."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.failures import ConfigError
from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.store import Attempt

KEY = "ab" * 32


def attempt(body: bytes, request: str = KEY, run_id: str = "run") -> Attempt:
    return Attempt(
        request_sha256=request,
        run_id=run_id,
        status=200,
        error=None,
        headers=(("retry-after", "1"),),
        body=body,
        started_at=1.0,
        ended_at=2.0,
    )


def put(store: SqliteStore, *attempts: Attempt) -> None:
    async def all_at_once() -> None:
        await asyncio.gather(*(store.put(item) for item in attempts))

    asyncio.run(all_at_once())


@given(bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_every_attempt_is_kept_in_order(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes]
) -> None:
    folder = str(tmp_path_factory.mktemp("store"))
    store = SqliteStore(folder)
    for body in bodies:
        put(store, attempt(body))
    store.close()
    found = SqliteStore(folder).attempts(KEY)
    assert [item.body for item in found] == bodies
    assert [item.number for item in found] == list(range(1, len(bodies) + 1))
    assert found[0].headers == (("retry-after", "1"),)


def test_two_processes_may_share_it(tmp_path: Path) -> None:
    stores = [SqliteStore(str(tmp_path)) for _ in range(2)]

    async def both() -> None:
        puts = [
            store.put(attempt(b"%d" % number, f"{number:064x}"))
            for number in range(200)
            for store in stores
        ]
        await asyncio.gather(*puts)

    asyncio.run(both())
    for number in range(200):
        bodies = [item.body for item in stores[0].attempts(f"{number:064x}")]
        assert bodies == [b"%d" % number] * 2


def test_tells_what_a_run_did(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    put(store, attempt(b"1", run_id="a"), attempt(b"2", run_id="b"))
    assert [item.body for item in store.attempts_of_run("b")] == [b"2"]


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"x" * 200]
)
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "responses.sqlite"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="nothing was changed"):
        SqliteStore(str(tmp_path))
    assert path.read_bytes() == content


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "responses.sqlite")
    connection.execute("create table notes(text)")
    connection.commit()
    connection.close()
    before = (tmp_path / "responses.sqlite").read_bytes()
    with pytest.raises(ConfigError, match="not a response store"):
        SqliteStore(str(tmp_path))
    assert (tmp_path / "responses.sqlite").read_bytes() == before
