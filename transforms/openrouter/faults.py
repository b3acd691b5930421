"""What an attempt amounts to: an answer, or a fault of a class that says how to go on.

The classes are data (`CLASSES`, and two tables from what came to a class); `judge` is one pure
function over them. One retry layer acts on them: `client.py`.
"""

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import msgspec

from transforms.failures import FailureKind
from transforms.openrouter.costs import find_cost, read_cost
from transforms.openrouter.replies import read_body, read_provider
from transforms.openrouter.store import Attempt
from transforms.records import Arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A class of faults and what is done about it.

    Attributes:
        kind: What a prompt fails with when its tries are used up.
        attempts: Most tries of a prompt at faults of this class; `None`: as long as `patience_s`.
        patience_s: Longest time that a prompt is tried at such faults, from its first one.
        base_s, cap_s: Back-off where the service names none: full jitter over a window that
            doubles from `base_s` to `cap_s`.
        slows: Fewer requests at once would have avoided it: the limit goes down.
        pause_s: Nothing at all is sent for so long at least, or as long as the service asks;
            doubled each time in a row. `None`: only the prompt itself waits.
        permanent: What `attempts` tries of all runs came to stays: it is not sent again.
        avoids_after: After so many faults of this class the next try leaves out the hosts that gave
            them, if the service has others. `None`: never.
        only_elsewhere: The same host would give the same again: without another there is no try.
        fatal: No request of this run can succeed: the run stops.
        maybe_paid: The service may have generated and charged an answer.
    """

    name: str
    kind: FailureKind
    attempts: int | None
    patience_s: float = 3600.0
    base_s: float = 0.0
    cap_s: float = 0.0
    slows: bool = False
    pause_s: float | None = None
    permanent: bool = False
    avoids_after: int | None = None
    only_elsewhere: bool = False
    fatal: bool = False
    maybe_paid: bool = False


RATE = Fault(
    name="rate", kind=FailureKind.RATE_LIMITED, attempts=None, patience_s=1800, base_s=2,
    cap_s=120, slows=True,
)  # fmt: skip
BLOCKED = Fault(
    name="blocked", kind=FailureKind.RATE_LIMITED, attempts=5, base_s=60, cap_s=600, slows=True,
    pause_s=60,
)  # fmt: skip
UNAVAILABLE = Fault(
    name="unavailable", kind=FailureKind.PROVIDER_UNAVAILABLE, attempts=8, base_s=1, cap_s=60,
    avoids_after=2,
)  # fmt: skip
UNREACHED = replace(UNAVAILABLE, name="unreached", avoids_after=None)
"""No connection was made."""
NOBODY_ELSE = replace(UNAVAILABLE, name="nobody_else", avoids_after=None)
"""No host is left for a body that leaves hosts out: from here on it leaves out none."""
MAYBE_PAID = Fault(
    name="maybe_paid", kind=FailureKind.TIMEOUT, attempts=3, base_s=5, cap_s=120, maybe_paid=True
)
BROKEN = Fault(
    name="broken", kind=FailureKind.INVALID_RESPONSE, attempts=3, base_s=5, cap_s=120,
    maybe_paid=True,
)  # fmt: skip
BAD_OUTPUT = Fault(
    name="bad_output", kind=FailureKind.INVALID_RESPONSE, attempts=2, permanent=True,
    avoids_after=1, only_elsewhere=True,
)  # fmt: skip
"""A paid answer that nobody can use, by the fault of its host."""
DECLINED = replace(BAD_OUTPUT, name="declined", kind=FailureKind.REFUSED)
"""This host refuses the prompt; another one may not."""
REFUSED = Fault(name="refused", kind=FailureKind.REFUSED, attempts=1, permanent=True)
UNCONFIRMED = Fault(
    name="unconfirmed", kind=FailureKind.SERVICE_STOPPED, attempts=2, base_s=1, cap_s=1, fatal=True
)
FATAL = Fault(name="fatal", kind=FailureKind.SERVICE_STOPPED, attempts=1, fatal=True)

CLASSES = (
    RATE,
    BLOCKED,
    UNAVAILABLE,
    UNREACHED,
    MAYBE_PAID,
    BROKEN,
    NOBODY_ELSE,
    BAD_OUTPUT,
    DECLINED,
    REFUSED,
    UNCONFIRMED,
    FATAL,
)

_BY_STATUS: dict[int, Fault] = {
    400: REFUSED,
    401: UNCONFIRMED,  # random ones were seen: it must be said twice
    402: FATAL,
    403: REFUSED,
    404: FATAL,
    408: UNAVAILABLE,
    409: UNAVAILABLE,
    412: REFUSED,
    413: REFUSED,
    422: REFUSED,
    425: UNAVAILABLE,
    429: RATE,
    503: RATE,
    504: MAYBE_PAID,
    524: MAYBE_PAID,
    529: RATE,
}
"""Every other status from 500 on is UNAVAILABLE, every other one from 400 on REFUSED."""

_BY_TEXT: tuple[tuple[frozenset[int], re.Pattern[bytes], Fault], ...] = (
    (frozenset({403, 429, 503}), re.compile(rb"error code: 1015|^\s*<"), BLOCKED),
    (frozenset({400}), re.compile(rb'"provider_name"\s*:\s*"[^"]'), DECLINED),
    (frozenset({402}), re.compile(rb"in_flight"), RATE),
    (frozenset({403}), re.compile(rb"key_limit|[Kk]ey limit|_budget"), FATAL),
    (frozenset({404}), re.compile(rb"endpoints found that support"), REFUSED),
    (frozenset(range(400, 600)), re.compile(rb'"retryable"\s*:\s*true'), RATE),
)
"""What the body says of a status that means several things; asked in order, before the status."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Either `reply`, the JSON of an answer, or `fault` with what was said.

    Both: an answer that cannot be used; if no other host gives a better one, it is the answer.
    `cost_usd` is what the body says was paid, answer or not; `None` if it says nothing.
    `arrival`: when the text of an answer came. `repeats`: the id of the generation that the
    service's response cache gave again, the empty one if it does not say; a repeated answer was
    paid for before, and when it came says nothing of how it was sampled. `host`: the name of who
    gave a fault, if it matters. `left_out`: slugs of the hosts that its body left out.
    """

    reply: Any = None
    fault: Fault | None = None
    detail: str = ""
    cost_usd: Decimal | None = None
    arrival: Arrival | None = None
    repeats: str | None = None
    host: str | None = None
    left_out: tuple[str, ...] = ()


def judge(attempt: Attempt, *, thinks: bool = True) -> Judged:
    """The meaning of one attempt. Never raises on what a server may send.

    `thinks`: the model was to think, so that a thought alone is no answer.
    """
    judged = _judge(attempt, thinks=thinks)
    if (repeats := _repeated(attempt)) is not None:
        cost_usd = judged.cost_usd or None  # 0 is no price to learn from
        judged = replace(judged, cost_usd=cost_usd, arrival=None, repeats=repeats)
    if attempt.sent is not None:
        wishes = msgspec.json.decode(attempt.sent).get("provider", {})
        judged = replace(judged, left_out=tuple(wishes.get("ignore", ())))
    if judged.fault is None or judged.fault.avoids_after is None:
        return judged
    return replace(judged, host=_host(attempt))


def _judge(attempt: Attempt, *, thinks: bool) -> Judged:
    if attempt.error is not None:
        sent_nothing = attempt.status is None and not attempt.error.startswith("TimeoutError")
        return Judged(fault=UNREACHED if sent_nothing else MAYBE_PAID, detail=attempt.error)
    if attempt.status is not None and attempt.status >= HTTPStatus.BAD_REQUEST:
        is_changed = attempt.sent is not None and attempt.status == HTTPStatus.NOT_FOUND
        fault = NOBODY_ELSE if is_changed else _fault_of(attempt.status, attempt.body)
        return Judged(fault=fault, detail=_said(attempt))
    try:
        reply = read_body(attempt.body)
    except (ValueError, RecursionError) as error:
        detail = f"not JSON ({error}): {_shown(attempt.body)}"
        return Judged(fault=BROKEN, detail=detail, cost_usd=find_cost(attempt.body))
    if not isinstance(reply, dict):
        return Judged(fault=BROKEN, detail=f"not an object: {_shown(attempt.body)}")
    found = _judge_reply(reply, attempt.body, thinks=thinks)
    cost_usd = read_cost(reply.get("usage"))
    return Judged(found.reply, found.fault, found.detail, cost_usd, _arrival(attempt))


def _repeated(attempt: Attempt) -> str | None:
    headers = dict(attempt.headers)
    is_hit = headers.get("x-openrouter-cache-status", "").upper() == "HIT"
    return headers.get("x-openrouter-cache-source-id", "") if is_hit else None


def _arrival(attempt: Attempt) -> Arrival | None:
    if attempt.first_at is None or attempt.last_at is None:
        return None
    return Arrival(attempt.started_at, attempt.first_at, attempt.last_at)


def _judge_reply(  # noqa: PLR0911 - one line a shape
    reply: dict[str, Any], body: bytes, *, thinks: bool
) -> Judged:
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    finish = choice.get("finish_reason") if isinstance(choice, dict) else None
    if (error := reply.get("error")) and finish != "length":  # a stream may say why after it
        code = str(error.get("code")) if isinstance(error, dict) else ""
        status = int(code) if re.fullmatch("[45][0-9]{2}", code) else 500
        return Judged(fault=_fault_of(status, body), detail=f"error in a 200: {_shown(body)}")
    if not isinstance(choice, dict):
        return Judged(fault=UNAVAILABLE, detail=f"no choices: {_shown(body)}")
    if finish == "error" or choice.get("error"):
        return Judged(fault=UNAVAILABLE, detail=f"the provider failed: {_shown(body)}")
    if not finish:
        fault = BROKEN if "chunks" in choice else BAD_OUTPUT  # a stream was cut
        return Judged(fault=fault, detail="no finish_reason: the answer is not whole")
    if finish == "content_filter":
        return Judged(fault=DECLINED, detail="content filter")
    if _shows(choice, *_ANSWERS) or finish == "length":
        return Judged(reply=reply)
    if not _shows(choice, *_THOUGHTS):
        fault = BAD_OUTPUT if _tokens(reply) else UNAVAILABLE
        found = reply if fault is BAD_OUTPUT else None
        return Judged(reply=found, fault=fault, detail="an empty answer")
    if thinks and not _may_hold_an_answer(choice):
        return Judged(reply=reply, fault=BAD_OUTPUT, detail="the answer is all thought")
    return Judged(reply=reply)


_ANSWERS, _THOUGHTS = ("content", "tool_calls"), ("reasoning", "reasoning_content")
_MARKER = re.compile(r"</|<\|")
"""How a model's markers begin."""


def _shows(choice: dict[str, Any], *names: str) -> bool:
    """Whether a message has any of these; what is no message is judged where it is read."""
    message = choice.get("message")
    return not isinstance(message, dict) or any(message.get(name) for name in names)


def _may_hold_an_answer(choice: dict[str, Any]) -> bool:
    """A thought with a marker can be taken apart later: it must not be paid for a second time."""
    thoughts = (choice["message"].get(name) for name in _THOUGHTS)
    return any(isinstance(thought, str) and _MARKER.search(thought) for thought in thoughts)


def _host(attempt: Attempt) -> str | None:
    """Who answered, or failed to: a reply names it, an error does in its metadata."""
    try:
        said = read_body(attempt.body)
        error = said.get("error")
        named = error["metadata"]["provider_name"] if error else said.get("provider")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        named = None
    return read_provider(named) or dict(attempt.headers).get("x-provider-name")


def _tokens(reply: dict[str, Any]) -> Any:
    usage = reply.get("usage")
    return usage.get("completion_tokens") if isinstance(usage, dict) else None


def _fault_of(status: int, body: bytes) -> Fault:
    for statuses, said, fault in _BY_TEXT:
        if status in statuses and said.search(body):
            return fault
    is_server = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return _BY_STATUS.get(status, UNAVAILABLE if is_server else REFUSED)


def _said(attempt: Attempt) -> str:
    try:
        message = msgspec.json.decode(attempt.body)["error"]["message"]
    except (ValueError, RecursionError, KeyError, TypeError):
        message = _shown(attempt.body)
    return f"HTTP {attempt.status}: {message}"


def _shown(body: bytes) -> str:
    return body.strip()[:300].decode(errors="replace")
