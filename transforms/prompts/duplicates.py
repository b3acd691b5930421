"""Which prompts were read before."""

import hashlib

from transforms.failures import FailureKind, RecordError
from transforms.prompts.identity import content_digest
from transforms.records import Prompt


class Seen:
    """Remembers ids, and contents if asked to: about 150 bytes each.

    Args:
        labels: Data sets that were given a label: their ids are their own. Files without a label
            are one data set in this.
        by_content: A text that was read under another id is a duplicate too.
    """

    def __init__(self, labels: frozenset[str], *, by_content: bool) -> None:
        self._labels = labels
        self._by_content = by_content
        self._first: dict[bytes, str] = {}

    def check(self, prompt: Prompt) -> None:
        """Keeps the prompt in mind.

        Raises:
            RecordError: `DUPLICATE_ID` or `DUPLICATE_PROMPT`, with where the first one stands.
        """
        self._check(id_key(prompt, self._labels), prompt, FailureKind.DUPLICATE_ID)
        if self._by_content:
            self._check(content_key(prompt), prompt, FailureKind.DUPLICATE_PROMPT)

    def _check(self, key: str, prompt: Prompt, kind: FailureKind) -> None:
        digest = hashlib.sha256(key.encode()).digest()[:16]
        first = self._first.setdefault(digest, prompt.source)
        if first != prompt.source:
            raise read_before(kind, first)


def id_key(prompt: Prompt, labels: frozenset[str]) -> str:
    """What must be unique in a run."""
    space = prompt.dataset if prompt.dataset in labels else ""
    return f"{space}\n{prompt.id}"


def content_key(prompt: Prompt) -> str:
    """The same for prompts that ask the same."""
    return content_digest(prompt.messages, prompt.tools)


def read_before(kind: FailureKind, first: str) -> RecordError:
    """The refusal of a prompt whose like stands at `first`."""
    what = "id" if kind is FailureKind.DUPLICATE_ID else "text"
    return RecordError(kind, f"the {what} was read before, from {first}")
