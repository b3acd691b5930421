"""Samples as a folder that `datasets.load_from_disk` opens, as speculators' trainer reads it."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from transforms.encoding.columns import flat_lists
from transforms.encoding.loss_mask import Masking

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("dataset", pa.string()),
        pa.field("input_ids", pa.list_(pa.int64())),
        pa.field("loss_mask", pa.list_(pa.int64())),
        pa.field("seq_len", pa.int64()),
        pa.field("prompt_length", pa.int64()),
    ]
)
_BATCH_IDS = 500_000
"""Ids a record batch: 8 MB, as a trainer maps the file into memory."""


class ArrowRows:
    """Writes rows of `columns.to_columns` to an open file, a record batch at a time."""

    def __init__(self, file: BinaryIO, masking: Masking) -> None:
        self._writer = pa.ipc.new_stream(file, _SCHEMA)
        self._masking = masking
        self._rows: list[dict[str, Any]] = []
        self._ids = 0

    def write(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._ids += len(row["input_ids"])
        if self._ids >= _BATCH_IDS:
            self._write_batch()

    def close(self) -> None:
        """Writes what is left and the end of the stream; the file itself stays open."""
        if self._rows:
            self._write_batch()
        self._writer.close()

    def _write_batch(self) -> None:
        ids = [row["input_ids"] for row in self._rows]
        lengths = [row["prompt_length"] for row in self._rows]
        masks = [self._masking(*pair) for pair in zip(ids, lengths, strict=True)]
        columns = [
            pa.array([row["id"] for row in self._rows]),
            pa.array([row["dataset"] for row in self._rows]),
            flat_lists(ids, np.int64),
            flat_lists(masks, np.int64),
            pa.array([len(row) for row in ids], pa.int64()),
            pa.array(lengths, pa.int64()),
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self._rows, self._ids = [], 0


def count_arrow(path: Path) -> int:
    """Number of rows.

    Raises:
        ValueError: The file is cut.
    """
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as batches:
            return sum(batch.num_rows for batch in batches)
    except OSError as error:
        raise ValueError(f"{path.name}: {error}") from error


def describe_arrow(folder: Path, parts: Iterable[Path]) -> None:
    """Writes what `load_from_disk` reads first; rows come out as torch tensors."""
    names = [path.name for path in parts]
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": hashlib.sha256("".join(names).encode()).hexdigest()[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": "torch",
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "state.json").write_text(json.dumps(state, indent=2), "utf-8")
    (folder / "dataset_info.json").write_text("{}", "utf-8")
