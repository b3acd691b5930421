"""What an answer's fields may mean: readings, each a view, the nearest first.

A reading looks for a cue in the text (a marker's literal, the thought told twice) and gives the
views that explain it; the count decides between them later. A view without a cue is the answer as
it came.
"""

from collections.abc import Iterator
from dataclasses import replace

from transforms.chat.habits import INSERTED, Edges
from transforms.chat.leaked_calls import section_in_text
from transforms.chat.settings import thinking_is_off
from transforms.chat.view import Asked, Reading, View, without_blank
from transforms.codes import Repair
from transforms.records import FinishReason


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
        yield view.repaired(Repair.EOS_IN_TEXT, content=without_blank(text, asked))


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
        opening = asked.profile.answer.thought_begin
        opens = opening is not None and before.lstrip(" ").startswith(opening)
        thought = before.lstrip(" ") if opens else before
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
        yield view.repaired(Repair.TEMPLATE_NO_PREFILL, thought=rest, opens=True)
    elif rest != view.thought:
        yield view.repaired(Repair.THINK_OPEN_LITERAL, thought=rest)
    else:
        yield view


def _told_twice(view: View, asked: Asked) -> Iterator[View]:
    """The thought doubled in its field, in another field, or at the head of the content."""
    other_fields = asked.exchange.completion.message.other_reasoning
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
    section_in_text,
    _told_otherwise,
    _inserted_blanks,
)
