"""The one generic piece of Beam: a mapped function whose `RecordError` becomes a `Failure`."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, get_type_hints

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from transforms.failures import Failure, RecordError, Stage, fail
from transforms.records import Prompt

T = TypeVar("T")
FAILED = "failed"
GOOD = "good"


class Traced(Protocol):
    """A record that knows the prompt and the request it comes from."""

    @property
    def prompt(self) -> Prompt: ...

    @property
    def request_sha256(self) -> str: ...


class Outcome(NamedTuple, Generic[T]):
    """What a stage made, and what it could not make."""

    good: PCollection[T]
    failures: PCollection[Failure]


class MapOrFail(beam.PTransform):
    """Applies `function(record, **values)`; types are read from the function's annotations."""

    def __init__(self, stage: Stage, function: Callable[..., Any], **values: Any) -> None:
        super().__init__()
        self._stage = stage
        self._function = function
        self._values = values

    def expand(self, records: PCollection[Any]) -> Outcome[Any]:
        hints = get_type_hints(self._function)
        made = hints.pop("return")
        given = next(iter(hints.values()))
        results = records | beam.ParDo(
            _MapOrFailFn(self._stage, self._function, self._values)
        ).with_input_types(given).with_output_types(made, failed=Failure).with_outputs(
            FAILED, main=GOOD
        )
        return Outcome(results[GOOD], results[FAILED])


class _MapOrFailFn(beam.DoFn):
    def __init__(self, stage: Stage, function: Callable[..., Any], values: dict[str, Any]) -> None:
        self._stage = stage
        self._function = function
        self._values = values

    def process(self, record: Traced) -> Iterator[Any]:
        try:
            yield self._function(record, **self._values)
        except RecordError as error:
            failure = fail(record.prompt, self._stage, error, record.request_sha256)
            yield TaggedOutput(FAILED, failure)
