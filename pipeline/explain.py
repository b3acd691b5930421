"""`--explain_input`: how the first record of each file is read. Asks nothing, writes nothing."""

import os
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.options import RunConfig
from transforms.failures import RecordError
from transforms.prompts.shapes import Reading, read_record
from transforms.read_prompts import InputFile, lookup_beside, parse, raw_records

_COLUMNS = ("file", "place", "shape", "id", "messages", "answered after", "tools", "remark")
_WIDTH, _CELL, _REMARK = 1000, 24, 120
"""Characters: of a line (a terminal wraps it), of a cell, of what is remarked."""


@dataclass(frozen=True, slots=True)
class _Explained:
    """The first record of a file; `reading` `None`: it is refused, `remark` says why."""

    place: str
    reading: Reading | None
    remark: str


def explain_input(config: RunConfig) -> int:
    """Prints a table, a line a file; messages by the first letters of their roles."""
    table = Table(*_COLUMNS, box=None, pad_edge=False)
    paths = [file.path for file in config.files]
    above = len(os.path.commonpath(paths)) + 1 if len(paths) > 1 else 0
    for file in config.files:
        explained = _explain(file, config)
        cells = [file.path[above:], *_cells(explained)]
        table.add_row(*(Text(cell, no_wrap=True) for cell in cells))
    Console(width=_WIDTH, soft_wrap=True, highlight=False).print(table)
    return 0


def _explain(file: InputFile, config: RunConfig) -> _Explained:
    record = next(iter(raw_records(file.path)), None)
    if record is None:
        return _Explained("", None, "no record")
    try:
        reading = read_record(
            parse(record), config.reading.prompt_field, lookup_beside(file.path),
            which=config.reading.turns,
        )  # fmt: skip
    except RecordError as error:
        return _Explained(record.place, None, f"{error.kind}: {error.detail}")
    asked = replace(reading, after=reading.asked_after(config.reading.turns))
    return _Explained(record.place, asked, reading.note)


def _cells(explained: _Explained) -> list[str]:
    reading = explained.reading
    read = ["refused", "", "", "", ""]
    if reading is not None:
        letters = "".join(message.role.value[0] for message in reading.messages)
        turns = ",".join(map(str, reading.after))
        tools = f"{len(reading.tools)}"
        read = [reading.shape, _short(reading.id), _short(letters), _short(turns), tools]
    return [explained.place, *read, explained.remark.replace("\n", " ")[:_REMARK]]


def _short(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"
