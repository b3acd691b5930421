"""What one answer says of its host, as counters that merge in any order."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transforms.chat.calls import argument_forms, is_native, write_id
from transforms.chat.candidates import calls_before, write_candidates
from transforms.chat.edges import cost_of_edges, is_spaced, length_of_blank
from transforms.chat.encoded import Encoded, encode
from transforms.chat.evidence import came_over_time
from transforms.chat.habits import INSERTED, Arguments, Blanks, Habit, Ids
from transforms.chat.profile import ModelProfile, ToolGrammar
from transforms.chat.rejects import find_rejects, is_truncated
from transforms.chat.tokens import Tokenizer, load_tokenizer
from transforms.chat.view import Asked
from transforms.codes import IssueCode, Repair
from transforms.records import Candidate, Exchange, ToolCall

Key = tuple[str, ...]
"""What is counted, and under which hypothesis: `("calls", blanks, ids, arguments)`, …"""


@dataclass(frozen=True, slots=True)
class Statistic:
    """How often each value was seen under each key, ascending.

    >>> one = Statistic.of(Counter({(("text", "verbatim"), 0): 2}))
    >>> Statistic.of(one.counter() + one.counter()).values("text", "verbatim")
    {0: 4}
    """

    counts: tuple[tuple[Key, int, int], ...] = ()

    @classmethod
    def of(cls, counter: Counter[tuple[Key, int]]) -> "Statistic":
        return cls(tuple((key, value, n) for (key, value), n in sorted(counter.items())))

    @classmethod
    def read(cls, rows: list[Any]) -> "Statistic":
        """From JSON."""
        return cls(tuple((tuple(key), value, count) for key, value, count in rows))

    def counter(self) -> Counter[tuple[Key, int]]:
        """The same as a counter, which adds up."""
        return Counter({(key, value): count for key, value, count in self.counts})

    def values(self, *key: str) -> dict[int, int]:
        """Value -> how often, of one key."""
        return {value: count for found, value, count in self.counts if found == key}


def observe_answer(
    exchange: Exchange, profile: ModelProfile, prompt_lengths: dict[str, int]
) -> Statistic:
    """One answer's counters; none for an answer that says nothing of its host.

    `prompt_lengths`: of the rendered prompt, by what is shown of the history (`HISTORIES`).

    Raises:
        RecordError: The answer cannot be rebuilt at all.
    """
    counts = _prompts(exchange, prompt_lengths)
    if not is_truncated(exchange):
        counts.update(_answer(exchange, profile))
    return Statistic.of(counts)


def _prompts(exchange: Exchange, lengths: dict[str, int]) -> Counter[tuple[Key, int]]:
    """What was counted of the prompt, however the answer ended."""
    usage = exchange.completion.usage
    if usage is None or usage.prompt_tokens is None:
        return Counter()
    kind = "tools" if exchange.prompt.tools else "plain"
    found = {("prompt", name, kind): usage.prompt_tokens - n for name, n in lengths.items()}
    return Counter(found.items())


def _answer(exchange: Exchange, profile: ModelProfile) -> Counter[tuple[Key, int]]:
    usage = exchange.completion.usage
    asked = Asked(exchange, profile, Habit())
    candidates, issues = write_candidates(asked, cut=False)
    rejects = [issue.code for issue in find_rejects(asked)]
    if IssueCode.EMPTY_ANSWER in rejects:
        return Counter({(("only_thought",), 1): 1})
    no_thought = asked.thinks and exchange.completion.message.reasoning is None
    untold = no_thought and Repair.THINK_END_IN_CONTENT not in candidates[0].repairs
    if usage is None or issues or rejects or untold:
        return Counter()  # a damaged answer says nothing of what its host always does
    base = _base(candidates, usage.completion_tokens, profile)
    residual = usage.completion_tokens - len(base.ids)
    counts: Counter[tuple[Key, int]] = Counter()
    if usage.reasoning_tokens is not None and base.thought:
        counts[("thought",), usage.reasoning_tokens - base.thought] += 1
    counts.update(_hypotheses(base, exchange, profile, residual))
    counts.update(_starts(base, load_tokenizer(profile), residual))
    counts.update(_chunks(exchange, base))
    return counts


def _base(candidates: tuple[Candidate, ...], counted: int, profile: ModelProfile) -> Encoded:
    """The answer as it came; where its text is told twice and far too long, the single copy."""
    told = encode(candidates[0], profile)
    for candidate in candidates[1:]:
        if abs(counted - len(told.ids)) <= _NEAR:
            break
        if Repair.DUP_REASONING in candidate.repairs:
            other = encode(candidate, profile)
            told = min(told, other, key=lambda one: abs(counted - len(one.ids)))
    return told


_NEAR = 3
"""No host's count is further from what was sampled for a reason that learning can find."""
HISTORIES = ("kept", "dropped")


def _chunks(exchange: Exchange, base: Encoded) -> Counter[tuple[Key, int]]:
    """Tokens counted less a stream's chunks and markers: the host's offset, whatever drifted."""
    usage, chunks = exchange.completion.usage, exchange.completion.chunks
    if usage is None or chunks is None or base.has_calls or not came_over_time(exchange):
        return Counter()
    markers = sum(segment.is_special for segment in base.candidate.segments)
    return Counter({(("stream",), usage.completion_tokens - len(chunks.texts) - markers): 1})


def _hypotheses(
    base: Encoded, exchange: Exchange, profile: ModelProfile, residual: int
) -> Counter[tuple[Key, int]]:
    """The residual under each setting of blanks and, of calls, of ids and arguments."""
    tokenizer = load_tokenizer(profile)
    blanks = dict(_blanks(base, tokenizer))
    if not base.has_calls:
        found = {(("text", name), residual + saved): 1 for name, saved in blanks.items()}
        seen = {(("answers", "text"), 0): 1, (("only_thought",), 0): 1}
        return Counter(found | seen)
    told = {name: residual + saved for name, saved in blanks.items()}
    return Counter(_of_calls(told, exchange, profile)) + Counter({(("answers", "calls"), 0): 1})


def _of_calls(
    told: dict[str, int], exchange: Exchange, profile: ModelProfile
) -> Iterator[tuple[Key, int]]:
    """Each setting of blanks with each of ids and of arguments, and what ids look like."""
    calls, tools = exchange.completion.message.tool_calls, profile.answer.tools
    if tools is None:
        return
    tokenizer = load_tokenizer(profile)
    ids = dict(_ids(calls, exchange, tools, tokenizer))
    arguments = _arguments(calls, tokenizer)
    for (name, residual), (form, changed) in itertools.product(told.items(), ids.items()):
        for setting, changes in arguments.items():
            for change in changes:
                yield ("calls", name, form, setting), residual + changed + change
    yield from _forms(calls, exchange, tools)


def _blanks(base: Encoded, tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
    """Settings that may have been at work, and how many tokens the answer is without them."""
    thought, content = texts_of(base)
    for blanks, edges in INSERTED.items():
        if blanks is Blanks.VERBATIM:
            yield blanks.value, 0
            continue
        saved = _undo(thought, edges.thought_start, edges.thought_end, tokenizer)
        end = edges.content_end if base.has_calls else ""
        more = _undo(content, edges.content_start, end, tokenizer)
        if saved is not None and more is not None:
            yield blanks.value, saved + more


def texts_of(base: Encoded) -> tuple[str, str]:
    """Thought and content of a candidate, empty where there is none."""
    candidate = base.candidate
    thought = "".join(s.text for s in candidate.segments[: candidate.thought] if not s.is_special)
    after = candidate.segments[candidate.thought :]
    return thought, after[0].text if after and not after[0].is_special else ""


def _undo(text: str, prefix: str, suffix: str, tokenizer: Tokenizer) -> int | None:
    """Tokens that prefix and suffix cost, none of no text; `None`: the text does not have them."""
    return cost_of_edges(text, prefix, suffix, tokenizer) if text else 0


def _starts(base: Encoded, tokenizer: Tokenizer, residual: int) -> Counter[tuple[Key, int]]:
    """How texts begin: with white space, or so that a trimmed blank would show, or neither."""
    kind = "calls" if base.has_calls else "text"
    counts: Counter[tuple[Key, int]] = Counter()
    for name, text in zip(("thought", "content"), texts_of(base), strict=True):
        if text[:1].isspace():
            counts[("white", name), 1] += 1
        elif text and is_spaced(text) and (longer := length_of_blank(text, tokenizer)):
            counts[("tells", name, kind, "longer" if longer > 0 else "shorter"), residual] += 1
    return counts


def _ids(
    calls: tuple[ToolCall, ...], exchange: Exchange, tools: ToolGrammar, tokenizer: Tokenizer
) -> Iterator[tuple[str, int]]:
    """Settings of ids, and how many tokens fewer the answer has under them."""
    given = sum(len(tokenizer.encode(call.id or "")) for call in calls)
    first = calls_before(exchange.prompt)
    yield Ids.NATIVE.value, 0
    for setting in (Ids.BARE, Ids.RENEWED):
        habit = Habit(ids=setting)
        written = [write_id(call, tools, habit, n) for n, call in enumerate(calls, start=first)]
        if all(is_native(identity, tools) for identity in written):
            yield setting.value, given - sum(len(tokenizer.encode(one)) for one in written)


def _arguments(calls: tuple[ToolCall, ...], tokenizer: Tokenizer) -> dict[str, set[int]]:
    """Settings of arguments, and how many tokens fewer the forms have that they may stand for."""
    given = sum(len(tokenizer.encode(call.arguments)) for call in calls)
    found = {}
    for setting in _TOLD_BY_COUNT:
        found[setting.value] = {
            given - sum(len(tokenizer.encode(text)) for text in texts)
            for texts in argument_forms(calls, Habit(arguments=setting))
        }
    return found


_TOLD_BY_COUNT = (
    Arguments.VERBATIM,
    Arguments.COMPACTED,
    Arguments.SPACED,
    Arguments.ESCAPED,
    Arguments.DOUBLY_ENCODED,
)


def _forms(
    calls: tuple[ToolCall, ...], exchange: Exchange, tools: ToolGrammar
) -> Iterator[tuple[Key, int]]:
    """What ids look like, whether their index goes on, whether keys are in another order."""
    native = [re.fullmatch(tools.id_pattern, call.id or "") for call in calls]
    bare = all(re.fullmatch(r"[^:]+:[0-9]+", call.id or "") for call in calls)
    lost = not all(call.id for call in calls)
    yield ("ids", "native" if all(native) else "bare" if bare else "lost" if lost else "other"), 1
    first = calls_before(exchange.prompt)
    if first and all(native):
        goes_on = [m["index"] for m in native if m] == [str(first + n) for n in range(len(native))]
        yield ("index",), int(goes_on)
    for call in calls:
        if (order := _order(call, exchange)) is not None:
            yield ("sorted",), int(order)


def _order(call: ToolCall, exchange: Exchange) -> bool | None:
    """Whether keys are sorted, where the declared order is another; `None`: it does not tell."""
    try:
        given = list(json.loads(call.arguments))
        declared = next(
            list(function["parameters"]["properties"])
            for function in (
                json.loads(tool).get("function") or {} for tool in exchange.prompt.tools
            )
            if function.get("name") == call.name
        )
        wanted = [key for key in declared if key in given]
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        return None
    return None if wanted == sorted(wanted) else given == sorted(given)
