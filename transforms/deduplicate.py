"""Duplicates over all workers: the first prompt of each name stands, in the order of the files."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from transforms.failures import Failure, Stage, fail_each
from transforms.outcome import FAILED, GOOD, Outcome
from transforms.prompts.duplicates import Names, read_before
from transforms.records import Prompt

_PLACE = re.compile(r"(.*?):(\d+)(?::(\d+))?", re.DOTALL)


class Deduplicate(beam.PTransform):
    """Refuses prompts one of whose names is taken; see `duplicates.py`."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names

    def expand(self, prompts: PCollection[Prompt]) -> Outcome[Prompt]:
        results = (
            prompts
            | beam.WithKeys(self._names.group).with_output_types(tuple[str, Prompt])
            | beam.GroupByKey()
            | beam.ParDo(_FirstOfEachFn(self._names))
            .with_output_types(Prompt, failed=Failure)
            .with_outputs(FAILED, main=GOOD)
        )
        return Outcome(results[GOOD], results[FAILED])


def _place(prompt: Prompt) -> tuple[str, int, int, int]:
    """Path, line, column, sample."""
    found = _PLACE.fullmatch(prompt.source)
    if found is None:
        return prompt.source, 0, 0, prompt.sample_index
    return found[1], int(found[2]), int(found[3] or 0), prompt.sample_index


class _FirstOfEachFn(beam.DoFn):
    def __init__(self, names: Names) -> None:
        self._names = names

    def process(self, group: tuple[str, Iterable[Prompt]]) -> Iterator[Any]:
        taken: dict[str, str] = {}
        for prompt in sorted(group[1], key=_place):
            names = self._names.of(prompt)
            first = next((taken[name] for name in names if name in taken), None)
            if first is None:
                taken |= dict.fromkeys(names, prompt.source)
                yield prompt
                continue
            for failure in fail_each(prompt, Stage.READ, read_before(self._names.kind, first)):
                yield TaggedOutput(FAILED, failure)
