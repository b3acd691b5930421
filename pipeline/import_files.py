"""The two files that an import writes: prompts to run, and what was refused."""

import argparse
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

from pipeline.inputs import absolute
from transforms.failures import ConfigError
from transforms.openrouter.open_store import GCS


def prompts_file(flags: argparse.Namespace, store: str) -> Path:
    """As named by `--prompts`, else in the store.

    Raises:
        ConfigError: A bucket holds no prompts.
    """
    if flags.prompts:
        return Path(absolute(flags.prompts))
    if store.startswith(GCS):
        raise ConfigError(f"--store {store}: name a file of this machine with --prompts")
    files = "\n".join(absolute(name) for name in flags.files)
    return Path(store) / f"prompts-{hashlib.sha256(files.encode()).hexdigest()[:8]}.jsonl"


def refused_file(prompts: Path) -> Path:
    """Beside the prompts."""
    return prompts.with_suffix(".refused.ndjson")


def refuse_foreign(prompts: Path, files: Sequence[str]) -> None:
    """Refuses to replace what an import did not write: recorded answers may be there but once.

    Raises:
        ConfigError: With what is there.
    """
    read = {Path(absolute(name)).resolve() for name in files}
    for path in (prompts, refused_file(prompts)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") if path.exists() else io.BytesIO() as file:
                first = file.readline()
        except OSError as error:
            raise ConfigError(f"--prompts {path}: cannot be written: {error}") from error
        if path.resolve() in read or not (first == b"" or _is_ours(first)):
            raise ConfigError(f"--prompts {path}: holds what no import wrote; name another file")


def _is_ours(line: bytes) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and any(row.keys() == keys for keys in _ROWS)


_ROWS = (
    {"custom_id", "body", "sample_index"},
    {"id", "answer_without_request"},
    {"source", "refusal", "detail"},
)
"""The keys of rows of both files."""
