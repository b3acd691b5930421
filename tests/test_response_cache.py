"""A call that was lost costs once where the service's response cache holds its answer."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pipeline.tally import count_spent
from tests import build
from tests.programs import (
    Server,
    assert_whole,
    example_prompts,
    run_pipeline,
    samples,
    serve_simulator,
    start_and_wait_for,
    write_prompts,
)
from tests.scripted import Reply, Script, answer
from tests.scripted import serve as serve_script
from tests.simulated import request_of
from tests.test_client import KEY, config
from transforms.call_openrouter import call_openrouter
from transforms.chat.profile import ModelProfile
from transforms.codes import Evidence, IssueCode
from transforms.failures import FailureKind
from transforms.openrouter import client, sender
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.open_store import open_store
from transforms.openrouter.sender import Sender, key_of
from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.store import Attempt
from transforms.openrouter.wire import Request, Sampling
from transforms.records import Exchange, Prompt, Verdict

HOST = {"name": "Nebius", "price": [0.5, 2.5]}  # it goes on when its client leaves
AT_ONCE = {"providers": [HOST], "latency": {"median_s": 0}, "speed": 1000}


LOSSES = ("reset_before_headers", "reset_mid_body", "hang")
LOSING = AT_ONCE | {
    "force": [{"match": f"{fault}!", "fault": fault, "times": 1} for fault in LOSSES],
    "caches_abandoned": True,
}
"""The first try of a prompt that names a loss is lost."""


def serve(folder: Path, scenario: dict[str, Any]) -> AbstractContextManager[Server]:
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(scenario), "utf-8")
    return serve_simulator("--scenario", str(path))


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("losing"), LOSING) as server:
        yield server


def spent(server: Server) -> tuple[int, int]:
    """Requests and charges so far."""
    ledger = server.ledger()
    return ledger["requests"], ledger["charged"]


class Asking:
    """Each `ask` is a process of its own, as far as the client can tell."""

    def __init__(self, folder: Path, server: Server, kimi: ModelProfile, **fields: Any) -> None:
        (folder / "key").write_text(KEY, "utf-8")
        self._config = config(server.base_url, folder, **fields)
        self._server = server
        self._kimi = kimi
        self.waits: list[float] = []

    def ask(self, text: str = "reset_mid_body!", delivery: str = "whole") -> Exchange:
        found = asyncio.run(self._ask(build.prompt(text), delivery))
        assert isinstance(found, Exchange), found
        return found

    def ask_each(self, *requests: Request) -> list[str]:
        """Ids of the answers, asked one after the other."""
        return asyncio.run(self._ask_each(requests))

    async def _ask(self, prompt: Prompt, delivery: str) -> Any:
        asking = OpenRouterClient(self._config, sleep=self._wait)
        sampling = Sampling(model="moonshotai/kimi-k2.5", max_tokens=4000, delivery=delivery)
        found = await call_openrouter(prompt, asking, sampling, self._kimi)
        await asking.close()
        return found

    async def _ask_each(self, requests: tuple[Request, ...]) -> list[str]:
        asking = OpenRouterClient(self._config, sleep=self._wait)
        found = [(await asking.answer(request)).reply["id"] for request in requests]
        await asking.close()
        return found

    async def _wait(self, seconds: float) -> None:
        """Until the service has seen that nobody hears it: a back-off is longer."""
        self.waits.append(seconds)
        await asyncio.to_thread(self._until_nobody_is_heard)

    def _until_nobody_is_heard(self) -> None:
        while self._server.ledger()["in_flight"]:
            pass


def judge(exchange: Exchange, kimi: ModelProfile) -> Verdict:
    return build.judge(exchange, kimi, build.habits(exchange.completion, streams_tokens=True))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_SILENCE_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("delivery", ["whole", "stream"])
@pytest.mark.parametrize("fault", LOSSES)
def test_a_lost_answer_is_paid_for_once_and_exact(
    losing: Server, fault: str, delivery: str, tmp_path: Path, kimi: ModelProfile
) -> None:
    requests, charged = spent(losing)
    exchange = Asking(tmp_path, losing, kimi).ask(f"{fault}!", delivery)
    assert spent(losing) == (requests + 2, charged + 1)
    truth = losing.truth()
    verdict = judge(exchange, kimi)
    completion = exchange.completion
    assert verdict.is_good, verdict.issues
    assert list(verdict.sample.input_ids) == truth[str(completion.generation_id)]
    assert completion.usage is not None
    assert completion.usage.cost_usd == 0
    # A finished answer that is sent again as a stream shows no chunk as it was sampled.
    assert verdict.evidence > Evidence.A3


def test_a_stream_that_was_not_lost_proves_itself(tmp_path: Path, kimi: ModelProfile) -> None:
    """The other side of the test above: the same stream at its first time."""
    slow = AT_ONCE | {"latency": {"median_s": 0.3}, "speed": 1}
    with serve(tmp_path, slow) as server:
        verdict = judge(Asking(tmp_path, server, kimi).ask(delivery="stream"), kimi)
    assert verdict.evidence is Evidence.A3


def test_a_service_that_forgets_what_was_lost_is_paid_again(
    tmp_path: Path, kimi: ModelProfile
) -> None:
    with serve(tmp_path, LOSING | {"caches_abandoned": False}) as server:
        exchange = Asking(tmp_path, server, kimi).ask()
        assert server.ledger()["duplicates"] == 1
    assert judge(exchange, kimi).is_good


def test_a_repeated_answer_without_an_account_is_never_good(
    tmp_path: Path, kimi: ModelProfile
) -> None:
    """`/generation` says 404 for 50 s here; the next run asks again, which costs nothing."""
    with serve(tmp_path, LOSING | {"speed": 0.01}) as server:
        asking = Asking(tmp_path, server, kimi)
        for _ in range(2):
            exchange = asking.ask()
            assert exchange.completion.usage is None
            assert IssueCode.USAGE_MISSING in {i.code for i in judge(exchange, kimi).issues}
            assert {0.5, 1, 2, 4, 8} <= {*asking.waits}
        assert asking.waits[-5:] == [0.5, 1, 2, 4, 8]
        assert server.ledger()["requests"] == 2


def test_what_was_told_of_a_lost_answer_is_kept(
    losing: Server, tmp_path: Path, kimi: ModelProfile, new_location: Callable[[], str]
) -> None:
    store = new_location()
    text = f"reset_mid_body! {store}"
    told = Asking(tmp_path, losing, kimi, store=store).ask(text)
    later = Asking(tmp_path, losing, kimi, store=store, send=False).ask(text)
    assert later == told
    assert later.completion.usage is not None
    with_store = open_store(store)
    lost, hit = with_store.attempts(told.request_sha256)
    assert lost.error is not None
    source = dict(hit.headers)["x-openrouter-cache-source-id"]
    accounts = with_store.attempts(key_of(f"/generation?id={source}"))
    assert {json.loads(account.body)["data"]["id"] for account in accounts} == {source}
    counted = json.loads(hit.body)["usage"]
    assert (counted["completion_tokens"], counted["cost"]) == (0, 0)  # as it came
    assert len(list(with_store.attempts_of_run("run"))) == 2  # an account is no request
    with_store.close()


@pytest.mark.parametrize(
    ("fault", "is_cached"), [("reset_mid_body", False), ("reset_before_headers", True)]
)
def test_what_lost_calls_have_cost_is_asked_and_counted(
    fault: str, tmp_path: Path, *, is_cached: bool
) -> None:
    """By generation: summary, data set, and what the next run takes to be spent.

    A call that was lost before its headers came is named by the answer that is given again.
    """
    lost = [{"id": f"l{n}", "prompt": f"{fault}! {n}"} for n in range(4)]
    losing = LOSING | {"caches_abandoned": is_cached}
    losing["force"] = [{"match": f"{fault}!", "fault": fault, "times": 1}]
    write_prompts(tmp_path, [*lost, *example_prompts(8)])
    with serve(tmp_path, losing) as server:
        done = run_pipeline(tmp_path, server.base_url, "--delivery", "whole")
        assert done.returncode == 0, done.stderr
        ledger = server.ledger()
    again = 0 if is_cached else 4
    assert (ledger["charged"], ledger["duplicates"]) == (12 + again, again)
    told = assert_whole(tmp_path, 12)
    assert told["requests_sent"] == 16
    assert told["cost_usd"] == pytest.approx(ledger["charged_usd"])
    paid = sum(dataset["cost_usd"] for dataset in told["datasets"].values())
    assert paid == pytest.approx(ledger["charged_usd"])
    with contextlib.closing(SqliteStore(str(tmp_path / "out.store"))) as store:
        assert float(store.spent_usd() or 0) == pytest.approx(ledger["charged_usd"])


class KilledError(Exception):
    """Ends a client before it waits."""


def test_what_a_killed_run_has_lost_is_counted_when_it_is_given_again(
    tmp_path: Path, kimi: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service tells nothing of a generation for half a second: the first run ends before."""

    async def die(_seconds: float) -> None:
        raise KilledError

    with serve(tmp_path, LOSING | {"speed": 1}) as server:
        killed = Asking(tmp_path, server, kimi, run_id="first")
        later = Asking(tmp_path, server, kimi, run_id="second")
        monkeypatch.setattr(killed, "_wait", die)
        with pytest.raises(KilledError):
            killed.ask()
        time.sleep(1)
        later.ask()
        charged_usd = server.ledger()["charged_usd"]
    with contextlib.closing(SqliteStore(str(tmp_path / "store"))) as store:
        assert float(store.spent_usd() or 0) == pytest.approx(charged_usd)
        assert float(count_spent(store, "second").cost_usd) == pytest.approx(charged_usd)


USAGE = b'"usage":{"completion_tokens":4,"cost":0.25}'
WITHOUT_FINISH = b'data: {"choices":[{"delta":{"content":"Oi"}}]}\n\ndata: {%s}\n\n' % USAGE


async def ask_script(script: Script, folder: Path) -> None:
    """One request, without waiting for anything."""

    async def no_wait(_seconds: float) -> None:
        return

    async with serve_script(script):
        asking = OpenRouterClient(config(script.base_url, folder), sleep=no_wait)
        await asking.answer(Request(b"{}"))
        await asking.close()


@pytest.mark.parametrize("body", [WITHOUT_FINISH, b'{"choices":[{}],%s' % USAGE])
def test_a_cut_answer_that_tells_its_cost_is_counted_once(body: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY, "utf-8")
    cut = Reply(body=body, headers={"X-Generation-Id": "gen-0"})
    script = Script([cut, answer()], costs={"gen-0": 0.25})

    asyncio.run(ask_script(script, tmp_path))
    with contextlib.closing(SqliteStore(str(tmp_path / "store"))) as store:
        assert store.spent_usd() == count_spent(store, "run").cost_usd == Decimal("0.5")


def test_an_account_of_another_generation_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY, "utf-8")
    cut = replace(answer(), cut=True, headers={"X-Generation-Id": "gen-0"})
    script = Script([cut, answer()], costs={"gen-0": 9}, names={"gen-0": ["gen-1"]})
    asyncio.run(ask_script(script, tmp_path))
    with contextlib.closing(SqliteStore(str(tmp_path / "store"))) as store:
        assert store.spent_usd() == count_spent(store, "run").cost_usd == Decimal("0.25")


def test_what_is_abandoned_after_a_stop_is_asked_for_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service knows a generation half a second after its end: to ask at once tells nothing."""
    monkeypatch.setattr(client, "_DRAIN_S", 0.0)
    (tmp_path / "key").write_text(KEY, "utf-8")
    asked: list[str] = []
    ask = Sender.ask

    async def note(self: Sender, path: str, run_id: str) -> Attempt:
        asked.append(path)
        return await ask(self, path, run_id)

    monkeypatch.setattr(Sender, "ask", note)

    async def run(server: Server) -> None:
        asking = OpenRouterClient(config(server.base_url, tmp_path))
        calls = [asyncio.ensure_future(asking.answer(Request(request_of(f"{n}")))) for n in "abcd"]
        await asyncio.sleep(1)  # headers come at once, the answer in half a minute
        asking.stop(FailureKind.INTERRUPTED, "a stop")
        await asyncio.gather(*calls, return_exceptions=True)
        await asking.close()

    slow = {"providers": [HOST], "latency": {"median_s": 30, "sigma": 0}}
    with serve(tmp_path, slow) as server:
        asyncio.run(run(server))
        charged_usd = server.ledger()["charged_usd"]
    with contextlib.closing(SqliteStore(str(tmp_path / "store"))) as store:
        assert float(store.spent_usd() or 0) == pytest.approx(charged_usd)
        assert charged_usd > 0
    told = [path for path in asked if path.startswith("/generation")]
    assert len(told) <= 4 * 4


def test_another_sample_of_a_body_is_sampled(
    losing: Server, tmp_path: Path, kimi: ModelProfile
) -> None:
    body = request_of("a")
    requests, charged = spent(losing)
    samples = [Request(body, index) for index in range(3)]
    names = Asking(tmp_path, losing, kimi).ask_each(*samples)
    assert spent(losing) == (requests + 3, charged + 3)
    truth = losing.truth()
    assert len({tuple(truth[name]) for name in names}) == 3


def test_kill_9_is_paid_for_once(tmp_path: Path) -> None:
    """What was in flight at the kill is generated to its end, and given again for nothing."""
    write_prompts(tmp_path, example_prompts(40))
    slow = {"latency": {"median_s": 0.4, "sigma": 0.3}, "providers": [HOST]}
    scenario = slow | {"caches_abandoned": True}
    with serve(tmp_path, scenario) as server:
        process = start_and_wait_for(tmp_path, server, 12, "--delivery", "whole")
        process.kill()
        process.wait()
        done = run_pipeline(tmp_path, server.base_url, "--delivery", "whole")
        assert done.returncode == 0, done.stderr
        ledger, truth = server.ledger(), server.truth()
    told = assert_whole(tmp_path, 40)
    assert ledger["requests"] > ledger["charged"] == 40
    assert ledger["duplicates"] == 0
    good = samples(tmp_path / "out")
    assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())
    assert any(row["cost_usd"] == 0 for row in good.values())
    # A thought's first blank is told only by answers that begin in certain words, and 40 are few.
    assert set(told["codes"]) <= {"LEADING_SPACE_UNKNOWN"}
