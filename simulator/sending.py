"""Writes a reply when it is due, and breaks the connection where the reply says so."""

import asyncio
import socket
import struct
from collections.abc import Callable

from aiohttp import web

from simulator.reply import Ending, Piece, Reply

_JOINED_S = 0.002
"""Pieces that are due within it go out in one write."""
_HANG_LOOK_S = 0.25
_NO_LINGER = struct.pack("ii", 1, 0)


class ClientLeft(Exception):  # noqa: N818 - what a client may do
    """The client closed the connection. `tokens` had been written."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


async def send(
    request: web.Request, reply: Reply, on_last: Callable[[], None]
) -> web.StreamResponse:
    """Sends all of a reply; `on_last` is called just before the last write.

    Raises:
        ClientLeft: Before the end.
    """
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_type = reply.kind
    response.enable_chunked_encoding()
    start_s = asyncio.get_running_loop().time()
    await _wait(start_s + reply.headers_at_s)
    tokens = 0
    try:
        if reply.sends_headers:
            await response.prepare(request)
        for group in _groups(reply.pieces):
            await _wait(start_s + group[0].at_s)
            _demand_client(request)
            if group[-1] is reply.pieces[-1]:
                on_last()
            if data := b"".join(piece.data for piece in group):
                await response.write(data)
            tokens = group[-1].tokens
        await _end(request, response, reply.ending)
    except ConnectionError as error:
        raise ClientLeft(tokens) from error
    return response


async def _wait(until_s: float) -> None:
    left = until_s - asyncio.get_running_loop().time()
    if left > 0:
        await asyncio.sleep(left)


def _groups(pieces: tuple[Piece, ...]) -> list[list[Piece]]:
    groups: list[list[Piece]] = []
    for piece in pieces:
        if groups and piece.at_s - groups[-1][0].at_s < _JOINED_S:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _demand_client(request: web.Request) -> None:
    if request.transport is None or request.transport.is_closing():
        raise ConnectionResetError


async def _end(request: web.Request, response: web.StreamResponse, ending: Ending) -> None:
    if ending is Ending.WHOLE:
        await response.write_eof()
        return
    while ending is Ending.HANG:
        _demand_client(request)
        await asyncio.sleep(_HANG_LOOK_S)
    if request.transport is None:
        return
    if ending is Ending.CLOSE:
        request.transport.close()
        return
    connection: socket.socket = request.transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    request.transport.abort()
