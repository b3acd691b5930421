"""A service in virtual time, and prompts that a limiter lets through to it: hours in a second."""

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from transforms.openrouter.limiter import Limiter

_REFUSAL_S = 0.01


class _JumpingSelector(selectors.SelectSelector):
    """Waits in no time: where the loop would sleep, its clock jumps."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and stands still while there is work."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtually(coroutine: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.close()


@dataclass(slots=True)
class Service:
    """Refuses above `slots` at once, or `per_s` a second after a burst of 10.

    Whatever the load it refuses a share `chance` and lets a share `hangs` hang for 90 s.
    """

    slots: int | None = None
    per_s: float | None = None
    chance: float = 0.0
    hangs: float = 0.0
    median_s: float = 2.0
    refusal_s: float = _REFUSAL_S
    running: int = 0
    left: float = 10.0
    seen_at: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    async def answer(self) -> str:
        """What a request came to: `answered`, `refused` or `hung`."""
        came = await self._answer()
        self.counts[came] += 1
        return came

    async def _answer(self) -> str:
        if self._is_full() or self.rng.random() < self.chance:
            await asyncio.sleep(self.refusal_s * self.rng.uniform(0.5, 2))
            return "refused"
        self.running += 1
        hangs = self.rng.random() < self.hangs
        await asyncio.sleep(90 if hangs else self.median_s * self.rng.lognormvariate(0, 0.5))
        self.running -= 1
        return "hung" if hangs else "answered"

    def _is_full(self) -> bool:
        if self.per_s is not None:
            now = asyncio.get_running_loop().time()
            self.left = min(10.0, self.left + (now - self.seen_at) * self.per_s)
            self.seen_at = now
            if self.left < 1:
                return True
            self.left -= 1
        return self.slots is not None and self.running >= self.slots

    @property
    def refused_share(self) -> float:
        return self.counts["refused"] / max(1, self.counts.total())


async def ask(service: Service, limiter: Limiter, prompts: int) -> None:
    """Each prompt is asked until it is answered; one that is refused backs off without a place."""
    await asyncio.gather(*(_ask_one(service, limiter) for _ in range(prompts)))


async def _ask_one(service: Service, limiter: Limiter) -> None:
    tries, came = 0, ""
    while came != "answered":
        admission = await limiter.admit()
        came = await service.answer()
        if came == "answered":
            limiter.succeed(admission)
        if came == "refused":
            limiter.slow_down(admission, None)
        limiter.release(admission)
        if came == "refused":
            await asyncio.sleep(max(1.0, service.rng.uniform(0, min(120, 2 * 2**tries))))
        tries += 1
