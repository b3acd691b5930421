"""`python -m simulator`: serves on 127.0.0.1; its first line of output is its API base URL."""

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from aiohttp import web

from simulator.dialects import DIALECTS
from simulator.presets import PRESETS, load_scenario
from simulator.processes import serve_together
from simulator.replay import Replay
from simulator.server import Simulator


def main(argv: list[str]) -> int:
    """Parses the flags and serves until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--preset", choices=sorted(PRESETS),
                        help="default: happy; storm is load: a client of 64 that does not adapt "
                        "is refused 30 %% of the time")  # fmt: skip
    parser.add_argument("--seed", type=int, help="same seed and bodies, same answers")
    parser.add_argument("--scenario", type=Path, metavar="FILE", help="YAML, over the preset")
    parser.add_argument("--replay", type=Path, metavar="FILE",
                        help="JSON lines of recorded requests and replies to serve")  # fmt: skip
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="openrouter",
                        help="whose field names")  # fmt: skip
    parser.add_argument("--processes", type=int, default=1, metavar="N",
                        help="so many on one port, with one ledger; each has its share of the "
                        "limits, and caches of its own")  # fmt: skip
    flags = parser.parse_args(argv)
    try:
        scenario = load_scenario(flags.scenario, flags.preset, flags.seed)
        replay = Replay(flags.replay) if flags.replay else None
        with contextlib.suppress(KeyboardInterrupt):
            if flags.processes > 1:
                serve_together(scenario, replay, flags.dialect, flags.port, flags.processes)
            else:
                asyncio.run(_serve(Simulator(scenario, replay, flags.dialect), flags.port))
    except (ValueError, KeyError, TypeError, OSError, OverflowError) as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(simulator: Simulator, port: int) -> None:
    runner = web.AppRunner(simulator.application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    address = runner.addresses[0]
    print(f"http://{address[0]}:{address[1]}/api/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
