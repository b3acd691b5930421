"""Reads a finished output back: samples with all columns, rejections as they were written."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from transforms.encoding.formats import FORMATS
from transforms.encoding.tfrecord import decode_example, read_records


def read_samples(folder: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Rows of `FOLDER/samples`, from Parquet where there is any, else TFRecord, else JSON."""
    if parquet := FORMATS["parquet"].parts(folder):
        for path in parquet:
            for batch in pq.ParquetFile(path).iter_batches(1024, columns=columns):
                yield from batch.to_pylist()
    elif tfrecord := FORMATS["tfrecord"].parts(folder):
        for path in tfrecord:
            with path.open("rb") as file:
                yield from map(decode_example, read_records(file))
    else:
        yield from read_json_lines(folder / "samples")


def read_json_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Objects of `FOLDER/part-*.jsonl`."""
    for path in sorted(folder.glob("part-*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                yield json.loads(line)  # its lone surrogates stand for bytes that were not UTF-8
