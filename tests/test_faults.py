"""What an attempt amounts to: made bodies of every known shape, and recorded ones."""

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.openrouter.faults import (
    BAD_OUTPUT,
    BLOCKED,
    BROKEN,
    DECLINED,
    FATAL,
    MAYBE_PAID,
    NOBODY_ELSE,
    RATE,
    REFUSED,
    UNAVAILABLE,
    UNCONFIRMED,
    UNREACHED,
    Fault,
    judge,
)
from transforms.openrouter.hints import hint_s
from transforms.openrouter.store import Attempt
from transforms.records import Arrival


def attempt(
    status: int | None, body: bytes | dict[str, Any], error: str | None = None, hint: str = ""
) -> Attempt:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Attempt(
        request_sha256="00",
        run_id="r",
        status=status,
        error=error,
        headers=(("retry-after", hint),) if hint else (),
        body=raw,
        started_at=0,
        ended_at=0,
    )


def failed(code: Any, **metadata: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "said", "metadata": metadata}}


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (400, failed(400), REFUSED),
        (401, failed(401), UNCONFIRMED),
        (402, failed(402), FATAL),
        (402, failed(402, reason="in_flight_budget_exhausted"), RATE),
        (403, failed(403, reasons=["violence"]), REFUSED),
        (403, failed(403, limit_source="openrouter_key_limit"), FATAL),
        (403, b"error code: 1015", BLOCKED),
        (404, failed(404), FATAL),
        (408, b"", UNAVAILABLE),
        (413, b"<html>", REFUSED),
        (422, b"{}", REFUSED),
        (429, b"<html>error code: 1015</html>", BLOCKED),
        (429, failed(429), RATE),
        (429, failed(429, provider_name="Chutes"), RATE),
        (
            404,
            {"error": {"code": 404, "message": "No endpoints found that support tool use"}},
            REFUSED,
        ),
        (500, {"error": {"code": 500, "availability": {"retryable": True}}}, RATE),
        (500, failed(500), UNAVAILABLE),
        (502, b"", UNAVAILABLE),
        (503, failed(503), RATE),
        (504, b"", MAYBE_PAID),
        (524, b"<html>", MAYBE_PAID),
        (529, b"", RATE),
        (200, b"\n         \n" * 5, BROKEN),
        (200, b"<!DOCTYPE html>", BROKEN),
        (200, b'{"choices":[{"message":{"conte', BROKEN),
        (200, b"[" * 100_000, BROKEN),
        (200, b'"text"', BROKEN),
        (200, failed(429), RATE),
        (200, failed("502"), UNAVAILABLE),
        (200, {"error": "overloaded"}, UNAVAILABLE),
        (200, {"choices": None}, UNAVAILABLE),
        (200, {"choices": []}, UNAVAILABLE),
        (200, {"choices": [{"finish_reason": "error", "message": {}}]}, UNAVAILABLE),
        (200, {"choices": [{"finish_reason": None, "message": {"content": "a"}}]}, BAD_OUTPUT),
        (200, b'data: {"choices":[{"delta":{"content":"a"}}]}', BROKEN),
        (200, {"choices": [{"finish_reason": "content_filter", "message": {}}]}, DECLINED),
        (200, failed(400, provider_name="Chutes"), DECLINED),
        (400, failed(400, provider_name="Chutes"), DECLINED),
        (400, failed(400, provider_name=""), REFUSED),
        (200, {"choices": [{"finish_reason": "stop", "message": {"content": ""}}]}, UNAVAILABLE),
        (200, {"choices": [{"finish_reason": "length", "message": {"content": "a"}}]}, None),
        (200, {"choices": [{"finish_reason": "stop", "message": {"content": "a"}}]}, None),
    ],
)
def test_each_shape_has_its_class(status: int, body: Any, fault: Fault | None) -> None:
    judged = judge(attempt(status, body))
    assert judged.fault is fault
    assert (judged.reply is not None) == (fault is None)


def said(finish: str = "stop", tokens: int = 9, **message: Any) -> dict[str, Any]:
    choice = {"finish_reason": finish, "message": message}
    usage = {"completion_tokens": tokens, "cost": 0.25}
    return {"provider": {"name": "Chutes"}, "choices": [choice], "usage": usage}


@pytest.mark.parametrize(
    ("body", "thinks", "fault"),
    [
        (said(content=""), True, BAD_OUTPUT),
        (said(content="", tokens=0), True, UNAVAILABLE),
        (said("length", content=None), True, None),  # cut within the thought
        (said(content=None, reasoning="So it is 4."), True, BAD_OUTPUT),
        (said(content=None, reasoning="So it is 4."), False, None),  # the content, in its place
        (said("length", content=None, reasoning="So it"), True, None),
        (said(content=None, reasoning="Hm.</think>It is 4."), True, None),  # can be put right
        (said(content=None, reasoning="Hm.<|tool_calls_section_begin|>"), True, None),
        (said(content="<|tool_calls_section_begin|>", reasoning="Hm."), True, None),
        (said(content="4"), True, None),  # an empty thought may be left out
        (said("tool_calls", content=None, tool_calls=[{}]), True, None),
    ],
)
def test_a_paid_answer_is_bad_only_if_nothing_can_mend_it(
    body: dict[str, Any], fault: Fault | None, *, thinks: bool
) -> None:
    judged = judge(attempt(200, body), thinks=thinks)
    assert judged.fault is fault
    assert judged.reply == (None if fault is UNAVAILABLE else body)
    assert judged.host == (None if fault is None else "Chutes")
    assert judged.cost_usd == Decimal("0.25")


def test_who_gave_a_fault_is_known() -> None:
    in_header = replace(attempt(502, b"<html>"), headers=(("x-provider-name", "Nebius"),))
    assert judge(in_header).host == "Nebius"
    assert judge(attempt(502, failed(502, provider_name="Chutes"))).host == "Chutes"
    assert judge(attempt(500, failed(500))).host is None


def test_no_host_for_a_changed_body_is_no_reason_to_stop() -> None:
    changed = replace(attempt(404, failed(404)), sent="{}")
    assert judge(changed).fault is NOBODY_ELSE


def test_a_repeated_answer_has_no_price_and_no_time() -> None:
    hit = (("x-openrouter-cache-status", "HIT"), ("x-openrouter-cache-source-id", "gen-7"))
    body = {"choices": [{"finish_reason": "stop", "message": {"content": "a"}}]}
    plain = replace(attempt(200, body | {"usage": {"cost": 0}}), first_at=1.0, last_at=2.0)
    assert judge(plain).cost_usd == 0
    assert judge(plain).repeats is None
    assert judge(plain).arrival == Arrival(0, 1.0, 2.0)
    judged = judge(replace(plain, headers=hit))
    assert (judged.repeats, judged.cost_usd, judged.arrival) == ("gen-7", None, None)


@pytest.mark.parametrize(
    ("status", "body", "error", "fault"),
    [
        (None, b"", "ClientConnectorError: refused", UNREACHED),
        (None, b"", "TimeoutError: ", MAYBE_PAID),
        (200, b"", "ClientPayloadError: cut", MAYBE_PAID),
        (200, b'{"choices"', "ClientPayloadError: cut", MAYBE_PAID),
    ],
)
def test_a_transport_error_may_have_been_paid_once_headers_came(
    status: int | None, body: bytes, error: str, fault: Fault
) -> None:
    assert judge(attempt(status, body, error)).fault is fault


def test_recorded_rate_limits(shared: Callable[[str], Path]) -> None:
    rows = shared("errors/openrouter_429_recorded.jsonl").read_text("utf-8").splitlines()
    assert rows
    for row in map(json.loads, rows):
        body = next(row[name] for name in ("response_body", "body") if name in row)
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        assert judge(attempt(429, raw)).fault is RATE


NOW = 1_900_000_000.0


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "2"}, {}, 2.0),
        ({"retry-after": "1.5"}, {}, 1.5),
        ({"retry-after": "0"}, {}, 0.0),
        ({"retry-after": "-3"}, {}, 0.0),
        ({"retry-after": "9999"}, {}, 300.0),
        ({"retry-after": "nan"}, {}, None),
        ({"retry-after": "soon"}, {}, None),
        ({"retry-after": "Sun, 17 Mar 2030 17:47:40 GMT"}, {}, 60.0),
        ({"retry-after": "Sun, 17 Mar 2030 17:46:00 GMT"}, {}, 0.0),
        ({"x-ratelimit-reset": "1900000007000"}, {}, 7.0),
        ({"x-ratelimit-reset": "1900000007"}, {}, 7.0),
        ({"x-ratelimit-reset": "7"}, {}, 7.0),
        ({}, {"error": {"metadata": {"headers": {"Retry-After": "120"}}}}, 120.0),
        ({}, {"error": {"metadata": {"headers": {"X-RateLimit-Reset": "1900000009000"}}}}, 9.0),
        ({}, {"error": {"code": 429}, "availability": {"retry_after": 4}}, 4.0),
        ({}, {"error": {"availability": {"retry_after": 4}}}, 4.0),
        ({"retry-after": "3"}, {"error": {"availability": {"retry_after": 4}}}, 3.0),
        ({}, {"error": {"metadata": [1], "availability": "x"}}, None),
        ({}, [], None),
    ],
)
def test_the_service_says_how_long_to_wait(
    headers: dict[str, str], body: Any, seconds: float | None
) -> None:
    found = hint_s(tuple(headers.items()), json.dumps(body).encode(), NOW)
    assert found == pytest.approx(seconds)


@given(st.text(max_size=20), st.binary(max_size=40))
def test_a_hint_is_a_wait_that_ends_or_none(header: str, body: bytes) -> None:
    found = hint_s((("retry-after", header), ("x-ratelimit-reset", header)), body)
    assert found is None or 0 <= found <= 300


@given(st.integers(100, 599), st.binary(max_size=60))
def test_whatever_bytes_come_they_are_judged(status: int, body: bytes) -> None:
    judged = judge(attempt(status, body))
    assert judged.reply is not None or judged.fault is not None
