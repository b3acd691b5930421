"""What an attempt amounts to: an answer, or a fault of a class that says how to go on.

The classes are data; `judge` is one pure function from what came over the wire to a class.
"""

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import msgspec

from transforms.failures import FailureKind
from transforms.openrouter.store import Attempt
from transforms.openrouter.wire import read_body, read_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A class of faults and what is done about it.

    Attributes:
        kind: What a prompt fails with when the attempts are used up.
        attempts: Most tries of a prompt at faults of this class.
        base_s: First back-off in seconds, doubled each time up to `cap_s`; full jitter.
        permanent: Trying the same again cannot help: remembered, not sent again.
        fatal: No request of this run can succeed: the run stops.
    """

    name: str
    kind: FailureKind
    attempts: int
    base_s: float
    cap_s: float
    permanent: bool = False
    fatal: bool = False


RATE = Fault(name="rate", kind=FailureKind.RATE_LIMITED, attempts=10, base_s=2, cap_s=120)
UNAVAILABLE = Fault(
    name="unavailable", kind=FailureKind.PROVIDER_UNAVAILABLE, attempts=8, base_s=1, cap_s=60
)
MAYBE_PAID = Fault(name="maybe_paid", kind=FailureKind.TIMEOUT, attempts=3, base_s=5, cap_s=120)
BROKEN = Fault(name="broken", kind=FailureKind.INVALID_RESPONSE, attempts=3, base_s=5, cap_s=120)
REFUSED = Fault(
    name="refused", kind=FailureKind.REFUSED, attempts=1, base_s=0, cap_s=0, permanent=True
)
FATAL = Fault(
    name="fatal", kind=FailureKind.SERVICE_STOPPED, attempts=1, base_s=0, cap_s=0, fatal=True
)

_BY_STATUS: dict[int, Fault] = {
    400: REFUSED,
    401: FATAL,
    402: FATAL,
    403: REFUSED,
    404: FATAL,
    408: MAYBE_PAID,
    412: REFUSED,
    413: REFUSED,
    422: REFUSED,
    429: RATE,
    503: RATE,
    504: MAYBE_PAID,
    524: MAYBE_PAID,
    529: RATE,
}
"""Every other status from 500 on is UNAVAILABLE, every other one from 400 on REFUSED."""

_BY_REASON: tuple[tuple[int, bytes, Fault], ...] = (
    (402, b"in_flight", RATE),
    (403, b"key_limit", FATAL),
    (403, b"Key limit exceeded", FATAL),
    (403, b"_budget", FATAL),
    (403, b"error code: 1015", RATE),
)
"""Statuses that mean two things, told apart by what the body says; asked before the status."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Either `reply`, the JSON of an answer, or `fault` with what was said.

    `cost_usd` is what the body says was paid, answer or not.
    """

    reply: Any = None
    fault: Fault | None = None
    detail: str = ""
    cost_usd: Decimal = Decimal(0)


def judge(attempt: Attempt) -> Judged:
    """The meaning of one attempt. Never raises on what a server may send."""
    if attempt.error is not None:
        fault = UNAVAILABLE if attempt.status is None and not attempt.body else MAYBE_PAID
        if attempt.error.startswith("TimeoutError"):
            fault = MAYBE_PAID
        return Judged(fault=fault, detail=attempt.error)
    if attempt.status is not None and attempt.status >= 400:  # noqa: PLR2004 - HTTP's border
        return Judged(fault=_fault_of(attempt.status, attempt.body), detail=_said(attempt))
    try:
        reply = read_body(attempt.body)
    except (ValueError, RecursionError) as error:
        return Judged(fault=BROKEN, detail=f"not JSON ({error}): {_shown(attempt.body)}")
    if not isinstance(reply, dict):
        return Judged(fault=BROKEN, detail=f"not an object: {_shown(attempt.body)}")
    cost_usd = read_cost(reply.get("usage")) or Decimal(0)
    return replace(_judge_reply(reply, attempt.body), cost_usd=cost_usd)


def _judge_reply(reply: dict[str, Any], body: bytes) -> Judged:
    if error := reply.get("error"):
        code = str(error.get("code")) if isinstance(error, dict) else ""
        status = int(code) if re.fullmatch("[45][0-9]{2}", code) else 500
        return Judged(fault=_fault_of(status, body), detail=f"error in a 200: {_shown(body)}")
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return Judged(fault=UNAVAILABLE, detail=f"no choices: {_shown(body)}")
    finish = choices[0].get("finish_reason")
    if finish == "error" or choices[0].get("error"):
        return Judged(fault=UNAVAILABLE, detail=f"the provider failed: {_shown(body)}")
    if not finish:
        return Judged(fault=BROKEN, detail="no finish_reason: the answer is not whole")
    if finish == "content_filter":
        return Judged(fault=REFUSED, detail="content filter")
    return Judged(reply=reply)


def _fault_of(status: int, body: bytes) -> Fault:
    for known, said, fault in _BY_REASON:
        if status == known and said in body:
            return fault
    server = 500
    return _BY_STATUS.get(status, UNAVAILABLE if status >= server else REFUSED)


def _said(attempt: Attempt) -> str:
    try:
        message = msgspec.json.decode(attempt.body)["error"]["message"]
    except (ValueError, RecursionError, KeyError, TypeError):
        message = _shown(attempt.body)
    return f"HTTP {attempt.status}: {message}"


def _shown(body: bytes) -> str:
    return body.strip()[:300].decode(errors="replace")


def retry_after_s(attempt: Attempt) -> float | None:
    """Seconds that the service asks to wait, capped at 300; `None` if it names no number."""
    value = dict(attempt.headers).get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        return None
    return min(max(seconds, 0.0), 300.0)
