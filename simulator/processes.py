"""Several processes on one port: forked once the tokenizer is loaded, gone with the first one."""

import asyncio
import ctypes
import os
import signal
import socket
import tempfile
from pathlib import Path

from aiohttp import web

from simulator.peers import Peers, SharedSeen
from simulator.replay import Replay
from simulator.scenario import Scenario, divide
from simulator.server import Simulator

_PR_SET_PDEATHSIG = 1
_LOOK_AGAIN_S = 0.01


def serve_together(
    scenario: Scenario, replay: Replay | None, dialect: str, port: int, count: int
) -> None:
    """Serves until interrupted; the first line of output comes when all listen."""
    reserved = _bind(port)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        peers, shared = Peers(Path(folder), count), SharedSeen()
        simulator = Simulator(divide(scenario, count), replay, dialect, peers, shared)
        first = os.getpid()
        numbers = range(1, count)
        number = next((n for n in numbers if os.fork() == 0), 0)
        if number:
            _end_with(first)
        asyncio.run(_serve(simulator, peers, number, count, reserved))


def _bind(port: int) -> socket.socket:
    """A port that all may listen at; this socket keeps it, and does not."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", port))
    return reserved


def _end_with(first: int) -> None:
    """However the first process ends, a kill too, the kernel ends this one."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != first:
        os._exit(1)


async def _serve(
    simulator: Simulator, peers: Peers, number: int, count: int, reserved: socket.socket
) -> None:
    address: tuple[str, int] = reserved.getsockname()
    runner = web.AppRunner(simulator.application(), access_log=None)
    own = web.AppRunner(simulator.own(), access_log=None)
    await runner.setup()
    await own.setup()
    await web.TCPSite(runner, *address, reuse_port=True).start()
    await web.UnixSite(own, str(peers.socket(number))).start()
    if not number:
        while not all(peers.socket(one).exists() for one in range(count)):  # noqa: ASYNC110 - files
            await asyncio.sleep(_LOOK_AGAIN_S)
        print(f"http://{address[0]}:{address[1]}/api/v1", flush=True)
    await asyncio.Event().wait()
