"""Samples as Parquet: zstd-1, ids as list<int32> without a dictionary (1.44 bytes an id)."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.encoding.columns import SCHEMA, flat_lists
from transforms.encoding.loss_mask import Masking

_GROUP_IDS = 4_000_000
"""Ids a row group: 16 MB in memory, and far below the 2^31 that offsets can count."""
_REPEATED = ["dataset", "model", "provider", "profile", "verdict", "evidence", "finish_reason"]
"""Columns of few values; a dictionary costs the ids 15 % in size and gains nothing there."""


class ParquetRows:
    """Writes rows of `columns.to_columns` to an open file, a row group at a time."""

    def __init__(self, file: BinaryIO, _masking: Masking) -> None:
        self._writer = pq.ParquetWriter(
            file, SCHEMA, compression="zstd", compression_level=1, use_dictionary=_REPEATED
        )
        self._rows: list[dict[str, Any]] = []
        self._ids = 0

    def write(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._ids += len(row["input_ids"])
        if self._ids >= _GROUP_IDS:
            self._write_group()

    def close(self) -> None:
        """Writes what is left and the footer; the file itself stays open."""
        if self._rows:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        arrays = [
            flat_lists([row["input_ids"] for row in self._rows], np.int32)
            if field.name == "input_ids"
            else pa.array([row[field.name] for row in self._rows], field.type)
            for field in SCHEMA
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))
        self._rows, self._ids = [], 0


def count_parquet(path: Path) -> int:
    """Number of rows, by the footer.

    Raises:
        ValueError: The file is cut.
    """
    rows: int = pq.read_metadata(path).num_rows
    return rows
