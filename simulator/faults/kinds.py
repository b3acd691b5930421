"""What a fault is."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.reply import Reply, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a fault may look at.

    Attributes:
        answer: The whole answer; a fault changes its own copy.
        chunk: Chunks of a stream by their choices, with id and model filled in.
    """

    answer: dict[str, Any]
    provider: str
    is_stream: bool
    speed: float
    rng: random.Random
    chunk: Callable[[list[dict[str, Any]]], dict[str, Any]]

    def event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        """One server-sent event."""
        return b"data: " + write_json({**self.chunk(choices), **more}) + b"\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One named way to fail.

    Attributes:
        is_charged: A generation was sampled and is paid for.
        keeps_text: The whole sampled text is sent all the same.
        spoil: Makes the broken reply of the good one; the good one of a refusal is empty.
        of_connection: The service had the whole answer; the connection lost or delayed it.
        is_refusal: Nothing is sampled.
        fits: Whether it can happen to this answer; where it cannot, the answer is good.
        in_hostile: Part of the preset `hostile`: not what stops a whole run or an hour.
    """

    name: str
    about: str
    is_charged: bool
    spoil: Callable[[Reply, Told], Reply]
    keeps_text: bool = False
    of_connection: bool = False
    is_refusal: bool = False
    fits: Callable[[Told], bool] = lambda _told: True
    in_hostile: bool = True
