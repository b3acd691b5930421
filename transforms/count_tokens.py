"""CountTokens: how often each id was sampled, what a draft vocabulary is chosen by."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
import numpy.typing as npt
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

_HELD_IDS = 1_000_000
"""Counted together: a count touches the whole vocabulary."""


class CountTokensFn(beam.DoFn):
    """One line a bundle: the ids that its rows trained, and how often each."""

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary

    def start_bundle(self) -> None:
        self._counts = np.zeros(self._vocabulary, dtype=np.int64)
        self._held: list[npt.NDArray[np.int32]] = []
        self._ids = 0

    def process(self, row: dict[str, Any]) -> None:
        trained = row["input_ids"][row["prompt_length"] :]
        self._held.append(trained)
        self._ids += len(trained)
        if self._ids >= _HELD_IDS:
            self._count()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._count()
        (ids,) = np.nonzero(self._counts)
        line = {"ids": ids.tolist(), "counts": self._counts[ids].tolist()}
        window = GlobalWindow()
        yield WindowedValue(msgspec.json.encode(line) + b"\n", window.start, [window])

    def _count(self) -> None:
        if self._held:
            self._counts += np.bincount(np.concatenate(self._held), minlength=self._vocabulary)
        self._held, self._ids = [], 0
