"""What a prompt is called: the id it was given, or the digest of its content."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from transforms.prompts.messages import dump, invalid
from transforms.records import Message

_IDS = ("id", "custom_id", "prompt_id", "question_id", "task_id", "instance_id")


def read_id(record: Mapping[str, Any], digest: str) -> str:
    """The first id that the record gives, any JSON scalar as text; else the digest."""
    for key in _IDS:
        given = record.get(key)
        if isinstance(given, str) and given:
            return given
        if isinstance(given, bool | int | float) and given == given:  # noqa: PLR0124 - NaN is no id
            return json.dumps(given)
    return digest


def content_digest(messages: Sequence[Message], tools: Sequence[str]) -> str:
    """SHA-256 of what is asked, in hexadecimal."""
    canonical = dump([[_canonical(message) for message in messages], list(tools)])
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def refuse_surrogates(identity: str, messages: Sequence[Message], tools: Sequence[str]) -> None:
    """What UTF-8 cannot carry can neither be sent nor written.

    Raises:
        RecordError: `INVALID_PROMPT`.
    """
    try:
        dump([identity, [_canonical(message) for message in messages], list(tools)]).encode()
    except UnicodeEncodeError as error:
        raise invalid(f"holds a lone surrogate: {error.object[error.start]!r}") from error


def _canonical(message: Message) -> list[Any]:
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    given = [message.role, message.content, message.reasoning, calls]
    return [*given, message.tool_call_id, message.name]
