"""PartitionByVerdict: good samples one way, bad ones the other, each with its type."""

from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from transforms.records import Verdict


class Partitioned(NamedTuple):
    """Verdicts without and with issues."""

    good: PCollection[Verdict]
    bad: PCollection[Verdict]


class PartitionByVerdict(beam.PTransform):
    """Splits by `Verdict.is_good`; `beam.Partition` would lose the types."""

    def expand(self, verdicts: PCollection[Verdict]) -> Partitioned:
        split = verdicts | beam.ParDo(_PartitionFn()).with_output_types(
            Verdict, bad=Verdict
        ).with_outputs("bad", main="good")
        return Partitioned(split["good"], split["bad"])


class _PartitionFn(beam.DoFn):
    def process(self, verdict: Verdict) -> Iterator[Verdict | TaggedOutput]:
        yield verdict if verdict.is_good else TaggedOutput("bad", verdict)
