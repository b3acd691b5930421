"""Faults inside a 200: the status says well, the body does not. Of whole answers."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from simulator.faults.kinds import Fault, Told
from simulator.faults.refusals import write_cloudflare, write_error
from simulator.reply import PADDING, Piece, Reply, write_json

Change = Callable[[dict[str, Any], Told], Any]
"""Changes a copy of the answer in place, or returns what is sent instead: JSON or bytes."""


_NO_CALL = {"id": "functions.search:0", "function": {"arguments": "{}"}}
"""Leaks where nothing was called."""


def _message(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["choices"][0]["message"]
    return found


def _finish(answer: dict[str, Any], reason: str | None) -> None:
    answer["choices"][0] |= {"finish_reason": reason, "native_finish_reason": reason}


def _half(text: str | None) -> str:
    return (text or "")[: len(text or "") // 2]


def _no_tokens(answer: dict[str, Any]) -> None:
    usage = answer["usage"]
    answer["usage"] = usage | {
        "completion_tokens": 0, "total_tokens": usage["prompt_tokens"], "cost": 0,
        "completion_tokens_details": {"reasoning_tokens": 0, "image_tokens": 0},
    }  # fmt: skip


def _empty(answer: dict[str, Any]) -> None:
    message = _message(answer)
    message |= {"content": "", "reasoning": None}
    message.pop("reasoning_details", None)
    message.pop("tool_calls", None)
    _finish(answer, "stop")


def _error_in_200(_answer: dict[str, Any], told: Told) -> dict[str, Any]:
    code = told.rng.choice((429, 500, 502, 503))
    return write_error(code, "Provider returned error", provider_name=told.provider, raw="error")


def _string_code(_answer: dict[str, Any], told: Told) -> dict[str, Any]:
    return write_error("502", "Provider returned error", provider_name=told.provider)


def _idle_timeout(_answer: dict[str, Any], _told: Told) -> dict[str, Any]:
    return write_error(504, "Upstream idle timeout exceeded", error_type="timeout")


def _choices_null(answer: dict[str, Any], _told: Told) -> None:
    _no_tokens(answer)
    answer["choices"] = None


def _choices_empty(answer: dict[str, Any], _told: Told) -> None:
    _no_tokens(answer)
    answer["choices"] = []


def _choice_error(answer: dict[str, Any], _told: Told) -> None:
    message = _message(answer)
    message |= {"content": _half(message["content"]), "reasoning": _half(message["reasoning"])}
    message.pop("tool_calls", None)
    error = {"code": 502, "message": "Upstream error", "metadata": {"error_type": "server"}}
    answer["choices"][0] |= {"finish_reason": "error", "error": error}


def _finish_null(answer: dict[str, Any], _told: Told) -> None:
    message = _message(answer)
    message["content"] = _half(message["content"])
    _finish(answer, None)


def _empty_no_tokens(answer: dict[str, Any], _told: Told) -> None:
    _empty(answer)
    _no_tokens(answer)


def _empty_with_tokens(answer: dict[str, Any], _told: Told) -> None:
    _empty(answer)


def _answer_in_reasoning(answer: dict[str, Any], _told: Told) -> None:
    message = _message(answer)
    text = (message["reasoning"] or "") + (message["content"] or "")
    details = [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]
    message |= {"content": None, "reasoning": text, "reasoning_details": details}


def _leaked(answer: dict[str, Any], _told: Told) -> None:
    message = _message(answer)
    text = "<|tool_calls_section_begin|>"
    calls: list[dict[str, Any]] = message.pop("tool_calls", None) or [_NO_CALL]
    for call in calls:
        arguments = call["function"].get("arguments", "{}")
        text += f"<|tool_call_begin|>{call['id']}<|tool_call_argument_begin|>{arguments}"
        text += "<|tool_call_end|>"
    message["content"] = (message["content"] or "") + text + "<|tool_calls_section_end|>"
    _finish(answer, "stop")


def _length_empty(answer: dict[str, Any], _told: Told) -> None:
    message = _message(answer)
    message["content"] = ""
    message.pop("tool_calls", None)
    _finish(answer, "length")


def _content_filter(answer: dict[str, Any], _told: Told) -> None:
    _empty(answer)
    _message(answer)["refusal"] = "I can't help with that."
    _finish(answer, "content_filter")


def _nested_provider(answer: dict[str, Any], told: Told) -> None:
    answer["provider"] = {"name": told.provider, "slug": told.provider.lower(), "meta": {"id": 7}}


def _service_tier(answer: dict[str, Any], _told: Told) -> None:
    answer["service_tier"] = "standard"


def _empty_tool_id(answer: dict[str, Any], _told: Told) -> None:
    for call in _message(answer)["tool_calls"]:
        call["id"] = ""


def _wrong_model(answer: dict[str, Any], _told: Told) -> None:
    answer["model"] = "moonshotai/kimi-k2.6-0420"


def _no_cost(answer: dict[str, Any], _told: Told) -> None:
    answer["usage"].pop("cost")
    answer["usage"].pop("cost_details")


def _unknown_fields(answer: dict[str, Any], _told: Told) -> bytes:
    answer |= {"x_new": {"a": [1, None]}, "service_tier": None}
    body = write_json(answer)
    return body[:-1] + b',"object":"chat.completion","x_new":[]}'


def _lone_surrogate(answer: dict[str, Any], _told: Told) -> None:
    message = _message(answer)
    message["content"] = (message["content"] or "") + "\ud83d"


def _truncated(answer: dict[str, Any], told: Told) -> bytes:
    body = write_json(answer)
    return body[: int(len(body) * told.rng.uniform(0.1, 0.95))]


def _very_large(answer: dict[str, Any], _told: Told) -> None:
    answer["x_debug"] = "0123456789abcdef" * (5 * 2**16)


def _has_calls(told: Told) -> bool:
    return not told.is_stream and bool(_message(told.answer).get("tool_calls"))


def _has_content(told: Told) -> bool:
    return not told.is_stream and bool(_message(told.answer)["content"])


def _is_whole(told: Told) -> bool:
    return not told.is_stream


_TEXT_LOST: tuple[tuple[str, str, bool, Change], ...] = (
    ("error_in_200", "An error object with status 200.", False, _error_in_200),
    ("string_error_code", "The same with its code as a string.", False, _string_code),
    ("choices_null", "choices is null, nothing billed.", False, _choices_null),
    ("choices_empty", "choices is [], nothing billed.", False, _choices_empty),
    ("choice_error", "finish_reason error beside a partial text; insured.", False, _choice_error),
    ("finish_null", "finish_reason null beside half of the content.", True, _finish_null),
    ("empty_no_tokens", "Empty content and 0 tokens; insured.", False, _empty_no_tokens),
    ("empty_with_tokens", "Empty content, tokens billed.", True, _empty_with_tokens),
    ("length_empty", "finish_reason length and no content.", True, _length_empty),
    ("content_filter", "finish_reason content_filter and a refusal.", True, _content_filter),
    ("truncated_json", "The body ends within the JSON.", True, _truncated),
    ("whitespace_only", "Padding and nothing else.", True, lambda _a, _t: PADDING * 12),
)
"""Name, line, whether it is charged, change: of those that do not send the whole text."""

_TEXT_KEPT: tuple[tuple[str, str, Change], ...] = (
    ("nested_provider", "provider is an object.", _nested_provider),
    ("service_tier", "service_tier is standard.", _service_tier),
    ("wrong_model", "Another model answered: a silent redirect.", _wrong_model),
    ("no_cost", "usage has no cost.", _no_cost),
    ("unknown_fields", "Unknown fields, and the same field twice.", _unknown_fields),
    ("lone_surrogate", "The content ends in half of a surrogate pair.", _lone_surrogate),
    ("very_large", "A body of 5 MB.", _very_large),
)


def _fault(
    name: str, about: str, change: Change, fits: Callable[[Told], bool] = _is_whole, **more: Any
) -> Fault:
    def spoil(reply: Reply, told: Told) -> Reply:
        answer = copy.deepcopy(told.answer)
        instead = change(answer, told)
        sent = answer if instead is None else instead
        return reply.with_body(sent if isinstance(sent, bytes) else write_json(sent))

    return Fault(name=name, about=about, spoil=spoil, fits=fits, **more)


def _page(kind: str) -> Callable[[Reply, Told], Reply]:
    page = write_cloudflare("Just a moment...", 503)
    return lambda reply, _told: reply.with_body(page, kind)


def _after_idling(reply: Reply, told: Told) -> Reply:
    """An error after two minutes or three of padding."""
    end = reply.seconds + told.rng.uniform(120, 190) / told.speed
    error = write_json(_idle_timeout({}, told))
    return replace(reply, pieces=(Piece(reply.seconds, PADDING), Piece(end, error)))


ANSWERS = (
    *(_fault(name, about, change, is_charged=paid) for name, about, paid, change in _TEXT_LOST),
    *(
        _fault(name, about, change, is_charged=True, keeps_text=True)
        for name, about, change in _TEXT_KEPT
    ),
    _fault("answer_in_reasoning", "The whole answer is in reasoning.", _answer_in_reasoning,
           _has_content, is_charged=True, keeps_text=True),
    _fault("leaked_tool_tokens", "Raw tool tokens in the content.", _leaked,
           is_charged=True, keeps_text=True),
    _fault("empty_tool_id", "Tool calls without ids.", _empty_tool_id, _has_calls,
           is_charged=True, keeps_text=True),
    Fault(name="html_page", about="A page as text/html.", is_charged=True,
          spoil=_page("text/html"), fits=_is_whole),
    Fault(name="html_as_json", about="A page labelled as JSON.", is_charged=True,
          spoil=_page("application/json"), fits=_is_whole),
    Fault(name="idle_timeout", about="An error in a 200 after 120 to 190 s of padding.",
          is_charged=False, spoil=_after_idling, fits=_is_whole),
)  # fmt: skip
