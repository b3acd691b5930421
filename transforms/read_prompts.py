"""ReadPrompts: files -> prompts, each id once; what is no prompt becomes a failure."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PBegin, PCollection, TaggedOutput

from transforms.chat.profile import ModelProfile
from transforms.chat.render import render_prompt
from transforms.failures import Failure, FailureKind, RecordError, Stage, fail
from transforms.outcome import FAILED, GOOD
from transforms.prompts.bfcl import Lookup
from transforms.prompts.duplicates import Seen, content_key, id_key, read_before
from transforms.prompts.files import RawRecord, read_records
from transforms.prompts.selection import EVERYTHING, Selection
from transforms.prompts.shapes import original_line, parse_record, parse_text, read_prompt
from transforms.records import Prompt, RecordCount

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
    """

    prompt_field: str | None = None
    by_content: bool = False
    max_tokens: int | None = None
    profile: ModelProfile | None = None


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
        self._labels = labels_of(files)

    def expand(self, begin: PBegin) -> ReadResult:
        seen = None if self._spread else Seen(self._labels, by_content=self._settings.by_content)
        read = (
            begin
            | beam.Create(self._files)
            | beam.ParDo(_ReadFn(self._settings, seen))
            .with_output_types(Prompt, failed=Failure, counts=RecordCount)
            .with_outputs(FAILED, COUNTS, main=GOOD)
        )
        good, failures = read[GOOD], [read[FAILED]]
        if self._spread:
            keys: dict[FailureKind, Callable[[Prompt], str]]
            keys = {FailureKind.DUPLICATE_ID: partial(id_key, labels=self._labels)}
            if self._settings.by_content:
                keys[FailureKind.DUPLICATE_PROMPT] = content_key
            for kind, key in keys.items():
                unique = good | f"Find {kind}" >> _OneOfEach(key, kind)
                good = unique[GOOD]
                failures.append(unique[FAILED])
        together = failures[0] if len(failures) == 1 else failures | beam.Flatten()
        return ReadResult(good, together, read[COUNTS])


def labels_of(files: Iterable[InputFile]) -> frozenset[str]:
    """The data sets whose name was given."""
    return frozenset(file.dataset for file in files if file.labelled)


def read_file(file: InputFile, settings: ReadSettings = DEFAULT) -> Iterator[Prompt | Failure]:
    """Every selected record of a file as a prompt or a failure with its place."""
    for record in file.selection.take(raw_records(file.path)):
        source = f"{file.path}:{record.place}" if record.place else file.path
        yield _read_record(record, source, file, settings)


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
    folder, name = FileSystems.split(path)

    def lookup(wanted: str) -> Iterator[bytes]:
        beside = FileSystems.join(folder, wanted)
        if wanted != name and FileSystems.exists(beside):
            yield from (record.data for record in raw_records(beside) if record.error is None)

    return lookup


def _read_record(
    record: RawRecord, source: str, file: InputFile, settings: ReadSettings
) -> Prompt | Failure:
    try:
        read = read_prompt(
            parse(record), source, file.dataset, settings.prompt_field, lookup_beside(file.path)
        )
    except RecordError as error:
        return _failure(error, source, record)
    try:
        _refuse_long(read, settings)
    except RecordError as error:
        return fail(read, Stage.READ, error)
    return read


def _refuse_long(prompt: Prompt, settings: ReadSettings) -> None:
    """Counts tokens as the model will see them, if there is a bound."""
    if settings.max_tokens is None or settings.profile is None:
        return
    try:
        tokens = len(render_prompt(prompt, settings.profile))
    except RecordError:
        return  # what cannot be rendered is refused where it would be asked
    if tokens > settings.max_tokens:
        detail = f"{tokens} tokens, --max_prompt_tokens is {settings.max_tokens}"
        raise RecordError(FailureKind.PROMPT_TOO_LONG, detail)


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
        records = 0
        for read in read_file(file, self._settings):
            records += 1
            result = _check(self._seen, read)
            yield TaggedOutput(FAILED, result) if isinstance(result, Failure) else result
        yield TaggedOutput(COUNTS, RecordCount(file.path, records))


def _check(seen: Seen | None, read: Prompt | Failure) -> Prompt | Failure:
    if seen is not None and isinstance(read, Prompt):
        try:
            seen.check(read)
        except RecordError as error:
            return fail(read, Stage.READ, error)
    return read


class _OneOfEach(beam.PTransform):
    """The first prompt of each key over all workers; the others are duplicates."""

    def __init__(self, key: Callable[[Prompt], str], kind: FailureKind) -> None:
        super().__init__()
        self._key = key
        self._kind = kind

    def expand(self, prompts: PCollection[Prompt]) -> Any:
        return (
            prompts
            | beam.WithKeys(self._key).with_output_types(tuple[str, Prompt])
            | beam.GroupByKey()
            | beam.ParDo(_FirstOfGroupFn(self._kind))
            .with_output_types(Prompt, failed=Failure)
            .with_outputs(FAILED, main=GOOD)
        )


_PLACE = re.compile(r"(.*?):(\d+)(?::(\d+))?", re.DOTALL)


def _place(prompt: Prompt) -> tuple[str, int, int]:
    """Path, line and column."""
    found = _PLACE.fullmatch(prompt.source)
    return (found[1], int(found[2]), int(found[3] or 0)) if found else (prompt.source, 0, 0)


class _FirstOfGroupFn(beam.DoFn):
    def __init__(self, kind: FailureKind) -> None:
        self._kind = kind

    def process(self, group: tuple[str, Iterable[Prompt]]) -> Iterator[Any]:
        first, *others = sorted(group[1], key=_place)
        yield first
        for prompt in others:
            error = read_before(self._kind, first.source)
            yield TaggedOutput(FAILED, fail(prompt, Stage.READ, error))
