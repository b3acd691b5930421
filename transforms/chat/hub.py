"""Repositories of the Hugging Face hub, in its own cache."""

import sys
from pathlib import Path
from typing import Any


class DownloadError(Exception):
    """What is not in the cache cannot be had: the hub's reason."""


def download(name: str, **what: Any) -> Path:
    """The local folder of a repository's files; `what` is `snapshot_download`'s.

    Raises:
        DownloadError: Nothing there, no access, no network.
    """
    import httpx  # noqa: PLC0415 - only who downloads pays for these
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        return Path(snapshot_download(name, **what))
    except (OSError, ValueError, httpx.HTTPError) as error:  # its own are these, the network's too
        raise DownloadError(f"{error}") from error
