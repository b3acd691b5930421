"""The client against a simulator that refuses: over real HTTP, judged by the ledger."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.programs import Server, serve_simulator
from tests.simulated import request_of
from tests.test_client import KEY, config
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.wire import Request

_MEAN_S = 0.453
"""Of the storm's answers: log-normal, median 0.4 s, sigma 0.5."""


class Watched:
    """Answers and refusals of a simulator since the warm-up, and the seconds."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = server.ledger()["statuses"]
        self._started = time.monotonic()

    def since(self) -> tuple[float, float]:
        """Answers a second, and the share of requests that was refused."""
        seconds = time.monotonic() - self._started
        statuses = self._server.ledger()["statuses"]
        answered, refused = (
            statuses.get(status, 0) - self._before.get(status, 0) for status in ("200", "429")
        )
        return answered / seconds, refused / (answered + refused)


async def ask_some(
    server: Server, folder: Path, warm_up: int, prompts: int, ceiling: int
) -> tuple[float, float]:
    """All are asked at once, as a bundle is; measured between so many answers."""
    (folder / "key").write_text(KEY, "utf-8")
    client = OpenRouterClient(config(server.base_url, folder, max_in_flight=ceiling))
    asked = [
        asyncio.ensure_future(client.answer(Request(request_of(f"question {number}"))))
        for number in range(prompts)
    ]
    answers = asyncio.as_completed(asked)
    for _ in range(warm_up):
        await next(answers)
    watched = Watched(server)
    for _ in range(prompts - warm_up - 2 * ceiling):  # the last ones wait, and fill no places
        await next(answers)
    found = watched.since()
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await client.close()
    return found


async def ask_without_adapting(server: Server, seconds: float, in_flight: int) -> Any:
    """So many workers; each waits as it is told, and asks again."""
    headers = {"Authorization": "Bearer k"}
    numbers = iter(range(10**6))

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            url = f"{server.base_url}/chat/completions"
            async with session.post(url, data=request_of(f"naive {next(numbers)}")) as response:
                await response.read()
                if response.status == 429:
                    await asyncio.sleep(float(response.headers["Retry-After"]))

    async with aiohttp.ClientSession(headers=headers) as session:
        tasks = [asyncio.ensure_future(work(session)) for _ in range(in_flight)]
        await asyncio.sleep(2)
        watched = Watched(server)
        await asyncio.sleep(seconds)
        found = watched.since()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


def test_a_storm_of_load(tmp_path: Path) -> None:
    """Of what can be served 80 %, and fewer than 15 % refused, where who keeps 64 has 30 %."""
    with serve_simulator("--preset", "storm") as server:
        _, naive = asyncio.run(ask_without_adapting(server, 4, 64))
        rate, refused = asyncio.run(ask_some(server, tmp_path, 200, 800, 128))
    assert 0.25 < naive < 0.36
    assert refused < 0.15
    assert rate > 0.8 * 32 / _MEAN_S


def test_a_storm_by_chance(tmp_path: Path) -> None:
    """Nobody gets below the 30 % that are refused whatever the load; nobody need be slow for it."""
    scenario = tmp_path / "storm.yaml"
    rates = {"rate_upstream": 0.1, "rate_int": 0.1, "rate_float": 0.05, "rate_metadata": 0.05}
    scenario.write_text(
        json.dumps({"latency": {"median_s": 0.4, "sigma": 0.5}, "faults": rates}), "utf-8"
    )
    with serve_simulator("--scenario", str(scenario)) as server:
        rate, refused = asyncio.run(ask_some(server, tmp_path, 150, 750, 32))
    assert refused == pytest.approx(0.3, abs=0.06)
    assert rate > 0.8 * 32 / _MEAN_S
