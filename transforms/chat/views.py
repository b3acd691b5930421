"""What an answer's fields may mean: readings, each a view, the nearest first.

A reading looks for a cue in the text (a marker's literal, the thought told twice) and gives the
views that explain it; the count decides between them later. A view without a cue is the answer as
it came.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from transforms.chat.calls import read_section
from transforms.chat.habits import INSERTED, Blanks, Edges, Habit
from transforms.chat.profile import ModelProfile
from transforms.chat.settings import thinking_is_off
from transforms.codes import IssueCode, Repair
from transforms.records import Exchange, FinishReason, Issue, Segment, ToolCall


@dataclass(frozen=True, slots=True)
class View:
    """One reading of an answer.

    Attributes:
        opens: The opening of the thought was sampled.
        ends: How many ends of the thought were sampled.
        section: A tool section read out of text.
        calls: Structured calls.
    """

    thought: str
    content: str
    ends: int = 0
    opens: bool = False
    section: tuple[Segment, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    repairs: tuple[Repair, ...] = ()
    issues: tuple[Issue, ...] = ()

    def repaired(self, repair: Repair, **changes: object) -> "View":
        """This view with changes, and their name."""
        return replace(self, repairs=(*self.repairs, repair), **changes)  # type: ignore[arg-type]

    def with_issue(self, code: IssueCode, detail: str) -> "View":
        return replace(self, issues=(*self.issues, Issue(code, detail)))


@dataclass(frozen=True, slots=True)
class Asked:
    """What readings need to know beside the view."""

    exchange: Exchange
    profile: ModelProfile
    habit: Habit

    @property
    def thinks(self) -> bool:
        """Whether a thought is to be expected."""
        grammar = self.profile.answer
        return grammar.thought_end is not None and not (
            grammar.thought_is_optional or thinking_is_off(self.exchange.settings)
        )


Reading = Callable[[View, Asked], Iterator[View]]


def read_views(asked: Asked) -> tuple[View, ...]:
    """All views of an answer, nearest first; never empty."""
    message = asked.exchange.completion.message
    thought, content = _encodable(message.reasoning), _encodable(message.content)
    calls = tuple(
        replace(call, id=call.id and _encodable(call.id), arguments=_encodable(call.arguments))
        for call in message.tool_calls
    )
    views = [View(thought, content, _ends(asked, thought), calls=calls)]
    for reading in READINGS:
        views = [found for view in views for found in reading(view, asked)]
    return tuple(dict.fromkeys(views))


def _encodable(text: str | None) -> str:
    """Lone surrogates, which no tokenizer takes, as U+FFFD: the answer is refused for it."""
    if not text or text.isascii():
        return text or ""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _ends(asked: Asked, thought: str) -> int:
    grammar = asked.profile.answer
    if grammar.thought_end is None or thinking_is_off(asked.exchange.settings):
        return 0
    return 1 if thought or not grammar.thought_is_optional else 0


def _leaked_end(view: View, asked: Asked) -> Iterator[View]:
    """The end token printed at the end of the text."""
    end = asked.profile.answer.end
    text = view.content.removesuffix(end)
    if text == view.content:
        yield view
    else:
        yield view.repaired(Repair.EOS_IN_TEXT, content=_without(text, " ", asked))


def _without(text: str, suffix: str, asked: Asked) -> str:
    spaced = asked.habit.blanks is Blanks.AROUND_MARKERS
    return text.removesuffix(suffix) if spaced else text


def _end_in_content(view: View, asked: Asked) -> Iterator[View]:
    """The end of the thought as text in the content: a thought told there, or a second end."""
    mark = asked.profile.answer.thought_end
    if mark is not None and mark in view.thought:
        yield from _end_in_thought(view, mark)
        return
    if mark is None or mark not in view.content:
        yield view
        return
    before, _, after = view.content.partition(mark)
    if mark in after:
        yield view
    elif not view.thought:
        thought = before.lstrip(" ") if before.lstrip(" ").startswith("<think>") else before
        changes = {"thought": thought, "content": after, "ends": 1}
        yield view.repaired(Repair.THINK_END_IN_CONTENT, **changes)
    elif before == view.thought:
        yield view.repaired(Repair.DUP_REASONING, content=after)
    elif not before.strip(" "):
        yield view.repaired(Repair.DOUBLE_THINK_END, content=after, ends=2)
        yield view.repaired(Repair.LITERAL_MARKER_TEXT)
    else:
        yield view.repaired(Repair.LITERAL_MARKER_TEXT)


def _end_in_thought(view: View, mark: str) -> Iterator[View]:
    """The end as text in the thought's field: all of the answer stands there, or the end twice."""
    before, _, after = view.thought.partition(mark)
    if not view.content and not view.calls and after.strip():
        yield view.repaired(Repair.THINK_END_IN_CONTENT, thought=before, content=after)
    elif not after.strip(" "):
        yield view.repaired(Repair.THINK_END_IN_CONTENT, thought=before)
        yield view.repaired(Repair.DOUBLE_THINK_END, thought=before, ends=2)
    else:
        yield view.repaired(Repair.LITERAL_MARKER_TEXT)


def _opening(view: View, asked: Asked) -> Iterator[View]:
    """The opening of the thought: the prompt's own, or the model's where no template opens it."""
    mark = asked.profile.answer.thought_begin
    if mark is None:
        yield view
        return
    rest = view.thought.removeprefix(mark)
    if not asked.habit.prefills and view.ends:
        repairs = (*view.repaired(Repair.TEMPLATE_NO_PREFILL).repairs,)
        yield replace(view, thought=rest, opens=True, repairs=repairs)
    elif rest != view.thought:
        yield view.repaired(Repair.THINK_OPEN_LITERAL, thought=rest)
    else:
        yield view


def _told_twice(view: View, _asked: Asked) -> Iterator[View]:
    """The thought doubled in its field, in another field, or at the head of the content."""
    other_fields = _asked.exchange.completion.message.other_reasoning
    if view.thought and view.thought in other_fields:
        view = view.repaired(Repair.DUP_REASONING)
    yield view
    half, odd = divmod(len(view.thought), 2)
    if half and not odd and view.thought[:half] == view.thought[half:]:
        yield view.repaired(Repair.DUP_REASONING, thought=view.thought[:half])
    if view.thought and view.content.startswith(view.thought):
        rest = view.content.removeprefix(view.thought)
        yield view.repaired(Repair.DUP_REASONING, content=rest)


def _swapped(view: View, asked: Asked) -> Iterator[View]:
    """Thinking was off and the whole content stands in the thought's field."""
    is_off = thinking_is_off(asked.exchange.settings)
    if is_off and view.thought and not view.content and not view.calls:
        yield view.repaired(Repair.MODE_SWAP, thought="", content=view.thought)
    else:
        yield view


def _section_in_text(view: View, asked: Asked) -> Iterator[View]:
    """A tool section, or pieces of one, as text."""
    tools = asked.profile.answer.tools
    if tools is None:
        yield view
        return
    spaced = asked.habit.blanks is Blanks.AROUND_MARKERS
    if any(mark in view.content for mark in tools.markers):
        if view.calls:
            yield _duplicate(view, asked)
            return
        before, begin, rest = view.content.partition(tools.section_begin)
        section = read_section(begin + _without(rest, " ", asked), tools, spaced=spaced)
        repair = Repair.SECTION_FROM_TEXT
        yield _with_section(view.repaired(repair, content=before), view, section, begin + rest)
    elif tools.section_begin in view.thought:
        before, begin, rest = view.thought.partition(tools.section_begin)
        section = read_section(begin + _without(rest, " ", asked), tools, spaced=spaced)
        repair = Repair.SECTION_IN_REASONING
        found = view.repaired(repair, thought=before, ends=0)
        yield _with_section(found, view, section, begin + rest)
    else:
        yield from _stripped_section(view, asked)


def _with_section(found: View, view: View, section: tuple[Segment, ...] | None, text: str) -> View:
    """The view with its section; what does not parse is an issue."""
    if section is not None:
        return replace(found, section=section)
    last = max((mark.end() for mark in re.finditer(r"_section_end\|>", text)), default=0)
    if last and text[last:].strip():
        detail = f"{len(text) - last} characters after the section"
        return view.with_issue(IssueCode.TEXT_AFTER_SECTION, detail)
    return view.with_issue(IssueCode.TOOL_SECTION_PARTIAL, "the section in the text is not whole")


def _duplicate(view: View, asked: Asked) -> View:
    """Markers in the content beside structured calls: the same calls again, or something else."""
    tools = asked.profile.answer.tools
    if tools is None:
        return view
    marks = re.compile("|".join(map(re.escape, tools.markers)))
    first = marks.search(view.content)
    start = first.start() if first else len(view.content)
    told = re.sub(r"\s", "", marks.sub("", view.content[start:]))
    called = "".join(re.sub(r"\s", "", f"{c.id or ''}{c.arguments}") for c in view.calls)
    if told != called:
        detail = f"{len(view.calls)} structured calls beside other markers in the content"
        return view.with_issue(IssueCode.SECTION_LAYOUT_AMBIGUOUS, detail)
    return view.repaired(Repair.DUPLICATE_SECTION, content=view.content[:start])


def _stripped_section(view: View, asked: Asked) -> Iterator[View]:
    """A call whose markers are gone: `ID{…}` at the end of the content."""
    tools = asked.profile.answer.tools
    may_be = asked.exchange.prompt.tools and view.content.endswith("}") and not view.calls
    found = _bare_call().search(view.content) if may_be else None
    if tools is None or found is None or not _is_declared(found["name"], asked):
        yield view
    elif asked.habit.strips_markers and re.fullmatch(tools.id_pattern, found["id"]):
        pieces = ((tools.section_begin, True), (tools.call_begin, True), (found["id"], False),
                  (tools.argument_begin, True), (found["arguments"], False),
                  (tools.call_end, True), (tools.section_end, True))  # fmt: skip
        section = tuple(Segment(text, is_special=special) for text, special in pieces)
        content = view.content[: found.start()]
        yield view.repaired(Repair.MARKERS_REINSERTED, content=content, section=section)
    else:
        detail = f"a call of {found['name']!r} without its markers"
        is_known = asked.habit.strips_thought_end
        code = IssueCode.MARKERS_STRIPPED if is_known else IssueCode.TOOL_SECTION_PARTIAL
        yield view.with_issue(code, detail)


@cache
def _bare_call() -> re.Pattern[str]:
    return re.compile(
        r"(?P<id>(?:functions\.)?(?P<name>[\w.-]+):[0-9]+)\s*(?P<arguments>\{.*\})$", re.DOTALL
    )


def _is_declared(name: str, asked: Asked) -> bool:
    return any(f'"{name}"' in tool for tool in asked.exchange.prompt.tools)


def _told_otherwise(view: View, asked: Asked) -> Iterator[View]:
    """A thought that is counted apart; calls that the finish reason does not tell of."""
    finish = asked.exchange.completion.finish_reason
    if not asked.habit.counts_thought:
        view = view.repaired(Repair.USAGE_DISJOINT)
    if view.calls and finish is FinishReason.STOP:
        yield view.repaired(Repair.FINISH_REASON)
    else:
        yield view


def _inserted_blanks(view: View, asked: Asked) -> Iterator[View]:
    """What the host puts at the edges, taken away."""
    edges = INSERTED.get(asked.habit.blanks, Edges())
    thought = view.thought.removeprefix(edges.thought_start).removesuffix(edges.thought_end)
    content = view.content.removeprefix(edges.content_start)
    if view.calls or view.section:
        content = content.removesuffix(edges.content_end)
    if (thought, content) == (view.thought, view.content):
        yield view
    else:
        yield view.repaired(Repair.VLLM_SPACES, thought=thought, content=content)


READINGS: tuple[Reading, ...] = (
    _leaked_end,
    _end_in_content,
    _opening,
    _told_twice,
    _swapped,
    _section_in_text,
    _told_otherwise,
    _inserted_blanks,
)
