"""WriteSamples, WriteRejections, and the two small side products of a run.

Every writer is `fileio.WriteToFiles` with a sink of ours, so that it runs inside the stage that
makes its records: a FileBasedSink waits for the whole stage before it, and cannot set what Parquet
is compressed with.
"""

import copy
import json
from typing import Any, BinaryIO

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.value_provider import StaticValueProvider
from apache_beam.pvalue import PCollection

from transforms.as_text import LEFT_OUT, AsTextFn
from transforms.chat.habits import Stratum
from transforms.chat.profile import ModelProfile
from transforms.chat.statistic import Statistic
from transforms.count_tokens import CountTokensFn
from transforms.counts import FailureCount, RecordCount
from transforms.encoding.columns import to_columns
from transforms.encoding.formats import FORMATS
from transforms.encoding.loss_mask import Masking
from transforms.encoding.rejection import encode_rejection
from transforms.failures import Failure
from transforms.records import Verdict

PART_BYTES = 512 * 1024**2
"""A part of the samples is closed at this size, give or take a row group."""
_OPEN_PARTS = 100_000
"""More than a bundle can fill: beyond it Beam would shuffle the rows."""


class WriteSamples(beam.PTransform):
    """Good samples in each format, as parts in its folder; and how often each id was sampled.

    A text format leaves out samples whose text would give other ids, and says so in `left_out`.
    """

    def __init__(
        self,
        folder: str,
        formats: tuple[str, ...],
        profile: ModelProfile,
        dialect: str = "exact",
        part_bytes: int = PART_BYTES,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._ids = tuple(name for name in formats if FORMATS[name].rows)
        self._texts = tuple(name for name in formats if FORMATS[name].text)
        self._profile = profile
        self._masking = Masking(dialect, thought_ids(profile))
        self._part_bytes = part_bytes

    def expand(self, verdicts: PCollection[Verdict]) -> None:
        rows = verdicts | beam.Map(to_columns).with_output_types(dict[str, Any])
        for name in self._ids:
            self._write(rows, name, _RowSink(FORMATS[name].rows, self._masking))
        vocabulary = self._profile.tokenizer.vocabulary
        counts = rows | beam.ParDo(CountTokensFn(vocabulary)).with_output_types(bytes)
        lines = _to_files(self._folder, "token_counts", "part", "jsonl", _line_sink)
        _ = counts | "TokenCounts" >> lines
        if self._texts:
            self._write_texts(verdicts)

    def _write_texts(self, verdicts: PCollection[Verdict]) -> None:
        split = verdicts | beam.ParDo(AsTextFn(self._profile, self._texts)).with_output_types(
            bytes, **dict.fromkeys((LEFT_OUT, *self._texts), bytes)
        ).with_outputs(LEFT_OUT, *self._texts)
        for name in self._texts:
            self._write(split[name], name, _LineSink())
        left = _to_files(self._folder, LEFT_OUT, "part", "jsonl", _line_sink)
        _ = split[LEFT_OUT] | "LeftOut" >> left

    def _write(self, rows: PCollection[Any], name: str, sink: fileio.FileSink) -> None:
        form = FORMATS[name]
        parts = _Parts(sink, self._part_bytes)
        _ = rows | f"As_{name}" >> fileio.WriteToFiles(
            f"{self._folder}/{form.folder}",
            destination=parts.number,
            file_naming=fileio.destination_prefix_naming(f".{form.suffix}"),
            temp_directory=StaticValueProvider(str, f"{self._folder}/.writing-{name}"),
            sink=parts.open,
            max_writers_per_bundle=_OPEN_PARTS,
        )


class WriteRejections(beam.PTransform):
    """Failures or bad verdicts as `FOLDER/rejections/part-NAME-*.jsonl`.

    Each kind has files of its own: to flatten them first would hold them all in memory locally.
    """

    def __init__(self, folder: str, name: str) -> None:
        super().__init__()
        self._folder = folder
        self._name = name

    def expand(self, rejected: PCollection[Failure | Verdict]) -> None:
        name = f"part-{self._name}"
        lines = rejected | beam.Map(encode_rejection).with_output_types(bytes)
        _ = lines | _to_files(self._folder, "rejections", name, "jsonl", _line_sink)


class WriteCounts(beam.PTransform):
    """How many rows each input must come to, as `FOLDER/counts/part-*.jsonl`."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, counts: PCollection[RecordCount]) -> None:
        lines = counts | beam.Map(_count_line).with_output_types(bytes)
        _ = lines | _to_files(self._folder, "counts", "part", "jsonl", _line_sink)


class WriteFailureCounts(beam.PTransform):
    """What prompts failed with in job 1, as `FOLDER/failed/part-*.jsonl`."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, counts: PCollection[FailureCount]) -> None:
        lines = counts | beam.Map(_failed_line).with_output_types(bytes)
        _ = lines | _to_files(self._folder, "failed", "part", "jsonl", _line_sink)


class WriteObserved(beam.PTransform):
    """What was seen of each provider, as `FOLDER/observed/part-*.jsonl`."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, observed: PCollection[tuple[Stratum, Statistic]]) -> None:
        lines = observed | beam.Map(_observed_line).with_output_types(bytes)
        _ = lines | _to_files(self._folder, "observed", "part", "jsonl", _line_sink)


def _to_files(folder: str, kind: str, name: str, suffix: str, sink: Any) -> fileio.WriteToFiles:
    return fileio.WriteToFiles(
        f"{folder}/{kind}",
        file_naming=fileio.default_file_naming(name, f".{suffix}"),
        temp_directory=StaticValueProvider(str, f"{folder}/.writing-{kind}-{name}-{suffix}"),
        sink=sink,
    )


class _Parts:
    """Where the next row of a bundle goes: to another part once one is full.

    Its two methods travel together, in one DoFn of WriteToFiles.
    """

    def __init__(self, sink: fileio.FileSink, part_bytes: int) -> None:
        self._sink = sink
        self._part_bytes = part_bytes
        self._full = 0

    def number(self, _row: Any) -> str:
        return f"part-{self._full:05}"

    def open(self, _number: str) -> "_PartSink":
        return _PartSink(self, copy.copy(self._sink))

    def close_if_full(self, size: int) -> bool:
        """Whether a part of so many bytes ends here."""
        is_full = size >= self._part_bytes
        self._full += is_full
        return is_full


class _PartSink(fileio.FileSink):
    """Ends a part at its size: it holds nothing until the bundle ends but an open file."""

    def __init__(self, parts: _Parts, sink: Any) -> None:
        self._parts = parts
        self._sink = sink
        self._is_open = True

    def open(self, file: BinaryIO) -> None:
        self._file = file
        self._sink.open(file)

    def write(self, row: Any) -> None:
        self._sink.write(row)
        if self._parts.close_if_full(self._file.tell()):
            self._sink.flush()
            self._is_open = False

    def flush(self) -> None:
        if self._is_open:
            self._sink.flush()


class _RowSink(fileio.FileSink):
    def __init__(self, rows: Any, masking: Masking) -> None:
        self._make = rows
        self._masking = masking

    def open(self, file: BinaryIO) -> None:
        self._rows = self._make(file, self._masking)

    def write(self, row: dict[str, Any]) -> None:
        self._rows.write(row)

    def flush(self) -> None:
        self._rows.close()


class _LineSink(fileio.FileSink):
    def open(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, line: bytes) -> None:
        self._file.write(line)

    def flush(self) -> None:
        """Every line is whole in the file."""


def _line_sink(_destination: Any) -> _LineSink:
    return _LineSink()


def thought_ids(profile: ModelProfile) -> frozenset[int]:
    """Ids of the markers around a thought."""
    marks = profile.answer.thought_begin, profile.answer.thought_end
    return frozenset(profile.special_tokens[mark] for mark in marks if mark)


def _count_line(count: RecordCount) -> bytes:
    return json.dumps({"path": count.path, "rows": count.rows}).encode() + b"\n"


def _failed_line(count: FailureCount) -> bytes:
    row = {"kind": count.kind, "count": count.count, "detail": count.detail}
    return json.dumps(row).encode() + b"\n"


def _observed_line(observed: tuple[Stratum, Statistic]) -> bytes:
    stratum, statistic = observed
    row = {"provider": stratum.provider, "model": stratum.model, "counts": statistic.counts}
    return json.dumps(row).encode() + b"\n"
