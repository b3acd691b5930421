"""One POST, and what came of it: whatever happens on the wire becomes an attempt."""

import asyncio
import hashlib
import re
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from transforms.openrouter.keys import resolve_key
from transforms.openrouter.source import Source
from transforms.openrouter.store import Attempt
from transforms.openrouter.wire import Request, ask_others

_KEPT_HEADERS = frozenset({
    "content-type", "retry-after", "x-generation-id", "x-provider-name", "cf-ray", "date",
    "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
    "x-openrouter-cache-status", "x-openrouter-cache-source-id",
})  # fmt: skip
_ACCOUNT = re.compile(rb'(\\*"user_id\\*"\s*:\s*\\*")[^"\\]*')
"""Error bodies name the account, some inside a text of JSON; it is not stored."""
_CONNECT_S = 10.0
_SMALL_CALL_S = 20.0
_GATHER_S = 0.25
_TOO_FAST = 1 << 15
"""More bytes than a model samples in that time (100 tokens/s are 11 kB): a finished answer. Pauses
would make it one that came over time: 8,000 events that came at once took a third of theirs."""
_SILENCE_S = 90.0
_SLOWEST_TOKENS_PER_S = 15.0
_LONG_KEY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Where requests go and how long they may take; free of secrets.

    Attributes:
        api_key: A reference (`keys.resolve_key`).
        model: Slug of the model that is asked for.
        max_tokens: Longest answer that is asked for; the deadline follows from it.
        hosts: Which of the service's hosts may answer: the body's `provider` object, JSON text.
        fields: Names of the fields that every request has.
        thinks: The model is to think, so that a thought alone is no answer.
    """

    base_url: str
    api_key: str
    model: str
    max_tokens: int
    source: Source
    hosts: str = "{}"
    fields: tuple[str, ...] = ()
    thinks: bool = True

    @property
    def deadline_s(self) -> float:
        """Longest wait for a whole answer: 10 s and its tokens at 15/s, within 300 and 3600 s."""
        return min(max(10 + self.max_tokens / _SLOWEST_TOKENS_PER_S, 300.0), 3600.0)


class Sender:
    """Sends requests over one session. Belongs to one event loop."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._key = resolve_key(wire.api_key)
        self._deadlines: set[asyncio.Timeout] = set()
        headers = {"Content-Type": "application/json", **dict(wire.source.headers)}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),  # the gate limits; the pool must not queue
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=_CONNECT_S,
                sock_read=_SILENCE_S if wire.source.pads else None,
            ),
        )

    async def send(
        self, request: Request, run_id: str, avoided: tuple[str, ...] = (), *, anew: bool = False
    ) -> Attempt:
        """Padding is life, not progress: the deadline runs on while it comes.

        `avoided` are slugs of hosts that must not answer; `anew`: what the service's response cache
        holds is of no use.
        """
        body = ask_others(request.body, avoided) if avoided else request.body
        url, headers = self._url("/chat/completions"), self._cache_headers(request, anew=anew)
        # Bytes alone are looked up among 30 kinds of payloads, 64 type checks a request.
        posted = self._session.post(url, data=aiohttp.BytesPayload(body), headers=headers)
        received = await self._receive(posted, self._wire.deadline_s)
        attempt = self._as_attempt(request.sha256, run_id, received)
        return replace(attempt, sent=body.decode()) if avoided else attempt

    def _cache_headers(self, request: Request, *, anew: bool) -> dict[str, str]:
        """None for another sample of the same body: it must be sampled, not be given again."""
        source = self._wire.source
        given = () if request.sample_index else source.cache
        return dict((*given, *(source.cache_anew if given and anew else ())))

    async def ask(self, path: str, run_id: str) -> Attempt:
        """A small call of the API, under a key of its own."""
        received = await self._receive(self._session.get(self._url(path)), _SMALL_CALL_S)
        return self._as_attempt(key_of(path), run_id, received)

    async def get(self, path: str) -> Any:
        """The JSON of a small call; `None` if there is none, for whatever reason."""
        attempt = await self.ask(path, run_id="")
        try:
            return msgspec.json.decode(attempt.body) if attempt.error is None else None
        except ValueError:
            return None

    def abandon(self) -> None:
        """Ends what is on its way, now; it may have been paid for."""
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            if not deadline.expired():  # it cannot be moved, and its call is over anyway
                deadline.reschedule(now)

    async def close(self) -> None:
        await self._session.close()

    def _url(self, path: str) -> str:
        return self._wire.base_url.rstrip("/") + path

    async def _receive(self, called: "_Called", seconds: float) -> "_Received":
        received = _Received(started_at=time.time())
        try:
            async with asyncio.timeout(seconds) as deadline:
                self._deadlines.add(deadline)
                try:
                    await self._read(called, received)
                finally:
                    self._deadlines.discard(deadline)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            received.error = f"{type(error).__name__}: {error}"
        return received

    async def _read(self, called: "_Called", received: "_Received") -> None:
        async with called as response:
            received.status = response.status
            received.headers = {name.lower(): value for name, value in response.headers.items()}
            is_stream = response.content_type == "text/event-stream"
            async for block in response.content.iter_any():
                received.take(block)
                is_stream = is_stream and len(block) < _TOO_FAST
                if is_stream:
                    await _gather_events(response, time.time() - received.started_at)

    def _as_attempt(self, key: str, run_id: str, received: "_Received") -> Attempt:
        kept = ((n, v) for n, v in received.headers.items() if n in _KEPT_HEADERS)
        return Attempt(
            request_sha256=key,
            run_id=run_id,
            status=received.status,
            error=None if received.error is None else self._clean(received.error),
            headers=tuple((name, self._clean(value)) for name, value in kept),
            body=self._without_secrets(b"".join(received.blocks), received.status),
            started_at=received.started_at,
            first_at=received.first_at,
            last_at=received.last_at,
            ended_at=time.time(),
        )

    def _clean(self, text: str) -> str:
        """Text that can be written, without the key, should the server have echoed it."""
        text = text.replace(self._key, "redacted") if self._key else text
        return text.encode("utf-8", "backslashreplace").decode()

    def _without_secrets(self, body: bytes, status: int | None) -> bytes:
        """An error names the account and may echo the request; an answer stays as it came.

        A short key may be a word of the answer; a long one is not there by chance.
        """
        is_answer = status == HTTPStatus.OK and b'"choices"' in body
        if not is_answer:
            body = _ACCOUNT.sub(rb"\1redacted", body)
        key = (self._key or "").encode()
        if key and (not is_answer or len(key) >= _LONG_KEY):
            body = body.replace(key, b"redacted")
        return body


_Called = AbstractAsyncContextManager[aiohttp.ClientResponse]


def key_of(path: str) -> str:
    """The store's key of a small call."""
    return hashlib.sha256(b"GET " + path.encode()).hexdigest()


async def _gather_events(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Leaves events in the kernel's buffer for a twentieth of the time so far, 0.25 s at most.

    A read for each of 2,000 events costs 36 ms of CPU an answer, most of it before our code runs.
    """
    connection = response.connection  # none when the answer is whole
    transport = connection.transport if connection is not None else None
    if transport is not None and not transport.is_closing():
        transport.pause_reading()
        await asyncio.sleep(min(seconds / 20, _GATHER_S))
        if not transport.is_closing():
            transport.resume_reading()


class _Received:
    """What has come so far; `first_at` and `last_at` are arrivals of text, not of padding."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.error: str | None = None
        self.blocks: list[bytes] = []

    def take(self, block: bytes) -> None:
        self.blocks.append(block)
        if b"{" in block:
            self.last_at = time.time()
            self.first_at = self.first_at or self.last_at
