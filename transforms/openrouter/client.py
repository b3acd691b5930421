"""One request to the service: ask the store, send, keep the bytes, judge, try again."""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import tenacity

from transforms.failures import FailureKind, RecordError
from transforms.openrouter.faults import Fault, Judged, judge, retry_after_s
from transforms.openrouter.keys import resolve_key
from transforms.openrouter.open_store import open_store
from transforms.openrouter.progress import Progress
from transforms.openrouter.store import Attempt
from transforms.openrouter.wire import Request

_KEPT_HEADERS = frozenset(
    {"content-type", "retry-after", "x-generation-id", "x-provider-name", "cf-ray", "date"}
)
_ACCOUNT = re.compile(rb'("user_id"\s*:\s*)"user_[^"]*"')
"""Error bodies name the account; it is not stored."""
_CONNECT_S = 10.0
_LONG_KEY = 20
_SLOWEST_TOKENS_PER_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallConfig:
    """Where and how requests are sent; hashable, and free of secrets.

    Attributes:
        api_key: A reference (`keys.resolve_key`).
        store: Where the response store is (`open_store`).
        max_in_flight: Most requests at once, a process.
        max_tokens: Longest answer that is asked for; the deadline follows from it.
        send: False: answer from the store alone.
    """

    base_url: str
    api_key: str
    store: str
    run_id: str
    max_in_flight: int
    max_tokens: int
    send: bool

    @property
    def deadline_s(self) -> float:
        """Longest wait for a whole answer: 10 s and its tokens at 15/s, within 300 and 3600 s."""
        return min(max(10 + self.max_tokens / _SLOWEST_TOKENS_PER_S, 300.0), 3600.0)


class OpenRouterClient:
    """Answers requests, at most `max_in_flight` at once. Belongs to one event loop."""

    def __init__(
        self, config: CallConfig, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._config = config
        self._sleep = sleep
        self._store = open_store(config.store)
        self._key = resolve_key(config.api_key) if config.send else None
        self._slots = asyncio.Semaphore(config.max_in_flight)
        self._session: aiohttp.ClientSession | None = None
        self._stopped: str | None = None
        self._asking: dict[str, asyncio.Task[Judged]] = {}
        self._progress = Progress()

    async def answer(self, request: Request) -> Any:
        """The JSON of the answer: from the store, else from the service.

        Raises:
            RecordError: With the kind of the last fault; `SERVICE_STOPPED` after a fatal one;
                `NOT_COLLECTED` if nothing may be sent and the store has nothing.
        """
        judged = await self._once(request)
        if judged.reply is not None:
            return judged.reply
        kind = judged.fault.kind if judged.fault else FailureKind.NOT_COLLECTED
        raise RecordError(kind, judged.detail or "no answer in the store; run --job collect")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._store.close()

    def _once(self, request: Request) -> asyncio.Task[Judged]:
        """Prompts of the same text, at the same time, are one request."""
        key = request.sha256
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._find(request))
            task.add_done_callback(lambda _: self._asking.pop(key))
        return task

    async def _find(self, request: Request) -> Judged:
        judged = await self._known(request)
        if judged.reply is None and self._config.send:
            judged = await self._ask(request, judged)
        return judged

    async def _known(self, request: Request) -> Judged:
        judged = Judged()
        for attempt in await self._store.look_up(request.sha256):
            judged = judge(attempt)
            if judged.reply is not None:
                return judged
        return judged

    async def _ask(self, request: Request, known: Judged) -> Judged:
        if known.fault is not None and known.fault.permanent:
            return known
        try:
            async for attempt in tenacity.AsyncRetrying(
                stop=_used_up,
                wait=_wait_s,
                retry=tenacity.retry_if_exception_type(_AskAgainError),
                sleep=self._sleep,
                reraise=True,
            ):
                with attempt:
                    return await self._try(request)
        except _AskAgainError as error:
            return error.judged
        raise AssertionError("tenacity returns or raises")

    async def _try(self, request: Request) -> Judged:
        async with self._slots:
            if self._stopped is not None:  # by an answer that came while this one waited
                raise RecordError(FailureKind.SERVICE_STOPPED, self._stopped)
            with self._progress.in_flight():
                attempt = await self._send(request)
                await self._store.put(attempt)
            judged = judge(attempt)
            if judged.fault is not None and judged.fault.fatal:
                self._stopped = judged.detail
        self._progress.count(judged)
        if judged.fault is None:
            return judged
        raise _AskAgainError(judged, judged.fault, retry_after_s(attempt))

    async def _send(self, request: Request) -> Attempt:
        """One POST; whatever happens on the wire becomes an attempt with the bytes that came."""
        session = self._session = self._session or self._open()
        started_at = time.time()
        status: int | None = None
        headers: tuple[tuple[str, str], ...] = ()
        error: str | None = None
        body = bytearray()
        try:
            async with (
                asyncio.timeout(self._config.deadline_s),
                session.post(self._url, data=request.body) as response,
            ):
                status = response.status
                headers = _kept(response)
                async for block in response.content.iter_any():
                    body += block
        except (aiohttp.ClientError, TimeoutError, OSError) as caught:
            error = f"{type(caught).__name__}: {caught}"
        return Attempt(
            request_sha256=request.sha256,
            run_id=self._config.run_id,
            status=status,
            error=error,
            headers=headers,
            body=self._without_secrets(bytes(body), status),
            started_at=started_at,
            ended_at=time.time(),
        )

    @property
    def host(self) -> str:
        """The server's name: the provider of answers that name none."""
        return urlsplit(self._config.base_url).hostname or ""

    @property
    def _url(self) -> str:
        return self._config.base_url.rstrip("/") + "/chat/completions"

    def _open(self) -> aiohttp.ClientSession:
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),  # `_slots` limits; the pool must not queue
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        )

    def _without_secrets(self, body: bytes, status: int | None) -> bytes:
        """An error names the account and may echo the request; an answer stays as it came.

        A short key may be a word of the answer; a long one is not there by chance.
        """
        body = _ACCOUNT.sub(rb'\1"redacted"', body)
        key = (self._key or "").encode()
        if key and (status != HTTPStatus.OK or len(key) >= _LONG_KEY):
            body = body.replace(key, b"redacted")
        return body


class _AskAgainError(Exception):
    """A fault that the next attempt may not meet."""

    def __init__(self, judged: Judged, fault: Fault, hint_s: float | None) -> None:
        super().__init__(judged.detail)
        self.judged = judged
        self.fault = fault
        self.hint_s = hint_s


def _used_up(state: tenacity.RetryCallState) -> bool:
    return state.attempt_number >= _error_of(state).fault.attempts


def _wait_s(state: tenacity.RetryCallState) -> float:
    """What the service asks for, else full jitter over a doubling window."""
    error = _error_of(state)
    if error.hint_s is not None:
        return error.hint_s
    window = error.fault.base_s * 2 ** (state.attempt_number - 1)
    return random.uniform(0, min(window, error.fault.cap_s))


def _error_of(state: tenacity.RetryCallState) -> _AskAgainError:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, _AskAgainError):
        raise TypeError(f"asked about {error!r}")  # another error is never retried
    return error


def _kept(response: aiohttp.ClientResponse) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.lower(), value)
        for name, value in response.headers.items()
        if name.lower() in _KEPT_HEADERS
    )
