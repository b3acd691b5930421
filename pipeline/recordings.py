"""Files of recorded requests and answers -> pairs, each with its place."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.inputs import absolute
from transforms.failures import RecordError
from transforms.openrouter.importing import Refusal, RefusedError
from transforms.openrouter.recorded import (
    IS_EVENT,
    Halves,
    Placed,
    Recorded,
    join_chunks,
    read_recorded,
)
from transforms.prompts.files import RawRecord
from transforms.prompts.lines import BOM, decompressed, read_lines, unreadable
from transforms.read_prompts import parse, raw_records

Found = Recorded | RefusedError
"""What a record is, or why it cannot be imported."""


def read_pairs(files: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Every record of the files; the halves of a batch are joined by their names.

    The files are read twice, since the names are counted first. What waits for its other half is
    held: name the requests' file first.
    """
    paths = list(dict.fromkeys(map(absolute, files)))
    halves = Halves(found for _, found in _read_files(paths) if isinstance(found, Recorded))
    for place, found in _read_files(paths):
        if isinstance(found, RefusedError):
            yield place, found
            continue
        for where, pair in halves.join(place, found):
            twice = f"{found.name!r} comes twice; import each batch by itself"
            yield where, pair or RefusedError(Refusal.AMBIGUOUS_ID, twice)
    yield from halves.rest()


def _read_files(paths: Sequence[str]) -> Iterator[tuple[str, Found]]:
    return itertools.chain.from_iterable(map(_read_file, paths))


def _read_file(path: str) -> Iterator[tuple[str, Found]]:
    refused: list[tuple[str, Found]] = []
    for place, record in join_chunks(_objects(path, refused)):
        recorded = read_recorded(record)
        yield place, _with_tools(recorded, path) if recorded.tools_ref else recorded
    yield from refused


def _objects(path: str, refused: list[tuple[str, Found]]) -> Iterator[Placed]:
    """The JSON objects of a file, the events of a stream among them."""
    for record in _records(path):
        place = f"{path}:{record.place}" if record.place else path
        data = _DATA.sub(b"", record.data).strip() if record.is_text else record.data
        if record.is_text and (_NO_DATA.match(data) or not data):
            continue
        try:
            yield from _entries(place, parse(RawRecord(record.place, data, error=record.error)))
        except RecordError as error:
            refused.append((place, RefusedError(Refusal.UNREADABLE, error.detail)))


_DATA, _NO_DATA = re.compile(rb"\Adata:"), re.compile(rb"\[DONE\]\Z|(?:event|id|retry)?:")
_HEAD = 1 << 12


def _records(path: str) -> Iterator[RawRecord]:
    """A file's records; the lines of one that begins as a stream of events, whatever its name.

    What cannot be read is a record with its error.
    """
    try:
        with Path(path).open("rb") as file, decompressed(file) as content:
            head = content.read(_HEAD).removeprefix(BOM).decode("utf-8", "replace")
            content.seek(0)
            lines = read_lines(content) if IS_EVENT.match(head) else ()
            yield from (RawRecord(f"{number}", line, is_text=True) for number, line in lines)
        yield from () if lines else raw_records(path)
    except RecordError as error:
        yield RawRecord("", b"", error=error)
    except OSError as error:
        yield RawRecord("", b"", error=unreadable(f"cannot be read: {error}"))


def _entries(place: str, record: Mapping[str, Any]) -> Iterator[Placed]:
    """The record, or what a HAR file lists."""
    log = record.get("log")
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(entries, list) or not entries:
        yield place, record
        return
    for number, entry in enumerate(entries):
        yield f"{place}#{number}", entry if isinstance(entry, dict) else {}


def _with_tools(recorded: Recorded, path: str) -> Found:
    """With the tools that the record names, which stand in a file beside it."""
    for beside in sorted(Path(path).parent.glob("*tools*.json")):
        tools = _read_tools(beside).get(recorded.tools_ref)
        if isinstance(tools, list):
            return replace(recorded, request=(recorded.request or {}) | {"tools": tools})
    detail = f"its tools, {recorded.tools_ref!r}, are in no *tools*.json beside it"
    return RefusedError(Refusal.NOT_A_PROMPT, detail)


@lru_cache(maxsize=16)
def _read_tools(path: Path) -> dict[str | None, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
