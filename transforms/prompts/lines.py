"""A file's records: one line each, gzip found by content, every byte kept."""

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from transforms.failures import FailureKind, RecordError

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1, and lines without their LF or CRLF; blank ones are passed over.

    Records end at LF alone: U+2028, a form feed or a single CR inside a text is text.

    An archive is read to its end before its first line is given: what does not match its checksum
    is not asked.

    Raises:
        RecordError: `UNREADABLE_FILE`, an archive that is cut or does not match its checksum.
    """
    try:
        _verify(file)
        for number, line in enumerate(_decompressed(file), start=1):
            text = line.removeprefix(_BOM) if number == 1 else line
            text = text.removesuffix(b"\n").removesuffix(b"\r")
            if text.strip():
                yield number, text
    except (OSError, EOFError, zlib.error) as error:
        raise RecordError(FailureKind.UNREADABLE_FILE, f"cannot be read: {error}") from error


def _verify(file: BinaryIO) -> None:
    reader = _decompressed(file)
    if reader is not file:
        while reader.read(_BLOCK):
            pass
        file.seek(0)


def _decompressed(file: BinaryIO) -> BinaryIO:
    magic = file.read(2)
    file.seek(0)
    if magic != _GZIP:
        return file
    return _decompressed(gzip.GzipFile(fileobj=file, mode="rb"))  # type: ignore[arg-type]
