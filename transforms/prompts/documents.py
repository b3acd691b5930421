"""JSON that is not one value a line: arrays, values over many lines or with nothing between.

Only strings and brackets are looked at, so that a value that is not JSON does not lose the next.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from transforms.prompts.lines import BLANK, BOM, unreadable

_BLOCK = 1 << 20
# The last alternative is a string that goes on in the next block.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]|"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Value:
    """A value's bytes, and where it starts: line and column (in bytes) from 1."""

    line: int
    column: int
    data: bytes


def read_values(content: BinaryIO) -> Iterator[Value]:
    """The items of a file that is one array, else its values one after the other.

    Memory holds the longest value and a block of 1 MiB.

    Raises:
        RecordError: `UNREADABLE_FILE`, an array that is not closed.
    """
    scanner = _Scanner()
    while block := content.read(max(_BLOCK, len(scanner.buffer))):
        yield from scanner.feed(block)
    yield from scanner.end()


class _Scanner:
    """Finds where values end; `base` is the depth at which they stand: 1 in an array."""

    def __init__(self) -> None:
        self.buffer = b""
        self._at = 0  # up to here the buffer is understood
        self._start = 0  # of what is not yet given
        self._depth = self._base = 0
        self._is_new = True
        self._line, self._column, self._counted = 1, 1, 0

    def feed(self, block: bytes) -> Iterator[Value]:
        self.buffer += block
        if self._is_new and self.buffer.startswith(BOM):
            self.buffer = self.buffer[len(BOM) :]
        for token in _TOKEN.finditer(self.buffer, self._at):
            if token[0] == b'"':
                self._at = token.start()
                break
            self._at = token.end()
            yield from self._take(token[0], token.start(), token.end())
        self._move_to(self._start)
        self.buffer = self.buffer[self._start :]
        self._at -= self._start
        self._counted = self._start = 0

    def end(self) -> Iterator[Value]:
        rest = list(self._give(len(self.buffer)))
        yield from rest
        if self._base and not rest:
            raise unreadable("its JSON array is not closed: the file is cut")

    def _take(self, token: bytes, start: int, end: int) -> Iterator[Value]:
        if token in {b"[", b"{"}:
            if self._is_new and token == b"[" and not self.buffer[:start].strip(BLANK):
                self._base = self._depth = 1
                self._start = end
            else:
                if self._depth == self._base:
                    yield from self._give(start)
                self._depth += 1
            self._is_new = False
        elif token in {b"]", b"}"}:
            yield from self._close(start, end)
        elif token == b"," and self._depth == self._base:
            yield from self._give(start)
            self._start = end

    def _close(self, start: int, end: int) -> Iterator[Value]:
        if self._depth > self._base:
            self._depth -= 1
            if self._depth == self._base:
                yield from self._give(end)
        elif self._base:  # the end of the array
            yield from self._give(start)
            self._base = self._depth = 0
            self._start = end

    def _give(self, end: int) -> Iterator[Value]:
        raw = self.buffer[self._start : end]
        if data := raw.strip(BLANK):
            self._move_to(self._start + len(raw) - len(raw.lstrip(BLANK)))
            yield Value(self._line, self._column, data)
        self._start = end

    def _move_to(self, end: int) -> None:
        newlines = self.buffer.count(b"\n", self._counted, end)
        self._line += newlines
        if newlines:
            self._column = end - self.buffer.rfind(b"\n", self._counted, end)
        else:
            self._column += end - self._counted
        self._counted = end
