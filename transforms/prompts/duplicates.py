"""Which prompts were read before."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from transforms.failures import FailureKind, RecordError
from transforms.generations import conversation_of, history, row_ids
from transforms.prompts.identity import content_digest
from transforms.records import FollowUp, Prompt


@dataclass(frozen=True, slots=True)
class Names:
    """What must be unique in a run.

    Attributes:
        kind: Of the refusal of a prompt one of whose names is taken.
        of: A prompt's names.
        group: The same for all prompts that may have a name in common.
    """

    kind: FailureKind
    of: Callable[[Prompt], tuple[str, ...]]
    group: Callable[[Prompt], str]


def names_of(labels: frozenset[str], *, by_content: bool) -> tuple[Names, ...]:
    """Ids, and contents if asked for.

    `labels`: Data sets that were given a label: their ids are their own. Files without a label are
    one data set in this.
    """
    group = partial(_conversation, labels=labels)
    ids = Names(FailureKind.DUPLICATE_ID, partial(_ids, labels=labels), group)
    texts = Names(FailureKind.DUPLICATE_PROMPT, _contents, _content)
    return (ids, texts) if by_content else (ids,)


class Seen:
    """Remembers names: about 150 bytes each."""

    def __init__(self, names: tuple[Names, ...]) -> None:
        self._names = names
        self._first: dict[bytes, str] = {}

    def check(self, prompt: Prompt) -> None:
        """Keeps the prompt in mind.

        Raises:
            RecordError: `DUPLICATE_ID` or `DUPLICATE_PROMPT`, with where the first one stands.
        """
        for names in self._names:
            digests = [_digest(name) for name in names.of(prompt)]
            firsts = {self._first.get(digest, prompt.source) for digest in digests}
            if others := sorted(firsts - {prompt.source}):  # a bundle may be read twice
                raise read_before(names.kind, others[0])
            self._first |= dict.fromkeys(digests, prompt.source)


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:16]


def _ids(prompt: Prompt, labels: frozenset[str]) -> tuple[str, ...]:
    """The ids of a prompt's rows, each in its data set."""
    return tuple(f"{_space(prompt, labels)}\n{identity}" for identity in row_ids(prompt))


def _conversation(prompt: Prompt, labels: frozenset[str]) -> str:
    """A rejection that is fed back is of the conversation that its id names."""
    return f"{_space(prompt, labels)}\n{conversation_of(prompt.id)}"


def _space(prompt: Prompt, labels: frozenset[str]) -> str:
    return prompt.dataset if prompt.dataset in labels else ""


def _contents(prompt: Prompt) -> tuple[str, ...]:
    return (_content(prompt),)


def _content(prompt: Prompt) -> str:
    """The same for prompts that ask the same: of answers to come, only what they call is sent."""
    asked = replace(prompt, later=tuple(map(_calls_alone, prompt.later)))
    said = history(asked, prompt.turn + len(prompt.later))
    digest = content_digest(said, prompt.tools)
    return f"{digest} {prompt.turn} {prompt.wanted} {prompt.sample_index}"


def _calls_alone(follow: FollowUp) -> FollowUp:
    calls = (replace(one, content=None, reasoning=None) for one in follow.recorded)
    return replace(follow, recorded=tuple(call for call in calls if call.tool_calls))


def read_before(kind: FailureKind, first: str) -> RecordError:
    """The refusal of a prompt whose like stands at `first`."""
    what = "id" if kind is FailureKind.DUPLICATE_ID else "text"
    return RecordError(kind, f"the {what} was read before, from {first}")
