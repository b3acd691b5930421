"""Answers that people already have: requests and what came, from logs, batches and cassettes."""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_REQUEST = ("request", "request_body", "req", "kwargs", "proxy_server_request", "input")
_ANSWER = ("response_body", "response", "resp", "chunks", "stream", "output", "completion",
           "result", "answer")  # fmt: skip
_ENDPOINT = ("endpoint", "url", "uri", "base_url", "api_base")
_INSIDE = ("body", "parsed_body", "json", "string", "data", "postData", "content", "text")
"""Where logs, cassettes and HAR files keep what was sent or came; a body may be text or JSON."""
_STATUS = ("http_status", "status_code", "status")
_SETTINGS = ("extra_body", "optional_params", "model_parameters", "modelParameters", "parameters",
             "params", "invocation_params")  # fmt: skip
"""Objects of settings that logs keep apart from the request, or that a client merges into it."""
_BESIDE = ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "n", "tools", "tool_choice",
           "response_format", "reasoning", "reasoning_effort", "chat_template_kwargs", "logit_bias",
           "presence_penalty", "frequency_penalty", "repetition_penalty",
           "max_tokens", "max_completion_tokens")  # fmt: skip
"""Settings of the API that may stand beside the request."""
_NOT_SENT = ("headers", "extra_headers", "extra_query", "timeout", "api_key", *_ENDPOINT)
"""Arguments of clients that are no fields of a body; some hold a key."""
_OF_RECORD = ("id", "custom_id", "choices", "object", "created", "system_fingerprint", "provider",
              *(name for name in _ANSWER if name != "stream"), *_STATUS)  # fmt: skip
"""What stands beside the fields of a request that are the record's own."""
_OF_ANSWER = ("id", "object", "created", "model", "provider", "choices", "usage", "error",
              "system_fingerprint", "service_tier", "prompt_token_ids")  # fmt: skip
"""All that is kept of a record that is an answer: what stands beside it may be a key."""
_DEEPEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One record: a request, an answer, or both.

    Attributes:
        name: The id that joins the files of a batch, or that the record has; `None`: it has none.
        named_by: The field that holds it.
        request: The body that was sent.
        answer: The bytes that came: an object, or a stream of events.
        status: HTTP status.
        endpoint: The address that was asked, as far as it is told.
        tools_ref: The name of tools that stand in another file.
    """

    name: str | None
    request: dict[str, Any] | None
    answer: bytes | None
    named_by: str = "custom_id"
    status: int = 200
    endpoint: str | None = None
    tools_ref: str | None = None

    @property
    def half(self) -> tuple[str, str] | None:
        """What joins it to the other half; `None`: it is whole, or nothing does."""
        is_whole = (self.request is not None) == (self.answer is not None)
        return None if is_whole or self.name is None else (self.named_by, self.name)


def read_recorded(record: Mapping[str, Any]) -> Recorded:
    """What a record says; a bare answer or chunk is an answer without its request."""
    asked = _read_request(record)
    came = next((record[name] for name in _ANSWER if _may_be_answer(record.get(name))), None)
    if "choices" in record:
        came = {name: record[name] for name in _OF_ANSWER if name in record}
    answer = _write_answer(record if came is None and asked is None else came)
    if answer is None and isinstance(record.get("error"), dict):
        answer = json.dumps({"error": record["error"]}).encode()
    named_by = next((key for key in ("custom_id", "id") if _is_name(record.get(key))), "")
    return Recorded(
        name=str(record[named_by]) if named_by else None,
        named_by=named_by,
        request=asked,
        answer=answer,
        status=_status(record, came),
        endpoint=_endpoint(record, *(record.get(name) for name in _REQUEST)),
        tools_ref=record.get("tools_ref"),
    )


class Halves:
    """Joins requests and answers that stand apart, by their names, whichever comes first.

    Two requests of one name, or two answers, are refused: nothing tells which belongs to which.
    That is known of each name before the first pair is made, since a pair may already be wrong when
    the third half of its name comes.

    Args:
        records: All records, of which the halves are counted.
    """

    def __init__(self, records: Iterable[Recorded]) -> None:
        halves = ((one.half, one.request is None) for one in records if one.half is not None)
        self._repeated = {name for (name, _), count in Counter(halves).items() if count > 1}
        self._waiting: dict[tuple[str, str], tuple[str, Recorded]] = {}

    def join(self, place: str, half: Recorded) -> Iterator[tuple[str, Recorded | None]]:
        """Whole pairs as they become whole; `None` for what is ambiguous."""
        name = half.half
        if name is None:
            yield place, half
        elif name in self._repeated:
            yield place, None
        elif (other := self._waiting.pop(name, None)) is None:
            self._waiting[name] = place, half
        else:
            yield place, _join(half, other[1])

    def rest(self) -> Iterator[tuple[str, Recorded]]:
        """What stayed alone."""
        yield from self._waiting.values()


def _join(one: Recorded, other: Recorded) -> Recorded:
    asked, came = (one, other) if one.request is not None else (other, one)
    return replace(asked, answer=came.answer, status=came.status)


Placed = tuple[str, Mapping[str, Any]]
"""Where a record stands, and what it says."""


def join_chunks(records: Iterable[Placed]) -> Iterator[Placed]:
    """Records of a file; chunks of one stream, one a line, are one record."""
    stream: list[Mapping[str, Any]] = []
    first = ""
    for place, record in records:
        goes_on = bool(stream) and record.get("id") == stream[0].get("id") and _is_of_stream(record)
        if stream and not goes_on:
            yield first, {"chunks": stream}
            stream = []
        if goes_on or _is_chunk(record):
            first = first if stream else place
            stream.append(record)
        else:
            yield place, record
    if stream:
        yield first, {"chunks": stream}


def _is_chunk(record: Mapping[str, Any]) -> bool:
    choices = record.get("choices")
    if record.get("object") == "chat.completion.chunk":
        return True
    choice = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(choice, dict) and "delta" in choice


def _is_of_stream(record: Mapping[str, Any]) -> bool:
    """A chunk, or the counts behind the last one, which have no choices."""
    return _is_chunk(record) or record.get("choices") == []


def _read_request(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The body that was sent, with the settings that stand beside it; its own count."""
    found = (_find_request(record.get(name)) for name in _REQUEST)
    asked = next((one for one in found if one is not None), None) or _find_request(record)
    if asked is None:
        return None
    places = [asked] if asked is record else [record, asked]
    beside = {} if asked is record else _settings_beside(record)
    for settings in (place[name] for place in places for name in _SETTINGS if place.get(name)):
        parsed = _parse(settings) if isinstance(settings, str) else settings
        beside |= parsed if isinstance(parsed, dict) else {"settings": settings}
    left_out = {*_SETTINGS, *_NOT_SENT, *(_OF_RECORD if asked is record else ())}
    own = {name: value for name, value in asked.items() if name not in left_out}
    return beside | {name: own[name] for name in own if own[name] is not None or name not in beside}


def _settings_beside(record: Mapping[str, Any]) -> dict[str, Any]:
    beside = {name: record[name] for name in _BESIDE if record.get(name) is not None}
    if isinstance(beside.get("reasoning"), str):  # the thought of the answer
        del beside["reasoning"]
    model = _first(record, ("request_model", "model"))
    return beside if model is None else beside | {"model": model}


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _is_name(value: Any) -> bool:
    return value is not None and value != ""


def _may_be_answer(value: Any) -> bool:
    return bool(value) and isinstance(value, dict | list | str)


def _find_request(value: Any, depth: int = 0) -> dict[str, Any] | None:
    """The object with the messages, as far inside as logs put it."""
    if isinstance(value, str | bytes):
        value = _parse(value)
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    if isinstance(value.get("messages"), list):
        return value
    found = (_find_request(value.get(name), depth + 1) for name in _INSIDE)
    return next((one for one in found if one is not None), None)


def _write_answer(value: Any, depth: int = 0) -> bytes | None:
    """The bytes that came; an object or a list of chunks is written as a server would send it."""
    if isinstance(value, str):
        return _encode(value.removeprefix("\ufeff"))
    if isinstance(value, list):
        return _write_stream(value)
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    if "choices" in value or isinstance(value.get("error"), dict):
        return json.dumps(value).encode()
    if value.get("encoding") == "base64" and isinstance(value.get("text"), str):
        return _decode(value["text"])
    found = (_write_answer(value.get(name), depth + 1) for name in _INSIDE)
    return next((one for one in found if one is not None), None)


def _write_stream(chunks: list[Any]) -> bytes:
    """Of chunks, of their texts, or of the lines or pieces of the stream that they came in."""
    texts = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    if any(map(IS_EVENT.match, texts)):
        return _encode(("" if any("\n" in text for text in texts) else "\n").join(texts))
    return b"".join(b"data: %b\n\n" % _encode(text.strip()) for text in [*texts, "[DONE]"])


IS_EVENT = re.compile(r"\s*(?:data|event|id|retry)?:")
"""How a line of a stream begins; no JSON does."""


def _encode(text: str) -> bytes:
    """A lone surrogate was an escape of JSON, which is what it is written as again."""
    return text.encode("utf-8", "backslashreplace")


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text)
    except ValueError:  # the library's own error is one too
        return None


def _parse(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _status(*places: Any) -> int:
    """200 unless a place says otherwise; a cassette's status is an object with a code."""
    for place in places:
        found = _first(place, _STATUS) if isinstance(place, dict) else None
        found = found.get("code") if isinstance(found, dict) else found
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    return 200


def _endpoint(*places: Any) -> str | None:
    found = (_first(place, _ENDPOINT) for place in places if isinstance(place, dict))
    return next((one for one in found if isinstance(one, str)), None)
