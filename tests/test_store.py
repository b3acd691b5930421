"""The response store: what is put is there, byte for byte, whoever shares it."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.tally import spent_before
from transforms.failures import ConfigError
from transforms.openrouter.open_store import open_store
from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.store import Attempt, ResponseStore

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


def put(store: ResponseStore, *attempts: Attempt) -> None:
    async def all_at_once() -> None:
        await asyncio.gather(*(store.put(item) for item in attempts))

    asyncio.run(all_at_once())


def read(location: str, request: str = KEY) -> tuple[Attempt, ...]:
    """What another process would find."""
    with contextlib.closing(open_store(location)) as store:
        found = store.attempts(request)
        assert asyncio.run(store.look_up(request)) == found
    return found


ANYTHING = st.builds(
    Attempt,
    request_sha256=st.just(KEY),
    run_id=st.just("run"),
    status=st.none() | st.integers(100, 599),
    error=st.none() | st.text(st.characters(), max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=9), st.text(st.characters()))).map(tuple),
    body=st.binary(max_size=200),
    started_at=st.floats(0, 1e10),
    ended_at=st.floats(0, 1e10),
    first_at=st.none() | st.floats(0, 1e10),
    last_at=st.none() | st.floats(0, 1e10),
    sent=st.none() | st.text(max_size=20),
)
"""Lone surrogates too: what aiohttp makes of header bytes that are not UTF-8."""


@settings(max_examples=60)
@given(attempts=st.lists(ANYTHING, min_size=1, max_size=4))
def test_every_attempt_is_kept_in_order(
    new_location: Callable[[], str], attempts: list[Attempt]
) -> None:
    location = new_location()
    with contextlib.closing(open_store(location)) as store:
        for item in attempts:
            put(store, item)
    numbered = [replace(item, number=number) for number, item in enumerate(attempts, start=1)]
    assert list(read(location)) == numbered


def test_what_was_never_tried_has_no_attempts(new_location: Callable[[], str]) -> None:
    location = new_location()
    assert read(location) == ()
    with contextlib.closing(open_store(location)) as store:
        put(store, attempt(b"1"))
    assert read(location, "ac" * 32) == ()


def test_two_writers_may_share_it(new_location: Callable[[], str]) -> None:
    location = new_location()
    stores = [open_store(location) for _ in range(2)]

    async def both() -> None:
        puts = [
            store.put(attempt(b"%d" % number, f"{number:064x}"))
            for number in range(100)
            for store in stores
        ]
        await asyncio.gather(*puts)

    asyncio.run(both())
    for number in range(100):
        found = stores[0].attempts(f"{number:064x}")
        assert [(item.number, item.body) for item in found] == [(n, b"%d" % number) for n in (1, 2)]
    for store in stores:
        store.close()


def test_tells_what_a_run_did(new_location: Callable[[], str]) -> None:
    location = new_location()
    with contextlib.closing(open_store(location)) as store:
        put(store, attempt(b"1", run_id="a"), attempt(b"2", run_id="b"))
        many = [attempt(b"%d" % n, f"{n:064x}", run_id="c") for n in range(150)]
        put(store, *many)
        assert [item.body for item in store.attempts_of_run("b")] == [b"2"]
        assert {item.body for item in store.attempts_of_run("c")} == {item.body for item in many}
        assert list(store.attempts_of_run("d")) == []
        assert sorted(item.run_id for item in store.all_attempts()) == ["a", "b", *["c"] * 150]


def told(usd: str, **fields: Any) -> Attempt:
    """An attempt whose body says what it cost."""
    usage = json.dumps({"completion_tokens": 3, "cost": float(usd)})
    body = f'{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"stop"}}],"usage":{usage}}}'
    return replace(attempt(body.encode()), **fields)


def test_what_was_spent_is_known_without_reading_the_answers(
    new_location: Callable[[], str],
) -> None:
    location = new_location()
    with contextlib.closing(open_store(location)) as store:
        assert spent_before(store) == 0
        put(store, *(told("0.1", run_id=f"run-{n % 2}") for n in range(7)))
        put(store, told("0.25", error="ClientPayloadError: cut"), told("0.25", status=500))
        put(store, attempt(b"not JSON"))
        assert spent_before(store) == Decimal("0.7")
    with contextlib.closing(open_store(location)) as store:
        assert spent_before(store) == Decimal("0.7")


def test_attempts_that_an_earlier_release_put_are_counted_by_reading(tmp_path: Path) -> None:
    with contextlib.closing(SqliteStore(str(tmp_path))) as store:
        put(store, told("0.5"), told("0.5"))
        assert store.spent_usd() == 1
    connection = sqlite3.connect(store.path)
    connection.execute("drop table spent")
    connection.commit()
    connection.close()
    with contextlib.closing(SqliteStore(str(tmp_path))) as store:
        put(store, told("0.25"))
        assert store.spent_usd() is None
        assert spent_before(store) == Decimal("1.25")


_OF_AN_EARLIER_RELEASE = """
create table attempts(
    request_sha256 blob not null, attempt integer not null, run_id text not null, status integer,
    error text, headers text not null, body blob not null, started_at real not null, first_at real,
    last_at real, ended_at real not null, primary key(request_sha256, attempt)
) without rowid
"""


def test_a_store_of_an_earlier_release_is_read_and_goes_on(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "responses.sqlite")
    connection.execute(f"pragma application_id={0x45334150}")
    connection.execute("pragma user_version=1")
    connection.execute(_OF_AN_EARLIER_RELEASE)
    body = zstandard.ZstdCompressor().compress(b"1")
    row = [bytes.fromhex(KEY), 1, "run", 200, None, '[["retry-after", "1"]]', body]
    marks = ",".join("?" * 11)
    connection.execute(f"insert into attempts values({marks})", [*row, 1.0, None, None, 2.0])
    connection.commit()
    connection.close()
    changed = replace(attempt(b"2"), sent='{"provider":{"ignore":["a"]}}')
    with contextlib.closing(SqliteStore(str(tmp_path))) as store:
        put(store, changed)
    found = [replace(attempt(b"1"), number=1), replace(changed, number=2)]
    assert list(read(str(tmp_path))) == found


def test_a_place_that_is_none_is_refused() -> None:
    for place in ("s3://bucket/x", "gs://", "gs:///x", "gs://A b/x"):
        with pytest.raises(ConfigError, match=f"--store {place}.*gs://BUCKET/PREFIX"):
            open_store(place)


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


def test_requests_that_are_looked_up_together_get_their_own_attempts(
    new_location: Callable[[], str],
) -> None:
    """Many in one turn of the loop, one of them twice, one that nobody waits for any more."""
    with contextlib.closing(open_store(new_location())) as store:
        kept = [attempt(b"%d" % number, f"{number:064x}") for number in range(700)]
        put(store, *kept, attempt(b"again", f"{5:064x}"))

        async def look_up() -> list[list[bytes]]:
            asked = [f"{number:064x}" for number in range(710)] + [f"{5:064x}"]
            left = asyncio.ensure_future(store.look_up(KEY))
            waiting = asyncio.gather(*map(store.look_up, asked))
            await asyncio.sleep(0)
            left.cancel()
            return [[item.body for item in found] for found in await waiting]

        found = asyncio.run(look_up())
    wanted = [[b"%d" % number] for number in range(700)] + [[]] * 10
    wanted[5] = [b"5", b"again"]
    assert found == [*wanted, wanted[5]]
