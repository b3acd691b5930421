"""Faults with a status of their own: known before a token is sampled, never charged."""

import email.utils
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulator.faults.kinds import Fault, Told
from simulator.reply import Piece, Reply, write_json

USER_ID = "user_2SimulatedAccountOfNobody"
_SHARED_POOL = (
    "moonshotai/kimi-k2.5-0127 is temporarily rate-limited upstream. Please retry shortly, or add "
    "your own key to accumulate your rate limits: https://openrouter.ai/settings/integrations"
)
_CLOUDFLARE_PAGE = """<!DOCTYPE html>
<html lang="en-US"><head><title>openrouter.ai | {title}</title>
<meta charset="UTF-8" /><meta name="robots" content="noindex, nofollow" /></head>
<body><div id="cf-wrapper"><div id="cf-error-details"><h1><span>{title}</span>
<span class="cf-error-code">Error code {code}</span></h1>
<p>Cloudflare Ray ID: <strong>9f2c6c1d7e8b4a10</strong></p></div></div></body></html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A row of the table: what is said, where it differs from the rest.

    Attributes:
        metadata: Of the error; `{provider}` in a text becomes the host's name.
        headers: Header -> text, or what makes it of the time in Unix seconds.
    """

    name: str
    about: str
    status: int
    message: str
    metadata: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str | Callable[[float], str]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    page: int | None = None
    in_hostile: bool = True


class Refused(Exception):  # noqa: N818 - an answer, no error of ours
    """What is said in an answer's place."""

    def __init__(self, refusal: Refusal, provider: str = "") -> None:
        super().__init__(refusal.name)
        self.refusal = refusal
        self.provider = provider


def write_error(code: Any, message: str, **metadata: Any) -> dict[str, Any]:
    """The envelope of every error."""
    error: dict[str, Any] = {"code": code, "message": message}
    return {"error": error | ({"metadata": metadata} if metadata else {}), "user_id": USER_ID}


def write_cloudflare(title: str, code: int) -> bytes:
    """A page of the content network, which answers in the service's place."""
    return _CLOUDFLARE_PAGE.format(title=title, code=code).encode()


def http_date(now: float) -> str:
    """A moment at least one second away, in whole seconds as the format has it."""
    return email.utils.formatdate(math.ceil(now) + 1, usegmt=True)


def _milliseconds(now: float) -> str:
    return str(int(now * 1000) + 1000)


def _upstream(kind: str = "rate_limit_exceeded", raw: str = _SHARED_POOL) -> dict[str, Any]:
    metadata = {"raw": raw, "provider_name": "{provider}", "is_byok": False, "error_type": kind}
    if kind != "rate_limit_exceeded":
        return metadata
    hint = "Retry shortly, or add your own provider key."
    return {**metadata, "limit_source": "upstream_provider_shared_pool", "remedy_hint": hint}


_UP = "Provider returned error"
_TABLE = (
    Refusal(name="provider_400", about="The provider refuses the request with a text of its own.",
            status=400, message=_UP,
            metadata=_upstream("invalid_request", '{"error":"upstream hiccup, try again"}')),
    Refusal(name="context_length", about="The prompt is longer than the endpoint's context.",
            status=400, message="This endpoint's maximum context length is 262144 tokens. However, "
            "you requested about 262500 tokens.",
            metadata={"error_type": "context_length_exceeded"}),
    Refusal(name="unauthorized", about="The key is not known.", status=401,
            message="User not found.", in_hostile=False),
    Refusal(name="credits_in_flight", about="Running requests have reserved the balance.",
            status=402, message="In-flight budget exhausted. Please retry later.",
            metadata={"reason": "in_flight_budget_exhausted",
                      "limit_source": "openrouter_in_flight_budget",
                      "error_type": "payment_required", "headers": {"Retry-After": "1"}},
            headers={"Retry-After": "1"}),
    Refusal(name="credits_weight", about="One request could cost more than the balance.",
            status=402, message="This request requires more credits, or fewer max_tokens. You "
            "requested up to 16384 tokens, but can only afford 211.", in_hostile=False,
            metadata={"reason": "weight_exceeds_budget", "error_type": "payment_required"}),
    Refusal(name="credits_none", about="The balance is spent.", status=402, in_hostile=False,
            message="Insufficient credits. Add more using https://openrouter.ai/settings/credits",
            metadata={"limit_source": "openrouter_credits", "error_type": "payment_required"}),
    Refusal(name="moderation", about="The prompt was flagged.", status=403,
            message="moonshotai/kimi-k2.5 requires moderation on {provider}. Your input was "
            'flagged for "violence". No credits were charged.',
            metadata={"reasons": ["violence"], "flagged_input": "how do I …",
                      "provider_name": "{provider}", "model_slug": "moonshotai/kimi-k2.5"}),
    Refusal(name="guardrail", about="A pattern of the account forbids the prompt.", status=403,
            message="Request blocked by guardrail", metadata={"patterns": ["prompt-injection"]}),
    Refusal(name="key_limit", about="The key has spent what it may.", status=403,
            message="Key limit exceeded (total limit). Manage it using "
            "https://openrouter.ai/settings/keys", in_hostile=False,
            metadata={"limit_source": "openrouter_key_limit", "error_type": "permission_denied"}),
    Refusal(name="not_found", about="No endpoint is left for the model.", status=404,
            message="No endpoints found for moonshotai/kimi-k2.5.", in_hostile=False,
            more={"availability": {"code": "no_endpoints", "retryable": False}}),
    Refusal(name="timeout_408", about="The gateway waited too long for the request.", status=408,
            message="Request timed out", metadata={"error_type": "timeout"}),
    Refusal(name="payload_413", about="The body is too large.", status=413,
            message="Payload too large", metadata={"error_type": "payload_too_large"}),
    Refusal(name="unprocessable_422", about="The body is understood and refused.", status=422,
            message=_UP, metadata=_upstream("unprocessable", '{"detail":[{"loc":["body"]}]}')),
    Refusal(name="rate_platform", about="429 of the platform, with X-RateLimit-* in milliseconds.",
            status=429, message="Rate limit exceeded: requests-per-min. ",
            metadata={"headers": {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0"},
                      "error_type": "rate_limit_exceeded"},
            headers={"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0",
                     "X-RateLimit-Reset": _milliseconds}),
    Refusal(name="rate_upstream", about="429 of a provider's shared pool, without a hint.",
            status=429, message=_UP, metadata=_upstream()),
    Refusal(name="rate_int", about="429 with Retry-After in whole seconds.", status=429,
            message=_UP, metadata=_upstream(), headers={"Retry-After": "1"}),
    Refusal(name="rate_float", about="429 with Retry-After as a fraction.", status=429,
            message=_UP, metadata=_upstream(), headers={"Retry-After": "0.5"}),
    Refusal(name="rate_date", about="429 with Retry-After as a date.", status=429,
            message=_UP, metadata=_upstream(), headers={"Retry-After": http_date}),
    Refusal(name="rate_zero", about="429 with Retry-After 0.", status=429,
            message=_UP, metadata=_upstream(), headers={"Retry-After": "0"}),
    Refusal(name="rate_metadata", about="429 whose Retry-After is only in metadata.headers.",
            status=429, message=_UP, metadata=_upstream() | {"headers": {"Retry-After": "1"}}),
    Refusal(name="rate_120", about="429 with Retry-After 120.", status=429, in_hostile=False,
            message=_UP, metadata=_upstream(), headers={"Retry-After": "120"}),
    Refusal(name="rate_3600", about="429 with Retry-After 3600.", status=429, in_hostile=False,
            message=_UP, metadata=_upstream(), headers={"Retry-After": "3600"}),
    Refusal(name="rate_1015", about="429 of Cloudflare, a page; clients cool down for a minute.",
            status=429, message="You are being rate limited", page=1015, in_hostile=False),
    Refusal(name="masked_500", about="500, masked.", status=500, message="Internal Server Error"),
    Refusal(name="bad_gateway", about="502 of a provider that answered nonsense.", status=502,
            message=_UP, metadata=_upstream("provider_unavailable", "upstream connect error")),
    Refusal(name="unavailable", about="503: no provider can serve it now.", status=503,
            message="No available model provider meets your routing requirements",
            metadata={"error_type": "provider_overloaded"},
            more={"availability": {"code": "temporarily_unavailable", "retryable": True}}),
    Refusal(name="gateway_timeout", about="504 of a provider.", status=504, message=_UP,
            metadata=_upstream("timeout", "The operation was aborted due to timeout")),
    Refusal(name="origin_520", about="520 of Cloudflare, as a page.", status=520,
            message="Web server is returning an unknown error", page=520),
    Refusal(name="timeout_524", about="524 of Cloudflare, as a page.", status=524,
            message="A timeout occurred", page=524),
    Refusal(name="overloaded_529", about="529: the provider is overloaded.", status=529,
            message=_UP, metadata=_upstream("provider_overloaded", "Overloaded")),
)  # fmt: skip


def _filled(value: Any, provider: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, provider) for key, inner in value.items()}
    return value.replace("{provider}", provider) if isinstance(value, str) else value


def refuse(refusal: Refusal, provider: str, at_s: float) -> Reply:
    """The reply of a row of the table."""
    now = time.time()
    headers = {k: v if isinstance(v, str) else v(now) for k, v in refusal.headers.items()}
    if refusal.page:
        page = write_cloudflare(refusal.message, refusal.page)
        return Reply(status=refusal.status, kind="text/html", pieces=(Piece(at_s, page),))
    metadata = _filled(refusal.metadata, provider)
    body = write_error(refusal.status, _filled(refusal.message, provider), **metadata)
    if "X-RateLimit-Reset" in headers:
        body["error"]["metadata"]["headers"] |= headers
    body["error"] |= refusal.more
    pieces = (Piece(at_s, write_json(body)),)
    return Reply(status=refusal.status, headers=headers, pieces=pieces)


def _fault(refusal: Refusal) -> Fault:
    def spoil(reply: Reply, told: Told) -> Reply:
        return refuse(refusal, told.provider, reply.headers_at_s)

    return Fault(
        name=refusal.name, about=refusal.about, is_charged=False, spoil=spoil,
        is_refusal=True, in_hostile=refusal.in_hostile,
    )  # fmt: skip


REFUSALS = tuple(map(_fault, _TABLE))
