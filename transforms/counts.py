"""Counts that are made where records pass, and written to files."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordCount:
    """How many rows a file must come to, counted where it was read.

    One for each generation that its prompts ask for, and for each record that is no prompt.
    """

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class FailureCount:
    """How many prompts failed with a kind, and what one of them was told."""

    kind: str
    count: int
    detail: str
