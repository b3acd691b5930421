"""Who may send: the gate, budget and pace, on a clock of the test."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.failures import FailureKind, RecordError
from transforms.openrouter.budget import Budget
from transforms.openrouter.faults import BLOCKED, RATE, UNAVAILABLE, Judged
from transforms.openrouter.gate import Gate
from transforms.openrouter.limiter import Limiter
from transforms.openrouter.pace import Pace


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def gate(clock: Clock, ceiling: int = 100, cap: str | None = None, longest: str = "1") -> Gate:
    budget = Budget(Decimal(cap) if cap else None, Decimal(longest) if cap else None)
    return Gate(limiter=Limiter(ceiling, clock), budget=budget, clock=clock)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def answered(cost: str = "0") -> Judged:
    return Judged(reply={}, cost_usd=Decimal(cost))


@pytest.mark.parametrize(("fault", "pauses"), [(BLOCKED, True), (RATE, False)])
def test_a_block_pauses_everybody_a_refusal_only_the_prompt(fault: Any, pauses: bool) -> None:
    clock = Clock()
    tested = gate(clock)

    async def scene() -> None:
        held = await tested.enter()
        tested.leave(held, Judged(fault=fault, detail="d"), hint_s=77.0)
        assert (tested.limiter._paused_until == clock.now + 77) == pauses
        assert tested.limiter.limit == pytest.approx(32 * 0.7 if pauses else 32)

    run(scene())


def test_the_cap_waits_for_what_is_on_its_way_and_then_stops() -> None:
    tested = gate(Clock(), cap="3.5", longest="1")

    async def scene() -> None:
        held = [await tested.enter() for _ in range(3)]
        fourth = asyncio.ensure_future(tested.enter())
        await asyncio.sleep(0)
        assert not fourth.done()
        tested.leave(held[0], answered("0.25"), None)
        held[0] = await fourth  # 2 on their way, 0.25 spent, 1 more may cost: 3.25
        for item in held:
            tested.leave(item, answered("0.9"), None)
        with pytest.raises(RecordError) as caught:
            await tested.enter()
        assert caught.value.kind is FailureKind.SPEND_CAP
        assert "$2.9500 spent" in caught.value.detail
        assert tested.budget.reserved_usd == 0

    run(scene())


def test_the_cap_is_reached_when_what_is_on_its_way_will_reach_it() -> None:
    """Calls that hang must not hold up the end: at their mean cost there is no room for another."""
    tested = gate(Clock(), cap="10", longest="1")

    async def scene() -> None:
        for _ in range(20):
            tested.leave(await tested.enter(), answered("0.2"), None)
        tested.leave(await tested.enter(), answered("1"), None)  # $5 spent, one may cost $1
        held = [await tested.enter() for _ in range(5)]
        waiting = asyncio.ensure_future(tested.enter())
        await asyncio.sleep(0)
        assert not waiting.done()  # five will cost $1.19, and leave room
        for item in held[:3]:
            tested.leave(item, answered("1.3"), None)  # $8.90 spent, one may cost $1.30
        with pytest.raises(RecordError) as caught:
            await waiting
        assert caught.value.kind is FailureKind.SPEND_CAP
        assert tested.budget.reserved_usd > 0

    run(scene())


def test_without_a_price_few_are_sent_before_the_first_cost() -> None:
    budget = Budget(Decimal(8))
    reservations = [budget.reserve() for _ in range(9)]
    assert reservations == [Decimal(1)] * 8 + [None]
    budget.settle(Decimal(1), Decimal("0.01"), maybe_paid=False)
    assert budget.reserve() == Decimal("0.01")


@given(st.lists(st.integers(0, 100), min_size=1, max_size=80), st.integers(1, 2000))
def test_spent_stays_within_the_cap_and_what_was_in_flight(costs: list[int], cap: int) -> None:
    budget = Budget(Decimal(cap), Decimal(100))
    held: list[tuple[Decimal, int]] = []
    for number, cost in enumerate(costs):
        reservation = budget.reserve()
        if reservation is None:
            break
        held.append((reservation, cost))
        if number % 3 == 0:
            budget.settle(held[0][0], Decimal(held.pop(0)[1]), maybe_paid=False)
    for reservation, cost in held:
        budget.settle(reservation, Decimal(cost), maybe_paid=False)
    assert budget.spent_usd <= cap
    assert budget.reserved_usd == 0


def test_a_dead_service_stops_the_run() -> None:
    clock = Clock()
    tested = gate(clock)

    async def scene() -> None:
        for _ in range(199):
            tested.leave(await tested.enter(), Judged(fault=UNAVAILABLE, detail="HTTP 500"), None)
            clock.now += 1
        assert tested.stop is None
        tested.leave(await tested.enter(), Judged(fault=UNAVAILABLE, detail="HTTP 500"), None)
        assert tested.stop is not None
        assert "HTTP 500" in tested.stop.detail

    run(scene())


def test_after_a_stop_nobody_is_let_in_and_nobody_waits() -> None:
    tested = gate(Clock(), ceiling=1)

    async def scene() -> None:
        await tested.enter()
        waiting = [asyncio.ensure_future(tested.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        tested.close(FailureKind.INTERRUPTED, "interrupted")
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert {getattr(item, "kind", None) for item in found} == {FailureKind.INTERRUPTED}
        await tested.rest(3600)

    run(scene())


def test_times_are_taken_by_those_who_are_next(tmp_path: Path) -> None:
    """A run that is killed must not leave the times of all its prompts taken."""
    clock = Clock()
    tested = gate(clock, ceiling=2)
    tested.pace = Pace(tmp_path / "pace", 1, clock)

    async def scene() -> None:
        waiting = [asyncio.ensure_future(tested.enter()) for _ in range(50)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert Pace(tmp_path / "pace", 1, clock).reserve_s() == pytest.approx(60)
        tested.close(FailureKind.INTERRUPTED, "interrupted")
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert sum(isinstance(item, RecordError) for item in found) >= 48
        assert tested.limiter.in_flight == 50 - sum(isinstance(i, RecordError) for i in found)

    run(scene())


def test_a_pace_is_shared_by_all_who_name_the_file(tmp_path: Path) -> None:
    clock = Clock()
    paces = [Pace(tmp_path / "pace", 600, clock) for _ in range(2)]
    waits = [paces[number % 2].reserve_s() for number in range(9)]
    assert waits == pytest.approx([0, 0, 0, 0, 0, 0, 0.1, 0.2, 0.3])
    clock.now += 60
    assert [paces[0].reserve_s() for _ in range(7)] == pytest.approx([0, 0, 0, 0, 0, 0, 0.1])
