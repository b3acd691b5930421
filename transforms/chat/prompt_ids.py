"""The prompt's ids: what the server tells, else the rendering that its count fits."""

import json
from dataclasses import replace

from transforms.chat.habits import PROMPT_OFFSETS, Habit
from transforms.chat.profile import ModelProfile
from transforms.chat.render import render_prompt
from transforms.chat.settings import thinking_is_off
from transforms.codes import IssueCode
from transforms.records import Exchange, Issue, Message, Prompt, ToolCall


def read_prompt_ids(
    exchange: Exchange, profile: ModelProfile, habit: Habit
) -> tuple[tuple[int, ...], tuple[Issue, ...]]:
    """What the model saw (int32[P]), and an issue where a count cannot tell what it was.

    Engines parse the arguments of earlier calls, and the template writes them anew
    (fidelity.md, 4.1: a request of Chutes): which it was is the one that has the counted length.

    Raises:
        RecordError: `TEMPLATE_ERROR`.
    """
    if exchange.completion.prompt_token_ids is not None:
        return exchange.completion.prompt_token_ids, ()
    sent = _render(exchange, exchange.prompt, profile, habit)
    parsed = with_parsed_arguments(exchange.prompt)
    if parsed == exchange.prompt:
        return sent, ()
    anew = _render(exchange, parsed, profile, habit)
    if anew == sent:
        return sent, ()
    fitting = [ids for ids in (sent, anew) if _may_be_counted(len(ids), exchange, habit)]
    if len(fitting) < 2:  # noqa: PLR2004 - where none fits, the count is held against the first
        return next(iter(fitting), sent), ()
    detail = "the count does not tell if earlier calls were shown as sent or written anew"
    return sent, (Issue(IssueCode.PROMPT_MISMATCH, detail),)


def _may_be_counted(length: int, exchange: Exchange, habit: Habit) -> bool:
    """Whether a prompt of that length may be counted so; any may that is not counted at all.

    Where no offset is known, with any of those that hosts have.
    """
    usage = exchange.completion.usage
    offset = habit.offset_of_prompt(tools=bool(exchange.prompt.tools))
    if usage is None or usage.prompt_tokens is None:
        return True
    return usage.prompt_tokens - length in (PROMPT_OFFSETS if offset is None else (offset,))


def with_parsed_arguments(prompt: Prompt) -> Prompt:
    """The prompt whose calls have their arguments as a template writes a parsed object."""
    if not any(message.tool_calls for message in prompt.messages):
        return prompt
    return replace(prompt, messages=tuple(map(_parsed, prompt.messages)))


def _parsed(message: Message) -> Message:
    return replace(message, tool_calls=tuple(map(_parsed_call, message.tool_calls)))


def _parsed_call(call: ToolCall) -> ToolCall:
    try:
        arguments = json.dumps(json.loads(call.arguments), ensure_ascii=False)
    except (ValueError, RecursionError):  # an engine refuses it
        return call
    return replace(call, arguments=arguments)


def _render(
    exchange: Exchange, prompt: Prompt, profile: ModelProfile, habit: Habit
) -> tuple[int, ...]:
    """Under the host's habit."""
    thinks = not thinking_is_off(exchange.settings)
    ids = render_prompt(prompt, profile, thinks=thinks, keeps_history=habit.keeps_history)
    opening = profile.answer.thought_begin
    if thinks and not habit.prefills and opening and ids[-1] == profile.special_tokens[opening]:
        return ids[:-1]
    return ids
