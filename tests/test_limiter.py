"""How many may be on their way: against modelled services, in virtual time."""

import asyncio
from collections import Counter
from typing import Any

import pytest
import uvloop

from tests.modelled import Service, ask, run_virtually
from transforms.openrouter.limiter import Admission, Limiter

_MEAN_S = 2.27
"""Of the model's log-normal answers: median 2 s, sigma 0.5."""


def virtual_limiter(ceiling: int) -> Limiter:
    return Limiter(ceiling, asyncio.get_running_loop().time)


async def fill(limiter: Limiter) -> list[Admission]:
    return [await limiter.admit() for _ in range(int(limiter.limit) - limiter.in_flight)]


def test_the_limit_doubles_each_round_while_nothing_is_refused() -> None:
    async def rounds() -> None:
        limiter = virtual_limiter(200)
        limits = []
        for _ in range(4):
            for admission in await fill(limiter):
                limiter.succeed(admission)
                limiter.release(admission)
            limits.append(int(limiter.limit))
        assert limits == [64, 128, 200, 200]

    run_virtually(rounds())


def test_one_burst_of_refusals_cuts_the_limit_once() -> None:
    async def burst() -> None:
        limiter = virtual_limiter(100)
        first = await fill(limiter)
        await asyncio.sleep(5)
        for admission in first:
            limiter.slow_down(admission, None)
        assert limiter.limit == pytest.approx(32 * 0.7)
        await asyncio.sleep(100)
        for admission in first:  # admitted under the old limit
            limiter.slow_down(admission, None)
        assert limiter.limit == pytest.approx(32 * 0.7)

    run_virtually(burst())


def test_one_refusal_is_no_reason() -> None:
    async def scene() -> None:
        limiter = virtual_limiter(100)
        limiter.slow_down(await limiter.admit(), None)
        assert limiter.limit == 32
        limiter.slow_down(await limiter.admit(), None, is_told=True)  # a block says it surely
        assert limiter.limit == pytest.approx(32 * 0.7)

    run_virtually(scene())


def test_never_more_than_the_limit_and_first_come_first_served() -> None:
    order: list[int] = []
    most = 0

    async def one(limiter: Limiter, number: int) -> None:
        nonlocal most
        admission = await limiter.admit()
        order.append(number)
        most = max(most, limiter.in_flight)
        await asyncio.sleep(0)
        limiter.release(admission)

    async def many() -> None:
        limiter = virtual_limiter(3)
        await asyncio.gather(*(one(limiter, number) for number in range(20)))

    run_virtually(many())
    assert order == list(range(20))
    assert most == 3


@pytest.mark.parametrize("is_given", [False, True])
def test_a_waiter_that_is_cancelled_gives_its_place_on(is_given: bool) -> None:
    async def scene() -> None:
        limiter = virtual_limiter(1)
        held = await limiter.admit()
        first = asyncio.ensure_future(limiter.admit())
        second = asyncio.ensure_future(limiter.admit())
        await asyncio.sleep(0)
        if is_given:
            limiter.release(held)
        first.cancel()
        await asyncio.sleep(0)
        if not is_given:
            limiter.release(held)
        async with asyncio.timeout(5):
            await second
        assert limiter.in_flight == 1

    run_virtually(scene())


def serve(service: Service, prompts: int, ceiling: int = 128) -> tuple[float, list[Counter[str]]]:
    """Seconds until nine in ten are answered, and what came of requests in each 20 s."""
    seconds = 0.0
    parts: list[Counter[str]] = []

    async def scene() -> None:
        nonlocal seconds
        limiter = virtual_limiter(ceiling)
        asking = asyncio.ensure_future(ask(service, limiter, prompts))
        while service.counts["answered"] < prompts * 0.9:
            before = service.counts.copy()
            await asyncio.sleep(20)
            parts.append(service.counts - before)
            assert limiter.in_flight <= ceiling
        seconds = asyncio.get_running_loop().time()
        await asking
        assert limiter.in_flight == 0

    run_virtually(scene())
    return seconds, parts


def share(parts: list[Counter[str]]) -> float:
    counts = sum(parts, Counter())
    return counts["refused"] / counts.total()


@pytest.mark.parametrize("chance", [0.01, 0.12, 0.3])
def test_refusals_by_chance_do_not_hold_it_back(chance: float) -> None:
    """Retries take places too: only 1 - chance of the requests can be answers."""
    undisturbed, _ = serve(Service(), 6000)
    seconds, parts = serve(Service(chance=chance), 6000)
    assert share(parts) == pytest.approx(chance, abs=0.02)
    assert seconds < undisturbed * 1.3 / (1 - chance)


@pytest.mark.parametrize(
    ("slots", "refusal_s", "refused"),
    [(8, 0.01, 0.12), (8, 2.0, 0.25), (32, 0.01, 0.05), (32, 2.0, 0.1)],
)
def test_load_is_followed(slots: int, refusal_s: float, refused: float) -> None:
    """Far below the ceiling too. Refusals as slow as answers hold places and are known late."""
    prompts = 100 * slots
    seconds, parts = serve(Service(slots=slots, refusal_s=refusal_s), prompts)
    assert prompts * 0.9 / seconds > 0.75 * slots / _MEAN_S
    assert share(parts[2:]) < refused


def test_a_rate_is_followed() -> None:
    """600 a minute, as the answers' 2.27 s make it 23 at once."""
    seconds, parts = serve(Service(per_s=10), 3000)
    assert 2700 / seconds > 0.75 * 10
    assert share(parts[2:]) < 0.05


def test_chance_beside_load_is_told_from_it() -> None:
    seconds, parts = serve(Service(chance=0.1, slots=64), 6000)
    assert 5400 / seconds > 0.65 * 64 / _MEAN_S
    assert share(parts) < 0.15


@pytest.mark.parametrize(
    ("before", "after", "lasting"),
    [
        ({"slots": None}, {"slots": 32}, 0.06),
        ({"chance": 0.3}, {"chance": 0.0, "slots": 32}, 0.06),
        ({"slots": 32}, {"slots": None, "chance": 0.3}, 0.33),
    ],
)
def test_a_change_is_noticed(before: Any, after: Any, lasting: float) -> None:
    service = Service(**before)

    async def change() -> None:
        await asyncio.sleep(100)
        for name, value in after.items():
            setattr(service, name, value)

    async def scene() -> None:
        limiter = virtual_limiter(128)
        changing = asyncio.ensure_future(change())
        asking = asyncio.ensure_future(ask(service, limiter, 12_000))
        await changing
        await asyncio.sleep(200)
        settled = service.counts.copy()
        await asyncio.sleep(100)
        assert share([service.counts - settled]) < lasting
        places = min(service.slots or 128, 128)
        answered = (service.counts - settled)["answered"]
        assert answered > 0.6 * places * 100 / _MEAN_S
        asking.cancel()

    run_virtually(scene())


def test_an_outage_is_waited_for_and_forgotten() -> None:
    service = Service()

    async def scene() -> None:
        limiter = virtual_limiter(128)
        asking = asyncio.ensure_future(ask(service, limiter, 4000))
        await asyncio.sleep(30)
        service.chance = 1.0
        await asyncio.sleep(30)
        assert limiter.limit == 1
        before = service.counts["refused"]
        await asyncio.sleep(30)
        assert service.counts["refused"] - before <= 30  # one at a time, and pauses
        service.chance = 0.0
        await asyncio.sleep(60)
        assert limiter.limit >= 32
        asking.cancel()

    run_virtually(scene())


def test_a_timer_that_is_early_does_not_leave_a_pause_without_an_end() -> None:
    """Timers of uvloop count milliseconds: one of 13.2 ms is over after 13."""

    async def scene() -> None:
        limiter = Limiter(1)
        began = limiter.clock()
        limiter.pause(0.0132)
        async with asyncio.timeout(5):
            admission = await limiter.admit()
        assert admission.at - began >= 0.0132
        assert limiter.in_flight == 1

    uvloop.run(scene())


def test_calls_that_hang_hold_no_place_of_those_that_move() -> None:
    """3 % that hang for 90 s would take 54 % of the places; the ceiling is never exceeded."""
    undisturbed, _ = serve(Service(), 6000, ceiling=512)
    seconds, _ = serve(Service(hangs=0.03), 6000, ceiling=512)
    assert seconds < undisturbed * 1.5


def test_when_all_hang_others_go_on() -> None:
    """Nobody's release wakes those who wait: a timer does."""

    async def scene() -> None:
        limiter = virtual_limiter(64)
        for _ in range(20):
            admission = await limiter.admit()
            await asyncio.sleep(1)
            limiter.succeed(admission)
            limiter.release(admission)
        hanging = await fill(limiter)
        started = asyncio.get_running_loop().time()
        await limiter.admit()
        assert asyncio.get_running_loop().time() - started == pytest.approx(4, abs=0.1)
        more = [await limiter.admit() for _ in range(63 - len(hanging))]
        assert limiter.in_flight == 64
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await limiter.admit()
        for admission in [*hanging, *more]:
            limiter.release(admission)
        assert limiter.in_flight == 1

    run_virtually(scene())
