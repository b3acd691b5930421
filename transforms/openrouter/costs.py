"""What a reply says that it cost."""

import contextlib
import json
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import msgspec

from transforms.openrouter.store import Attempt


def read_cost(usage: Any) -> Decimal | None:
    """`usage.cost` in US dollars; absent, or no number that can be meant, is not zero."""
    cost = usage.get("cost") if isinstance(usage, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not abs(cost) < _HUGE_USD:
        return None
    return Decimal(str(cost))


LOST = "-lost"
"""How the ids of runs end under which the accounts of a run's lost calls are kept."""


def cost_of(attempt: Attempt) -> Decimal:
    """US dollars, by its own account; nothing for an error, or a body that was cut.

    Of a lost call's account, what the call cost.
    """
    if attempt.run_id.endswith(LOST):
        return read_total(read_account(attempt)) or Decimal(0)
    is_error = attempt.error is not None or (attempt.status or 0) >= HTTPStatus.BAD_REQUEST
    return (None if is_error else find_cost(attempt.body)) or Decimal(0)


def find_cost(body: bytes) -> Decimal | None:
    """`read_cost` of the last usage in a reply, whole or a stream, without parsing the rest.

    Unescaped quotes stand around keys alone: text that looks like it is not taken for it.
    """
    end = len(body)
    while (at := body.rfind(_USAGE, 0, end)) >= 0:
        value = body[at + len(_USAGE) :].lstrip(b" \t\r\n:")
        if value.startswith(b"{"):
            with contextlib.suppress(ValueError, RecursionError):
                return read_cost(_DECODER.raw_decode(value.decode(errors="replace"))[0])
        end = at
    return None


_HUGE_USD = 1e12
_USAGE = b'"usage"'
_DECODER = json.JSONDecoder()


def read_account(attempt: Attempt) -> dict[str, Any]:
    """The object that `GET /generation` tells a generation by; an empty one if it tells none."""
    if attempt.status != HTTPStatus.OK or attempt.error is not None:
        return {}
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        account = msgspec.json.decode(attempt.body)["data"]
        return account if isinstance(account, dict) else {}
    return {}


def read_total(account: dict[str, Any]) -> Decimal | None:
    """What a generation cost, in US dollars."""
    return read_cost({"cost": account.get("total_cost")})
