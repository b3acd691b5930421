"""The answer as the model wrote it: text and markers in the order of the profile's grammar."""

import re
from dataclasses import dataclass
from functools import cache

from transforms.chat.profile import AnswerGrammar, ModelProfile, ToolGrammar, all_special_tokens
from transforms.failures import FailureKind, RecordError
from transforms.records import (
    Completion,
    Exchange,
    FinishReason,
    Issue,
    IssueCode,
    Message,
    Prompt,
    Repair,
    Segment,
    ToolCall,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Segments in the order they were sampled, with what was repaired and what is wrong."""

    segments: tuple[Segment, ...]
    repairs: tuple[Repair, ...]
    issues: tuple[Issue, ...]


def write_answer(exchange: Exchange, profile: ModelProfile) -> Answer:
    """Puts thought, content and tool calls back between the model's markers, nothing changed.

    A truncated answer gets no end token, and no marker that it may not have reached.

    Raises:
        RecordError: `UNEXPECTED_TOOL_CALL`, calls from a model without a grammar for them.
    """
    grammar = profile.answer
    completion = exchange.completion
    message = _without_surrogates(completion.message)
    content, calls, repairs, issues = _split_section(message, grammar.tools)
    if grammar.tools is not None and not repairs:
        issues += _call_issues(calls, grammar.tools, _calls_before(exchange.prompt))
    truncated = is_truncated(exchange)
    thought = _thought(message, grammar, cut=truncated and not (message.content or calls))
    section = _section(calls, grammar.tools, cut=truncated)
    end = () if truncated else (Segment(grammar.end, is_special=True),)
    segments = (*thought, *_text(content), *section, *end)
    issues += (
        *_finish_issues(completion, truncated=truncated),
        *_shape_issues(message, grammar),
        *_reasoning_issues(message, grammar),
        *_provider_issues(completion),
        *_text_issues(segments, profile),
    )
    return Answer(segments, repairs, issues)


def is_truncated(exchange: Exchange) -> bool:
    """True where the API, the provider or the count says that the length limit ended the answer."""
    completion = exchange.completion
    usage = completion.usage
    word = (completion.native_finish_reason or "").lower()
    return (
        completion.finish_reason is FinishReason.LENGTH
        or "length" in word
        or "max" in word
        or "limit" in word
        or (usage is not None and usage.completion_tokens >= exchange.max_tokens)
    )


_NATURAL = frozenset({
    "stop", "tool_calls", "eos", "eos_token", "end_turn", "stop_sequence", "tool_use",
    "function_call", "completed", "complete",
})  # fmt: skip
"""Providers' own words, in lower case, for an answer that ended by itself."""


def _text(text: str | None) -> tuple[Segment, ...]:
    return (Segment(text),) if text else ()


def _thought(message: Message, grammar: AnswerGrammar, *, cut: bool) -> tuple[Segment, ...]:
    text = _text(message.reasoning)
    if grammar.thought_end is None or cut:
        return text
    return (*text, Segment(grammar.thought_end, is_special=True))


def _section(
    calls: tuple[ToolCall, ...], tools: ToolGrammar | None, *, cut: bool
) -> tuple[Segment, ...]:
    if not calls:
        return ()
    if tools is None:
        raise RecordError(
            FailureKind.UNEXPECTED_TOOL_CALL,
            f"the answer calls {calls[0].name!r}, the profile has no [answer.tools]",
        )
    marks = {mark: Segment(mark, is_special=True) for mark in tools.markers}
    segments = [marks[tools.section_begin]]
    for call in calls:
        segments += [marks[tools.call_begin], *_text(call.id), marks[tools.argument_begin]]
        segments += [*_text(call.arguments), marks[tools.call_end]]
    # Cut inside a call, the API still shows the call: its last markers were never sampled.
    return tuple(segments[:-1] if cut else [*segments, marks[tools.section_end]])


def _split_section(
    message: Message, tools: ToolGrammar | None
) -> tuple[str | None, tuple[ToolCall, ...], tuple[Repair, ...], tuple[Issue, ...]]:
    """Content and calls; a section that stands as text in the content is read out of it."""
    content, calls = message.content, message.tool_calls
    if tools is None or not content or tools.section_begin not in content:
        return content, calls, (), ()
    if calls:
        issue = Issue(
            IssueCode.SECTION_LAYOUT_AMBIGUOUS,
            f"{len(calls)} structured calls beside a section in the content",
        )
        return content, calls, (), (issue,)
    before, _, rest = content.partition(tools.section_begin)
    body, closed, after = rest.partition(tools.section_end)
    read = _read_calls(body, tools) if closed else None
    if read is None:
        code = IssueCode.TOOL_SECTION_PARTIAL
        return content, (), (), (Issue(code, "the section in the content does not parse"),)
    text_after = (
        (Issue(IssueCode.TEXT_AFTER_SECTION, f"{len(after)} characters after the section"),)
        if after
        else ()
    )
    return before, read, (Repair.SECTION_FROM_TEXT,), text_after


def _read_calls(body: str, tools: ToolGrammar) -> tuple[ToolCall, ...] | None:
    """The calls of a section's text, ids and arguments byte for byte; `None` if it is not whole."""
    call = re.compile(
        f"{re.escape(tools.call_begin)}(.*?){re.escape(tools.argument_begin)}"
        f"(.*?){re.escape(tools.call_end)}",
        re.DOTALL,
    )
    calls: list[ToolCall] = []
    position = 0
    while found := call.match(body, position):
        named = re.fullmatch(tools.id_pattern, found[1])
        name = named["name"] if named else found[1]
        calls.append(ToolCall(id=found[1], name=name, arguments=found[2]))
        position = found.end()
    return tuple(calls) if calls and position == len(body) else None


def _calls_before(prompt: Prompt) -> int:
    return sum(len(message.tool_calls) for message in prompt.messages)


def _call_issues(calls: tuple[ToolCall, ...], tools: ToolGrammar, before: int) -> tuple[Issue, ...]:
    """Ids that the model does not write: a count that fits with them fits by accident.

    Measured on 66 recorded Moonshot and 53 Novita answers: `NAME:N` for `functions.NAME:N` and an
    end token that is not counted cancel out. The model's index counts over the conversation; any
    other digit costs the same one token, so the count is blind to a server that counts anew.
    """
    issues = []
    for index, call in enumerate(calls, start=before):
        found = re.fullmatch(tools.id_pattern, call.id or "")
        if found is None or found["name"] != call.name:
            detail = f"id {call.id!r} of a call of {call.name!r} is not as {tools.id_pattern}"
            issues.append(Issue(IssueCode.TOOL_ID_AMBIGUOUS, detail))
        elif found["index"] != str(index):
            detail = f"id {call.id!r}, but the conversation goes on with index {index}"
            issues.append(Issue(IssueCode.TOOL_ID_INDEX_AMBIGUOUS, detail))
        if not call.arguments:
            issues.append(Issue(IssueCode.TOOL_ARGS_LOST, f"a call of {call.name!r} has none"))
    return tuple(issues)


def _finish_issues(completion: Completion, *, truncated: bool) -> tuple[Issue, ...]:
    if truncated:
        return (Issue(IssueCode.LENGTH_TRUNCATED, "cut by max_tokens; no end token was sampled"),)
    natural = completion.finish_reason in {FinishReason.STOP, FinishReason.TOOL_CALLS}
    word = completion.native_finish_reason
    if natural and (word is None or word.lower() in _NATURAL):
        return ()
    detail = f"finish_reason is {completion.finish_reason} (provider: {word})"
    return (Issue(IssueCode.FINISH_UNKNOWN, detail),)


def _provider_issues(completion: Completion) -> tuple[Issue, ...]:
    if completion.provider:
        return ()
    return (Issue(IssueCode.PROVIDER_UNKNOWN, "the answer names no provider"),)


_WITHHELD = re.compile(r"\[(?:REDACTED|reasoning\.(?:encrypted|summary))\]")


def _reasoning_issues(message: Message, grammar: AnswerGrammar) -> tuple[Issue, ...]:
    if grammar.thought_end is None:
        return ()
    if message.reasoning is None:
        return (Issue(IssueCode.REASONING_MISSING, "no field gives a thought, not an empty one"),)
    told = (message.reasoning, *message.other_reasoning)
    if any(_WITHHELD.search(text) for text in told):
        return (Issue(IssueCode.REASONING_ENCRYPTED, "the thought is withheld"),)
    if message.other_reasoning:
        detail = f"{len(told)} fields, {', '.join(repr(text[:20]) for text in told)}"
        return (Issue(IssueCode.REASONING_FIELDS_DISAGREE, detail),)
    return ()


def _shape_issues(message: Message, grammar: AnswerGrammar) -> tuple[Issue, ...]:
    issues = []
    if not message.content and not message.tool_calls:
        issues.append(Issue(IssueCode.EMPTY_ANSWER, "neither content nor a tool call"))
    if message.reasoning and grammar.thought_end is None:
        issues.append(Issue(IssueCode.MODE_MISMATCH, "a thought, but the profile has no marker"))
    return tuple(issues)


def _text_issues(segments: tuple[Segment, ...], profile: ModelProfile) -> tuple[Issue, ...]:
    literals = special_literals(profile)
    issues = []
    for segment in segments:
        if segment.is_special:
            continue
        if found := literals.search(segment.text):
            detail = f"{found[0]!r} at character {found.start()} of {segment.text[:20]!r}…"
            issues.append(Issue(IssueCode.SPECIAL_TEXT_IN_OUTPUT, detail))
        if "�" in segment.text:
            detail = f"U+FFFD at character {segment.text.index('�')}"
            issues.append(Issue(IssueCode.REPLACEMENT_CHAR, detail))
    return tuple(issues)


@cache
def special_literals(profile: ModelProfile) -> re.Pattern[str]:
    """Finds any special token's literal in a text."""
    return re.compile("|".join(map(re.escape, sorted(all_special_tokens(profile)))))


def _without_surrogates(message: Message) -> Message:
    """Lone surrogates, which no tokenizer takes, as U+FFFD: the answer is refused for it."""
    return Message(
        role=message.role,
        content=_clean(message.content),
        reasoning=_clean(message.reasoning),
        other_reasoning=message.other_reasoning,
        tool_calls=tuple(
            ToolCall(id=_clean(c.id), name=c.name, arguments=_clean(c.arguments) or "")
            for c in message.tool_calls
        ),
    )


def _clean(text: str | None) -> str | None:
    if text is None or text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
