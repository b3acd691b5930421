"""Files of recorded requests and answers -> pairs, each with its place."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.inputs import absolute
from transforms.failures import RecordError
from transforms.openrouter.importing import Refusal, RefusedError
from transforms.openrouter.recorded import Halves, Placed, Recorded, join_chunks, read_recorded
from transforms.prompts.files import RawRecord
from transforms.read_prompts import parse, raw_records

Found = Recorded | RefusedError
"""What a record is, or why it cannot be imported."""


def read_pairs(files: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Every record of the files; the halves of a batch are joined by their names.

    What waits for its other half is held: name the requests' file first.
    """
    halves = Halves()
    for place, found in itertools.chain.from_iterable(map(_read_file, files)):
        if isinstance(found, RefusedError):
            yield place, found
            continue
        for where, pair in halves.join(place, found):
            twice = f"{found.name!r} comes twice; import each batch by itself"
            yield where, pair or RefusedError(Refusal.AMBIGUOUS_ID, twice)
    yield from halves.rest()


def _read_file(file: str) -> Iterator[tuple[str, Found]]:
    refused: list[tuple[str, Found]] = []
    for place, record in join_chunks(_objects(file, refused)):
        recorded = read_recorded(record)
        yield place, _with_tools(recorded, file) if recorded.tools_ref else recorded
    yield from refused


def _objects(file: str, refused: list[tuple[str, Found]]) -> Iterator[Placed]:
    """The JSON objects of a file, the events of a stream among them."""
    for record in raw_records(absolute(file)):
        place = f"{file}:{record.place}" if record.place else file
        data = record.data.removeprefix(b"data:").strip() if record.is_text else record.data
        if record.is_text and (not data or data == b"[DONE]" or data.startswith(b":")):
            continue
        try:
            yield place, parse(RawRecord(record.place, data, error=record.error))
        except RecordError as error:
            refused.append((place, RefusedError(Refusal.UNREADABLE, error.detail)))


def _with_tools(recorded: Recorded, file: str) -> Found:
    """With the tools that the record names, which stand in a file beside it."""
    for path in sorted(Path(absolute(file)).parent.glob("*tools*.json")):
        tools = _read_tools(path).get(recorded.tools_ref)
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
