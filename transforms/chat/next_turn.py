"""The next turn of a conversation: the model's own answer, and what the record says after it."""

from dataclasses import replace

from transforms.chat.calls import is_native
from transforms.chat.candidates import calls_before
from transforms.chat.habits import Habit
from transforms.chat.profile import ModelProfile, special_literals
from transforms.chat.rejects import find_rejects
from transforms.chat.render import render_prompt
from transforms.chat.tool_results import follow_calls
from transforms.chat.view import Asked
from transforms.codes import IssueCode
from transforms.failures import FailureKind, RecordError
from transforms.generations import id_at
from transforms.records import Exchange, Message, Prompt

_OF_IDS_ALONE = frozenset({
    IssueCode.RENDER_NOT_INVERTIBLE,
    IssueCode.THINK_END_POSITION_UNKNOWN,
    IssueCode.WHITESPACE_TRIMMED_AMBIGUOUS,
    IssueCode.LOGPROBS_GARBAGE,
})  # fmt: skip
"""Rejects that leave the answer's text what the next request shows of it."""


def next_turn(prompt: Prompt, exchange: Exchange, profile: ModelProfile) -> Prompt:
    """What is asked after an answer: the history is the model's own, thoughts and all.

    Raises:
        RecordError: `HISTORY_UNKNOWN`, `TOOL_RESULTS_UNFIT`, `TEMPLATE_ERROR`.
    """
    asked = Asked(exchange, profile, Habit())
    _refuse_unknown(asked)
    follow, *later = prompt.later
    answer = _as_history(exchange, profile)
    following = replace(
        prompt,
        id=id_at(prompt, prompt.turn + 1),
        messages=(*prompt.messages, answer, *follow_calls(follow, answer.tool_calls)),
        turn=prompt.turn + 1,
        later=tuple(later),
    )
    if asked.thinks and answer.reasoning is None:
        _refuse_if_shown(following, len(prompt.messages), profile)
    return following


def _refuse_unknown(asked: Asked) -> None:
    """What no count can mend is no history; what a count may tell of ids is not asked here.

    The habit of a host is not known yet, and undoes nothing in a text that goes back as it came.
    """
    found = [issue for issue in find_rejects(asked) if issue.code not in _OF_IDS_ALONE]
    if found:
        raise _unknown(f"{found[0].code}: {found[0].detail}")
    answer = asked.exchange.completion.message
    texts = (answer.reasoning, answer.content, *(call.arguments for call in answer.tool_calls))
    for text in texts:  # it could not go back as it came
        if text and (literal := special_literals(asked.profile).search(text)):
            raise _unknown(f"special text {literal[0]!r}")


def _refuse_if_shown(following: Prompt, place: int, profile: ModelProfile) -> None:
    """A thought that was not told may be an empty one; where the template drops it, none is missed.

    `place`: of the answer among the messages.
    """
    messages = [*following.messages]
    messages[place] = replace(messages[place], reasoning="?")
    thought = replace(following, messages=tuple(messages))
    if render_prompt(following, profile) != render_prompt(thought, profile):
        raise _unknown("it came without its thought")


def _unknown(why: str) -> RecordError:
    return RecordError(FailureKind.HISTORY_UNKNOWN, f"the answer before: {why}")


def _as_history(exchange: Exchange, profile: ModelProfile) -> Message:
    """The answer as it came; ids that a host made up in the form that the model writes."""
    message, tools = exchange.completion.message, profile.answer.tools
    calls = tuple(
        call
        if tools is None or is_native(call.id or "", tools)
        else replace(call, id=tools.id_form.format(name=call.name, index=index))
        for index, call in enumerate(message.tool_calls, start=calls_before(exchange.prompt))
    )
    return replace(message, tool_calls=calls, other_reasoning=())
