"""Whether two requests show a model the same prompt.

Readers of prompts mend what they read: roles, tools, ids, escapes. An answer is to what its model
saw, and the count of a prompt that was mended may be the same.
"""

import json
from collections.abc import Mapping
from typing import Any


def find_difference(asked: Mapping[str, Any], sent: Mapping[str, Any]) -> str | None:
    """The first place where the messages or tools of two bodies differ; `None`: nowhere.

    Both were read as prompts: their messages are objects, and calls are lists.

    Nulls, empty lists, a single text part, a thought under its other names and marks for caches
    say nothing of their own. Several text parts do: servers join them differently.
    """
    messages, others = (list(map(_plain_message, body["messages"])) for body in (asked, sent))
    tools, other_tools = (_plain_tools(body.get("tools")) for body in (asked, sent))
    told = _first_difference(messages, others, "messages")
    return told or _first_difference(tools, other_tools, "tools")


def _plain(value: Any) -> Any:
    """Without what says the same: nulls, empty lists, a single text part, an alias."""
    if isinstance(value, list):
        return [_plain(item) for item in value] or None
    if not isinstance(value, dict):
        return value
    return {key: found for key, inner in value.items() if (found := _plain(inner)) is not None}


def _plain_message(given: Any) -> Any:
    message = _plain(given)
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and _is_text(content[0]):
        message["content"] = content[0]["text"]
    message.pop("cache_control", None)
    if thoughts := _pop_thoughts(message):
        message["reasoning"] = thoughts[0] if len(set(thoughts)) == 1 else thoughts
    for call in message.get("tool_calls") or ():
        if isinstance(call, dict):
            call.pop("index", None)
            call.pop("cache_control", None)
            call.setdefault("type", "function")
    return message


def _plain_tools(given: Any) -> Any:
    tools = _plain(given)
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            tool.pop("cache_control", None)
    return tools


def _pop_thoughts(message: dict[str, Any]) -> list[str]:
    """The thought, as often as it is told."""
    names = [name for name in _THOUGHTS if isinstance(message.get(name), str)]
    thoughts: list[str] = [message.pop(name) for name in names]
    details = message.get("reasoning_details")
    if isinstance(details, list) and all(map(_is_thought, details)):
        thoughts.append("".join(part["text"] for part in message.pop("reasoning_details")))
    return thoughts


_THOUGHTS = ("reasoning", "reasoning_content")


def _is_text(part: Any) -> bool:
    """A mark for a cache of prompts is none for the model."""
    return isinstance(part, dict) and part.keys() - {"cache_control"} == {"type", "text"}


def _is_thought(part: Any) -> bool:
    is_text = isinstance(part, dict) and part.get("type") == "reasoning.text"
    return is_text and isinstance(part.get("text"), str)


def _first_difference(asked: Any, sent: Any, path: str) -> str | None:
    """Where the two differ, and both values; `None`: nowhere."""
    if asked == sent:
        return None
    if isinstance(asked, dict) and isinstance(sent, dict):
        inner = [(asked.get(key), sent.get(key), f"{path}.{key}") for key in asked | sent]
    elif isinstance(asked, list) and isinstance(sent, list) and len(asked) == len(sent):
        both = enumerate(zip(asked, sent, strict=True))
        inner = [(one, other, f"{path}[{index}]") for index, (one, other) in both]
    else:
        one, other = (json.dumps(value)[:_LONGEST] for value in (asked, sent))
        return f"{path} was sent as {one}, a run sends {other}"
    return next((told for args in inner if (told := _first_difference(*args)) is not None), None)


_LONGEST = 200
