"""Which records of a file are read, and in which order: `--limit` and `--shuffle_seed`."""

import hashlib
import heapq
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from transforms.prompts.files import RawRecord

_WINDOW = 2048
"""Records that are mixed in memory at once."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, order=True)
class Selection:
    """The first `most` records; with a seed those of rank `below` or less, mixed.

    `None`: no bound.
    """

    most: int | None = None
    seed: int | None = None
    below: int | None = None

    def take(self, records: Iterable[RawRecord]) -> Iterator[RawRecord]:
        """The records that are selected, in the order in which they are asked."""
        if self.seed is None:
            return islice(records, self.most)
        seed, below = self.seed, self.below
        kept = (
            record
            for number, record in enumerate(records)
            if below is None or _rank(seed, number, record) <= below
        )
        return _mixed(kept, random.Random(seed))


EVERYTHING = Selection()


def select(
    files: Sequence[Iterable[RawRecord]], limit: int | None, seed: int | None
) -> list[Selection]:
    """The selection of each file that gives `limit` records of all together.

    Without a seed the first ones, else those whose hashes under the seed are the lowest: the same
    ones wherever the files are, however many workers read them.
    """
    if limit is None:
        return [Selection(seed=seed) for _ in files]
    if seed is not None:
        below = _lowest(files, limit, seed)
        return [Selection(seed=seed, below=below) for _ in files]
    selections = []
    for records in files:
        count = sum(1 for _ in islice(records, limit))
        selections.append(Selection(most=count))
        limit -= count
    return selections


def _lowest(files: Iterable[Iterable[RawRecord]], limit: int, seed: int) -> int | None:
    """The rank of the last record that is in; `None`: all are."""
    ranks = (
        -_rank(seed, number, record) for records in files for number, record in enumerate(records)
    )
    lowest = list(islice(ranks, limit))
    heapq.heapify(lowest)
    more = False
    for rank in ranks:
        heapq.heappushpop(lowest, rank)
        more = True
    return -lowest[0] if more else None


def _rank(seed: int, number: int, record: RawRecord) -> int:
    digest = hashlib.sha256(b"%d %d " % (seed, number) + record.data).digest()
    return int.from_bytes(digest[:8], "big")


def _mixed(items: Iterable[Item], dice: random.Random) -> Iterator[Item]:
    window: list[Item] = []
    for item in items:
        window.append(item)
        if len(window) == _WINDOW:
            chosen = dice.randrange(_WINDOW)
            window[chosen], window[-1] = window[-1], window[chosen]
            yield window.pop()
    dice.shuffle(window)
    yield from window
