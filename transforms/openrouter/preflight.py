"""What the service tells of the model and the key, asked once before the first paid request."""

import asyncio
import json
from dataclasses import dataclass
from datetime import date
from typing import Any

from transforms.openrouter.catalogue import (
    Host,
    as_dict,
    as_list,
    leave_out,
    list_hosts,
    nobody_takes,
)
from transforms.openrouter.projection import Prices, read_prices
from transforms.openrouter.sender import Sender, Wire


@dataclass(frozen=True, slots=True)
class Preflight:
    """Why the run cannot succeed, if so; prices and hosts that may answer, if they are told."""

    stop: str | None = None
    prices: Prices | None = None
    hosts: tuple[Host, ...] = ()


async def preflight(sender: Sender, wire: Wire) -> Preflight:
    """Asks for the model's hosts, the model itself, and the key.

    A server that does not know these paths is not asked to: only an error in the service's own
    form stops the run.
    """
    slug = wire.model.partition(":")[0]
    listed, models, key = await asyncio.gather(
        sender.get(f"/models/{slug}/endpoints"), sender.get("/models"), sender.get("/key")
    )
    stop = _refused(key) or _refused(listed) or _retired(models, slug) or _used_up(key)
    hosts = list_hosts(listed)
    if hosts is None:
        return Preflight(stop)
    left, flag = leave_out(hosts, json.loads(wire.hosts))
    return Preflight(stop or _unserved(hosts, left, flag, wire), read_prices(left), left)


def _refused(reply: Any) -> str | None:
    """`{"error": {"code", "message"}}` with a code that no retry changes."""
    error = as_dict(as_dict(reply).get("error"))
    if error.get("code") not in {401, 402, 403, 404}:
        return None
    return f"the service refuses before the first request: {error.get('message')}"


def _retired(reply: Any, slug: str) -> str | None:
    models = [as_dict(model) for model in as_list(as_dict(reply).get("data"))]
    found = next((model for model in models if model.get("id") == slug), None)
    until = (found or {}).get("expiration_date")
    if models and found is None:
        some = ", ".join(str(model.get("id")) for model in models[:5])
        return f"model {slug} is not listed; --model takes one of {some}"
    if isinstance(until, str) and until[:10] < date.today().isoformat():  # noqa: DTZ011 - a day
        return f"model {slug} was retired on {until[:10]}"
    return None


def _used_up(key: Any) -> str | None:
    left = as_dict(as_dict(key).get("data")).get("limit_remaining")
    return "the key's limit is used up" if isinstance(left, int | float) and left <= 0 else None


def _unserved(hosts: tuple[Host, ...], left: tuple[Host, ...], flag: str, wire: Wire) -> str | None:
    if not hosts:
        return f"no host serves {wire.model} now"
    if not left:
        return f"{flag}: leaves no host of {wire.model}; it has {', '.join(map(str, hosts))}"
    known = [host.max_tokens for host in left if host.max_tokens is not None]
    if len(known) == len(left) and max(known) < wire.max_tokens:
        return f"no host allows --max_tokens {wire.max_tokens}; the most is {max(known)}"
    if name := nobody_takes(left, wire.fields):
        return f"{name}: no host of {wire.model} takes it, it would be passed over; leave it out"
    return None
