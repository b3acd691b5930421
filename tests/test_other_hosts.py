"""What one host cannot give is asked of another, once, and never of the last one again."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.tally import Spent, count_spent
from tests import build
from tests.programs import Server, serve_simulator
from tests.scripted import Reply, Script, answer
from tests.scripted import serve as serve_script
from tests.test_client import KEY, REQUEST, config
from transforms.call_openrouter import call_openrouter
from transforms.chat.profile import ModelProfile
from transforms.codes import IssueCode
from transforms.failures import Failure, FailureKind
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.store import Attempt
from transforms.openrouter.wire import Sampling, ask_others, write_request
from transforms.records import Exchange

CHEAP, DEAR = "Si Cheap", "Nebius"
SENT_AND_CHARGED = {
    "empty_with_tokens": (2, 2),
    "answer_in_reasoning": (2, 2),
    "finish_null": (2, 2),
    "content_filter": (2, 2),
    "provider_400": (2, 1),
    "bad_gateway": (3, 1),
    "leaked_tool_tokens": (1, 1),
}
"""Of a prompt whose first host has this fault. What leaks can be put right: it is paid for once."""
FAULTS = tuple(SENT_AND_CHARGED)


class KilledError(Exception):
    """Ends a client between two tries."""


def serve(folder: Path, **fields: Any) -> contextlib.AbstractContextManager[Server]:
    """The first host is a thousand times as cheap: it is asked first.

    A prompt that ends in `FAULT!` has the fault until hosts are left out of its body, one that ends
    in `FAULT!!` always.
    """
    prices = {CHEAP: 0.002, DEAR: 2, "Novita": 3}
    own = '"}],"max_tokens":4000,"provider":{}}'
    faults = [(f"{fault}!{end}", fault) for fault in FAULTS for end in ("!", own)]
    faults += [(f"then down{own}", "empty_with_tokens"), ("then down", "bad_gateway")]
    force = [{"match": match, "fault": fault, "times": 99} for match, fault in faults]
    given = {
        "providers": [{"name": name, "price": [usd, usd]} for name, usd in prices.items()],
        "latency": {"median_s": 0},
        "speed": 1000,
        "force": force,
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(given | fields), "utf-8")
    return serve_simulator("--scenario", str(path))


Running = tuple[Server, ModelProfile]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, kimi: ModelProfile) -> Iterator[Running]:
    with serve(tmp_path_factory.mktemp("hosts")) as server:
        yield server, kimi


class Row:
    """One prompt; each `ask` is a process of its own, as far as the client can tell."""

    def __init__(self, folder: Path, text: str, running: Running, hosts: str = "{}") -> None:
        server, self._kimi = running
        (folder / "key").write_text(KEY, "utf-8")
        given = config(server.base_url, folder)
        self._server = server
        self._before = ledger_of(server)
        self._config = replace(given, wire=replace(given.wire, hosts=hosts))
        self._prompt = build.prompt(text)
        extra = json.dumps({"provider": json.loads(hosts)})
        self._sampling = Sampling(
            model="moonshotai/kimi-k2.5", max_tokens=4000, delivery="whole", extra=extra
        )
        self.request = write_request(self._prompt, self._sampling)

    def spent_by(self, run_id: str) -> Spent:
        return count_spent(SqliteStore(self._config.store), run_id)

    def ask(self, *, killed: bool = False, run_id: str = "run") -> Any:
        """The exchange or failure; of a killed one nothing."""
        self._config = replace(self._config, run_id=run_id)
        return asyncio.run(self._ask(killed=killed))

    def spent(self) -> tuple[int, int]:
        """Requests and charges."""
        now = ledger_of(self._server)
        return now[0] - self._before[0], now[1] - self._before[1]

    def attempts(self) -> tuple[Attempt, ...]:
        return SqliteStore(self._config.store).attempts(self.request.sha256)

    async def _ask(self, *, killed: bool) -> Any:
        async def wait(_seconds: float) -> None:
            if killed:
                raise KilledError

        client = OpenRouterClient(self._config, sleep=wait)
        try:
            return await call_openrouter(self._prompt, client, self._sampling, self._kimi)
        except KilledError:
            return None
        finally:
            await client.close()


def ledger_of(server: Server) -> tuple[int, int]:
    ledger = server.ledger()
    return ledger["requests"], ledger["charged"]


@pytest.mark.parametrize("fault", SENT_AND_CHARGED)
def test_another_host_gives_what_the_first_did_not(
    fault: str, running: Running, tmp_path: Path, kimi: ModelProfile
) -> None:
    """Also where the process ends after each try: the next one goes on from what is stored."""
    requests, charged = SENT_AND_CHARGED[fault]
    row = Row(tmp_path, f"{fault}!", running)
    for _ in range(requests - 1):
        assert row.ask(killed=True) is None
    found = row.ask()
    assert row.spent() == (requests, charged)
    assert row.ask() == found
    assert row.spent() == (requests, charged)
    truth = running[0].truth()
    *before, last = row.attempts()
    assert [attempt.sent for attempt in before] == [None] * (requests - 1)
    assert isinstance(found, Exchange)
    assert found.request_sha256 == row.request.sha256
    assert (found.completion.provider == CHEAP) == (not before)
    if before:
        own = json.loads(row.request.body)
        assert json.loads(last.sent or "") == own | {"provider": {"ignore": ["si-cheap"]}}
        verdict = build.judge(found, kimi, build.habits(found.completion))
        assert verdict.is_good, verdict.issues
        assert list(verdict.sample.input_ids) == truth[str(found.completion.generation_id)]


@pytest.mark.parametrize("fault", ["empty_with_tokens", "content_filter"])
def test_no_third_host_is_asked(
    fault: str, running: Running, tmp_path: Path, kimi: ModelProfile
) -> None:
    row = Row(tmp_path, f"{fault}!!", running)
    found = row.ask()
    assert row.ask() == found
    assert row.spent() == (2, 2)
    assert_as_the_first_said(fault, found, kimi)


def test_a_second_answer_of_no_use_makes_the_first_no_new_one(
    running: Running, tmp_path: Path
) -> None:
    """The run that was killed has paid for the one that serves; a good one is the second's own."""
    for end, new in (("!!", 0), ("!", 1)):
        row = Row(tmp_path, f"empty_with_tokens{end}", running)
        assert row.ask(killed=True) is None
        provider = row.ask(run_id=f"second{end}").completion.provider
        assert (provider != CHEAP) == bool(new)
        spent = row.spent_by(f"second{end}")
        assert (spent.requests, len(spent.answered)) == (1, new)


@pytest.mark.parametrize("fault", ["empty_with_tokens", "content_filter"])
@pytest.mark.parametrize(
    "wishes",
    [
        {"only": ["si-cheap", "nebius"], "sort": "price"},
        {"order": ["si-cheap"], "allow_fallbacks": False},
        {"ignore": ["nebius", "novita"]},
        {"max_price": {"completion": 1}},
    ],
)
def test_neither_a_pinned_request_nor_the_last_host_is_changed(
    fault: str, wishes: dict[str, Any], running: Running, tmp_path: Path
) -> None:
    row = Row(tmp_path, f"{fault}!!", running, json.dumps(wishes))
    found = row.ask()
    assert row.ask() == found
    assert row.spent() == (1, 1)
    assert [attempt.sent for attempt in row.attempts()] == [None]
    assert_as_the_first_said(fault, found, running[1])


def test_a_host_that_fails_is_asked_on_where_there_is_no_other(
    running: Running, tmp_path: Path
) -> None:
    row = Row(tmp_path, "bad_gateway!!", running, '{"ignore":["nebius","novita"]}')
    assert row.ask().kind is FailureKind.PROVIDER_UNAVAILABLE
    assert row.spent() == (8, 0)
    assert {attempt.sent for attempt in row.attempts()} == {None}


def test_hosts_that_fail_are_asked_again_where_the_other_is_useless(
    running: Running, tmp_path: Path
) -> None:
    """The first gives nothing; both others are down, all the time."""
    row = Row(tmp_path, "then down", running)
    assert_as_the_first_said("empty_with_tokens", row.ask(), running[1])
    first, second, *others = row.attempts()
    assert (first.status, len(others), row.spent()) == (200, 7, (9, 1))
    assert {attempt.status for attempt in (second, *others)} == {502}
    for attempt in (second, *others):
        left_out = json.loads(attempt.sent or "")["provider"]["ignore"]
        assert "si-cheap" in left_out
        assert len(left_out) < 3


def test_hosts_that_are_listed_and_gone_do_not_stop_the_run(
    tmp_path: Path, kimi: ModelProfile
) -> None:
    gone = [{"provider": name, "from_s": 0, "status": 404} for name in (DEAR, "Novita")]
    with serve(tmp_path, outages=gone) as server:
        empty, down = (
            Row(tmp_path, f"{fault}!!", (server, kimi))
            for fault in ("empty_with_tokens", "bad_gateway")
        )
        found = [row.ask() for row in (empty, down)]
    assert_as_the_first_said("empty_with_tokens", found[0], kimi)
    assert found[1].kind is FailureKind.PROVIDER_UNAVAILABLE
    statuses = [[attempt.status for attempt in row.attempts()] for row in (empty, down)]
    assert statuses == [[200, 404], [502, 502, 404, *[502] * 6]]


def assert_as_the_first_said(fault: str, found: Any, kimi: ModelProfile) -> None:
    """A refusal is a failure; an answer goes on, to be judged by what it is."""
    if fault == "content_filter":
        assert isinstance(found, Failure)
        assert found.kind is FailureKind.REFUSED
        return
    assert found.completion.provider == CHEAP
    verdict = build.judge(found, kimi, build.habits(found.completion))
    assert IssueCode.CONTENT_DROPPED in {issue.code for issue in verdict.issues}


def test_a_fault_out_of_the_cache_is_not_given_again(tmp_path: Path) -> None:
    hit = {"X-OpenRouter-Cache-Status": "HIT", "X-OpenRouter-Cache-Source-Id": "gen-0"}
    script = Script([Reply(body=b" "), Reply(body=b" ", headers=hit), answer()])
    (tmp_path / "key").write_text(KEY, "utf-8")

    async def no_wait(_seconds: float) -> None:
        return

    async def ask() -> None:
        async with serve_script(script):
            client = OpenRouterClient(config(script.base_url, tmp_path), sleep=no_wait)
            await client.answer(REQUEST)
            await client.close()

    asyncio.run(ask())
    names = ("X-OpenRouter-Cache", "X-OpenRouter-Cache-TTL", "X-OpenRouter-Cache-Clear")
    sent = [[headers.get(name) for name in names] for headers in script.headers]
    assert sent == [["true", "86400", None]] * 2 + [["true", "86400", "true"]]


SLUGS = st.lists(st.sampled_from("abcdef"), unique=True)


@given(
    st.dictionaries(
        st.sampled_from("xyz"),
        st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    ),
    st.none() | SLUGS,
    SLUGS.filter(bool),
)
def test_only_the_hosts_are_another(
    fields: dict[str, Any], ignored: list[str] | None, slugs: list[str]
) -> None:
    provider = {"sort": "price"} | ({} if ignored is None else {"ignore": ignored})
    body = json.dumps(fields | {"provider": provider}, ensure_ascii=False).encode()
    changed = ask_others(body, tuple(slugs))
    found = json.loads(changed)
    assert set(found["provider"].pop("ignore")) == {*(ignored or ()), *slugs}
    assert found == fields | {"provider": {"sort": "price"}}
    assert list(found) == list(json.loads(body))
    assert ask_others(changed, tuple(slugs)) == changed
