"""Messages of all dialects -> Message: roles, text, calls and their results."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from transforms.failures import FailureKind, RecordError
from transforms.records import Message, Role, ToolCall

_ROLES: Mapping[str, Role] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "human": Role.USER,
    "assistant": Role.ASSISTANT,
    "gpt": Role.ASSISTANT,
    "function_call": Role.ASSISTANT,
    "tool": Role.TOOL,
    "observation": Role.TOOL,
}
# Markers that stand for a medium which is not in the text: <image> before or behind the question.
_MEDIUM = re.compile(r"\A\s*<(?:image|audio|video)>|<(?:image|audio|video)>\s*\Z")


def invalid(detail: str) -> RecordError:
    """The refusal of a record that is no prompt."""
    return RecordError(FailureKind.INVALID_PROMPT, detail)


def read_messages(value: Any) -> list[Message]:
    """OpenAI messages, or ShareGPT turns of `from` and `value`; JSON text of either.

    Calls without an id get the model's form of one, `functions.NAME:INDEX`; results without an id
    belong to the calls in order.

    Raises:
        RecordError: `INVALID_PROMPT`.
    """
    value = parse_json_text(value)
    if not isinstance(value, list):
        raise invalid(f"messages are a JSON {type(value).__name__}, not a list")
    return _pair_results([_read_message(item) for item in value])


def parse_json_text(value: Any) -> Any:
    """What a column of JSON texts holds; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def dump(value: Any) -> str:
    """JSON text, compact.

    Raises:
        RecordError: `INVALID_PROMPT`, for what JSON has no text for.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise invalid(f"cannot be written as JSON again: {error}") from error


def _read_message(item: Any) -> Message:
    if not isinstance(item, dict):
        raise invalid(f"a message is a JSON {type(item).__name__}, not an object")
    word = item["from"] if item.get("role") is None and "from" in item else item.get("role")
    if not isinstance(word, str) or word not in _ROLES:
        raise invalid(f"role {word!r} is none of {', '.join(_ROLES)}")
    content = (
        item["value"] if item.get("content") is None and "value" in item else item.get("content")
    )
    if word == "function_call":
        return Message(role=Role.ASSISTANT, content="", tool_calls=_read_call_text(content))
    return Message(
        role=_ROLES[word],
        content=_read_content(content),
        reasoning=_read_thought(item),
        tool_calls=_read_calls(item.get("tool_calls")),
        tool_call_id=_text_or_none(item, "tool_call_id"),
        name=_text_or_none(item, "name"),
    )


def _read_thought(item: dict[str, Any]) -> str | None:
    """`reasoning_details` that are text say what `reasoning` would; others cannot be asked."""
    details = item.get("reasoning_details")
    thought = _text_or_none(item, "reasoning", "reasoning_content")
    if thought is not None or not isinstance(details, list) or not details:
        return thought
    texts = [part.get("text") for part in details if isinstance(part, dict)]
    told = [text for text in texts if isinstance(text, str)]
    return "".join(told) if len(told) == len(details) else None


def _read_content(content: Any) -> str | None:
    """A text, or parts that are all text; anything else is not converted but refused."""
    if content is None or isinstance(content, str):
        if _MEDIUM.search(content or ""):
            raise invalid("holds a marker of a medium; only text can be asked")
        return content
    if not isinstance(content, list):
        raise invalid(f"content is a JSON {type(content).__name__}, not a text")
    return "".join(_read_part(part) for part in content)


def _read_part(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    text = part.get("text", part.get("value")) if isinstance(part, dict) else None
    if not isinstance(text, str) or kind not in {"text", "input_text", None}:
        raise invalid(f"content has a part of type {kind!r}; only text can be asked")
    return text


def _read_calls(calls: Any) -> tuple[ToolCall, ...]:
    if not isinstance(calls, list | None):
        raise invalid(f"tool_calls are a JSON {type(calls).__name__}, not a list")
    return tuple(_read_call(call) for call in calls or ())


def _read_call(call: Any) -> ToolCall:
    try:
        function = call["function"]
        name, arguments = function["name"], function.get("arguments", "")
    except (TypeError, KeyError, AttributeError) as error:
        raise invalid(f"a tool call without its function: {error}") from error
    if not isinstance(name, str):
        raise invalid(f"a tool call's name is a JSON {type(name).__name__}")
    identity = call.get("id")
    identity = None if identity is None else str(identity)
    return ToolCall(id=identity, name=name, arguments=_arguments_text(arguments))


def _arguments_text(arguments: Any) -> str:
    """A text stays byte for byte; an object has none, and is dumped once."""
    if isinstance(arguments, str):
        return arguments
    dump(arguments)  # refuses what JSON has no text for
    return json.dumps(arguments, ensure_ascii=False)


def _read_call_text(content: Any) -> tuple[ToolCall, ...]:
    """ShareGPT's `function_call`: JSON of {name, arguments}, or of a list of them."""
    calls = parse_json_text(content)
    calls = calls if isinstance(calls, list) else [calls]
    if not calls or not all(isinstance(call, dict) for call in calls):
        raise invalid("a function_call is not JSON of {name, arguments}")
    return tuple(_read_call({"function": call}) for call in calls)


def _pair_results(messages: list[Message]) -> list[Message]:
    paired, waiting = [], list[str]()
    calls = 0
    for message in messages:
        if message.role is Role.TOOL:
            paired.append(_with_call(message, waiting, calls))
            continue
        named = tuple(
            call if call.id is not None else replace(call, id=f"functions.{call.name}:{number}")
            for number, call in enumerate(message.tool_calls, start=calls)
        )
        calls += len(named)
        waiting += [str(call.id) for call in named]
        paired.append(replace(message, tool_calls=named))
    return paired


def _with_call(result: Message, waiting: list[str], calls: int) -> Message:
    if result.tool_call_id in waiting:
        waiting.remove(str(result.tool_call_id))
    elif result.tool_call_id is None and waiting:
        return replace(result, tool_call_id=waiting.pop(0))
    elif not calls or result.tool_call_id is None:
        raise invalid("a tool's result without its call: the transcript lost it")
    return result


def _text_or_none(item: dict[str, Any], *names: str) -> str | None:
    found = next((item[name] for name in names if item.get(name) is not None), None)
    if found is not None and not isinstance(found, str):
        raise invalid(f"{names[0]} is a JSON {type(found).__name__}, not a text")
    return found
