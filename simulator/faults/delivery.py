"""Faults of the connection: what was sampled is paid for, and does not arrive, or late."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from simulator.faults.kinds import Fault, Told
from simulator.reply import Ending, Piece, Reply

_DRIPS = 3600


def _cut(reply: Reply, share: float, ending: Ending) -> Reply:
    """Keeps the first bytes of it."""
    left = int(len(reply.body) * share)
    kept = []
    for piece in reply.pieces:
        if left <= 0:
            break
        kept.append(replace(piece, data=piece.data[:left]))
        left -= len(piece.data)
    return replace(reply, pieces=tuple(kept), ending=ending)


def _reset_before_headers(reply: Reply, _told: Told) -> Reply:
    at = Piece(reply.seconds, b"")
    return replace(reply, pieces=(at,), ending=Ending.RESET, sends_headers=False)


def _reset_after_headers(reply: Reply, _told: Told) -> Reply:
    return replace(reply, pieces=(Piece(reply.seconds, b""),), ending=Ending.RESET)


def _reset_mid_body(reply: Reply, told: Told) -> Reply:
    return _cut(reply, told.rng.uniform(0.2, 0.9), Ending.RESET)


def _close_without_end(reply: Reply, _told: Told) -> Reply:
    return replace(reply, ending=Ending.CLOSE)


def _close_mid_body(reply: Reply, told: Told) -> Reply:
    return _cut(reply, told.rng.uniform(0.2, 0.9), Ending.CLOSE)


def _drip(reply: Reply, told: Told) -> Reply:
    """A blank a second for an hour: no read ever times out."""
    pieces = tuple(Piece(second / told.speed, b" ") for second in range(_DRIPS))
    return replace(reply, pieces=pieces, ending=Ending.HANG)


def _hang(reply: Reply, _told: Told) -> Reply:
    return replace(reply, pieces=(), ending=Ending.HANG, sends_headers=False)


def _hang_after_headers(reply: Reply, _told: Told) -> Reply:
    return replace(reply, pieces=(), ending=Ending.HANG)


def _stall(reply: Reply, told: Told) -> Reply:
    """Silence of 5 to 60 s before the second half, then all of it."""
    pause = told.rng.uniform(5, 60) / told.speed
    whole = reply.pieces[-1]
    middle = len(whole.data) // 2
    halves = (Piece(whole.at_s, whole.data[:middle], whole.tokens),
              Piece(whole.at_s + pause, whole.data[middle:], whole.tokens))  # fmt: skip
    return replace(reply, pieces=(*reply.pieces[:-1], *halves))


def _fault(name: str, about: str, spoil: Callable[[Reply, Told], Reply], **more: Any) -> Fault:
    return Fault(
        name=name, about=about, spoil=spoil, is_charged=True, of_connection=True, **more
    )  # fmt: skip


DELIVERIES = (
    _fault("reset_before_headers", "A TCP reset instead of headers.", _reset_before_headers),
    _fault("reset_after_headers", "A TCP reset after the headers.", _reset_after_headers),
    _fault("reset_mid_body", "A TCP reset within the body.", _reset_mid_body),
    _fault("close_mid_body", "The connection is closed within the body.", _close_mid_body),
    _fault("close_without_end", "All bytes, and no final chunk.", _close_without_end,
           keeps_text=True),
    _fault("drip", "A blank a second and never a body.", _drip),
    _fault("hang", "Nothing at all, for ever.", _hang),
    _fault("hang_after_headers", "Headers, then nothing for ever.", _hang_after_headers),
    _fault("stall", "5 to 60 s of silence within the body.", _stall, keeps_text=True,
           fits=lambda told: not told.is_stream),
)  # fmt: skip
