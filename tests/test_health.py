"""Hosts that give little of use are left out for ten minutes: by their shares, and over HTTP."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.programs import Server, serve_simulator
from tests.simulated import request_of
from tests.test_client import KEY, config
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.faults import BAD_OUTPUT, DECLINED, RATE, UNAVAILABLE, Fault, Judged
from transforms.openrouter.health import Health
from transforms.openrouter.wire import Request


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def note(health: Health, host: str, faults: int, answers: int, fault: Fault = BAD_OUTPUT) -> None:
    """So many faults, evenly among the answers."""
    for number in range(answers):
        is_fault = (number + 1) * faults // answers > number * faults // answers
        judged = Judged(fault=fault, host=host) if is_fault else Judged(reply={"provider": host})
        health.note(judged)


@pytest.mark.parametrize(
    ("fault", "faults", "answers", "is_left_out"),
    [
        (BAD_OUTPUT, 30, 200, True),
        (BAD_OUTPUT, 10, 200, False),  # 5 %
        (BAD_OUTPUT, 29, 29, False),  # too few to tell
        (BAD_OUTPUT, 30, 30, True),
        (BAD_OUTPUT, 2, 30, False),  # chance
        (UNAVAILABLE, 60, 200, False),  # 30 %
        (UNAVAILABLE, 120, 200, True),
        (DECLINED, 200, 200, False),  # the prompt's fault
        (RATE, 200, 200, False),
    ],
)
def test_a_host_is_left_out_by_its_share(
    fault: Fault, faults: int, answers: int, *, is_left_out: bool
) -> None:
    health = Health(Clock())
    note(health, "A", 0, 200)
    note(health, "B", faults, answers, fault)
    assert health.left_out() == ({"B"} if is_left_out else set())


def test_what_all_hosts_do_is_not_the_fault_of_one() -> None:
    health = Health(Clock())
    for _ in range(40):
        for host in ("A", "B", "C"):
            note(health, host, 1, 5)
    assert health.left_out() == set()


def test_after_ten_minutes_one_answer_tells() -> None:
    clock = Clock()
    health = Health(clock)
    note(health, "A", 0, 200)
    for _ in range(2):
        note(health, "B", 30, 30)
        assert health.left_out() == {"B"}
        clock.now += 599
        assert health.left_out() == {"B"}
        clock.now += 1
        assert health.left_out() == set()
        note(health, "B", 1, 1)  # the trial
        assert health.left_out() == {"B"}
        clock.now += 600
        note(health, "B", 0, 1)
        assert health.left_out() == set()


def test_the_cheapest_host_is_asked_no_more_once_it_gives_nothing(tmp_path: Path) -> None:
    """The service asks it first, as it is a thousand times as cheap; half of its answers are empty.

    Each of those is paid for. Other runs' bodies are the same: only what is sent differs.
    """
    hosts = [{"name": "Chutes", "price": [0.002, 0.002], "faults": {"empty_with_tokens": 0.5}},
             {"name": "Nebius", "price": [2, 2]}]  # fmt: skip
    scenario = {"providers": hosts, "latency": {"median_s": 0}, "speed": 1000}
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(scenario), "utf-8")
    (tmp_path / "key").write_text(KEY, "utf-8")

    async def ask(base_url: str) -> list[str]:
        client = OpenRouterClient(config(base_url, tmp_path))
        requests = [Request(request_of(f"question {number}")) for number in range(90)]
        found = [(await client.answer(request)).reply for request in requests]
        await client.close()
        assert all(reply["choices"][0]["message"]["content"] for reply in found)
        return [reply["provider"] for reply in found]

    with serve_simulator("--scenario", str(path)) as server:
        providers = asyncio.run(ask(server.base_url))
        assert 30 <= server.ledger()["providers"]["Chutes"] <= 40
    assert set(providers[-50:]) == {"Nebius"}


CHEAP, OTHER, GONE = "Chutes", "Nebius", "Novita"
"""The first is asked first, as it is a thousand times as cheap; the last is listed, and gone."""


def scenario_of(**fields: Any) -> dict[str, Any]:
    prices = {CHEAP: 0.002, OTHER: 2, GONE: 2000}
    hosts = [{"name": name, "price": [usd, usd]} for name, usd in prices.items()]
    gone = [{"provider": GONE, "from_s": 0, "status": 404}]
    given = {"providers": hosts, "outages": gone, "latency": {"median_s": 0}, "speed": 1000}
    return given | fields


def ask_one(folder: Path, scenario: dict[str, Any], ill: str, *, later: bool) -> dict[str, Any]:
    """What a prompt comes to if a host is found to be ill before it, or after its first try."""
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(scenario), "utf-8")
    (folder / "key").write_text(KEY, "utf-8")

    async def ask(server: Server) -> Any:
        async def wait(_seconds: float) -> None:
            note(health, ill, 30 if later else 0, 30)
            while server.ledger()["in_flight"]:
                pass

        client = OpenRouterClient(config(server.base_url, folder), sleep=wait)
        health = client._health
        note(health, ill, 0 if later else 30, 30)
        found = await client.answer(Request(request_of("question!")))
        await client.close()
        return found.reply

    with serve_simulator("--scenario", str(path)) as server:
        found: dict[str, Any] = asyncio.run(ask(server))
        return found | {"ledger": server.ledger()}


def test_a_host_that_is_left_out_is_asked_where_no_other_is_left(tmp_path: Path) -> None:
    """The first gives nothing; without both others than the one that is gone there is nobody."""
    empty = [{"match": '["nebius"]', "fault": "empty_with_tokens", "times": 1}]
    found = ask_one(tmp_path, scenario_of(force=empty), OTHER, later=False)
    assert found["provider"] == OTHER
    assert found["ledger"]["statuses"] == {"200": 2, "404": 1}


def test_a_lost_call_is_sent_again_as_it_was(tmp_path: Path) -> None:
    """Another body would not be found in the service's response cache, and be paid for again."""
    lost = [{"match": "question!", "fault": "reset_mid_body", "times": 1}]
    scenario = scenario_of(force=lost, caches_abandoned=True)
    ledger = ask_one(tmp_path, scenario, CHEAP, later=True)["ledger"]
    assert (ledger["requests"], ledger["charged"]) == (2, 1)


def test_a_prompt_that_nobody_answers_is_not_the_fault_of_hosts(tmp_path: Path) -> None:
    """The second host is asked for those alone that the first gave nothing for."""
    empty = [{"match": "question!", "fault": "empty_with_tokens", "times": 9}]
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(scenario_of(force=empty, outages=[])), "utf-8")
    (tmp_path / "key").write_text(KEY, "utf-8")

    async def ask(base_url: str) -> frozenset[str]:
        client = OpenRouterClient(config(base_url, tmp_path))
        for number in range(160):
            end = "!" if number % 4 == 0 else ""
            await client.answer(Request(request_of(f"{number} question{end}")))
        await client.close()
        return client._health.left_out()

    with serve_simulator("--scenario", str(path)) as server:
        assert asyncio.run(ask(server.base_url)) == set()
        assert server.ledger()["providers"] == {CHEAP: 160, OTHER: 40}
