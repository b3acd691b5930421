"""What a process's calls depend on, and what follows from it before the first one."""

import json
from dataclasses import dataclass
from decimal import Decimal

from transforms.openrouter.budget import Budget
from transforms.openrouter.catalogue import Host, is_pinned
from transforms.openrouter.gate import Gate
from transforms.openrouter.limiter import Limiter
from transforms.openrouter.open_store import host_folder
from transforms.openrouter.pace import Pace
from transforms.openrouter.sender import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class CallConfig:
    """What a process's client depends on; hashable, and free of secrets.

    Attributes:
        store: Where the response store is (`open_store`).
        max_in_flight: Most requests at once, a process.
        requests_per_minute: Most a minute, all processes of this host together.
        max_cost_usd: Most this process may spend, with what the store says was spent before.
        spent_usd: That.
        prompts: How many it will be given, about, for the progress line.
        prompt_tokens: Of all of them together, estimated.
        send: False: answer from the store alone.
        has_peers: Other processes of this host may hold prompts of the same text.
    """

    wire: Wire
    store: str
    run_id: str
    max_in_flight: int
    requests_per_minute: float | None = None
    max_cost_usd: Decimal | None = None
    spent_usd: Decimal = Decimal(0)
    prompts: int | None = None
    prompt_tokens: int = 0
    send: bool = True
    has_peers: bool = False


def hosts_of(wire: Wire) -> tuple[Host, ...] | None:
    """None to choose from, or `None`: they are not known before the service was asked."""
    chooses = wire.source.has_catalogue and not is_pinned(json.loads(wire.hosts))
    return None if chooses else ()


def gate_of(config: CallConfig) -> Gate:
    """Who may send, as the configuration allows."""
    per_minute = config.requests_per_minute
    return Gate(
        limiter=Limiter(config.max_in_flight),
        budget=Budget(config.max_cost_usd, spent_usd=config.spent_usd),
        pace=Pace(host_folder(config.store) / "pace", per_minute) if per_minute else None,
    )
