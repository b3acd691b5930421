"""Faults of streams: events that are missing, wrong, or cut where they should not be."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from simulator.faults.kinds import Fault, Told
from simulator.reply import Ending, Piece, Reply

_LAST_EVENTS = 3
"""Finish chunk, usage chunk, [DONE]."""
_TOP, _CONTINUED = 0xC0, 0x80
"""A byte of UTF-8 that is not the first of its character: its two top bits are 10."""
_WRITE_GAP_S = 0.003
"""Longer than what the server joins into one write."""
_UPSTREAM = {"code": 502, "message": "Upstream error", "metadata": {"error_type": "server"}}
_TOKEN_LIMIT = {"code": 400, "message": "Token limit reached"}
_BLANK: dict[str, Any] = {"index": 0, "delta": {"content": ""}}


def _half(reply: Reply) -> tuple[Piece, ...]:
    return reply.pieces[: max(1, len(reply.pieces) // 2)]


def _then(pieces: tuple[Piece, ...], *events: bytes) -> tuple[Piece, ...]:
    end = pieces[-1]
    return (*pieces, *(Piece(end.at_s, event, end.tokens) for event in events))


def _error_documented(reply: Reply, told: Told) -> Reply:
    event = told.event([{**_BLANK, "finish_reason": "error"}], error=_UPSTREAM)
    return replace(reply, pieces=_then(_half(reply), event))


def _error_recorded(reply: Reply, told: Told) -> Reply:
    finish = told.event([{**_BLANK, "finish_reason": "length"}])
    usage = told.answer["usage"]
    error = told.event([{**_BLANK, "finish_reason": None}], error=_TOKEN_LIMIT, usage=usage)
    return replace(reply, pieces=_then(_half(reply), finish, error))


def _no_done(reply: Reply, _told: Told) -> Reply:
    return replace(reply, pieces=reply.pieces[:-1])


def _no_finish(reply: Reply, _told: Told) -> Reply:
    return replace(reply, pieces=reply.pieces[:-_LAST_EVENTS])


def _cut_short(reply: Reply, _told: Told) -> Reply:
    return replace(reply, pieces=_half(reply), ending=Ending.CLOSE)


def _stall(reply: Reply, told: Told) -> Reply:
    pause = told.rng.uniform(5, 60) / told.speed
    early = len(_half(reply))
    later = (replace(piece, at_s=piece.at_s + pause) for piece in reply.pieces[early:])
    return replace(reply, pieces=(*reply.pieces[:early], *later))


def _crlf(reply: Reply, _told: Told) -> Reply:
    ends = (replace(piece, data=piece.data.replace(b"\n", b"\r\n")) for piece in reply.pieces)
    return replace(reply, pieces=tuple(ends))


def _cr(reply: Reply, _told: Told) -> Reply:
    ends = (replace(piece, data=piece.data.replace(b"\n", b"\r")) for piece in reply.pieces)
    return replace(reply, pieces=tuple(ends))


def _split_bytes(reply: Reply, _told: Told) -> Reply:
    """Two writes, cut within a character of several bytes where the event has one."""
    pieces: list[Piece] = []
    at_s = 0.0
    for piece in reply.pieces:
        cut = next((at for at, byte in enumerate(piece.data) if byte & _TOP == _CONTINUED), 9)
        first = Piece(max(at_s, piece.at_s), piece.data[:cut], piece.tokens)
        at_s = first.at_s + _WRITE_GAP_S
        pieces += [first, Piece(at_s, piece.data[cut:], piece.tokens)]
    return replace(reply, pieces=tuple(pieces))


def _idle_error(reply: Reply, told: Told) -> Reply:
    pieces = _half(reply)
    end = pieces[-1].at_s + told.rng.uniform(120, 190) / told.speed
    error = {"code": 504, "message": "Upstream idle timeout exceeded"}
    event = told.event([{**_BLANK, "finish_reason": "error"}], error=error)
    return replace(reply, pieces=(*pieces, Piece(end, event, pieces[-1].tokens)))


_TABLE: tuple[tuple[str, str, Callable[[Reply, Told], Reply], bool, bool], ...] = (
    ("stream_error", "An error event in the documented form.", _error_documented, False, False),
    ("stream_token_limit", "An error event in the recorded form.", _error_recorded, True, False),
    ("stream_idle", "An error event after 120 to 190 s of silence.", _idle_error, False, False),
    ("stream_no_done", "No [DONE].", _no_done, True, True),
    ("stream_no_finish", "No finish chunk, usage or [DONE].", _no_finish, True, True),
    ("stream_cut", "The connection closes half way.", _cut_short, True, False),
    ("stream_stall", "5 to 60 s of silence half way.", _stall, True, True),
    ("stream_crlf", "Lines end in CR LF.", _crlf, True, True),
    ("stream_cr", "Lines end in CR.", _cr, True, True),
    ("stream_split", "Writes end within a character.", _split_bytes, True, True),
)
"""Name, line, function, whether it is charged, whether the whole text is sent."""

STREAMS = tuple(
    Fault(name=name, about=about, spoil=spoil, is_charged=paid, keeps_text=kept,
          fits=lambda told: told.is_stream)
    for name, about, spoil, paid, kept in _TABLE
)  # fmt: skip
