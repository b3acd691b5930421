"""Record shapes: which keys mean which reading. A shape is an entry of `SHAPES`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transforms.failures import FailureKind, RecordError
from transforms.generations import mark, unmark
from transforms.prompts import turns
from transforms.prompts.asking import Turns, pinned_turns, read_pin, split
from transforms.prompts.bfcl import Lookup, class_tools
from transforms.prompts.identity import content_digest, read_id, refuse_surrogates
from transforms.prompts.messages import invalid, parse_json_text
from transforms.prompts.refusals import refuse_incomplete, refuse_no_prompt, unknown
from transforms.prompts.tools import read_tools
from transforms.records import Message, Prompt, Role

Record = Mapping[str, Any]


def _declared_tools(record: Record, _lookup: Lookup) -> tuple[str, ...]:
    given = record.get("tools")
    return read_tools(record.get("functions") if given is None else given)


def _body_tools(record: Record, lookup: Lookup) -> tuple[str, ...]:
    return _declared_tools(parse_json_text(record["body"]), lookup)


def _bfcl_tools(record: Record, _lookup: Lookup) -> tuple[str, ...]:
    """The API takes no dots in names; the benchmark writes `_` for them."""
    return read_tools(record["function"], lambda name: name.replace(".", "_"))


def _class_tools(record: Record, lookup: Lookup) -> tuple[str, ...]:
    return read_tools(class_tools(record, lookup))


@dataclass(frozen=True, slots=True)
class Reading:
    """What a record says.

    Attributes:
        shape: The name of the entry of `SHAPES` that read it.
        messages: All turns, recorded answers too: those are history, never a target.
        after: Indexes of the messages after which the model is to answer, in order.
        note: What the reading leaves out.
    """

    shape: str
    id: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    after: tuple[int, ...]
    note: str = ""

    def asked_after(self, which: Turns) -> tuple[int, ...]:
        """Those of `after` that are asked; the last one is that before which all is recorded."""
        if which is Turns.ALL:
            return self.after
        for turn in self.after[:-1]:
            if self.messages[turn + 1].role is not Role.ASSISTANT:
                return (turn,)
        return self.after[-1:]


@dataclass(frozen=True, slots=True)
class Shape:
    """A record that has all of `keys` is of this shape.

    Attributes:
        read: The messages of the value of the first key.
        tools: The record's definitions.
        every_turn: The turns are the user's alone: each is answered.
        last_turn: The last turn alone is answered: what comes before was a request of its own.
        is_question: One text, which is refused beside a passage that it may be about.
    """

    name: str
    keys: tuple[str, ...]
    read: Callable[[Any, Record], Sequence[Message]]
    tools: Callable[[Record, Lookup], tuple[str, ...]] = _declared_tools
    every_turn: bool = False
    last_turn: bool = False
    is_question: bool = False
    note: str = ""


SHAPES = (
    Shape("messages", ("messages",), turns.conversation),
    Shape("conversations", ("conversations",), turns.conversation),
    Shape("FastChat turns", ("turns",), turns.user_turns, every_turn=True),
    Shape("OpenAI batch", ("body", "custom_id"), turns.body, _body_tools, last_turn=True,
          note="the settings in body are another run's"),
    Shape("BFCL", ("question", "function"), turns.listed_turns, _bfcl_tools, every_turn=True),
    Shape("BFCL, multi-turn", ("question", "initial_config"), turns.listed_turns, _class_tools,
          every_turn=True, note="tools by class, from BFCL_func_doc_*.json beside the file"),
    Shape("BFCL, no functions", ("question", "involved_classes"), turns.listed_turns,
          every_turn=True, note="its functions are not in the file"),
    Shape("multiple choice", ("question", "A", "B", "C"), turns.text, is_question=True,
          note="the choices A, B, C… are not asked"),
    Shape("SWE-bench", ("problem_statement",), turns.text),
    Shape("code problem", ("description", "test_cases"), turns.text),
    Shape("prompt", ("prompt",), turns.text),
    Shape("question", ("question",), turns.listed_turns, is_question=True),
    Shape("alpaca", ("instruction",), turns.alpaca, is_question=True),
    Shape("UltraChat", ("data", "class"), turns.alternating),
    Shape("UltraChat", ("data", "id"), turns.alternating),
)  # fmt: skip


def _find_shape(record: Record) -> Shape | None:
    """The first whose keys all have a value; a null stands for an absent key."""
    present = {key for key, value in record.items() if value is not None}
    return next((shape for shape in SHAPES if present.issuperset(shape.keys)), None)


def _is_conversation(record: Any) -> bool:
    return (
        isinstance(record, list)
        and bool(record)
        and all(isinstance(item, dict) and ("role" in item or "from" in item) for item in record)
    )


def no_files(_name: str) -> tuple[bytes, ...]:
    """For records that stand beside no file."""
    return ()


def parse_record(line: bytes) -> dict[str, Any]:
    """One line's JSON object; a list of messages, or a text, is an object of the shape it has.

    Raises:
        RecordError: `MALFORMED_JSON`, or `INVALID_PROMPT` for JSON that is none of these.
    """
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise RecordError(FailureKind.MALFORMED_JSON, f"{error}") from error
    if isinstance(record, str):
        return {"prompt": record}
    if _is_conversation(record):
        return {"messages": record}
    if not isinstance(record, dict):
        raise invalid(f"a JSON {type(record).__name__}, not an object")
    return record


def parse_text(line: bytes) -> dict[str, Any]:
    """The record of a line of plain text.

    Raises:
        RecordError: `MALFORMED_JSON`, not UTF-8.
    """
    try:
        return {"prompt": line.decode()}
    except UnicodeDecodeError as error:
        raise RecordError(FailureKind.MALFORMED_JSON, f"{error}") from error


def original_line(line: bytes) -> bytes:
    """The line that a rejection holds as `raw`, however often it was fed back; else itself."""
    try:
        record = parse_record(line)
    except RecordError:
        return line
    if _find_shape(record) is not None or not isinstance(record.get("rejection"), dict):
        return line
    raw = record.get("raw")
    return original_line(raw.encode(errors="surrogateescape")) if isinstance(raw, str) else line


def read_prompt(
    record: Record,
    source: str,
    dataset: str,
    prompt_field: str | None = None,
    lookup: Lookup = no_files,
    *,
    which: Turns = Turns.LAST,
) -> Prompt:
    """The prompt of a record. A recorded last answer is dropped: it is what we ask for.

    Raises:
        RecordError: `INVALID_PROMPT`; the message names the keys that were seen.
    """
    reading = read_record(record, prompt_field, lookup, which=which)
    pin = read_pin(record)
    after = pinned_turns(reading.after, pin) if pin.is_turn else reading.asked_after(which)
    messages, later = split(reading.messages, after)
    conversation = unmark(reading.id, pin.turn, pin.sample_index)
    return Prompt(
        id=mark(conversation, pin.history_from, pin.sample_index),
        messages=messages,
        tools=reading.tools,
        source=source,
        dataset=dataset,
        turn=pin.history_from,
        sample_index=pin.sample_index,
        later=later,
        wanted=pin.turn,
        judged_bad=pin.judged_bad,
    )


def read_record(
    record: Record,
    prompt_field: str | None = None,
    lookup: Lookup = no_files,
    *,
    which: Turns = Turns.LAST,
) -> Reading:
    """The whole reading of a record; `prompt_field` names the field that is the prompt.

    Raises:
        RecordError: `INVALID_PROMPT`.
    """
    named = prompt_field is not None and record.get(prompt_field) is not None
    shape = Shape("named field", (prompt_field,), turns.text) if named and prompt_field else None
    if shape is None:
        refuse_no_prompt(record)
        shape = _find_shape(record)
    if shape is None:
        raise invalid(unknown(record, ", ".join(dict.fromkeys(one.keys[0] for one in SHAPES))))
    if shape.is_question:
        refuse_incomplete(record)
    messages = turns.with_system(shape.read(record[shape.keys[0]], record), record)
    after = _turns(messages, shape)
    tools = shape.tools(record, lookup)
    reading = Reading(shape.name, "", messages, tools, after, shape.note)
    return _complete(record, reading, which)


def _complete(record: Record, reading: Reading, which: Turns) -> Reading:
    """With its id: as given, or the digest of all that is asked."""
    said = reading.messages[: reading.asked_after(which)[-1] + 1]
    identity = read_id(record, content_digest(said, reading.tools))
    refuse_surrogates(identity, said, reading.tools)
    return replace(reading, id=identity)


def _turns(messages: Sequence[Message], shape: Shape) -> tuple[int, ...]:
    """After which messages the model answers: where it did, and at the end."""
    first = next((i for i, m in enumerate(messages) if m.role is Role.USER and m.content), None)
    if first is None:
        raise invalid("no user message with text")
    turns = [
        index
        for index, message in enumerate(messages)
        if index >= first
        and message.role is not Role.ASSISTANT
        and (
            (shape.every_turn and message.role is Role.USER)
            or messages[index + 1 : index + 2] == ()
            or messages[index + 1].role is Role.ASSISTANT
        )
    ]
    return tuple(turns[-1:] if shape.last_turn else turns)
