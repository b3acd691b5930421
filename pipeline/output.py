"""The output folder: made beside its place, published by one rename, never half."""

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from transforms.failures import ConfigError
from transforms.openrouter.open_store import host_folder

MANIFEST = "manifest.json"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def claim_output(output: Path) -> Iterator[None]:
    """Holds the output against other runs, and removes what killed runs left beside it.

    Raises:
        ConfigError: Another run is writing to it, or nothing can be written there.
    """
    with _locked(output.parent / f".{output.name}.lock", f"--output {output}"):
        for left in _left_by_killed_runs(output):
            shutil.rmtree(left)
        yield


@contextlib.contextmanager
def claim_store(store: str, job: str) -> Iterator[None]:
    """Holds the store against other runs of this host: two would ask, and pay, the same prompts.

    Raises:
        ConfigError: Another run is using it; or there is none to build from.
    """
    if job == "build" and "://" not in store and not Path(store).is_dir():
        raise ConfigError(f"--store {store}: does not exist; --job build makes nothing without it")
    with _locked(host_folder(store) / ".lock", f"--store {store}"):
        yield


@contextlib.contextmanager
def _locked(file: Path, what: str) -> Iterator[None]:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.open("w")
    except OSError as error:
        raise ConfigError(f"{what}: cannot be written: {error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"{what}: another run is using it; wait for its end") from error
        yield


def run_folder(output: Path, run_id: str) -> Path:
    """Where a run makes its output, beside its place."""
    return output.with_name(f"{output.name}.run-{run_id}")


def _left_by_killed_runs(output: Path) -> list[Path]:
    ours = re.compile(re.escape(output.name) + r"\.run-[0-9a-f]{12}")
    beside = output.parent.iterdir()
    return [path for path in beside if ours.fullmatch(path.name) and path.is_dir()]


def refuse_foreign(output: Path, identity: dict[str, Any], *, overwrite: bool) -> None:
    """Refuses a folder that is no output, or one that was made with another configuration.

    Raises:
        ConfigError: With what differs and the ways out.
    """
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    try:
        made_with = msgspec.json.decode((output / MANIFEST).read_bytes())["configuration"]
        names = sorted({*made_with, *identity})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"--output {output}: exists and is no output of this program; name another folder"
        ) from error
    changed = [name for name in names if made_with.get(name) != identity.get(name)]
    if changed and not overwrite:
        name = changed[0]
        raise ConfigError(
            f"--output {output}: was made with another configuration ({', '.join(changed)}; "
            f"{name} was {made_with.get(name)!r}, is {identity.get(name)!r}); "
            "name another folder, or replace it with --overwrite"
        )


def write_json(path: Path, value: Any) -> None:
    """Readable JSON, in place at once."""
    beside = path.with_name(f".{path.name}.writing")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    beside.rename(path)


def publish(folder: Path, output: Path) -> None:
    """Puts the finished folder in the output's place; an older output is there until it is not."""
    if not output.exists():
        folder.rename(output)
        return
    _exchange(folder, output)
    shutil.rmtree(folder)


def _exchange(one: Path, other: Path) -> None:
    """Swaps two folders in one step of the file system, where it has one (Linux)."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    names = os.fsencode(one), os.fsencode(other)
    if renameat2 and renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return
    aside = one.with_name(f"{one.name}-old")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)
