"""What the service tells of the model and the key, asked once before the first paid request."""

import asyncio
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from transforms.openrouter.sender import Sender, Wire

_PROMPT_TOKENS = 2000
"""Length of a prompt, for the price of a request: long for a question, short for a document."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """Why the run cannot succeed, if so; and the price of the longest answer, if it is told."""

    stop: str | None = None
    longest_usd: Decimal | None = None


async def preflight(sender: Sender, wire: Wire) -> Preflight:
    """Asks for the model's hosts, the model itself, and the key.

    A server that does not know these paths is not asked to: only an error in the service's own
    form stops the run.
    """
    slug = wire.model.partition(":")[0]
    hosts, models, key = await asyncio.gather(
        sender.get(f"/models/{slug}/endpoints"), sender.get("/models"), sender.get("/key")
    )
    stop = _refused(key) or _refused(hosts) or _retired(models, slug) or _unusable(hosts, key, wire)
    return Preflight(stop, _longest_usd(_hosts(hosts), wire))


def _refused(reply: Any) -> str | None:
    """`{"error": {"code", "message"}}` with a code that no retry changes."""
    error = _dict(_dict(reply).get("error"))
    if error.get("code") not in {401, 402, 403, 404}:
        return None
    return f"the service refuses before the first request: {error.get('message')}"


def _retired(reply: Any, slug: str) -> str | None:
    models = [_dict(model) for model in _list(_dict(reply).get("data"))]
    found = next((model for model in models if model.get("id") == slug), None)
    until = (found or {}).get("expiration_date")
    if models and found is None:
        return f"model {slug} is not listed; --model takes one of {_some(models)}"
    if isinstance(until, str) and until[:10] < date.today().isoformat():  # noqa: DTZ011 - a day
        return f"model {slug} was retired on {until[:10]}"
    return None


def _some(models: list[dict[str, Any]]) -> str:
    return ", ".join(str(model.get("id")) for model in models[:5])


def _unusable(hosts: Any, key: Any, wire: Wire) -> str | None:
    if isinstance(_dict(_dict(hosts).get("data")).get("endpoints"), list):
        listed = _hosts(hosts)
        if not listed:
            return f"no host serves {wire.model} now"
        caps = [host.get("max_completion_tokens") for host in listed]
        known = [cap for cap in caps if isinstance(cap, int)]
        if len(known) == len(caps) and max(known) < wire.max_tokens:
            return f"no host allows --max_tokens {wire.max_tokens}; the most is {max(known)}"
    left = _dict(_dict(key).get("data")).get("limit_remaining")
    if isinstance(left, int | float) and left <= 0:
        return "the key's limit is used up"
    return None


def _longest_usd(hosts: list[dict[str, Any]], wire: Wire) -> Decimal | None:
    prices = [_price(_dict(host.get("pricing")), wire.max_tokens) for host in hosts]
    return max((price for price in prices if price is not None), default=None)


def _price(pricing: dict[str, Any], max_tokens: int) -> Decimal | None:
    try:
        prompt, completion = (Decimal(str(pricing[name])) for name in ("prompt", "completion"))
    except (KeyError, InvalidOperation):
        return None
    price = prompt * _PROMPT_TOKENS + completion * max_tokens
    return price if price.is_finite() else None


def _hosts(reply: Any) -> list[dict[str, Any]]:
    return [_dict(host) for host in _list(_dict(_dict(reply).get("data")).get("endpoints"))]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
