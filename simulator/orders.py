"""A request, read and checked as the service does before it looks for a host."""

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.dialects import Dialect
from simulator.engine import wants_thought
from simulator.faults.refusals import Refusal, Refused
from simulator.ledger import Ledger
from simulator.scenario import Scenario

MODELS = {"moonshotai/kimi-k2.5": "moonshotai/kimi-k2.5-0127"}
"""Slug -> the dated name that answers carry."""
RETIRED = {"moonshotai/kimi-k2": "moonshotai/kimi-k2.5"}
"""Slug -> what the service names in its place."""
CONTEXT_LENGTH = 262144

_KINDS: dict[str, Any] = {
    "max_tokens": int, "max_completion_tokens": int, "provider": dict, "reasoning": dict,
    "tools": list, "stream": bool, "response_format": dict, "chat_template_kwargs": dict,
    "thinking": dict,
}  # fmt: skip
"""What a field must be if it is there and not null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One request. `rng` is a function of seed, body and how often the body was seen."""

    body: dict[str, Any]
    raw: bytes
    digest: str
    seen: int
    rng: random.Random
    headers: Mapping[str, str]

    @property
    def is_stream(self) -> bool:
        return self.body.get("stream") is True

    @property
    def max_tokens(self) -> int:
        return self.body.get("max_completion_tokens") or self.body.get("max_tokens") or 16384

    @property
    def is_free(self) -> bool:
        """Of the variant that costs nothing."""
        return str(self.body.get("model")).endswith(":free")

    @property
    def model(self) -> str:
        return MODELS.get(_slug(self.body), str(self.body.get("model")))


def _slug(body: dict[str, Any]) -> str:
    return str(body.get("model")).split(":")[0]


def bad_request(message: str, status: int = 400, **more: Any) -> Refused:
    """A refusal that the request itself is the cause of."""
    return Refused(
        Refusal(name="bad_request", about=message, status=status, message=message, more=more)
    )


def demand_key(headers: Mapping[str, str], dialect: Dialect) -> None:
    """Engines on one's own machine ask for none."""
    if dialect.needs_key and not headers.get("Authorization", "").startswith("Bearer "):
        raise bad_request("No auth credentials found", 401)


def read_order(headers: Mapping[str, str], raw: bytes, ledger: Ledger, scenario: Scenario) -> Order:
    """Parses a body; from here on it counts as seen.

    Raises:
        Refused: It is no chat.
    """
    try:
        body = json.loads(raw)
        messages = body["messages"]
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request("the body is not a JSON object with messages") from error
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages is empty")
    if not all(isinstance(message, dict) and message.get("role") for message in messages):
        raise bad_request("messages: each needs a role")
    digest = hashlib.sha256(raw).hexdigest()
    seen = ledger.see(digest)
    rng = random.Random(f"{scenario.seed} {digest} {seen}")
    return Order(body=body, raw=raw, digest=digest, seen=seen, rng=rng, headers=headers)


def check_order(order: Order, scenario: Scenario, dialect: Dialect) -> None:
    """What the catalogue and the endpoint forbid.

    Raises:
        Refused: With the service's words.
    """
    for field, kinds in _KINDS.items():
        if not isinstance(order.body.get(field), kinds | None):
            raise bad_request(f"{field}: invalid type")
    slug = _slug(order.body)
    if slug in RETIRED and dialect.is_gateway:
        raise _retired(slug)
    if slug not in MODELS and not dialect.accepts_any_model:
        raise _unknown_model(order.body.get("model"), dialect)
    if not 0 < order.max_tokens <= CONTEXT_LENGTH:
        raise bad_request(f"max_tokens must be between 1 and {CONTEXT_LENGTH}")
    if scenario.reasoning_mandatory and not wants_thought(order.body):
        raise bad_request("Reasoning is mandatory for this endpoint and cannot be disabled.")
    if dialect.name == "sglang" and order.is_stream and order.body.get("return_meta_info"):
        raise bad_request("return_meta_info is not supported with streaming")


def _unknown_model(model: Any, dialect: Dialect) -> Refused:
    if not dialect.is_gateway:
        return bad_request(dialect.unknown_model.format(model), 404)
    availability = {"code": "model_not_found", "retryable": False, "requested_models": [model]}
    return bad_request(f"{model} is not a valid model ID", availability=availability)


def _retired(slug: str) -> Refused:
    availability = {"code": "model_deprecated", "retryable": False, "requested_models": [slug],
                    "fallback_models": [RETIRED[slug]]}  # fmt: skip
    return bad_request(f"{slug} is deprecated.", 404, availability=availability)
