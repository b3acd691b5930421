"""Samples as TFRecord files of `tf.train.Example`, without TensorFlow.

A feature that has no value is an empty list: `tf.data` reads it as its default, or as missing.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import pyarrow as pa
from tfrecord.example_pb2 import Example

from transforms.encoding.columns import SCHEMA
from transforms.encoding.loss_mask import Masking

_MASK_DELTA = 0xA282EAD8


class TFRecordRows:
    """Writes rows of `columns.to_columns` to an open file."""

    def __init__(self, file: BinaryIO, _masking: Masking) -> None:
        self._file = file

    def write(self, row: dict[str, Any]) -> None:
        self._file.write(frame(encode_example(row)))

    def close(self) -> None:
        """Nothing is held back: every row is whole in the file."""


def encode_example(row: dict[str, Any]) -> bytes:
    """A row as one Example: int64, float or bytes lists by the columns' types."""
    example = Example()
    for field in SCHEMA:
        feature = example.features.feature[field.name]
        value = row[field.name]
        many = pa.types.is_list(field.type)
        values = list(value) if many else [] if value is None else [value]
        kind = field.type.value_type if many else field.type
        if pa.types.is_integer(kind):
            feature.int64_list.value.extend(values)
        elif pa.types.is_floating(kind):
            feature.float_list.value.extend(values)
        else:
            feature.bytes_list.value.extend(text.encode() for text in values)
    return bytes(example.SerializeToString())


def decode_example(record: bytes) -> dict[str, Any]:
    """What `encode_example` wrote: lists as lists, a missing value as `None`."""
    features = Example.FromString(record).features.feature
    row: dict[str, Any] = {}
    for field in SCHEMA:
        feature = features[field.name]
        values = list(getattr(feature, feature.WhichOneof("kind") or "bytes_list").value)
        plain = [value.decode() if isinstance(value, bytes) else value for value in values]
        many = pa.types.is_list(field.type)
        row[field.name] = plain if many else next(iter(plain), None)
    return row


def frame(record: bytes) -> bytes:
    """Length, its masked CRC-32C, the record, its masked CRC-32C."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, _masked_crc(length), record, _masked_crc(record)))


def count_records(path: Path) -> int:
    """Number of whole records, every checksum verified.

    Raises:
        ValueError: A record is cut or damaged.
    """
    with path.open("rb") as file:
        return sum(1 for _ in read_records(file))


def read_records(file: BinaryIO) -> Iterator[bytes]:
    """The records of a file.

    Raises:
        ValueError: A record is cut or damaged.
    """
    while head := file.read(12):
        length = head[:8]
        size = struct.unpack("<Q", length)[0] if len(head) == 12 else 0  # noqa: PLR2004
        record = file.read(size)
        if head[8:] != _masked_crc(length) or file.read(4) != _masked_crc(record):
            raise ValueError("a TFRecord is cut or damaged")
        yield record


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)
