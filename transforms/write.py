"""WriteSamples, WriteRejections, and the two small side products of a run.

Every writer is `fileio.WriteToFiles` with a sink of ours, so that it runs inside the stage that
makes its records: a FileBasedSink waits for the whole stage before it, and cannot set what Parquet
is compressed with.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.value_provider import StaticValueProvider
from apache_beam.pvalue import PCollection

from transforms.chat.habits import Stratum
from transforms.chat.statistic import Statistic
from transforms.encoding.columns import to_columns
from transforms.encoding.parquet import ParquetRows
from transforms.encoding.rejection import encode_rejection
from transforms.encoding.tfrecord import TFRecordRows
from transforms.failures import Failure
from transforms.records import FailureCount, RecordCount, Verdict

_ROWS: Mapping[str, Callable[[BinaryIO], Any]] = {"parquet": ParquetRows, "tfrecord": TFRecordRows}
"""What a sample can be written as."""

FORMATS = tuple(_ROWS)


class WriteSamples(beam.PTransform):
    """Good samples, in each format, as `FOLDER/samples/part-*`."""

    def __init__(self, folder: str, formats: tuple[str, ...]) -> None:
        super().__init__()
        self._folder = folder
        self._formats = formats

    def expand(self, verdicts: PCollection[Verdict]) -> None:
        for name in self._formats:
            sink = _SampleSink.of(name)
            _ = verdicts | f"As_{name}" >> _to_files(self._folder, "samples", "part", name, sink)


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
    """How many records each input held, as `FOLDER/counts/part-*.jsonl`."""

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


class _SampleSink(fileio.FileSink):
    def __init__(self, rows: Callable[[BinaryIO], Any]) -> None:
        self._make = rows

    @classmethod
    def of(cls, name: str) -> Callable[[Any], "_SampleSink"]:
        """A maker of sinks: WriteToFiles makes instances anew, without arguments."""
        return lambda _destination: cls(_ROWS[name])

    def open(self, file: BinaryIO) -> None:
        self._rows = self._make(file)

    def write(self, verdict: Verdict) -> None:
        self._rows.write(to_columns(verdict))

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


def _count_line(count: RecordCount) -> bytes:
    return json.dumps({"path": count.path, "records": count.records}).encode() + b"\n"


def _failed_line(count: FailureCount) -> bytes:
    row = {"kind": count.kind, "count": count.count, "detail": count.detail}
    return json.dumps(row).encode() + b"\n"


def _observed_line(observed: tuple[Stratum, Statistic]) -> bytes:
    stratum, statistic = observed
    row = {"provider": stratum.provider, "model": stratum.model, "counts": statistic.counts}
    return json.dumps(row).encode() + b"\n"
