"""Reads a finished output back: samples of either format, rejections as they were written."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from transforms.encoding.tfrecord import decode_example, read_records


def read_samples(folder: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Rows of `FOLDER/samples`, from Parquet where there is any, else from TFRecord."""
    parquet = sorted((folder / "samples").glob("part-*.parquet"))
    for path in parquet:
        for batch in pq.ParquetFile(path).iter_batches(1024, columns=columns):
            yield from batch.to_pylist()
    if not parquet:
        for path in sorted((folder / "samples").glob("part-*.tfrecord")):
            with path.open("rb") as file:
                yield from map(decode_example, read_records(file))


def read_json_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Objects of `FOLDER/part-*.jsonl`."""
    for path in sorted(folder.glob("part-*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                yield json.loads(line)  # its lone surrogates stand for bytes that were not UTF-8
