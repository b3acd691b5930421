"""A file's records, whatever the file is called: its content decides what it is."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

from transforms.failures import RecordError
from transforms.prompts.documents import Value, read_values
from transforms.prompts.lines import BLANK, BOM, decompressed, read_lines, unreadable
from transforms.prompts.parquet import MAGIC, read_rows

_HEAD = 1 << 16
_UTF16_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_LFS = b"version https://git-lfs.github.com/spec/"
_JSON_NAMES = (".jsonl", ".json", ".ndjson", ".parquet")
_TEXT_NAMES = (".txt", ".text")
_TABLE_NAMES = (".csv", ".tsv")
# What only JSON starts with: an object, an array of objects or texts, a bracket on its own line.
_STARTS_JSON = re.compile(rb'(?:\[\s*)?\{\s*["}]|[\[{][ \t\r]*(?:\n|\Z)|\[\s*["\[\]]')
_JOINED = re.compile(rb"\}\s*\{")


class FileKind(StrEnum):
    """How a file holds its records."""

    LINES = "JSON lines"
    DOCUMENT = "JSON"
    TEXT = "text lines"
    PARQUET = "Parquet"


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record's bytes.

    Attributes:
        place: Line or row from 1; `line:column` if another record starts on the line before it.
        is_text: The bytes are a prompt's text, not JSON.
        error: Stands for a file, or the rest of it, that cannot be read; it has no bytes.
    """

    place: str
    data: bytes
    is_text: bool = False
    error: RecordError | None = None


def read_records(file: BinaryIO, name: str) -> Iterator[RawRecord]:
    """Every record in order; the name only tells text from what is no data at all.

    What cannot be read is the last record, with its error (`UNREADABLE_FILE`).
    """
    try:
        with decompressed(file) as content:
            head = content.read(_HEAD)
            content.seek(0)
            yield from _READERS[find_kind(head, name)](content)
    except RecordError as error:
        yield RawRecord("", b"", error=error)


def find_kind(head: bytes, name: str) -> FileKind:
    """What a file is by its first bytes.

    Raises:
        RecordError: `UNREADABLE_FILE`, with what it is instead.
    """
    if head.startswith(MAGIC):
        return FileKind.PARQUET
    if head.startswith(_LFS):
        raise unreadable("a Git LFS pointer, not the data: fetch it with `git lfs pull`")
    if head.startswith(_UTF16_32):
        raise unreadable("UTF-16 or UTF-32; only UTF-8 is read: convert it")
    text = head.removeprefix(BOM).lstrip(BLANK)
    stem = name.lower().removesuffix(".gz")
    if _is_json(text, stem):
        return _kind_of_json(text)
    if not text or stem.endswith(_TEXT_NAMES):
        return FileKind.TEXT
    if stem.endswith(_TABLE_NAMES):
        raise unreadable("CSV, not JSON or Parquet: which column is the prompt is unknown")
    raise unreadable(
        f"neither JSON nor Parquet (it starts with {text[:20].decode(errors='replace')!r}); "
        "prompts as text, one a line, are read from .txt files"
    )


def _is_json(text: bytes, stem: str) -> bool:
    named = bool(text) and stem.endswith(_JSON_NAMES)
    first = text.partition(b"\n")[0]
    begins = _STARTS_JSON.match(text) is not None and not stem.endswith(_TEXT_NAMES)
    bare = first.strip(BLANK) in {b"[", b"{", b"[{"}
    return named or begins or bare or (text[:1] in b'[{"' and _parses(first))


def _kind_of_json(text: bytes) -> FileKind:
    """A document if its first line is only the start of a value."""
    first, _, rest = text.partition(b"\n")
    following = rest.lstrip(BLANK)
    if text[:1] == b"[":
        is_line = bool(following) and _parses(first)
    else:
        is_line = text[:1] != b"{" or following[:1] in {b"", b"{"} or _parses(first)
    return FileKind.LINES if is_line else FileKind.DOCUMENT


def _parses(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read_json_lines(content: BinaryIO) -> Iterator[RawRecord]:
    for number, line in read_lines(content):
        if _JOINED.search(line):
            yield from _split(number, line)
        else:
            yield RawRecord(f"{number}", line)


def _split(number: int, line: bytes) -> Iterator[RawRecord]:
    """The values of a line, if it is nothing but objects one after the other."""
    values = _values_of(line)
    if all(value.data.startswith(b"{") for value in values):
        for index, value in enumerate(values):
            place = f"{number}:{value.column}" if index else f"{number}"
            yield RawRecord(place, value.data)
    else:
        yield RawRecord(f"{number}", line)


def _values_of(line: bytes) -> list[Value]:
    if line.lstrip(BLANK).startswith(b"["):
        return [Value(1, 1, line)]
    return list(read_values(io.BytesIO(line)))


def _read_document(content: BinaryIO) -> Iterator[RawRecord]:
    before = 0
    for value in read_values(content):
        place = f"{value.line}:{value.column}" if value.line == before else f"{value.line}"
        yield RawRecord(place, value.data)
        before = value.line


def _read_text_lines(content: BinaryIO) -> Iterator[RawRecord]:
    for number, line in read_lines(content):
        yield RawRecord(f"{number}", line, is_text=True)


def _read_parquet(content: BinaryIO) -> Iterator[RawRecord]:
    for number, row in enumerate(read_rows(content), start=1):
        yield RawRecord(f"{number}", row)


_READERS = {
    FileKind.LINES: _read_json_lines,
    FileKind.DOCUMENT: _read_document,
    FileKind.TEXT: _read_text_lines,
    FileKind.PARQUET: _read_parquet,
}
