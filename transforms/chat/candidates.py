"""Candidates: the id sequences that an answer may have been, as text and markers."""

from collections.abc import Iterator
from dataclasses import replace

from transforms.chat.calls import Section, text_segments, write_sections
from transforms.chat.habits import Ids
from transforms.chat.view import Asked, View
from transforms.chat.views import read_views
from transforms.codes import Repair
from transforms.records import Candidate, Issue, Prompt, Segment


def write_candidates(asked: Asked, *, cut: bool) -> tuple[tuple[Candidate, ...], tuple[Issue, ...]]:
    """The candidates, nearest first, and what the readings of the answer found wrong.

    `cut`: the answer was ended by the length limit: it gets no end token, and no marker that it
    may not have reached.
    """
    views = read_views(asked)
    issues = tuple(dict.fromkeys(issue for view in views for issue in view.issues))
    written = (found for view in views for found in _of_view(view, asked))
    if cut:
        return (_cut(next(written), asked),), issues
    return tuple(dict.fromkeys(written)), issues


def calls_before(prompt: Prompt) -> int:
    """How many calls the conversation has had."""
    return sum(len(message.tool_calls) for message in prompt.messages)


def _of_view(view: View, asked: Asked) -> Iterator[Candidate]:
    for section in _sections(view, asked):
        yield _join(view, section, asked)
        yield from _deviations(view, section, asked)


def _sections(view: View, asked: Asked) -> Iterator[Section]:
    tools = asked.profile.answer.tools
    if view.calls and tools is not None:
        first = calls_before(asked.exchange.prompt)
        yield from write_sections(view.calls, tools, asked.habit, first)
    else:
        yield Section(view.section)


def _deviations(view: View, section: Section, asked: Asked) -> Iterator[Candidate]:
    """One marker that the model may have left out; each makes the answer one token shorter.

    A count below the text's is nearly never drift (0.3-0.6 % of the ways to cut a text are shorter
    than the canonical one). It may be another marker, or an end token that was not counted once:
    beside structured calls the count of the thought must tell (`evidence.py`). Where ids are
    guessed, a word less of an id is as likely.
    """
    if section.segments and view.ends == 1 and view.thought and not view.content:
        yield _join(view.repaired(Repair.NO_THINK_END, ends=0), section, asked)
    if view.calls and asked.habit.ids is Ids.NATIVE:
        open_ended = replace(section, segments=section.segments[:-1])
        yield _join(view.repaired(Repair.NO_SECTION_END), open_ended, asked)


def _join(view: View, section: Section, asked: Asked) -> Candidate:
    grammar = asked.profile.answer
    opening = [grammar.thought_begin] if view.opens and grammar.thought_begin else []
    closing = [grammar.thought_end] * view.ends if grammar.thought_end else []
    thought = (
        *(Segment(mark, is_special=True) for mark in opening),
        *text_segments(view.thought),
        *(Segment(mark, is_special=True) for mark in closing),
    )
    end = Segment(grammar.end, is_special=True)
    segments = (*thought, *text_segments(view.content), *section.segments, end)
    return Candidate(segments, len(thought), (*view.repairs, *section.repairs))


def _cut(candidate: Candidate, asked: Asked) -> Candidate:
    """Without the end token; without the markers that may not have been reached."""
    message = asked.exchange.completion.message
    segments = candidate.segments[:-1]
    if message.tool_calls:
        return replace(candidate, segments=segments[:-2])
    if not message.content and candidate.thought and segments and segments[-1].is_special:
        return Candidate(segments[:-1], candidate.thought - 1, candidate.repairs)
    return replace(candidate, segments=segments)
