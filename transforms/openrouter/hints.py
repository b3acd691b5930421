"""How long the service asks to wait, in every form it says so."""

import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

LONGEST_S = 300.0
"""A longer hint is shortened: what it waits for is asked again every five minutes."""
_EPOCH_MS, _EPOCH_S = 1e11, 1e9
"""`X-RateLimit-Reset` is an epoch in milliseconds, in seconds, or a number of seconds."""


def hint_s(
    headers: tuple[tuple[str, str], ...], body: bytes, now: float | None = None
) -> float | None:
    """Seconds to wait, from 0 to 300; `None` if nothing is said.

    In order: `Retry-After` (seconds, fractions, or a date), the same in the body's
    `metadata.headers`, `availability.retry_after`, `X-RateLimit-Reset` of either.
    """
    seconds = next(_said(dict(headers), _error_of(body), now or time.time()), None)
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_S)


def _said(headers: Mapping[str, str], error: dict[str, Any], now: float) -> Iterator[float]:
    inner = _lowered(_dict(_dict(error.get("metadata")).get("headers")))
    for value in (headers.get("retry-after"), inner.get("retry-after")):
        yield from _after(value, now)
    yield from _number(_dict(error.get("availability")).get("retry_after"))
    for value in (headers.get("x-ratelimit-reset"), inner.get("x-ratelimit-reset")):
        for number in _number(value):
            yield _until(number, now)


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        reply = _dict(msgspec.json.decode(body))
    except (ValueError, RecursionError):
        return {}
    error = _dict(reply.get("error"))
    return error | {"availability": error.get("availability") or reply.get("availability")}


def _after(value: Any, now: float) -> Iterator[float]:
    for number in _number(value):
        yield number
        return
    try:
        yield parsedate_to_datetime(str(value)).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return


def _until(number: float, now: float) -> float:
    if number > _EPOCH_MS:
        return number / 1000 - now
    return number - now if number > _EPOCH_S else number


def _number(value: Any) -> Iterator[float]:
    try:
        number = float(value)
    except (ValueError, TypeError, OverflowError):
        return
    if number == number and not isinstance(value, bool):  # noqa: PLR0124 - NaN
        yield number


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _lowered(headers: dict[str, Any]) -> dict[str, Any]:
    return {str(name).lower(): value for name, value in headers.items()}
