"""Calls that stand as text where no parser took them out: whole, beside the calls, or bare."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from transforms.chat.calls import read_section
from transforms.chat.habits import Blanks
from transforms.chat.view import Asked, View, without_blank
from transforms.codes import IssueCode, Repair
from transforms.records import Segment


def section_in_text(view: View, asked: Asked) -> Iterator[View]:
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
        section = read_section(begin + without_blank(rest, asked), tools, spaced=spaced)
        repair = Repair.SECTION_FROM_TEXT
        yield _with_section(view.repaired(repair, content=before), view, section, begin + rest)
    elif tools.section_begin in view.thought:
        before, begin, rest = view.thought.partition(tools.section_begin)
        section = read_section(begin + without_blank(rest, asked), tools, spaced=spaced)
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
