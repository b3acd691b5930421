"""Which hosts may answer a request, and in which order they are tried."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simulator.faults.refusals import Refusal, Refused
from simulator.scenario import Outage, Provider, Scenario

_NO_ENDPOINTS = Refusal(
    name="no_endpoints", about="The filters leave no host.", status=404,
    message="No endpoints found matching your data policy and provider preferences.",
    more={"availability": {"code": "no_endpoints", "retryable": False}},
)  # fmt: skip
_GONE = Refusal(
    name="model_gone", about="No host serves the model any more.", status=404,
    message="No endpoints found for moonshotai/kimi-k2.5.",
    more={"availability": {"code": "model_deprecated", "retryable": False,
                           "requested_models": ["moonshotai/kimi-k2.5"],
                           "fallback_models": ["moonshotai/kimi-k2.6"]}},
)  # fmt: skip
_OUT = Refusal(
    name="outage", about="A host is down by the scenario's timetable.", status=503,
    message="Provider returned error",
    metadata={"provider_name": "{provider}", "raw": "upstream unavailable", "is_byok": False},
)  # fmt: skip
_REMOVED = 404
_SUPPORTED = frozenset(
    ("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed", "stop",
     "tools", "tool_choice", "reasoning", "include_reasoning", "response_format",
     "frequency_penalty", "presence_penalty", "min_p", "repetition_penalty", "logit_bias")
)  # fmt: skip
SUPPORTED_PARAMETERS = sorted(_SUPPORTED)
_OPTIONAL = _SUPPORTED | {"logprobs", "top_logprobs", "top_a", "structured_outputs", "verbosity"}


def route(
    scenario: Scenario, body: dict[str, Any], elapsed_s: float, rng: random.Random
) -> list[Provider]:
    """Hosts in the order of trying; never empty.

    Raises:
        Refused: With the refusal to send.
    """
    running = [o for o in scenario.outages if o.from_s <= elapsed_s < o.to_s and not o.fault]
    left = [p for p in scenario.providers if not _has(running, p, removed=True)]
    if not left:
        raise Refused(_GONE)
    wishes = body.get("provider") or {}
    chosen = _order(_filter(left, wishes, body), wishes, rng)
    if wishes.get("allow_fallbacks") is False:
        chosen = chosen[:1]
    healthy = [p for p in chosen if not _has(running, p, removed=False)]
    if not healthy:
        raise Refused(_down(running, chosen[0]), chosen[0].name)
    return healthy


def timed_fault(scenario: Scenario, provider: Provider, elapsed_s: float) -> str | None:
    """The fault that the timetable gives a host now."""
    faults = (o.fault for o in scenario.outages
              if o.fault and o.from_s <= elapsed_s < o.to_s and _concerns(o, provider))  # fmt: skip
    return next(faults, None)


def _concerns(outage: Outage, provider: Provider) -> bool:
    return outage.provider in {"*", provider.name}


def _has(outages: Sequence[Outage], provider: Provider, *, removed: bool) -> bool:
    return any(
        _concerns(outage, provider) and (outage.status == _REMOVED) == removed for outage in outages
    )


def _down(outages: Sequence[Outage], provider: Provider) -> Refusal:
    status = next(o.status for o in outages if _concerns(o, provider))
    return replace(_OUT, status=status)


def _names(provider: Provider, wanted: Sequence[str]) -> bool:
    """`deepinfra` is every endpoint of it, `deepinfra/fp4` one; display names pass too."""
    known = {
        provider.slug,
        provider.slug.replace("-ai", ""),
        f"{provider.slug}/{provider.quantization}",
    }
    return any(name.lower().replace(" ", "-") in known for name in wanted)


def _filter(
    providers: list[Provider], wishes: dict[str, Any], body: dict[str, Any]
) -> list[Provider]:
    only, ignore, kinds = (wishes.get(key) for key in ("only", "ignore", "quantizations"))
    order = wishes.get("order") if wishes.get("allow_fallbacks") is False else None
    named = [p for p in providers if not only or _names(p, only)]
    named = [p for p in named if not order or _names(p, order)]
    named = [p for p in named if not (ignore and _names(p, ignore))]
    if not named:
        raise Refused(_NO_ENDPOINTS)
    fitting = [p for p in named if not kinds or p.quantization in kinds]
    fitting = [p for p in fitting if _is_affordable(p, wishes.get("max_price") or {})]
    if wishes.get("require_parameters") and (set(body) & _OPTIONAL) - _SUPPORTED:
        fitting = []
    if not fitting:
        raise Refused(_constrained(wishes))
    return fitting


def _constrained(wishes: dict[str, Any]) -> Refusal:
    fields = ("max_price", "quantizations", "require_parameters")
    field = next((key for key in fields if wishes.get(key)), "provider")
    constraint = {"field": field, "detail": f"no endpoint satisfies provider.{field}"}
    more = {"code": "constraint_filtered", "retryable": False, "constraint": constraint}
    return replace(_NO_ENDPOINTS, more={"availability": more})


def _is_affordable(provider: Provider, price: dict[str, Any]) -> bool:
    return provider.input_price <= float(price.get("prompt", "inf")) and (
        provider.output_price <= float(price.get("completion", "inf"))
    )


def _order(providers: list[Provider], wishes: dict[str, Any], rng: random.Random) -> list[Provider]:
    """As `order` says, then by price if `sort` says so, else by draws of weight 1/price²."""
    order = wishes.get("order") or ()
    first = [p for name in order for p in providers if _names(p, [name])]
    rest = [p for p in providers if p not in first]
    if wishes.get("sort") == "price":
        return [*first, *sorted(rest, key=lambda provider: provider.output_price)]
    drawn: list[Provider] = []
    while rest:
        weights = [1 / max(provider.output_price, 1e-6) ** 2 for provider in rest]
        drawn.append(rest.pop(rng.choices(range(len(rest)), weights)[0]))
    return [*first, *drawn]
