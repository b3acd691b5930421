"""The generations of a conversation: what they are called, and which a prompt asks for."""

import re
from collections.abc import Iterator
from dataclasses import replace

from transforms.records import Message, Prompt, Role


def mark(conversation: str, turn: int, sample_index: int) -> str:
    """The id of a generation; of the first one it is the conversation's own.

    >>> mark("a", 0, 0), mark("a", 2, 1)
    ('a', 'a#t2#s1')
    """
    return conversation + _mark(turn, sample_index)


def unmark(identity: str, turn: int, sample_index: int) -> str:
    """The id of the conversation of a generation; of what has no such mark its own."""
    return identity.removesuffix(_mark(turn, sample_index))


def conversation_of(identity: str) -> str:
    """An id without all marks: the same for ids of one conversation, whoever put them on."""
    return re.sub(r"(#[ts][0-9]+)+\Z", "", identity)


def id_at(prompt: Prompt, turn: int) -> str:
    """The id of another generation of a prompt's conversation."""
    conversation = unmark(prompt.id, prompt.turn, prompt.sample_index)
    return mark(conversation, turn, prompt.sample_index)


def first_turn(prompt: Prompt) -> int:
    """The first generation that a prompt is to come to: its own, unless that is but history."""
    return max(prompt.turn, prompt.wanted)


def generations(prompt: Prompt) -> Iterator[Prompt]:
    """A prompt for each generation that a prompt is to come to, which wants that one alone."""
    for turn in _turns(prompt):
        yield replace(prompt, later=prompt.later[: turn - prompt.turn], wanted=turn)


def row_ids(prompt: Prompt) -> tuple[str, ...]:
    """The ids of all of them."""
    return tuple(id_at(prompt, turn) for turn in _turns(prompt))


def _turns(prompt: Prompt) -> range:
    return range(first_turn(prompt), prompt.turn + len(prompt.later) + 1)


def history(prompt: Prompt, turn: int) -> tuple[Message, ...]:
    """What a turn is asked after, as far as that is known.

    Recorded answers, or empty ones, stand in for the model's own that are still to come.
    """
    said = [*prompt.messages]
    for follow in prompt.later[: turn - prompt.turn]:
        said += follow.recorded or (Message(role=Role.ASSISTANT),)
        said += follow.messages
    return tuple(said)


def samples(prompt: Prompt, count: int) -> Iterator[Prompt]:
    """So many samples of a prompt that is the first one; each is a conversation of its own."""
    yield prompt
    for index in range(1, count):
        yield replace(prompt, id=mark(prompt.id, 0, index), sample_index=index)


def _mark(turn: int, sample_index: int) -> str:
    return (f"#t{turn}" if turn else "") + (f"#s{sample_index}" if sample_index else "")
