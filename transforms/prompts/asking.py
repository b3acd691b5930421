"""Which generations of a conversation a record asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, takewhile
from typing import Any

from transforms.prompts.messages import invalid
from transforms.records import FollowUp, Message, Role

_MOST = 2**31
"""Of an index: it is a 32-bit column of the row."""


class Turns(StrEnum):
    """Which turns of a conversation are asked."""

    ALL = "all"
    """Each, in order, over the model's own earlier answers."""
    LAST = "last"
    """The last one whose history is recorded, over the recorded answers."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One generation that a record asks for, and no other.

    Attributes:
        is_turn: False: the record is a conversation, of which several turns may be asked.
        turn: Its number; the record ends with what it answers.
        history_from: The number of the first answer that must be asked anew; `turn`: none.
        sample_index: Which sample.
        judged_bad: The generation that was judged, and is why the record is a rejection.
    """

    is_turn: bool
    turn: int
    history_from: int
    sample_index: int
    judged_bad: str | None = None


def read_pin(record: Mapping[str, Any]) -> Pin:
    """What a record says: any may name its sample, a rejection is of one turn.

    Raises:
        RecordError: `INVALID_PROMPT`, a number below nothing or beyond 32 bits.
    """
    index = _whole(record, "sample_index") or 0
    if not _is_rejection(record):
        return Pin(is_turn=False, turn=0, history_from=0, sample_index=index)
    turn = _whole(record, "turn") or 0
    history_from = _whole(record, "history_from")
    generation = record["rejection"].get("generation_id")
    return Pin(
        is_turn=True,
        turn=turn,
        history_from=turn if history_from is None else history_from,
        sample_index=index,
        judged_bad=generation if isinstance(generation, str) else None,
    )


def is_one_sample(record: Mapping[str, Any]) -> bool:
    """Whether a record asks for one sample, not for as many as the run makes."""
    return _is_rejection(record) or _whole(record, "sample_index") is not None


def pinned_turns(after: Sequence[int], pin: Pin) -> Sequence[int]:
    """Of the messages after which a conversation is answered, those that a pin needs asked.

    Raises:
        RecordError: `INVALID_PROMPT`, the record has not so many.
    """
    count = pin.turn - pin.history_from + 1
    if not 1 <= count <= len(after):
        raise invalid(f"history_from {pin.history_from} of turn {pin.turn}: no such answer")
    return after[-count:]


def split(
    messages: Sequence[Message], after: Sequence[int]
) -> tuple[tuple[Message, ...], tuple[FollowUp, ...]]:
    """What is asked first, and what follows each answer but the last."""
    later = (_follow_up(messages[one + 1 : other + 1]) for one, other in pairwise(after))
    return tuple(messages[: after[0] + 1]), tuple(later)


def _follow_up(said: Sequence[Message]) -> FollowUp:
    recorded = tuple(takewhile(lambda message: message.role is Role.ASSISTANT, said))
    return FollowUp(recorded=recorded, messages=tuple(said[len(recorded) :]))


def _is_rejection(record: Mapping[str, Any]) -> bool:
    rejection = record.get("rejection")
    return isinstance(rejection, dict) and "code" in rejection


def _whole(record: Mapping[str, Any], name: str) -> int | None:
    value = record.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if not 0 <= value < _MOST:
        raise invalid(f"{name} is {value}, not a whole number from 0 to {_MOST - 1}")
    return value
