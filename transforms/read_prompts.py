"""ReadPrompts: files -> prompts, each id once; what is no prompt becomes a failure."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PBegin, PCollection, TaggedOutput

from transforms.chat.profile import ModelProfile
from transforms.chat.render import refuse_long
from transforms.counts import RecordCount
from transforms.deduplicate import Deduplicate
from transforms.failures import Failure, RecordError, Stage, fail_each
from transforms.generations import row_ids, samples
from transforms.outcome import FAILED, GOOD
from transforms.prompts.asking import Turns, is_one_sample
from transforms.prompts.bfcl import Lookup
from transforms.prompts.duplicates import Seen, names_of
from transforms.prompts.files import RawRecord, read_records
from transforms.prompts.selection import EVERYTHING, Selection
from transforms.prompts.shapes import original_line, parse_record, parse_text, read_prompt
from transforms.records import Prompt

COUNTS = "counts"


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """A file of prompts.

    Attributes:
        dataset: The name of its data set in the rows.
        labelled: That name was given; ids are then unique in the data set, not in the run.
    """

    path: str
    dataset: str
    labelled: bool = False
    selection: Selection = EVERYTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """What becomes of records.

    Attributes:
        prompt_field: The field that is the prompt, before any known shape.
        by_content: A text that was read under another id is refused.
        max_tokens: Longer prompts are refused; `None`: none is.
        profile: Whose tokens those are.
        turns: Which turns of a conversation are asked.
        samples: How many of each prompt, unless the record names one.
    """

    prompt_field: str | None = None
    by_content: bool = False
    max_tokens: int | None = None
    profile: ModelProfile | None = None
    turns: Turns = Turns.LAST
    samples: int = 1


DEFAULT = ReadSettings()


class ReadResult(NamedTuple):
    """Prompts, records that are none, and how many records each file held."""

    good: PCollection[Prompt]
    failures: PCollection[Failure]
    counts: PCollection[RecordCount]


class ReadPrompts(beam.PTransform):
    """Reads files record by record.

    Args:
        files: What to read.
        spread: On a cluster the prompts are grouped by id, which finds duplicates over all workers
            and spreads the work (a reader never does). On one machine the reader remembers the ids:
            a shuffle would hold everything in memory.
        settings: What becomes of records.
    """

    def __init__(
        self, files: tuple[InputFile, ...], *, spread: bool, settings: ReadSettings = DEFAULT
    ) -> None:
        super().__init__()
        self._files = files
        self._spread = spread
        self._settings = settings
        self._names = names_of(labels_of(files), by_content=settings.by_content)

    def expand(self, begin: PBegin) -> ReadResult:
        seen = None if self._spread else Seen(self._names)
        read = (
            begin
            | beam.Create(self._files)
            | beam.ParDo(_ReadFn(self._settings, seen))
            .with_output_types(Prompt, failed=Failure, counts=RecordCount)
            .with_outputs(FAILED, COUNTS, main=GOOD)
        )
        good, failures = read[GOOD], [read[FAILED]]
        if self._spread:
            for names in self._names:
                unique = good | f"Find {names.kind}" >> Deduplicate(names)
                good = unique.good
                failures.append(unique.failures)
        together = failures[0] if len(failures) == 1 else failures | beam.Flatten()
        return ReadResult(good, together, read[COUNTS])


def labels_of(files: Iterable[InputFile]) -> frozenset[str]:
    """The data sets whose name was given."""
    return frozenset(file.dataset for file in files if file.labelled)


def read_file(file: InputFile, settings: ReadSettings = DEFAULT) -> Iterator[Prompt | Failure]:
    """Every selected record of a file as its prompts, or a failure, with its place."""
    for record in file.selection.take(raw_records(file.path)):
        yield from read_raw(record, file, settings)


def raw_records(path: str) -> Iterator[RawRecord]:
    """A file's records, not yet understood."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as handle:
        yield from read_records(handle, path)


def parse(record: RawRecord) -> dict[str, Any]:
    """A record's keys; what a rejection holds is read as it was.

    Raises:
        RecordError: `MALFORMED_JSON`, `INVALID_PROMPT`, `UNREADABLE_FILE`.
    """
    if record.error is not None:
        raise record.error
    if record.is_text:
        return parse_text(record.data)
    parsed = parse_record(record.data)
    return parse_record(original_line(record.data)) if "rejection" in parsed else parsed


def lookup_beside(path: str) -> Lookup:
    """Finds files in the folder of a file."""

    def lookup(wanted: str) -> Iterator[bytes]:
        folder, name = FileSystems.split(path)
        beside = FileSystems.join(folder, wanted)
        if wanted != name and FileSystems.exists(beside):
            yield from (record.data for record in raw_records(beside) if record.error is None)

    return lookup


def read_raw(
    record: RawRecord, file: InputFile, settings: ReadSettings
) -> Iterator[Prompt | Failure]:
    """The prompts of a record, one a sample; or why there are none."""
    source = f"{file.path}:{record.place}" if record.place else file.path
    try:
        given = parse(record)
        beside = lookup_beside(file.path)
        read = read_prompt(
            given, source, file.dataset, settings.prompt_field, beside, which=settings.turns
        )
        is_one = is_one_sample(given)
    except RecordError as error:
        yield _failure(error, source, record)
        return
    for prompt in (read,) if is_one else samples(read, settings.samples):
        try:
            refuse_long(prompt, settings.profile, settings.max_tokens)
        except RecordError as error:
            yield from fail_each(prompt, Stage.READ, error)
        else:
            yield prompt


def _failure(error: RecordError, source: str, record: RawRecord) -> Failure:
    """`raw` keeps bytes that are not UTF-8 as lone surrogates, so that they can be had back."""
    raw = original_line(record.data)
    return Failure(
        id=hashlib.sha256(source.encode() + b"\n" + raw).hexdigest(),
        stage=Stage.READ,
        kind=error.kind,
        detail=error.detail,
        source=source,
        raw=None if record.error is not None else raw.decode(errors="surrogateescape"),
    )


class _ReadFn(beam.DoFn):
    """Reads a file; `seen`: remembers what was read, if nothing behind it does."""

    def __init__(self, settings: ReadSettings, seen: Seen | None) -> None:
        self._settings = settings
        self._seen = seen

    def process(self, file: InputFile) -> Iterator[Any]:
        rows = 0
        for read in read_file(file, self._settings):
            rows += len(row_ids(read)) if isinstance(read, Prompt) else 1
            for result in check_seen(self._seen, read):
                yield TaggedOutput(FAILED, result) if isinstance(result, Failure) else result
        yield TaggedOutput(COUNTS, RecordCount(file.path, rows))


def check_seen(seen: Seen | None, read: Prompt | Failure) -> Iterator[Prompt | Failure]:
    """What was read, or its failures if its like was read before."""
    if seen is not None and isinstance(read, Prompt):
        try:
            seen.check(read)
        except RecordError as error:
            yield from fail_each(read, Stage.READ, error)
            return
    yield read
