"""Where a response store is, and hence which one it is."""

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
