"""A file's bytes without its compression, and its lines: every byte kept."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from transforms.failures import FailureKind, RecordError

BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n"
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20


@contextmanager
def decompressed(file: BinaryIO) -> Iterator[BinaryIO]:
    """What the file holds: gzip is found by content, nested and in members.

    An archive is read to its end before anything of it is given: what does not match its checksum
    is not asked.

    Raises:
        RecordError: `UNREADABLE_FILE`, an archive that is cut or does not match its checksum.
    """
    try:
        content = _open(file)
        if content is not file:
            while content.read(_BLOCK):
                pass
            content.seek(0)
        yield content
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(f"cannot be read: {error}") from error


def read_lines(content: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1, and lines without their LF or CRLF; blank ones are passed over.

    Records end at LF alone: U+2028, a form feed or a single CR inside a text is text.
    """
    for number, line in enumerate(content, start=1):
        text = line.removeprefix(BOM) if number == 1 else line
        text = text.removesuffix(b"\n").removesuffix(b"\r")
        if text.strip(BLANK):
            yield number, text


def unreadable(detail: str) -> RecordError:
    """The failure of a whole file."""
    return RecordError(FailureKind.UNREADABLE_FILE, detail)


def _open(file: BinaryIO) -> BinaryIO:
    magic = file.read(2)
    file.seek(0)
    if magic != _GZIP:
        return file
    return _open(gzip.GzipFile(fileobj=file, mode="rb"))  # type: ignore[arg-type]
