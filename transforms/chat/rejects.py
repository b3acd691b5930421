"""Hard rejects: what no count can mend. Asked before any counting; each a documented code."""

import re
from collections.abc import Callable, Iterator

from transforms.chat.candidates import calls_before
from transforms.chat.flags import expected_arguments
from transforms.chat.habits import INSERTED, Edges, Ids
from transforms.chat.profile import AnswerGrammar, special_literals
from transforms.chat.settings import find_settings_issues, read_settings, thinking_is_off
from transforms.chat.view import Asked
from transforms.codes import IssueCode
from transforms.records import Exchange, FinishReason, Issue, ToolCall

_NATURAL = frozenset({
    "stop", "tool_calls", "eos", "eos_token", "end_turn", "stop_sequence", "tool_use",
    "function_call", "completed", "complete",
})  # fmt: skip
"""Providers' own words, in lower case, for an answer that ended by itself."""


def find_rejects(asked: Asked) -> tuple[Issue, ...]:
    """All hard rejects of an answer, by the request first."""
    found = (issue for rule in _RULES for issue in rule(asked))
    return (*find_settings_issues(asked.exchange), *found)


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
        or (usage is not None and usage.completion_tokens == exchange.max_tokens)
    )


def _finish(asked: Asked) -> Iterator[Issue]:
    completion = asked.exchange.completion
    end, content = asked.profile.answer.end, completion.message.content or ""
    after = content.partition(end)[2].lstrip()
    if special_literals(asked.profile).match(after):
        yield Issue(IssueCode.RUN_ON_AFTER_EOS, f"{after[:20]!r} follows {end}")
    if end in (completion.message.reasoning or ""):
        yield Issue(IssueCode.UNEXPECTED_EOS, f"{end} stands in the thought")
    if is_truncated(asked.exchange):
        detail = "cut by max_tokens; no end token was sampled"
        yield Issue(IssueCode.LENGTH_TRUNCATED, detail)
        return
    natural = completion.finish_reason in {FinishReason.STOP, FinishReason.TOOL_CALLS}
    word = completion.native_finish_reason
    if not natural or (word is not None and word.lower() not in _NATURAL):
        detail = f"finish_reason is {completion.finish_reason} (provider: {word})"
        yield Issue(IssueCode.FINISH_UNKNOWN, detail)


def _rewritten(asked: Asked) -> Iterator[Issue]:
    if asked.exchange.completion.is_rewritten:
        yield Issue(IssueCode.RESPONSE_REWRITTEN, "the answer carries citations")


def _usage(asked: Asked) -> Iterator[Issue]:
    usage = asked.exchange.completion.usage
    if usage is not None and usage.completion_tokens > asked.exchange.max_tokens:
        detail = f"{usage.completion_tokens} tokens counted, {asked.exchange.max_tokens} allowed"
        yield Issue(IssueCode.USAGE_UNUSABLE, detail)
    if asked.habit.counts_text:
        yield Issue(IssueCode.USAGE_NOT_ENGINE, "the host counts the text, not what was sampled")


_WITHHELD = re.compile(r"\[(REDACTED|reasoning\.(?:encrypted|summary))\]")


def _thought(asked: Asked) -> Iterator[Issue]:
    message, grammar = asked.exchange.completion.message, asked.profile.answer
    told = [text for text in (message.reasoning, *message.other_reasoning) if text is not None]
    withheld = [found[1] for text in told if (found := _WITHHELD.search(text))]
    if withheld:
        is_summary = all(word == "reasoning.summary" for word in withheld)
        code = IssueCode.REASONING_SUMMARY if is_summary else IssueCode.REASONING_ENCRYPTED
        yield Issue(code, "the thought is withheld")
    elif len(set(told)) > 1:
        detail = f"{len(told)} fields, {', '.join(repr(text[:20]) for text in told)}"
        yield Issue(IssueCode.REASONING_FIELDS_DISAGREE, detail)
    if not asked.thinks:
        yield from _unwanted_thought(asked, grammar)
    elif message.reasoning is None:
        yield from _missing_thought(asked, message.content or "")


def _unwanted_thought(asked: Asked, grammar: AnswerGrammar) -> Iterator[Issue]:
    message = asked.exchange.completion.message
    is_off = thinking_is_off(asked.exchange.settings)
    is_beside = message.reasoning and (message.content or message.tool_calls)
    if is_beside and (grammar.thought_end is None or is_off):
        detail = "a thought, but " + ("it was switched off" if is_off else "the model has none")
        yield Issue(IssueCode.MODE_MISMATCH, detail)


def _missing_thought(asked: Asked, content: str) -> Iterator[Issue]:
    mark, opening = asked.profile.answer.thought_end, asked.profile.answer.thought_begin
    excluded = (read_settings(asked.exchange.settings).get("reasoning") or {}).get("exclude")
    if mark and mark in content and not excluded:
        if (
            not content.partition(mark)[2].strip()
            and not asked.exchange.completion.message.tool_calls
        ):
            yield Issue(IssueCode.CONTENT_DROPPED, "nothing follows the end of the thought")
    elif opening and content.lstrip().startswith(opening):
        yield Issue(IssueCode.THINK_END_MISSING, "the thought in the content is never closed")
    elif not content and not asked.exchange.completion.message.tool_calls:
        yield Issue(IssueCode.CONTENT_DROPPED, "tokens were counted, and nothing is shown")


def _empty(asked: Asked) -> Iterator[Issue]:
    message, grammar = asked.exchange.completion.message, asked.profile.answer
    if message.content or message.tool_calls or message.reasoning is None:
        return
    if asked.exchange.completion.finish_reason is FinishReason.TOOL_CALLS:
        yield Issue(IssueCode.TOOL_CALL_DROPPED, "finish_reason is tool_calls, and there is none")
    elif asked.habit.strips_thought_end or grammar.thought_end_is_stripped:
        yield Issue(IssueCode.THINK_END_STRIPPED, "all is thought: its end was removed")
    elif thinking_is_off(asked.exchange.settings) and message.reasoning:
        return
    elif not any(mark in message.reasoning for mark in _inside(grammar)):
        yield Issue(IssueCode.EMPTY_ANSWER, "neither content nor a tool call")


def _inside(grammar: AnswerGrammar) -> tuple[str, ...]:
    """Markers that show where a thought ends which holds all of the answer."""
    begin = () if grammar.tools is None else (grammar.tools.section_begin,)
    return (*begin, *([grammar.thought_end] if grammar.thought_end else []))


def _calls(asked: Asked) -> Iterator[Issue]:
    exchange, tools = asked.exchange, asked.profile.answer.tools
    calls = exchange.completion.message.tool_calls
    if not calls or tools is None:
        return
    if not exchange.prompt.tools:
        yield Issue(IssueCode.UNREQUESTED_TOOL_PARSE, "a call, and no tool was declared")
    mixed = any(not call.id for call in calls) and any(call.id for call in calls)
    if mixed or not all(call.name for call in calls):
        yield Issue(IssueCode.STREAM_ASSEMBLY, "a call has no id or no name")
    for call in calls:
        if not call.arguments:
            yield Issue(IssueCode.TOOL_ARGS_LOST, f"a call of {call.name!r} has none")
    if asked.habit.arguments.value == "sorted" and any(_keys(call) > 1 for call in calls):
        yield Issue(IssueCode.ARGS_ORDER_UNKNOWN, "the host sorts the keys of arguments")
    if asked.habit.strips_thought_end and exchange.completion.message.reasoning:
        detail = "the host removes the end of the thought: content before the calls is part of it"
        yield Issue(IssueCode.THINK_END_STRIPPED, detail)
    yield from _text_beside_calls(asked)
    yield from _ids(calls, asked, calls_before(exchange.prompt))


def _keys(call: ToolCall) -> int:
    return len(re.findall(r'"(?:\\.|[^"\\])*"\s*:', call.arguments))


def _text_beside_calls(asked: Asked) -> Iterator[Issue]:
    """Content beside calls whose place is not known: after the section, or before it."""
    inserted = INSERTED.get(asked.habit.blanks, Edges()).content_start
    content = (asked.exchange.completion.message.content or "").removeprefix(inserted)
    if asked.habit.joins_around_calls and content:
        detail = "the host joins the text before and after the calls"
        yield Issue(IssueCode.TEXT_AFTER_SECTION, detail)
    elif content and not content.strip() and content.strip(" "):
        yield Issue(IssueCode.TEXT_AFTER_SECTION, f"{content!r} beside calls: its place is unknown")


def _ids(calls: tuple[ToolCall, ...], asked: Asked, before: int) -> Iterator[Issue]:
    """Ids that a host may have changed: a count that fits with them may fit by accident.

    Measured on 66 recorded Moonshot and 53 Novita answers: `NAME:N` for `functions.NAME:N` and an
    end token that is not counted cancel out. The model's index counts over the conversation; any
    other digit costs the same one token, so the count is blind to a server that counts anew.
    """
    tools, habit = asked.profile.answer.tools, asked.habit
    if tools is None or habit.ids in {Ids.NATIVE, Ids.BARE}:
        return
    for index, call in enumerate(calls, start=before):
        found = re.fullmatch(tools.id_pattern, call.id or "")
        is_counter = (call.id or "").isdecimal()  # the host's own, whatever the model wrote
        if is_counter and habit.ids is Ids.UNKNOWN:
            continue
        if habit.ids is Ids.UNKNOWN and (found is None or found["name"] != call.name):
            detail = f"id {call.id!r} of a call of {call.name!r} is not as {tools.id_pattern}"
            yield Issue(IssueCode.TOOL_ID_AMBIGUOUS, detail)
        elif before and habit.ids is not Ids.UNKNOWN:
            detail = f"id {call.id!r} after {before} calls: the host counts anew, the model may not"
            yield Issue(IssueCode.TOOL_ID_INDEX_AMBIGUOUS, detail)
        elif habit.ids is Ids.UNKNOWN and found and found["index"] != str(index):
            detail = f"id {call.id!r}, but the conversation goes on with index {index}"
            yield Issue(IssueCode.TOOL_ID_INDEX_AMBIGUOUS, detail)


def _text(asked: Asked) -> Iterator[Issue]:
    message = asked.exchange.completion.message
    texts = (message.reasoning, message.content, *(c.arguments for c in message.tool_calls))
    for text in texts:
        if text and ("\ufffd" in text or not _is_unicode(text)):
            yield Issue(IssueCode.REPLACEMENT_CHAR, "bytes of a character were lost")
            return


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_FOREIGN = re.compile(r"<\|(?:open|sep|channel|message|constrain|recipient|call)\|>")
"""Markers of other families' call grammars (Kimi K3, harmony)."""


def _foreign(asked: Asked) -> Iterator[Issue]:
    message = asked.exchange.completion.message
    literals = special_literals(asked.profile)
    for text in (message.reasoning or "", message.content or ""):
        if (found := _FOREIGN.search(text)) and not literals.fullmatch(found[0]):
            yield Issue(IssueCode.TOOL_SECTION_PARTIAL, f"{found[0]} of another model's grammar")
            return


def _family(asked: Asked) -> Iterator[Issue]:
    """What the parsers of a model's family take away."""
    message, grammar = asked.exchange.completion.message, asked.profile.answer
    if message.tool_calls and not grammar.calls_are_invertible:
        detail = "a parsed call does not say how the model wrote it; its ids must come with it"
        yield Issue(IssueCode.RENDER_NOT_INVERTIBLE, detail)
    if not grammar.blanks_are_stripped or grammar.thought_end is None or not asked.thinks:
        return
    before, mark, after = (message.content or "").partition(grammar.thought_end)
    if message.reasoning and message.content:
        detail = "white space beside the end of the thought was stripped"
        yield Issue(IssueCode.THINK_END_POSITION_UNKNOWN, detail)
    elif mark and not (before.endswith("\n") or after.startswith("\n")):
        detail = f"no white space beside {mark}: it was stripped"
        yield Issue(IssueCode.WHITESPACE_TRIMMED_AMBIGUOUS, detail)


def _unproved(asked: Asked) -> Iterator[Issue]:
    """Without a tokenizer no count tells: what the text alone shows."""
    completion = asked.exchange.completion
    if asked.profile.tokenizer.kind != "unknown":
        return
    wanted = expected_arguments(asked.exchange.prompt.tools)
    for call in completion.message.tool_calls:
        if call.arguments.strip() == "{}" and wanted.get(call.name):
            yield Issue(IssueCode.TOOL_ARGS_LOST, f"{call.name!r} takes arguments, and has none")
    if completion.logprobs and {e.logprob for e in completion.logprobs} <= DUMMIES:
        yield Issue(IssueCode.LOGPROBS_GARBAGE, "log probabilities that are constants")
    mark = asked.profile.answer.thought_end or ""
    is_told = completion.message.reasoning is not None or mark in (completion.message.content or "")
    if asked.thinks and not is_told:
        yield Issue(IssueCode.REASONING_MISSING, "no field gives a thought, not an empty one")


DUMMIES = frozenset({0.0, -9999.0})
"""What hosts that have no log probabilities write for them."""

_RULES: tuple[Callable[[Asked], Iterator[Issue]], ...] = (
    _finish,
    _rewritten,
    _usage,
    _text,
    _thought,
    _empty,
    _unproved,
    _calls,
    _family,
    _foreign,
)
