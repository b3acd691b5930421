"""The client against a scripted server over real HTTP; no test waits for a back-off."""

import asyncio
import sqlite3
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests import build
from tests.scripted import Reply, Script, answer, serve
from transforms.chat.evidence import came_over_time
from transforms.failures import ConfigError, FailureKind, RecordError, StoreError
from transforms.openrouter import client
from transforms.openrouter.call_config import CallConfig
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.faults import Judged
from transforms.openrouter.keys import resolve_key
from transforms.openrouter.sender import Sender, Wire
from transforms.openrouter.source import SOURCES
from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.wire import Request

REQUEST = Request(b'{"messages":[]}')
KEY = "sk-or-v1-secret-of-a-test"


def config(base_url: str, folder: Path, **fields: Any) -> CallConfig:
    wire = Wire(
        base_url=base_url,
        api_key=f"file:{folder / 'key'}",
        model="moonshotai/kimi-k2.5",
        max_tokens=100,
        source=SOURCES["openrouter"],
    )
    given: dict[str, Any] = {
        "wire": wire,
        "store": str(folder / "store"),
        "run_id": "run",
        "max_in_flight": 8,
    }
    return CallConfig(**(given | fields))


class Run:
    """Asks a scripted server, and remembers how long it was told to wait."""

    def __init__(self, folder: Path, *replies: Reply, **fields: Any) -> None:
        self.script = Script(list(replies))
        self.waits: list[float] = []
        self._folder = folder
        self._fields = fields
        (folder / "key").write_text(KEY + "\n", encoding="utf-8")

    def ask(self, *requests: Request) -> list[Any]:
        return asyncio.run(self._ask(requests or (REQUEST,)))

    def stored(self) -> list[Any]:
        return list(SqliteStore(str(self._folder / "store")).attempts(REQUEST.sha256))

    async def _ask(self, requests: tuple[Request, ...]) -> list[Any]:
        async with serve(self.script):
            client = OpenRouterClient(
                config(self.script.base_url, self._folder, **self._fields), sleep=self._sleep
            )
            asked = (client.answer(request) for request in requests)
            found = await asyncio.gather(*asked, return_exceptions=True)
            await client.close()
        return [one.reply if isinstance(one, Judged) else one for one in found]

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def kind_of(found: Any) -> FailureKind:
    assert isinstance(found, RecordError), found
    return found.kind


def test_an_answer_is_stored_as_it_came_and_never_asked_again(tmp_path: Path) -> None:
    reply = answer()
    run = Run(tmp_path, reply)
    (found,) = run.ask()
    assert found["choices"][0]["message"]["content"] == "Oi!"
    assert run.script.bodies == [REQUEST.body]
    assert run.script.keys == [f"Bearer {KEY}"]
    assert [item.body for item in run.stored()] == [reply.body]
    assert run.ask() == [found]
    assert len(run.script.bodies) == 1


def test_the_service_is_obeyed_when_it_says_how_long_to_wait(tmp_path: Path) -> None:
    body = b'{"error":{"code":429,"metadata":{"provider_name":"P"}}}'
    limited = Reply(status=429, body=body, headers={"Retry-After": "1.5"})
    run = Run(tmp_path, limited, limited, answer())
    assert run.ask()[0]["id"] == "gen-1"
    assert all(1.5 <= wait <= 1.5 * 1.05 for wait in run.waits)
    assert len(run.waits) == 2
    assert [item.status for item in run.stored()] == [429, 429, 200]


@pytest.mark.parametrize("hint", ["120", "date"])
def test_two_minutes_are_two_minutes(tmp_path: Path, hint: str) -> None:
    """Within 5 %, and never too early; a date has whole seconds."""
    after = formatdate(time.time() + 120, usegmt=True) if hint == "date" else hint
    run = Run(tmp_path, Reply(status=429, headers={"Retry-After": after}), answer())
    assert run.ask()[0]["id"] == "gen-1"
    (waited,) = run.waits
    assert 120 - 2 * (hint == "date") <= waited <= 126


def test_back_off_doubles_under_full_jitter(tmp_path: Path) -> None:
    run = Run(tmp_path, Reply(status=500))
    assert kind_of(run.ask()[0]) is FailureKind.PROVIDER_UNAVAILABLE
    assert len(run.script.bodies) == 8
    limits = [1, 2, 4, 8, 16, 32, 60]
    assert all(0 <= wait <= most for wait, most in zip(run.waits, limits, strict=True))
    assert set(run.script.bodies) == {REQUEST.body}


def test_a_cut_body_is_kept_and_asked_again(tmp_path: Path) -> None:
    whole = answer()
    run = Run(tmp_path, Reply(body=whole.body, cut=True), whole)
    assert run.ask()[0]["id"] == "gen-1"
    cut, kept = run.stored()
    assert whole.body.startswith(cut.body)
    assert cut.error.startswith("ClientPayloadError")
    assert kept.body == whole.body


@pytest.mark.parametrize(
    ("reply", "kind", "sent"),
    [
        (Reply(body=b"<!DOCTYPE html>"), FailureKind.INVALID_RESPONSE, 3),
        (Reply(body=b"\n         \n"), FailureKind.INVALID_RESPONSE, 3),
        (Reply(status=400), FailureKind.REFUSED, 1),
        (Reply(status=504), FailureKind.TIMEOUT, 3),
    ],
)
def test_each_class_has_its_tries(
    tmp_path: Path, reply: Reply, kind: FailureKind, sent: int
) -> None:
    run = Run(tmp_path, reply)
    assert kind_of(run.ask()[0]) is kind
    assert len(run.script.bodies) == sent
    assert len(run.stored()) == sent


def test_a_refusal_is_remembered(tmp_path: Path) -> None:
    run = Run(tmp_path, Reply(status=400))
    run.ask()
    assert kind_of(run.ask()[0]) is FailureKind.REFUSED
    assert len(run.script.bodies) == 1


def test_no_connection_gives_up_with_the_reason(tmp_path: Path) -> None:
    run = Run(tmp_path, answer())

    async def ask() -> Any:
        client = OpenRouterClient(config("http://127.0.0.1:1/v1", tmp_path), sleep=run._sleep)
        found = await asyncio.gather(client.answer(REQUEST), return_exceptions=True)
        await client.close()
        return found[0]

    found = asyncio.run(ask())
    assert kind_of(found) is FailureKind.PROVIDER_UNAVAILABLE
    assert "127.0.0.1" in str(found)


@pytest.mark.parametrize("events", [1000, 10_000])
def test_a_finished_answer_that_is_sent_as_a_stream_comes_at_once(
    events: int, tmp_path: Path
) -> None:
    """However long it is: what is left in the kernel's buffer meanwhile did not come over time."""
    (tmp_path / "key").write_text(KEY, "utf-8")
    event = b'data: {"choices":[{"delta":{"content":" a"}}],"x":"%s"}\n\n' % (b"x" * 300)
    end = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    headers = {"Content-Type": "text/event-stream"}
    script = Script([Reply(body=event * events + end, headers=headers, after_s=0.5)])

    async def ask() -> Judged:
        async with serve(script):
            asking = OpenRouterClient(config(script.base_url, tmp_path))
            found = await asking.answer(REQUEST)
            await asking.close()
            return found

    found = asyncio.run(ask())
    assert len(found.reply["choices"][0]["chunks"]["texts"]) == events
    assert not came_over_time(replace(build.exchange(build.completion("a")), arrival=found.arrival))


def test_a_fatal_answer_stops_what_was_not_sent(tmp_path: Path) -> None:
    run = Run(tmp_path, Reply(status=401, body=b'{"error":{"message":"No auth"}}'), max_in_flight=1)
    requests = [Request(b"%d" % number) for number in range(5)]
    found = run.ask(*requests)
    assert {kind_of(item) for item in found} == {FailureKind.SERVICE_STOPPED}
    assert all("No auth" in str(item) for item in found)
    assert len(run.script.bodies) <= 6  # each of the first is confirmed once


def test_what_hangs_is_abandoned_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two minutes after any stop, whoever called it; here sooner."""
    monkeypatch.setattr(client, "_DRAIN_S", 0.2)
    run = Run(tmp_path, Reply(hangs=True), Reply(status=402, body=b"{}"))
    found = run.ask(Request(b"1"), Request(b"2"))
    assert [kind_of(item) for item in found] == [FailureKind.SERVICE_STOPPED] * 2
    (kept,) = SqliteStore(str(tmp_path / "store")).attempts(Request(b"1").sha256)
    assert str(kept.error).startswith("TimeoutError")


def test_what_hangs_is_abandoned_beside_what_is_over_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among thousands of calls the deadline of one may pass in the turn of the loop that ends all.

    A deadline that has passed cannot be moved.
    """
    abandon = Sender.abandon

    def abandon_late(sender: Sender) -> None:
        first, *others = sender._deadlines  # the timer of the first came a moment before
        assert len(others) == 7
        first._on_timeout()  # type: ignore[attr-defined]
        abandon(sender)

    monkeypatch.setattr(Sender, "abandon", abandon_late)
    monkeypatch.setattr(client, "_DRAIN_S", 0.2)
    run = Run(tmp_path, *[Reply(hangs=True)] * 8, Reply(status=402, body=b"{}"), max_in_flight=9)
    started = time.monotonic()
    found = run.ask(*[Request(b"%d" % number) for number in range(9)])
    assert [kind_of(item) for item in found] == [FailureKind.SERVICE_STOPPED] * 9
    assert time.monotonic() - started < 10


def test_the_same_text_at_the_same_time_is_one_request(tmp_path: Path) -> None:
    run = Run(tmp_path, answer())
    assert len({str(item) for item in run.ask(*[REQUEST] * 20)}) == 1
    assert len(run.script.bodies) == 1


def test_no_more_than_the_limit_are_in_flight(tmp_path: Path) -> None:
    run = Run(tmp_path, answer(), max_in_flight=3)
    run.ask(*[Request(b"%d" % number) for number in range(30)])
    assert run.script.max_in_flight == 3


def test_answers_from_the_store_alone(tmp_path: Path) -> None:
    first = Run(tmp_path, answer())
    first.ask()
    second = Run(tmp_path, answer(), send=False)
    other = Request(b"other")
    found = second.ask(REQUEST, other)
    assert found[0]["id"] == "gen-1"
    assert kind_of(found[1]) is FailureKind.NOT_COLLECTED
    assert second.script.bodies == []


def test_neither_the_key_nor_the_account_is_stored(tmp_path: Path) -> None:
    reply = Reply(status=400, body=b'{"error":{"code":400},"user_id": "user_2abc"} you sent: ')
    run = Run(tmp_path, reply)
    run.script.echo_key = True
    run.ask()
    stored = run.stored()[0].body
    assert KEY.encode() not in stored
    assert b"user_2abc" not in stored
    assert b'"user_id": "redacted"' in stored


def test_an_answer_is_kept_even_if_it_holds_a_short_key(tmp_path: Path) -> None:
    reply = answer("the word is stop")
    run = Run(tmp_path, reply)
    (tmp_path / "key").write_text("stop", "utf-8")
    run.ask()
    assert run.stored()[0].body == reply.body


def test_a_full_disk_stops_the_run_before_an_answer_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def small(*arguments: Any, **settings: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **settings)
        connection.execute("pragma max_page_count=4")  # SQLite's own way to a full disk
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    body = answer(content=bytes(range(32, 127)).decode() * 500)
    requests = [Request(b"%d" % number) for number in range(20)]
    run = Run(tmp_path, body, max_in_flight=1)
    found = run.ask(*requests)
    assert len(run.script.bodies) == sum(isinstance(item, dict) for item in found) + 1
    assert any(isinstance(item, StoreError) for item in found)
    monkeypatch.undo()
    kept = SqliteStore(str(tmp_path / "store"))
    answered = [isinstance(item, dict) for item in found]
    assert answered == [bool(kept.attempts(request.sha256)) for request in requests]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("sk-or-v1-mistaken", "never the key itself"),
        ("env:NO_SUCH_NAME", "NO_SUCH_NAME is not set"),
        ("file:/no/such/file", "missing or empty"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(reference: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        resolve_key(reference)
    assert "mistaken" not in str(caught.value)


def test_a_key_is_read_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", " abc\n")
    (tmp_path / "key").write_text("def\n", encoding="utf-8")
    assert resolve_key("env:SOME_KEY") == "abc"
    assert resolve_key(f"file:{tmp_path / 'key'}") == "def"
    assert resolve_key("none") is None
