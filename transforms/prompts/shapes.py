"""Record shapes: which keys mean which reading. A shape is an entry of `SHAPES`."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transforms.failures import FailureKind, RecordError
from transforms.records import Message, Prompt, Role, ToolCall

_ROLES: Mapping[str, Role] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "human": Role.USER,
    "assistant": Role.ASSISTANT,
    "gpt": Role.ASSISTANT,
    "tool": Role.TOOL,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A record with `key` is of this shape; `read` gives the messages of its value."""

    key: str
    read: Callable[[Any], list[Message]]


def parse_record(line: bytes) -> dict[str, Any]:
    """One line's JSON object.

    Raises:
        RecordError: `MALFORMED_JSON`, or `INVALID_PROMPT` for JSON that is no object.
    """
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise RecordError(FailureKind.MALFORMED_JSON, f"{error}") from error
    if not isinstance(record, dict):
        kind = type(record).__name__
        raise RecordError(FailureKind.INVALID_PROMPT, f"a JSON {kind}, not an object")
    return record


def original_line(line: bytes) -> bytes:
    """The line that a rejection holds as `raw`, however often it was fed back; else itself."""
    try:
        record = parse_record(line)
    except RecordError:
        return line
    has_prompt = any(shape.key in record for shape in SHAPES)
    if has_prompt or not isinstance(record.get("rejection"), dict):
        return line
    raw = record.get("raw")
    return original_line(raw.encode(errors="surrogateescape")) if isinstance(raw, str) else line


def read_prompt(record: dict[str, Any], source: str, dataset: str) -> Prompt:
    """The prompt of a record. A recorded last answer is dropped: it is what we ask for.

    Raises:
        RecordError: `INVALID_PROMPT`; the message names the keys that were seen.
    """
    shape = next((shape for shape in SHAPES if shape.key in record), None)
    if shape is None:
        wanted = ", ".join(shape.key for shape in SHAPES)
        raise _invalid(f"none of the keys {wanted}; it has {', '.join(map(str, record)) or 'none'}")
    messages = shape.read(record[shape.key])
    while messages and messages[-1].role is Role.ASSISTANT:
        messages.pop()
    if not any(message.role is Role.USER and message.content for message in messages):
        raise _invalid("no user message with text")
    tools = _read_tools(record.get("tools"))
    identity = _read_id(record, messages, tools)
    _refuse_surrogates(identity, messages)
    return Prompt(
        id=identity,
        messages=tuple(messages),
        tools=tools,
        source=source,
        dataset=dataset,
    )


def _refuse_surrogates(identity: str, messages: list[Message]) -> None:
    """What UTF-8 cannot carry can neither be sent nor written."""
    try:
        _dump([identity, [_canonical(message) for message in messages]]).encode()
    except UnicodeEncodeError as error:
        raise _invalid(f"holds a lone surrogate: {error.object[error.start]!r}") from error


def _invalid(detail: str) -> RecordError:
    return RecordError(FailureKind.INVALID_PROMPT, detail)


def _read_messages(value: Any) -> list[Message]:
    """OpenAI messages, or ShareGPT turns of `from` and `value`."""
    if not isinstance(value, list):
        raise _invalid(f"messages are a JSON {type(value).__name__}, not a list")
    return [_read_message(item) for item in value]


def _read_text(value: Any) -> list[Message]:
    if not isinstance(value, str):
        raise _invalid(f"prompt is a JSON {type(value).__name__}, not a text")
    return [Message(role=Role.USER, content=value)]


SHAPES = (
    Shape("messages", _read_messages),
    Shape("conversations", _read_messages),
    Shape("prompt", _read_text),
)


def _read_message(item: Any) -> Message:
    if not isinstance(item, dict):
        raise _invalid(f"a message is a JSON {type(item).__name__}, not an object")
    word = item.get("role", item.get("from"))
    if not isinstance(word, str) or word not in _ROLES:
        raise _invalid(f"role {word!r} is none of {', '.join(_ROLES)}")
    return Message(
        role=_ROLES[word],
        content=_read_content(item.get("content", item.get("value"))),
        reasoning=_text_or_none(item, "reasoning", "reasoning_content"),
        tool_calls=_read_calls(item.get("tool_calls")),
        tool_call_id=_text_or_none(item, "tool_call_id"),
        name=_text_or_none(item, "name"),
    )


def _read_content(content: Any) -> str | None:
    """A text, or parts that are all text; anything else is not converted but refused."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _invalid(f"content is a JSON {type(content).__name__}, not a text")
    texts = []
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise _invalid(f"content has a part of type {kind!r}; only text can be asked")
        texts.append(part["text"])
    return "".join(texts)


def _read_calls(calls: Any) -> tuple[ToolCall, ...]:
    if not isinstance(calls, list | None):
        raise _invalid(f"tool_calls are a JSON {type(calls).__name__}, not a list")
    return tuple(_read_call(call) for call in calls or ())


def _read_call(call: Any) -> ToolCall:
    try:
        function = call["function"]
        name, arguments = function["name"], function.get("arguments", "")
    except (TypeError, KeyError, AttributeError) as error:
        raise _invalid(f"a tool call without its function: {error}") from error
    if not isinstance(name, str):
        raise _invalid(f"a tool call's name is a JSON {type(name).__name__}")
    if not isinstance(arguments, str):  # the record holds no text to keep: dumped once
        arguments = _dump(arguments)
    identity = call.get("id")
    return ToolCall(id=None if identity is None else str(identity), name=name, arguments=arguments)


def _read_tools(tools: Any) -> tuple[str, ...]:
    """Tool definitions: a list, or JSON text of one; a bare function gets its envelope."""
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools else None
        except (ValueError, RecursionError) as error:
            raise _invalid(f"tools are text but not JSON: {error}") from error
    if tools is None:
        return ()
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _invalid("tools are not a list of objects")
    return tuple(_dump(_as_function(tool)) for tool in tools)


def _as_function(tool: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": tool} if "function" not in tool else tool


def _text_or_none(item: dict[str, Any], *names: str) -> str | None:
    found = next((item[name] for name in names if item.get(name) is not None), None)
    if found is not None and not isinstance(found, str):
        raise _invalid(f"{names[0]} is a JSON {type(found).__name__}, not a text")
    return found


def _read_id(record: dict[str, Any], messages: list[Message], tools: tuple[str, ...]) -> str:
    given = record.get("id")
    if isinstance(given, str) and given:
        return given
    if isinstance(given, bool | int | float) and given == given:  # noqa: PLR0124 - NaN is no id
        return json.dumps(given)
    canonical = [[_canonical(message) for message in messages], list(tools)]
    return hashlib.sha256(_dump(canonical).encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(message: Message) -> list[Any]:
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    given = [message.role, message.content, message.reasoning, calls]
    return [*given, message.tool_call_id, message.name]


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"cannot be written as JSON again: {error}") from error
