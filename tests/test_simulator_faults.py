"""The fault menu: what each fault sends, what it costs, and that it is decided once and for all."""

import dataclasses
import json
import re
import time
from types import MappingProxyType
from typing import Any

import pytest

from simulator.faults import FAULTS
from simulator.presets import PRESETS
from simulator.reply import Ending
from simulator.scenario import Forced, Scenario
from simulator.service import Service
from tests.simulated import KEY, TOOLS, answer_of, ask, chunks_of, request_of, truth_of

STATUSES = {
    "provider_400": 400, "unauthorized": 401, "credits_in_flight": 402, "credits_weight": 402,
    "credits_none": 402, "moderation": 403, "guardrail": 403, "key_limit": 403, "not_found": 404,
    "timeout_408": 408, "payload_413": 413, "unprocessable_422": 422, "rate_platform": 429,
    "rate_upstream": 429, "masked_500": 500, "bad_gateway": 502, "unavailable": 503,
    "gateway_timeout": 504, "origin_520": 520, "timeout_524": 524, "overloaded_529": 529,
}  # fmt: skip
HINTS = {"rate_int": 1, "rate_float": 0.5, "rate_zero": 0, "rate_metadata": 1, "rate_120": 120,
         "rate_3600": 3600, "rate_upstream": None, "rate_1015": None}  # fmt: skip


def with_fault(name: str, **fields: Any) -> Service:
    return Service(Scenario(force=(Forced(match="", fault=name),), call_rate=1.0, **fields))


def spoiled(name: str, **fields: Any) -> dict[str, Any]:
    return answer_of(ask(with_fault(name), "hello", **fields))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_and_keeps_what_it_says(name: str) -> None:
    fault = FAULTS[name]
    service = with_fault(name)
    fields = {"stream": name.startswith("stream_")}
    tools = {"tools": TOOLS} if name == "empty_tool_id" else {}
    ask(service, "hello", **fields, **tools)
    assert service.ledger.faults == {name: 1}
    assert service.ledger.charged.total() == fault.is_charged
    assert bool(service.ledger.charged_usd) == fault.is_charged
    assert len(truth_of(service)) == fault.keeps_text
    assert fault.about.endswith(".")
    again = ask(service, "hello", **fields, **tools)
    assert (again.status, again.ending) == (200, Ending.WHOLE)
    assert service.ledger.faults == {name: 1}


@pytest.mark.parametrize(("name", "status"), STATUSES.items())
def test_a_refusal_has_its_status(name: str, status: int) -> None:
    reply = ask(with_fault(name), "hello")
    assert reply.status == status
    if reply.kind == "text/html":
        assert b"Cloudflare" in reply.body
    else:
        assert answer_of(reply)["error"]["code"] == status


@pytest.mark.parametrize(("name", "seconds"), HINTS.items())
def test_a_hint_is_where_the_fault_says(name: str, seconds: float | None) -> None:
    reply = ask(with_fault(name), "hello")
    assert reply.hint_s(time.time()) == seconds
    assert ("Retry-After" in reply.headers) == (seconds is not None and name != "rate_metadata")


def test_a_date_and_a_reset_are_ahead() -> None:
    date = ask(with_fault("rate_date"), "hello")
    assert date.headers["Retry-After"].endswith("GMT")
    assert 0.5 < (date.hint_s(time.time()) or 0) <= 2
    platform = ask(with_fault("rate_platform"), "hello")
    reset = int(platform.headers["X-RateLimit-Reset"]) / 1000
    assert 0 < reset - time.time() <= 1
    headers = answer_of(platform)["error"]["metadata"]["headers"]
    assert headers["X-RateLimit-Reset"] == platform.headers["X-RateLimit-Reset"]


def test_a_retry_before_its_hint_is_counted() -> None:
    service = with_fault("rate_int")
    ask(service, "hello")
    ask(service, "another")
    assert service.ledger.early_retries == 0
    ask(service, "hello")
    assert service.ledger.report()["early_retries"] == 1


def test_failures_inside_a_200() -> None:
    assert "choices" not in spoiled("error_in_200")
    assert spoiled("string_error_code")["error"]["code"] == "502"
    assert spoiled("choices_null")["choices"] is None
    assert spoiled("choices_empty")["choices"] == []
    assert spoiled("choice_error")["choices"][0]["error"]["code"] == 502
    assert spoiled("finish_null")["choices"][0]["finish_reason"] is None
    assert spoiled("empty_no_tokens")["usage"]["completion_tokens"] == 0
    assert spoiled("empty_with_tokens")["usage"]["completion_tokens"] > 0
    assert spoiled("answer_in_reasoning")["choices"][0]["message"]["content"] is None
    assert (
        "<|tool_call_begin|>" in spoiled("leaked_tool_tokens")["choices"][0]["message"]["content"]
    )
    assert spoiled("content_filter")["choices"][0]["message"]["refusal"]
    assert isinstance(spoiled("nested_provider")["provider"], dict)
    assert spoiled("wrong_model")["model"] != "moonshotai/kimi-k2.5-0127"
    calls = spoiled("empty_tool_id", tools=TOOLS)["choices"][0]["message"]["tool_calls"]
    assert {call["id"] for call in calls} == {""}


def test_bodies_that_are_no_answer() -> None:
    with pytest.raises(json.JSONDecodeError):
        spoiled("truncated_json")
    assert ask(with_fault("whitespace_only"), "hello").body.strip() == b""
    assert ask(with_fault("html_page"), "hello").kind == "text/html"
    page = ask(with_fault("html_as_json"), "hello")
    assert page.kind == "application/json"
    assert page.body.startswith(b"<!DOCTYPE")
    assert b"\\ud83d" in ask(with_fault("lone_surrogate"), "hello").body
    assert len(ask(with_fault("very_large"), "hello").body) > 5 * 2**20


def test_streams_that_end_badly() -> None:
    def stream(name: str) -> list[dict[str, Any]]:
        return chunks_of(ask(with_fault(name), "hello", stream=True))

    assert stream("stream_error")[-1]["error"]["code"] == 502
    assert stream("stream_error")[-1]["choices"][0]["finish_reason"] == "error"
    assert stream("stream_token_limit")[-2]["choices"][0]["finish_reason"] == "length"
    assert stream("stream_token_limit")[-1]["choices"][0]["finish_reason"] is None
    assert "usage" in stream("stream_no_done")[-1]
    assert "usage" not in stream("stream_no_finish")[-1]
    for name, end in (("stream_crlf", b"\r\n\r\n"), ("stream_cr", b"\r\r")):
        body = ask(with_fault(name), "hello", stream=True).body
        assert body.endswith(b"data: [DONE]" + end)


def test_a_writing_ends_within_a_character() -> None:
    service = with_fault("stream_split", seed=4)
    pieces = [ask(service, f"n{i}", stream=True).pieces for i in range(20)]
    broken = 0
    for piece in (piece for reply in pieces for piece in reply):
        try:
            piece.data.decode()
        except UnicodeDecodeError:
            broken += 1
    assert broken > 0


def faults_of(service: Service, texts: list[str]) -> dict[str, list[bytes]]:
    """What each body gets, asked twice, without the second that it is made in."""
    replies = {text: [ask(service, text) for _ in range(2)] for text in texts}
    return {text: [b"%d %s" % (r.status, re.sub(rb"\b1[0-9]{9}\b", b"", r.body)) for r in two]
            for text, two in replies.items()}  # fmt: skip


def test_decisions_do_not_depend_on_the_order() -> None:
    texts = [f"question {i}" for i in range(60)]
    scenario = dataclasses.replace(
        PRESETS["happy"], faults=MappingProxyType({"bad_gateway": 0.3, "choices_null": 0.3})
    )
    assert faults_of(Service(scenario), texts) == faults_of(Service(scenario), texts[::-1])


def failures(preset: str, count: int, **fields: Any) -> list[str]:
    service = Service(PRESETS[preset])
    for i in range(count):
        service.take(KEY, request_of(f"question {i}", **fields)).release()
    return list(service.ledger.faults.elements())


@pytest.mark.parametrize("stream", [False, True])
def test_hostile_fails_between_a_third_and_a_half(stream: bool) -> None:
    harmless = {"service_tier", "unknown_fields", "no_cost", "stall", "nested_provider",
                "stream_stall", "stream_crlf", "stream_cr", "stream_split"}  # fmt: skip
    found = [name for name in failures("hostile", 800, stream=stream) if name not in harmless]
    assert 0.33 < len(found) / 800 < 0.52
    assert not set(found) & {"unauthorized", "credits_none", "credits_weight", "key_limit",
                             "not_found"}  # fmt: skip


def test_happy_never_fails_and_reference_seldom() -> None:
    assert failures("happy", 50) == []
    assert len(failures("reference", 400)) < 40
