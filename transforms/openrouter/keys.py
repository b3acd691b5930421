"""API keys are references; the key itself is read where it is used, and nowhere kept."""

import os
from pathlib import Path

from transforms.failures import ConfigError

NO_KEY = "none"


def resolve_key(reference: str) -> str | None:
    """The key that `env:NAME` or `file:PATH` refers to; `None` for `none`.

    Raises:
        ConfigError: Nothing there, or no such kind of reference. The message never holds a key.
    """
    kind, _, where = reference.partition(":")
    if reference == NO_KEY:
        return None
    if kind == "env":
        key = os.environ.get(where, "").strip()
        missing = f"the environment variable {where} is not set"
    elif kind == "file":
        path = Path(where)
        key = path.read_text("utf-8", "replace").strip() if path.is_file() else ""
        missing = f"the file {where} is missing or empty"
    else:
        raise ConfigError("--api_key takes env:NAME, file:PATH or none, never the key itself")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"--api_key {reference}: holds characters that no HTTP header can carry")
    if not key:
        raise ConfigError(f"--api_key: {missing}; a server that asks for none takes --api_key none")
    return key
