"""Tool results of a record, put behind the calls that the model made itself."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transforms.failures import FailureKind, RecordError
from transforms.records import FollowUp, Message, Role, ToolCall


def follow_calls(follow: FollowUp, calls: Sequence[ToolCall]) -> tuple[Message, ...]:
    """What a record says after an answer, its results named after the calls of that answer.

    They fit if the same functions are called with the same arguments, in the same order, and each
    call has one result: a result of another call would tell the model what no tool has said.

    Raises:
        RecordError: `TOOL_RESULTS_UNFIT`.
    """
    recorded = [call for message in follow.recorded for call in message.tool_calls]
    results = [message for message in follow.messages if message.role is Role.TOOL]
    if not results and not calls:
        return follow.messages
    if not results:
        raise _unfit(calls, "the record has no result of them")
    if [_meaning(call) for call in recorded] != [_meaning(call) for call in calls]:
        raise _unfit(calls, f"the record has results of {_said(recorded)}")
    ids = {old.id: new.id for old, new in zip(recorded, calls, strict=True)}
    answered = [message.tool_call_id for message in results]
    if not len({*ids.values()}) == len(calls) == len(answered) or {*answered} != {*ids}:
        raise _unfit(calls, "the record has not one result of each")
    return tuple(
        replace(message, tool_call_id=ids[message.tool_call_id])
        if message.role is Role.TOOL
        else message
        for message in follow.messages
    )


def _meaning(call: ToolCall) -> tuple[str, Any]:
    """The function, and its arguments as JSON; keys in any order, no JSON as text."""
    try:
        return call.name, json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.name, call.arguments


def _unfit(calls: Sequence[ToolCall], why: str) -> RecordError:
    return RecordError(FailureKind.TOOL_RESULTS_UNFIT, f"the model called {_said(calls)}; {why}")


def _said(calls: Sequence[ToolCall]) -> str:
    said = ", ".join(f"{call.name}({call.arguments})" for call in calls)
    return said[:200] or "nothing"
