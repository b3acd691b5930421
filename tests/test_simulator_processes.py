"""Several processes of the simulator are one service: one port, one ledger, one truth."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from simulator.peers import SharedSeen, add_up
from simulator.scenario import Limits, Provider, Scenario, divide
from simulator.service import Service
from tests.programs import Server, serve_simulator
from tests.simulated import KEY, answer_of, ask, request_of
from tests.test_simulator_http import get, wait_until

BODIES = [request_of(f"question {number}") for number in range(60)]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    scenario = tmp_path_factory.mktemp("together") / "scenario.yaml"
    scenario.write_text("logs_content: true", "utf-8")
    with serve_simulator("--processes", "3", "--scenario", str(scenario)) as server:
        yield server


async def _ask_all(base_url: str, bodies: list[bytes]) -> list[dict[str, Any]]:
    """Each over a connection of its own: the kernel spreads them."""
    connector = aiohttp.TCPConnector(force_close=True, limit=16)
    async with aiohttp.ClientSession(connector=connector, headers=KEY) as session:

        async def one(body: bytes) -> dict[str, Any]:
            async with session.post(f"{base_url}/chat/completions", data=body) as response:
                found: dict[str, Any] = json.loads(await response.read())
                return found

        return await asyncio.gather(*map(one, bodies))


def ask_all(server: Server, bodies: list[bytes]) -> list[dict[str, Any]]:
    return asyncio.run(_ask_all(server.base_url, bodies))


def test_ledger_and_truth_are_those_of_all_of_them(together: Server) -> None:
    answers = ask_all(together, BODIES) + ask_all(together, BODIES[:20])
    ledger, truth = together.ledger(), together.truth()
    assert (ledger["requests"], ledger["charged"], ledger["duplicates"]) == (80, 80, 20)
    assert ledger["charged_usd"] == pytest.approx(sum(a["usage"]["cost"] for a in answers))
    assert ledger["statuses"] == {"200": 80}
    assert ledger["in_flight"] == 0
    assert set(truth) == {answer["id"] for answer in answers}
    for answer in answers:
        path = f"/generation?id={answer['id']}"
        wait_until(lambda path=path: get(together, path)[0] == 200)  # type: ignore[misc]
        assert get(together, path)[1]["data"]["total_cost"] == answer["usage"]["cost"]
        logged = get(together, f"/generation/content?id={answer['id']}")[1]["data"]["output"]
        assert logged["reasoning"] == answer["choices"][0]["message"]["reasoning"]


def test_answers_are_those_of_one_process(together: Server) -> None:
    """Of each body the first, and the second: how often it was seen is known to all."""
    root = together.base_url.removesuffix("/api/v1")
    urllib.request.urlopen(f"{root}/__sim/reset", data=b"").close()  # noqa: S310 - loopback
    assert together.ledger()["requests"] == 0
    alone = Service(Scenario(seed=3))
    for _ in range(2):
        expected = [answer_of(ask(alone, f"question {number}")) for number in range(60)]
        found = ask_all(together, BODIES)
        assert [one["choices"] for one in found] == [one["choices"] for one in expected]
        assert [one["provider"] for one in found] == [one["provider"] for one in expected]


def test_limits_are_divided() -> None:
    host = Provider("A", 1, 1, slots=5, requests_per_minute=60)
    limits = Limits(requests_per_minute=600, slots=7, key_limit_usd=3)
    whole = Scenario(providers=(host,), limits=limits)
    part = divide(whole, 3)
    assert part.limits == Limits(
        requests_per_minute=200, slots=3, key_limit_usd=1, burst=10 / 3, free_per_minute=20 / 3
    )
    assert (part.providers[0].slots, part.providers[0].requests_per_minute) == (2, 20)


def test_a_body_is_counted_whoever_has_its_place() -> None:
    seen = SharedSeen()
    first, second = "01" * 32, "01" * 7 + "02" * 25  # other bodies, neighbours in the table
    assert [seen.add(digest) for digest in (first, second, first, second, second)] == [
        0, 0, 1, 1, 2,
    ]  # fmt: skip
    seen.clear()
    assert seen.add(first) == 0


def test_ledgers_add_up() -> None:
    one = {"requests": 2, "charged_usd": 0.5, "charged": {"a": 1, "b": 1}}
    two = {"requests": 1, "charged_usd": 0.25, "charged": {"a": 1}}
    assert add_up([one, two]) == {
        "requests": 3, "charged_usd": 0.75, "charged": {"a": 2, "b": 1},
    }  # fmt: skip
