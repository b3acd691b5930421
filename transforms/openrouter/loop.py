"""One event loop thread and one client a process, shared by all its bundles."""

import asyncio
import gc
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any

import uvloop

from transforms.failures import FailureKind
from transforms.openrouter.call_config import CallConfig
from transforms.openrouter.client import OpenRouterClient

Tasks = set[asyncio.Task[None]]
_BEGUN_AT_ONCE = 32


class ClientLoop:
    """A client on its own thread; made once for each configuration of a process."""

    _lock = threading.Lock()
    _loops: dict[CallConfig, "ClientLoop"] = {}  # noqa: RUF012 - the process's registry

    @classmethod
    def get(cls, config: CallConfig) -> "ClientLoop":
        """The loop of this configuration, started if need be.

        Raises:
            ConfigError: The key cannot be resolved, or the store cannot be opened.
        """
        with cls._lock:
            found = cls._loops.get(config)
            if found is None or not found.is_alive:
                found = cls._loops[config] = cls(config)
            return found

    @classmethod
    def stop_all(cls, detail: str) -> bool:
        """Lets what is on its way come, sends nothing more; False if nobody was sending."""
        sending = [loop for loop in cls._loops.values() if loop.is_alive and loop.is_sending]
        for loop in sending:
            loop._loop.call_soon_threadsafe(  # noqa: SLF001 - its own class
                loop.client.stop, FailureKind.INTERRUPTED, detail
            )
        return bool(sending)

    @classmethod
    def tell_good(cls, count: int) -> None:
        """So many answers of this process are good as far as it is known; for the progress line."""
        for loop in list(cls._loops.values()):
            loop.client.tell_good(count)

    @classmethod
    def close_all(cls) -> None:
        """Closes every client of the process and ends its thread."""
        with cls._lock:
            for loop in cls._loops.values():
                loop._close()  # noqa: SLF001 - its own class
            cls._loops.clear()

    def __init__(self, config: CallConfig) -> None:
        self.is_sending = config.send
        self._started: deque[tuple[Coroutine[Any, Any, None], Tasks]] = deque()
        self._is_woken = False
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="calls")
        self._thread.start()
        # What is loaded stays to the end: a full collection walked half a million objects of Beam
        # and the tokenizer, 3 ms CPU for each answer of 2,000 events.
        gc.freeze()
        self.client = asyncio.run_coroutine_threadsafe(self._make(config), self._loop).result()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self, coroutine: Coroutine[Any, Any, None], tasks: Tasks) -> None:
        """Runs the coroutine on the loop; its task is in `tasks` until it is done.

        Coroutines that are started together wake the loop once: a wake-up costs 40 µs, and as much
        again for a future that two threads share.
        """
        self._started.append((coroutine, tasks))
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._run_started)

    def cancel(self, tasks: Tasks) -> None:
        """Cancels from another thread what was started with `tasks`."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])

    def _run_started(self) -> None:
        """A few at a time: what is on its way must not wait for many to be begun."""
        self._is_woken = False  # first: what is appended from here on wakes the loop again
        for _ in range(min(len(self._started), _BEGUN_AT_ONCE)):
            coroutine, tasks = self._started.popleft()
            task = self._loop.create_task(coroutine)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if self._started:
            self._loop.call_soon(self._run_started)

    @staticmethod
    async def _make(config: CallConfig) -> OpenRouterClient:
        return OpenRouterClient(config)

    def _close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.client.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
