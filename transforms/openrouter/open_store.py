"""Where a response store is, and hence which one it is."""

from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.store import ResponseStore


def open_store(location: str) -> ResponseStore:
    """The store in a local folder.

    Raises:
        ConfigError: What is there is no such store, or cannot be used.
    """
    return SqliteStore(location)
