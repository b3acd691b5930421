"""The fault menu: every way to fail has a name, one line, and whether it is charged."""

import random
from collections.abc import Mapping

from simulator.faults.answers import ANSWERS
from simulator.faults.delivery import DELIVERIES
from simulator.faults.kinds import Fault, Told
from simulator.faults.refusals import REFUSALS
from simulator.faults.streams import STREAMS

__all__ = ["FAULTS", "Fault", "Told", "choose"]

FAULTS: dict[str, Fault] = {
    fault.name: fault for fault in (*REFUSALS, *ANSWERS, *DELIVERIES, *STREAMS)
}
"""Name -> fault."""


def choose(rates: Mapping[str, float], rng: random.Random) -> Fault | None:
    """At most one fault; one draw, so that its answer depends on nothing but the generator."""
    drawn = rng.random()
    for name, rate in rates.items():
        drawn -= rate
        if drawn < 0:
            return FAULTS[name]
    return None
