"""ReadPrompts: files -> prompts, each id once; what is no prompt becomes a failure."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PBegin, PCollection, TaggedOutput

from transforms.failures import Failure, FailureKind, RecordError, Stage, fail
from transforms.outcome import FAILED, GOOD
from transforms.prompts.lines import read_lines
from transforms.prompts.shapes import original_line, parse_record, read_prompt
from transforms.records import Prompt, RecordCount

COUNTS = "counts"


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """A file of prompts, and the name of its data set in the rows."""

    path: str
    dataset: str


class ReadResult(NamedTuple):
    """Prompts, records that are none, and how many records each file held."""

    good: PCollection[Prompt]
    failures: PCollection[Failure]
    counts: PCollection[RecordCount]


class ReadPrompts(beam.PTransform):
    """Reads files line by line.

    Args:
        files: What to read.
        spread: On a cluster the prompts are grouped by id, which finds duplicates over all workers
            and spreads the work (a reader never does). On one machine the reader remembers the ids:
            a shuffle would hold everything in memory.
    """

    def __init__(self, files: tuple[InputFile, ...], *, spread: bool) -> None:
        super().__init__()
        self._files = files
        self._spread = spread

    def expand(self, begin: PBegin) -> ReadResult:
        read = (
            begin
            | beam.Create(self._files)
            | beam.ParDo(_ReadFn(remember=not self._spread))
            .with_output_types(Prompt, failed=Failure, counts=RecordCount)
            .with_outputs(FAILED, COUNTS, main=GOOD)
        )
        if not self._spread:
            return ReadResult(read[GOOD], read[FAILED], read[COUNTS])
        by_id = read[GOOD] | beam.WithKeys(_id_of).with_output_types(tuple[str, Prompt])
        unique = (
            by_id
            | beam.GroupByKey()
            | beam.ParDo(_FirstOfGroupFn())
            .with_output_types(Prompt, failed=Failure)
            .with_outputs(FAILED, main=GOOD)
        )
        failures = (read[FAILED], unique[FAILED]) | beam.Flatten()
        return ReadResult(unique[GOOD], failures, read[COUNTS])


def _id_of(prompt: Prompt) -> str:
    return prompt.id


def read_file(file: InputFile) -> Iterator[Prompt | Failure]:
    """Every record of a file, in order, as a prompt or a failure with its line."""
    try:
        with FileSystems.open(file.path, compression_type=CompressionTypes.UNCOMPRESSED) as handle:
            for number, line in read_lines(handle):
                yield _read_line(original_line(line), f"{file.path}:{number}", file.dataset)
    except RecordError as error:
        yield _failure(error, file.path, None)


def _read_line(line: bytes, source: str, dataset: str) -> Prompt | Failure:
    try:
        return read_prompt(parse_record(line), source, dataset)
    except RecordError as error:
        return _failure(error, source, line)


def _failure(error: RecordError, source: str, line: bytes | None) -> Failure:
    """`raw` keeps bytes that are not UTF-8 as lone surrogates, so that they can be had back."""
    return Failure(
        id=hashlib.sha256(source.encode() + b"\n" + (line or b"")).hexdigest(),
        stage=Stage.READ,
        kind=error.kind,
        detail=error.detail,
        source=source,
        raw=None if line is None else line.decode(errors="surrogateescape"),
    )


def _duplicate(prompt: Prompt, first: str) -> Failure:
    error = RecordError(FailureKind.DUPLICATE_ID, f"the id was read before, from {first}")
    return fail(prompt, Stage.READ, error)


class _ReadFn(beam.DoFn):
    """Reads a file; `remember`: keeps every id and where it stood, about 250 bytes an id."""

    def __init__(self, *, remember: bool) -> None:
        self._remember = remember

    def setup(self) -> None:
        self._seen: dict[str, str] = {}

    def process(self, file: InputFile) -> Iterator[Any]:
        records = 0
        for read in read_file(file):
            records += 1
            result = self._once(read) if isinstance(read, Prompt) else read
            yield TaggedOutput(FAILED, result) if isinstance(result, Failure) else result
        yield TaggedOutput(COUNTS, RecordCount(file.path, records))

    def _once(self, prompt: Prompt) -> Prompt | Failure:
        if not self._remember:
            return prompt
        first = self._seen.setdefault(prompt.id, prompt.source)
        return prompt if first == prompt.source else _duplicate(prompt, first)


def _place(prompt: Prompt) -> tuple[str, int]:
    path, _, line = prompt.source.rpartition(":")
    return path, int(line)


class _FirstOfGroupFn(beam.DoFn):
    def process(self, group: tuple[str, Iterable[Prompt]]) -> Iterator[Any]:
        first, *others = sorted(group[1], key=_place)
        yield first
        for prompt in others:
            yield TaggedOutput(FAILED, _duplicate(prompt, first.source))
