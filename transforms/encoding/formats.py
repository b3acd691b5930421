"""What samples can be written as: a format is an entry of a table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from transforms.encoding.arrow import ArrowRows, count_arrow, describe_arrow
from transforms.encoding.json_lines import JsonRows, count_lines
from transforms.encoding.loss_mask import Masking
from transforms.encoding.parquet import ParquetRows, count_parquet
from transforms.encoding.texts import (
    MARKED_PASSTHROUGH,
    PASSTHROUGH,
    TORCHSPEC_MARKERS,
    TextRow,
    to_messages,
    to_specforge,
    to_torchspec,
)
from transforms.encoding.tfrecord import TFRecordRows, count_records


class Rows(Protocol):
    """An open part of a format that holds ids."""

    def write(self, row: dict[str, Any]) -> None:
        """Takes a row of `columns.to_columns`."""

    def close(self) -> None:
        """Writes what is left; the file stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format.

    Attributes:
        folder: Of its parts, in the output.
        suffix: Of their names.
        count: Rows of a part; raises ValueError for a cut one.
        rows: Writes it, if it holds ids.
        text: Its line of JSON, if it holds text; `None`: this trainer cannot be given the row.
        describe: Writes what lies beside the parts.
        needs: Special tokens of a model that it can be written for.
        loads: How a person opens it.
    """

    folder: str
    suffix: str
    count: Callable[[Path], int]
    rows: Callable[[BinaryIO, Masking], Rows] | None = None
    text: Callable[[TextRow], dict[str, Any] | None] | None = None
    describe: Callable[[Path, list[Path]], None] | None = None
    needs: frozenset[str] = frozenset()
    loads: str

    def parts(self, output: Path) -> list[Path]:
        """Its files in an output, in order."""
        return sorted((output / self.folder).glob(f"part-*.{self.suffix}"))


def _write_passthrough(folder: Path, _parts: list[Path]) -> None:
    (folder / "chat_template.jinja").write_text(PASSTHROUGH, "utf-8")
    (folder / "chat_template_generation.jinja").write_text(MARKED_PASSTHROUGH, "utf-8")


FORMATS: Mapping[str, Format] = {
    "parquet": Format(
        folder="samples",
        suffix="parquet",
        count=count_parquet,
        rows=ParquetRows,
        loads="`datasets`, pyarrow: all columns",
    ),
    "tfrecord": Format(
        folder="samples",
        suffix="tfrecord",
        count=count_records,
        rows=TFRecordRows,
        loads="`tf.data`: all columns as features of `tf.train.Example`",
    ),
    "jsonl": Format(
        folder="samples",
        suffix="jsonl",
        count=count_lines,
        rows=JsonRows,
        loads="SpecForge `data.prompts_path`, `speculators prepare-data --data`",
    ),
    "arrow": Format(
        folder="arrow",
        suffix="arrow",
        count=count_arrow,
        rows=ArrowRows,
        describe=describe_arrow,
        loads="speculators' trainer, `datasets.load_from_disk`",
    ),
    "specforge_text": Format(
        folder="specforge_text",
        suffix="jsonl",
        count=count_lines,
        text=to_specforge,
        loads="SpecForge with `data.is_preformatted`, last turn only",
    ),
    "torchspec": Format(
        folder="torchspec",
        suffix="jsonl",
        count=count_lines,
        text=to_torchspec,
        needs=TORCHSPEC_MARKERS,
        loads="TorchSpec's Kimi-K2.5 parser, last turn only",
    ),
    "messages": Format(
        folder="messages",
        suffix="jsonl",
        count=count_lines,
        text=to_messages,
        describe=_write_passthrough,
        loads="NeMo Automodel, Model-Optimizer, with a chat template beside it",
    ),
}
SELF_TOLD = ("parquet", "tfrecord", "jsonl")
"""Formats that hold every column of a sample: an output needs one of them."""
