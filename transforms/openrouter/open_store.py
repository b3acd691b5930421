"""Where a response store is, and hence which one it is."""

import hashlib
import os
import tempfile
from pathlib import Path

from transforms.failures import ConfigError
from transforms.openrouter.gcs_store import GcsStore
from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.store import ResponseStore

GCS = "gs://"


def open_store(location: str) -> ResponseStore:
    """The store in a bucket (`gs://BUCKET/PREFIX`) or in a local folder.

    Raises:
        ConfigError: What is there is no such store, or cannot be used.
    """
    if location.startswith(GCS):
        return GcsStore(location)
    if "://" in location:
        raise ConfigError(f"--store {location}: give a local folder or gs://BUCKET/PREFIX")
    return SqliteStore(location)


def host_folder(location: str) -> Path:
    """Where the processes of this host keep what they share of a store: its lock, its pace."""
    if not location.startswith(GCS):
        return Path(location)
    name = hashlib.sha256(location.rstrip("/").encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"eagle3-stores-{os.getuid()}" / name
