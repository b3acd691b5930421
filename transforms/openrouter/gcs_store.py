"""The response store in a bucket: any number of hosts may share it.

    PREFIX/store.json                         names the format; written before anything else
    PREFIX/<2 hex>/<request sha256>/<number>  one attempt, zstd: a line of JSON, then the body
    PREFIX/runs/<run id>/<sha256>-<number>    empty: this run made that attempt

An attempt is created only where nothing is, so what came first stays; who comes second takes the
next number. A run is counted by listing its empty objects: run ids inside the attempts would mean
reading the whole store. The empty object is written second, so a killed worker leaves an answer
that no run counts rather than a count without an answer.
"""

import asyncio
import contextlib
import itertools
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from google.api_core.exceptions import (
    Forbidden,
    GoogleAPIError,
    NotFound,
    PreconditionFailed,
    Unauthorized,
)
from google.auth.exceptions import GoogleAuthError
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY
from requests.adapters import HTTPAdapter

from transforms.failures import ConfigError, StoreError
from transforms.openrouter.envelope import pack, unpack
from transforms.openrouter.store import Attempt

_THREADS = 32
"""A put is two round trips: 300 a second if each takes 50 ms. Its CPU, 2.6 ms, allows no more."""
_RETRY = DEFAULT_RETRY.with_timeout(120.0)
"""Google's own back-off for 429, 5xx and lost connections, in seconds altogether."""
_RETRY_OPEN = DEFAULT_RETRY.with_timeout(20.0)
"""A person waits for it."""
_MARK = b'{"format":1,"store":"eagle3-data-pipeline responses"}\n'
_PLACE = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(.*))?")
_NUMBER = re.compile(r"[0-9]{4,}")
_KEY = re.compile(r"([0-9a-f]{64})-([0-9]{4,})")
_TROUBLE = (GoogleAPIError, GoogleAuthError, OSError)
_TYPE = "application/zstd"
_OURS = "put"
"""Metadata of an object: the put that made it. A retry whose first try arrived finds itself."""


class GcsStore:
    """Attempts by request, under `gs://BUCKET/PREFIX`.

    Credentials are Google's application default ones; `STORAGE_EMULATOR_HOST` is obeyed.

    Raises:
        ConfigError: No such bucket, no credentials or rights, or something else is there.
    """

    def __init__(self, location: str) -> None:
        self._location = location.rstrip("/")
        bucket, self._prefix = _parse(location)
        try:
            self._bucket = _connect().bucket(bucket)
            ours = self._open()
        except _TROUBLE as error:
            raise ConfigError(f"--store {self._location}: {_why(error)}") from error
        if not ours:
            raise ConfigError(
                f"--store {self._location}: holds objects but no response store of this program; "
                "nothing was changed, name another prefix"
            )
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")

    def attempts(self, request_sha256: str) -> tuple[Attempt, ...]:
        """All attempts at a request, oldest first; one list, and a get for each that there is.

        A request that was never tried costs the list alone: one round trip, 0.9 ms at
        fake-gcs-server. A get that finds nothing takes 1.9 ms there (google-cloud-storage 3.17
        goes on to ask for the bucket), and would tell nothing of a second attempt.

        Raises:
            ConfigError: Something that is not ours is in the place of an attempt.
            StoreError: The bucket cannot be read.
        """
        with self._or_store_error():
            numbers = sorted(self._numbers(request_sha256))
            return tuple(self._read(request_sha256, number) for number in numbers)

    async def look_up(self, request_sha256: str) -> tuple[Attempt, ...]:
        """`attempts` in a thread of the store's own."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self.attempts, request_sha256)

    async def put(self, attempt: Attempt) -> None:
        """Returns when the bucket has the attempt and its run's object.

        Raises:
            StoreError: It cannot be kept, after Google's own retries.
        """
        await asyncio.get_running_loop().run_in_executor(self._pool, self._put, attempt)

    def attempts_of_run(self, run_id: str) -> Iterator[Attempt]:
        """All attempts that a run made; `attempts` tells what is raised."""
        folder = f"{self._prefix}runs/{run_id}/"
        return self._read_all(blob.name.removeprefix(folder) for blob in self._list(folder))

    def all_attempts(self) -> Iterator[Attempt]:
        """Every attempt that is kept; a get for each, `attempts` tells what is raised."""
        before_runs = f"{self._prefix}g"  # hex digits come before it, `runs/` and the mark after it
        found = self._list(self._prefix, end_offset=before_runs)
        names = (blob.name for blob in found if blob.name != self._prefix)
        return self._read_all("-".join(name.rsplit("/", 2)[1:]) for name in names)

    def spent_usd(self) -> None:
        """A bucket keeps no sum: who wants it reads all attempts, a get for each."""

    def close(self) -> None:
        """Returns when what was put is in the bucket; the store is not used after it."""
        self._pool.shutdown()
        self._bucket.client.close()

    def _open(self) -> bool:
        """False, and nothing written, where something else is."""
        found = self._bucket.list_blobs(prefix=self._prefix, max_results=2, retry=_RETRY_OPEN)
        # The console's "create folder" leaves an empty object of the prefix's name.
        used = any(blob.name != self._prefix for blob in found)
        mark = self._bucket.blob(f"{self._prefix}store.json")
        if not used:
            _create(mark, _MARK)
        return not used or _content(mark) == _MARK

    def _put(self, attempt: Attempt) -> None:
        key = attempt.request_sha256
        with self._or_store_error():
            number = self._keep(key, pack(attempt))
            marker = f"{self._prefix}runs/{attempt.run_id}/{key}-{number:04d}"
            self._bucket.blob(marker).upload_from_string(b"", retry=_RETRY)

    def _keep(self, request_sha256: str, data: bytes) -> int:
        """Creates the object under the first free number."""
        this = uuid.uuid4().hex
        number = 1
        while not _create(self._blob(request_sha256, number), data, this):
            taken = self._numbers(request_sha256)
            for other, made_by in taken.items():
                if made_by == this:
                    return other
            number = max(taken, default=0) + 1
        return number

    def _numbers(self, request_sha256: str) -> dict[int, str | None]:
        """The numbers that are taken, and which put took each."""
        folder = f"{self._prefix}{request_sha256[:2]}/{request_sha256}/"
        taken: dict[int, str | None] = {}
        for blob in self._list(folder):
            name = blob.name.removeprefix(folder)
            if not _NUMBER.fullmatch(name):
                raise self._foreign(blob.name)
            taken[int(name)] = (blob.metadata or {}).get(_OURS)
        return taken

    def _read(self, request_sha256: str, number: int) -> Attempt:
        blob = self._blob(request_sha256, number)
        data = blob.download_as_bytes(raw_download=True, retry=_RETRY)
        try:
            attempt = unpack(data)
        except ValueError as error:
            raise self._foreign(blob.name) from error
        if attempt.request_sha256 != request_sha256:
            raise self._foreign(blob.name)
        return replace(attempt, number=number)

    def _read_all(self, keys: Iterator[str]) -> Iterator[Attempt]:
        """The attempts of `<sha256>-<number>`: many at a time, never all in memory."""
        with self._or_store_error():
            while group := list(itertools.islice(keys, 2 * _THREADS)):
                yield from self._pool.map(self._read_key, group)

    def _read_key(self, key: str) -> Attempt:
        parts = _KEY.fullmatch(key)
        if parts is None:
            raise self._foreign(key)
        return self._read(parts[1], int(parts[2]))

    def _blob(self, request_sha256: str, number: int) -> storage.Blob:
        name = f"{self._prefix}{request_sha256[:2]}/{request_sha256}/{number:04d}"
        return self._bucket.blob(name)

    def _list(self, folder: str, end_offset: str | None = None) -> Iterator[storage.Blob]:
        fields = "items(name,metadata),nextPageToken"
        found: Iterator[storage.Blob] = iter(
            self._bucket.list_blobs(
                prefix=folder, end_offset=end_offset, fields=fields, retry=_RETRY
            )
        )
        return found

    @contextlib.contextmanager
    def _or_store_error(self) -> Iterator[None]:
        try:
            yield
        except _TROUBLE as error:
            raise StoreError(
                f"--store {self._location}: cannot give or keep an answer: {_said(error)}"
            ) from error

    def _foreign(self, name: str) -> ConfigError:
        return ConfigError(
            f"--store {self._location}: gs://{self._bucket.name}/{name} is not an answer that this "
            "program kept; nothing was changed, move it away or name another prefix"
        )


def _parse(location: str) -> tuple[str, str]:
    """Bucket, and what every name in it begins with."""
    place = _PLACE.fullmatch(location.rstrip("/"))
    if place is None or not location.isprintable():
        raise ConfigError(f"--store {location}: names no bucket; give gs://BUCKET/PREFIX")
    return place[1], f"{place[2]}/" if place[2] else ""


def _connect() -> storage.Client:
    client = storage.Client(project=None)  # a bucket's name says enough
    session = client._http  # noqa: SLF001 - the way to a pool as wide as the threads; default 10
    if not session.is_mtls:
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=_THREADS))
    return client


def _create(blob: storage.Blob, data: bytes, made_by: str | None = None) -> bool:
    """False if something is there already; it stays as it is."""
    blob.metadata = {_OURS: made_by} if made_by else None
    try:
        blob.upload_from_string(data, _TYPE, if_generation_match=0, retry=_RETRY)
    except PreconditionFailed:
        return False
    return True


def _content(blob: storage.Blob) -> bytes | None:
    try:
        data: bytes = blob.download_as_bytes(retry=_RETRY_OPEN)
    except NotFound:
        return None
    return data


def _said(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _why(error: Exception) -> str:
    """What is wrong with the bucket, and what would be right."""
    said = _said(error)
    match error:
        case NotFound():
            return "the bucket does not exist; create it, or name another one"
        case Forbidden() | Unauthorized():
            return f"refused ({said}); the account needs roles/storage.objectUser on the bucket"
        case GoogleAuthError():
            return (
                f"no usable Google credentials ({said}); run `gcloud auth application-default "
                "login`, or set GOOGLE_APPLICATION_CREDENTIALS"
            )
    return f"cannot be reached ({said}); try again, or name a local folder"
