"""What goes over the wire for one request: bytes, when each is due, and how it ends."""

import email.utils
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Self

PADDING = b"\n         \n"
"""Keep-alive before the body: LF, nine blanks, LF; 137 of 146 recorded bodies begin with some."""


class Ending(StrEnum):
    """What happens after the last byte."""

    WHOLE = "whole"
    """The final chunk of the chunked encoding."""
    RESET = "reset"
    """A TCP reset."""
    CLOSE = "close"
    """The connection is closed without the final chunk."""
    HANG = "hang"
    """Nothing, until the client leaves."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that are due some seconds after the request.

    Attributes:
        tokens: Sampled tokens that have been sent with it and before it.
    """

    at_s: float
    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer, refusal or broken thing. `sends_headers` is false for a reset before them."""

    pieces: tuple[Piece, ...]
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_at_s: float = 0.0
    sends_headers: bool = True
    ending: Ending = Ending.WHOLE

    @property
    def body(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)

    @property
    def seconds(self) -> float:
        return max((piece.at_s for piece in self.pieces), default=self.headers_at_s)

    def hint_s(self, now: float) -> float | None:
        """The Retry-After of the headers, or of an error's metadata, in seconds from now."""
        given = self.headers.get("Retry-After")
        if given is None and self.status >= HTTPStatus.BAD_REQUEST and b"Retry-After" in self.body:
            given = json.loads(self.body)["error"]["metadata"]["headers"]["Retry-After"]
        if given is None:
            return None
        if given.replace(".", "", 1).isdigit():
            return float(given)
        return email.utils.parsedate_to_datetime(given).timestamp() - now

    def with_body(self, body: bytes, kind: str | None = None) -> Self:
        """The same time, another body."""
        end = self.pieces[-1]
        return replace(self, pieces=(Piece(end.at_s, body, end.tokens),), kind=kind or self.kind)


def write_json(value: Any) -> bytes:
    """Compact UTF-8 as recorded; a lone surrogate, which UTF-8 has not, makes all of it escapes."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
