"""How the value of a shape's first key becomes messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.prompts.messages import invalid, parse_json_text, read_messages
from transforms.prompts.refusals import refuse_transcript
from transforms.records import Message, Role

Record = Mapping[str, Any]
_SYSTEM = ("system", "system_prompt")


def conversation(value: Any, _record: Record) -> Sequence[Message]:
    """OpenAI messages or ShareGPT turns."""
    return read_messages(value)


def text(value: Any, _record: Record) -> Sequence[Message]:
    """One text, byte for byte; or a list of messages, as preference data has it."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return read_messages(value)
    if not isinstance(value, str):
        raise invalid(f"prompt is a JSON {type(value).__name__}, not a text")
    refuse_transcript(value)
    return [*read_messages([{"role": "user", "content": value}])]


def alpaca(value: Any, record: Record) -> Sequence[Message]:
    """Instruction, then the input on the next line; `history` holds earlier pairs."""
    extra = record.get("input")
    if not isinstance(value, str) or not isinstance(extra, str | None):
        raise invalid("instruction and input must be texts")
    return [*_pairs(record.get("history")), _user(f"{value}\n{extra}" if extra else value)]


def user_turns(value: Any, _record: Record) -> Sequence[Message]:
    """FastChat: every text is the user's."""
    return [_user(turn) for turn in _texts(value)]


def alternating(value: Any, record: Record) -> Sequence[Message]:
    """UltraChat: user and assistant take turns, the user first; or one text."""
    if isinstance(value, str):
        return text(value, record)
    roles = (Role.USER, Role.ASSISTANT)
    return [
        Message(role=roles[index % 2], content=turn) for index, turn in enumerate(_texts(value))
    ]


def listed_turns(value: Any, record: Record) -> Sequence[Message]:
    """BFCL: a list of turns, each a list of messages; or a question that is one text."""
    value = parse_json_text(value)
    if isinstance(value, str):
        return text(value, record)
    if not isinstance(value, list) or not all(isinstance(turn, list) for turn in value):
        raise invalid(f"question is a JSON {type(value).__name__}, not a text or a list of turns")
    return read_messages([message for turn in value for message in turn])


def body(value: Any, _record: Record) -> Sequence[Message]:
    """An OpenAI batch line: the request's messages, none of its settings."""
    value = parse_json_text(value)
    if not isinstance(value, dict) or value.get("messages") is None:
        raise invalid("the body of a batch line has no messages")
    return read_messages(value["messages"])


def with_system(messages: Sequence[Message], record: Record) -> tuple[Message, ...]:
    """The turns behind the system prompt that stands in a column of its own.

    Raises:
        RecordError: `INVALID_PROMPT`: it is no text, or there are two that differ.
    """
    given = next((record[key] for key in _SYSTEM if record.get(key)), None)
    if given is None:
        return tuple(messages)
    if not isinstance(given, str):
        raise invalid(f"the system prompt is a JSON {type(given).__name__}, not a text")
    if messages and messages[0].role is Role.SYSTEM:
        if messages[0].content != given:
            raise invalid("two system prompts that differ")
        return tuple(messages)
    return (Message(role=Role.SYSTEM, content=given), *messages)


def _pairs(history: Any) -> list[Message]:
    pairs = history or []
    if not isinstance(pairs, list) or any(len(_texts(pair)) != 2 for pair in pairs):  # noqa: PLR2004
        raise invalid("history is not a list of pairs of texts")
    return [message for pair in pairs for message in alternating(pair, {})]


def _texts(value: Any) -> list[str]:
    value = parse_json_text(value)
    if not isinstance(value, list) or not all(isinstance(turn, str) for turn in value):
        raise invalid("its turns are not a list of texts")
    return value


def _user(content: str) -> Message:
    return Message(role=Role.USER, content=content)
