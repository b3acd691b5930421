"""Servers that benchmarks ask, each a process of its own; how many connections they may have."""

import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def serving(module: str, *arguments: str) -> Iterator[str]:
    """The base URL of a server: the first line of what `python -m MODULE` prints."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            if server.stdout is None:
                raise RuntimeError(f"no pipe to {module}")
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def allow_many_connections() -> None:
    """As many descriptors as this process may have at most."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
