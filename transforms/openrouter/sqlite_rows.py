"""The tables of the SQLite store, and an attempt as their rows."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import zstandard

from transforms.openrouter.costs import cost_of
from transforms.openrouter.store import Attempt

ATTEMPTS = """
create table if not exists attempts(
    request_sha256 blob not null,
    attempt integer not null,
    run_id text not null,
    status integer,
    error text,
    headers text not null,
    body blob not null,
    started_at real not null,
    first_at real,
    last_at real,
    ended_at real not null,
    sent blob,
    primary key(request_sha256, attempt)
) without rowid
"""
INSERT = """
insert into attempts(request_sha256, attempt, run_id, status, error, headers, body,
                     started_at, first_at, last_at, ended_at, sent)
select :request, coalesce(max(attempt), 0) + 1, :run_id, :status, :error, :headers, :body,
       :started_at, :first_at, :last_at, :ended_at, :sent
from attempts where request_sha256 = :request
"""
ADD_SENT = "alter table attempts add column sent blob"
"""Stores of earlier releases lack it."""
SPENT = """
create table if not exists spent(
    run_id text not null primary key,
    attempts integer not null,
    cost_usd real not null
) without rowid
"""
"""What the attempts of each run cost by their own account: to add it up from 100,000 streams takes
minutes. Stores of earlier releases have attempts that are not counted here."""
SPEND = """
insert into spent values(?, ?, ?)
on conflict do update set attempts = attempts + excluded.attempts,
    cost_usd = cost_usd + excluded.cost_usd
"""
COLUMNS = (
    "request_sha256, attempt, run_id, status, error, headers, body, started_at, first_at, last_at, "
    "ended_at, sent"
)


def write_row(attempt: Attempt, compress: Callable[[bytes], bytes]) -> dict[str, object]:
    """Parameters of `INSERT`, and what the attempt cost."""
    return {
        "request": bytes.fromhex(attempt.request_sha256),
        "run_id": attempt.run_id,
        "status": attempt.status,
        "error": _storable(attempt.error),
        "headers": json.dumps(attempt.headers),
        "body": compress(attempt.body),
        "started_at": attempt.started_at,
        "first_at": attempt.first_at,
        "last_at": attempt.last_at,
        "ended_at": attempt.ended_at,
        "sent": None if attempt.sent is None else compress(attempt.sent.encode()),
        "cost_usd": float(cost_of(attempt)),
    }


def spent_by_run(rows: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
    """Parameters of `SPEND`, a run once: each statement waits for the interpreter's lock."""
    attempts: Counter[str] = Counter()
    usd: Counter[str] = Counter()
    for row in rows:
        attempts[row["run_id"]] += 1
        usd[row["run_id"]] += row["cost_usd"]
    return [(run_id, count, usd[run_id]) for run_id, count in attempts.items()]


def _storable(text: str | None) -> str | bytes | None:
    """SQLite takes no lone surrogates in a text; such a one is kept as its bytes."""
    if text is None or not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return text.encode("utf-8", "surrogatepass")


def read_row(row: tuple[Any, ...]) -> Attempt:
    """The attempt of a row of `COLUMNS`."""
    request, number, run_id, status, error, headers, body, *times, sent = row
    return Attempt(
        request_sha256=request.hex(),
        number=number,
        run_id=run_id,
        status=status,
        error=error.decode("utf-8", "surrogatepass") if isinstance(error, bytes) else error,
        headers=tuple((name, value) for name, value in json.loads(headers)),
        body=zstandard.decompress(body),
        started_at=times[0],
        first_at=times[1],
        last_at=times[2],
        ended_at=times[3],
        sent=None if sent is None else zstandard.decompress(sent).decode(),
    )
