"""Tool calls: from what a host tells of them to what the model wrote, and out of raw text."""

import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from transforms.chat.habits import Arguments, Habit, Ids
from transforms.chat.profile import ToolGrammar
from transforms.codes import Repair
from transforms.records import Segment, ToolCall


@dataclass(frozen=True, slots=True)
class Section:
    """A tool section in pieces."""

    segments: tuple[Segment, ...]
    repairs: tuple[Repair, ...] = ()


def write_sections(
    calls: tuple[ToolCall, ...], tools: ToolGrammar, habit: Habit, first_index: int
) -> Iterator[Section]:
    """The sections that structured calls may have been, nearest first.

    `first_index` is the number of calls before, in the conversation.
    """
    ids = tuple(
        write_id(call, tools, habit, index) for index, call in enumerate(calls, start=first_index)
    )
    changed = _id_repairs(calls, ids, tools)
    for arguments in argument_forms(calls, habit):
        same = all(a == call.arguments for a, call in zip(arguments, calls, strict=True))
        repairs = changed if same else (*changed, Repair.ARGS_SERIALISATION)
        pieces = [Segment(tools.section_begin, is_special=True)]
        for identity, text in zip(ids, arguments, strict=True):
            pieces += _call(identity, text, tools)
        closed = (*pieces, Segment(tools.section_end, is_special=True))
        yield Section(closed, repairs)


def _call(identity: str, arguments: str, tools: ToolGrammar) -> list[Segment]:
    return [
        Segment(tools.call_begin, is_special=True),
        *text_segments(identity),
        Segment(tools.argument_begin, is_special=True),
        *text_segments(arguments),
        Segment(tools.call_end, is_special=True),
    ]


def text_segments(text: str | None) -> tuple[Segment, ...]:
    """A text as one piece, nothing as none."""
    return (Segment(text),) if text else ()


def write_id(call: ToolCall, tools: ToolGrammar, habit: Habit, index: int) -> str:
    """The id that the model wrote, by the host's habit."""
    given = call.id or ""
    bare = re.fullmatch(r"(?P<name>.+):(?P<index>[0-9]+)", given)
    if habit.ids is Ids.BARE and bare and not is_native(given, tools):
        return tools.id_form.format(name=bare["name"], index=bare["index"])
    is_counter = habit.ids is Ids.UNKNOWN and given.isdecimal()
    if habit.ids in {Ids.RENEWED, Ids.RENUMBERED} or is_counter:
        return tools.id_form.format(name=call.name, index=index)
    return given


def is_native(identity: str, tools: ToolGrammar) -> bool:
    """Whether an id is of the form that the model writes."""
    return re.fullmatch(tools.id_pattern, identity) is not None


def _id_repairs(
    calls: tuple[ToolCall, ...], ids: tuple[str, ...], tools: ToolGrammar
) -> tuple[Repair, ...]:
    if any(identity != call.id for identity, call in zip(ids, calls, strict=True)):
        return (Repair.ID_CANONICAL,)
    return () if all(is_native(identity, tools) for identity in ids) else (Repair.ID_VERBATIM,)


def argument_forms(calls: tuple[ToolCall, ...], habit: Habit) -> Iterator[tuple[str, ...]]:
    """All calls' arguments: as they came, then as the habit may have had them, call by call."""
    forms = ARGUMENT_FORMS[habit.arguments]
    each = [dict.fromkeys(rewrite_arguments(call.arguments, f) for f in forms) for call in calls]
    if math.prod(map(len, each)) > _MOST_FORMS:
        each = [dict.fromkeys([call.arguments]) for call in calls]
    yield from itertools.product(*each)


_MOST_FORMS = 64
"""Ways of writing an answer's calls that are tried; more are too many to be told by a count."""


@dataclass(frozen=True, slots=True)
class Form:
    """A way of writing JSON; without separators: as it came."""

    separators: tuple[str, str] | None = None
    unescaped: bool = False
    decoded: bool = False


AS_GIVEN = Form()
_COMPACT, _SPACED = (",", ":"), (", ", ": ")
ARGUMENT_FORMS: dict[Arguments, tuple[Form, ...]] = {
    Arguments.VERBATIM: (AS_GIVEN,),
    Arguments.UNKNOWN: (AS_GIVEN,),
    Arguments.SORTED: (AS_GIVEN, Form(_SPACED), Form(_COMPACT)),
    Arguments.COMPACTED: (AS_GIVEN, Form(_SPACED)),
    Arguments.SPACED: (AS_GIVEN, Form(_COMPACT)),
    Arguments.ESCAPED: (AS_GIVEN, Form(_SPACED, unescaped=True), Form(_COMPACT, unescaped=True)),
    Arguments.DOUBLY_ENCODED: (AS_GIVEN, Form(decoded=True)),
}
"""What the model may have written, by what the host does to it."""

_PIECES = re.compile(r'("(?:\\.|[^"\\])*")|\s*([:,])\s*|\s+', re.DOTALL)


def rewrite_arguments(text: str, form: Form) -> str:
    """The same JSON in another form, numbers and keys byte for byte; no JSON stays as it came.

    >>> rewrite_arguments('{"a":1.0,"b":"x:y"}', Form((", ", ": ")))
    '{"a": 1.0, "b": "x:y"}'
    """
    if form == AS_GIVEN:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if form.decoded:
        return value if isinstance(value, str) else text
    comma, colon = form.separators or _SPACED

    def write(found: re.Match[str]) -> str:
        string, separator = found.groups()
        if string is None:
            return {",": comma, ":": colon, None: ""}[separator]
        return json.dumps(json.loads(string), ensure_ascii=False) if form.unescaped else string

    return _PIECES.sub(write, text)


def read_section(text: str, tools: ToolGrammar, *, spaced: bool) -> tuple[Segment, ...] | None:
    """Raw sections as pieces, ids and arguments byte for byte; `None` if they are not whole.

    `spaced`: one blank on either side of a marker is the host's (vllm#33457).
    """
    pieces: list[Segment] = []
    for number, piece in enumerate(_marks(tools).split(text)):
        if number % 2:
            pieces.append(Segment(piece, is_special=True))
        elif found := (piece.removeprefix(" ").removesuffix(" ") if spaced else piece):
            pieces.append(Segment(found))
    return tuple(pieces) if _is_whole(pieces, tools) else None


@cache
def _marks(tools: ToolGrammar) -> re.Pattern[str]:
    return re.compile(f"({'|'.join(map(re.escape, tools.markers))})")


def _is_whole(pieces: list[Segment], tools: ToolGrammar) -> bool:
    """(begin (call id argument text end)* end)+, letters standing for the markers."""
    letters = dict(zip(tools.markers, "bcaez", strict=True))
    shape = "".join(letters[p.text] if p.is_special else "t" for p in pieces)
    return re.fullmatch(r"(b(ct?at?e)*z)+", shape) is not None
