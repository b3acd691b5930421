"""Answers that people already have: requests and what came, from logs, batches and cassettes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_REQUEST = ("request", "request_body", "req")
_ANSWER = ("response_body", "response", "chunks", "stream", "answer", "resp")
_ENDPOINT = ("endpoint", "url", "uri")
_INSIDE = ("body", "parsed_body", "json", "string", "data")
"""Where logs and cassettes keep what was sent or came; a body may be text or JSON."""
_STATUS = ("http_status", "status_code", "status")
_DEEPEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One record: a request, an answer, or both.

    Attributes:
        name: The id that joins the files of a batch, or that the record has; `None`: it has none.
        request: The body that was sent.
        answer: The bytes that came: an object, or a stream of events.
        status: HTTP status.
        endpoint: The address that was asked, as far as it is told.
        tools_ref: The name of tools that stand in another file.
    """

    name: str | None
    request: dict[str, Any] | None
    answer: bytes | None
    status: int = 200
    endpoint: str | None = None
    tools_ref: str | None = None


def read_recorded(record: Mapping[str, Any]) -> Recorded:
    """What a record says; a bare answer or chunk is an answer without its request."""
    request = _first(record, _REQUEST)
    asked = _find_request(record if request is None else request)
    came = _first(record, _ANSWER)
    is_bare = came is None and (asked is None or "choices" in record)
    answer = _write_answer(record if is_bare else came)
    name = next((record[key] for key in ("custom_id", "id") if record.get(key)), None)
    return Recorded(
        name=None if name is None else str(name),
        request=asked,
        answer=answer,
        status=_status(record, came),
        endpoint=_endpoint(record, request),
        tools_ref=record.get("tools_ref"),
    )


class Halves:
    """Joins requests and answers that stand apart, by their names, whichever comes first.

    Two requests of one name, or two answers, are refused: nothing tells which belongs to which.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, Recorded]] = {}
        self._over: set[str] = set()

    def join(self, place: str, half: Recorded) -> Iterator[tuple[str, Recorded | None]]:
        """Whole pairs as they become whole; `None` for what is ambiguous."""
        name = half.name
        if name is None or (half.request is not None) == (half.answer is not None):
            yield place, half
        elif name in self._over:
            yield place, None
        elif (other := self._waiting.pop(name, None)) is None:
            self._waiting[name] = place, half
        else:
            self._over.add(name)
            pair = _join(half, other[1])
            yield from [(place, pair)] if pair else [(other[0], None), (place, None)]

    def rest(self) -> Iterator[tuple[str, Recorded]]:
        """What stayed alone."""
        yield from self._waiting.values()


def _join(one: Recorded, other: Recorded) -> Recorded | None:
    asked, came = (one, other) if one.request is not None else (other, one)
    if came.request is not None or asked.request is None:
        return None
    return replace(asked, answer=came.answer, status=came.status)


Placed = tuple[str, Mapping[str, Any]]
"""Where a record stands, and what it says."""


def join_chunks(records: Iterable[Placed]) -> Iterator[Placed]:
    """Records of a file; chunks of one stream, one a line, are one record."""
    stream: list[Mapping[str, Any]] = []
    first = ""
    for place, record in records:
        if stream and not (_is_chunk(record) and record.get("id") == stream[0].get("id")):
            yield first, {"chunks": stream}
            stream = []
        if _is_chunk(record):
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
    return bool(choices) and isinstance(choices, list) and "delta" in choices[0]


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


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
        # A lone surrogate was an escape of JSON, which is what it is written as again.
        return value.encode("utf-8", "backslashreplace")
    if isinstance(value, list):
        events = (b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in value)
        return b"".join(events) + b"data: [DONE]\n\n"
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    if "choices" in value or isinstance(value.get("error"), dict):
        return json.dumps(value).encode()
    found = (_write_answer(value.get(name), depth + 1) for name in _INSIDE)
    return next((one for one in found if one is not None), None)


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
