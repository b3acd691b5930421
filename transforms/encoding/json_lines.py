"""Samples as JSON lines: the columns and `loss_mask`, which SpecForge and speculators open."""

from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from transforms.encoding.loss_mask import Masking

_LINE_ENDS = {text.encode(): rf"\u{ord(text):04x}".encode() for text in "\x85\u2028\u2029"}
"""`str.splitlines`, by which NeMo Automodel reads, ends a line at each."""


class JsonRows:
    """Writes rows of `columns.to_columns` to an open file."""

    def __init__(self, file: BinaryIO, masking: Masking) -> None:
        self._file = file
        self._masking = masking

    def write(self, row: dict[str, Any]) -> None:
        ids = row["input_ids"]
        mask = self._masking(ids, row["prompt_length"])
        self._file.write(encode_line(row | {"input_ids": ids.tolist(), "loss_mask": mask.tolist()}))

    def close(self) -> None:
        """Nothing is held back: every line is whole in the file."""


def encode_line(row: dict[str, Any]) -> bytes:
    """One line, whatever reader splits it."""
    line = msgspec.json.encode(row)
    for text, escape in _LINE_ENDS.items():
        line = line.replace(text, escape)
    return line + b"\n"


def count_lines(path: Path) -> int:
    """Number of lines.

    Raises:
        ValueError: The last one is cut.
    """
    rows, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            rows += block.count(b"\n")
            last = block[-1:]
    if last != b"\n":
        raise ValueError(f"{path.name}: the last line is cut")
    return rows
