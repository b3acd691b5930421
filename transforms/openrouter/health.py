"""Which hosts give so little of use that none should ask them for a while: a circuit breaker.

A host that answers with nothing, or with its thought alone, is paid for each of them (one host of
Kimi-K2.5 did so in 19.5 % of its answers, OpenRouterTeam/ai-sdk-provider#426), and each is asked
again elsewhere. Refusals for load are no reason: the service asks other hosts then by itself.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from transforms.openrouter.faults import BAD_OUTPUT, UNAVAILABLE, Judged
from transforms.openrouter.replies import read_provider

_LOG = logging.getLogger(__name__)
_SEEN, _ENOUGH = 200, 30
"""Last answers of a host that are counted, and fewest that tell anything."""
_MOST = {BAD_OUTPUT.name: 0.05, UNAVAILABLE.name: 0.3}
"""Share of a host's answers, by class of fault, beyond which it is left out."""
_TIMES_OTHERS = 2.0
"""Beyond so many times the others' share, too: what all do is not the fault of one."""
_SIGMAS = 2.0
_LEFT_OUT_S = 600.0


@dataclass(slots=True)
class _Host:
    """Its last answers, each the name of its fault or none; until when it is left out."""

    seen: deque[str | None] = field(default_factory=lambda: deque(maxlen=_SEEN))
    until: float = -math.inf
    is_on_trial: bool = False


@dataclass(slots=True)
class Health:
    """What hosts gave to this process, by their names. Used on one event loop."""

    clock: Callable[[], float] = time.monotonic
    _hosts: dict[str, _Host] = field(default_factory=dict)

    def learn(self, met: list[Judged]) -> None:
        """From the last that a request met.

        An answer of no use is its host's fault once another host gives one: who is asked for what
        others could not answer would look the worse for it, and all hosts for a hard prompt.
        """
        *before, last = met
        if last.fault is BAD_OUTPUT:
            return
        blamed = [judged for judged in before if judged.fault is BAD_OUTPUT]
        for judged in (*blamed, last) if last.fault is None else (last,):
            self.note(judged)

    def note(self, judged: Judged) -> None:
        """One answer, or a fault that its host is to blame for."""
        name = judged.host or _answered(judged)
        fault = None if judged.fault is None else judged.fault.name
        if name is None or (fault is not None and fault not in _MOST):
            return
        host = self._hosts.setdefault(name, _Host())
        if self.clock() < host.until:
            return  # it was asked before
        is_on_trial, host.is_on_trial = host.is_on_trial, False
        if is_on_trial:
            host.seen.clear()
        host.seen.append(fault)
        if fault is not None and (is_on_trial or self._is_ill(name, host, fault)):
            self._leave_out(name, host, fault)

    def left_out(self) -> frozenset[str]:
        """Names of the hosts that are not to be asked now."""
        now = self.clock()
        return frozenset(name for name, host in self._hosts.items() if now < host.until)

    def _is_ill(self, name: str, host: _Host, fault: str) -> bool:
        others = [other.seen for key, other in self._hosts.items() if key != name]
        answers = sum(map(len, others))
        usual = sum(seen.count(fault) for seen in others) / answers if answers else 0.0
        most = max(_MOST[fault], _TIMES_OTHERS * usual) * len(host.seen)
        beyond_chance = most + _SIGMAS * math.sqrt(most)
        return len(host.seen) >= _ENOUGH and host.seen.count(fault) > beyond_chance

    def _leave_out(self, name: str, host: _Host, fault: str) -> None:
        """Its first answer after that time is a trial."""
        host.until = self.clock() + _LEFT_OUT_S
        host.is_on_trial = True
        _LOG.warning(
            "%s: %s in %d of its last %d answers; for %.0f minutes others are asked, if there are",
            name, fault, host.seen.count(fault), len(host.seen), _LEFT_OUT_S / 60,
        )  # fmt: skip


def _answered(judged: Judged) -> str | None:
    return None if judged.reply is None else read_provider(judged.reply.get("provider"))
