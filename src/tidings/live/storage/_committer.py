"""Group commit: a thread makes writes durable while the machine goes on.

Writes collect in memory until a sync is asked for and the commit before is done; then all of them become one
transaction (here, on the event loop), the thread commits it, and the next ones collect. The last word on a key counts:
a value that was stored and erased in between is not written. Nobody waits for erasures, so what nobody has asked a
sync for is committed after LAZY_S.

When the store has no room the same commit is tried again every RETRY_S; nothing is confirmed meanwhile, so nothing is
promised. Any other failure is final: `on_failure` is told, and nothing is confirmed ever after.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from tidings.live._errors import StoreError, StoreFullError
from tidings.live.storage._store import Prepared, Store
from tidings.live.transport._clock import Clock

__all__ = ["Committer"]

LAZY_S: Final = 1.0
RETRY_S: Final = 1.0


class Committer:
    """The thread that writes; all methods are called on the event loop, and so are the functions given."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        on_synced: Callable[[int], None],
        on_full: Callable[[StoreFullError | None], None],
        on_failure: Callable[[StoreError], None],
    ) -> None:
        self.commits = 0
        self.commit_s = 0.0
        self.is_full = False
        self._store = store
        self._clock = clock
        self._on_synced = on_synced
        self._on_full = on_full
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, bytes | None] = {}
        self._committing: dict[str, bytes | None] = {}
        self._covered: list[int] = []
        self._began_s = 0.0
        self._tokens: list[int] = []  # syncs asked for that the commit under way does not cover
        self._is_committing = self._is_closing = False
        self._work: queue.SimpleQueue[Prepared | None] = queue.SimpleQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tidings-store", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many writes are in no commit yet."""
        return len(self._pending)

    def write(self, key: str, value: bytes | None) -> None:
        """Store a value, or erase it, with the next commit."""
        self._pending[key] = value
        if self._timer is None and not self._is_committing:
            self._timer = self._loop.call_later(LAZY_S, self._begin)

    def sync(self, token: int) -> None:
        """Make everything written so far durable, then say so."""
        self._tokens.append(token)
        if not self._is_committing:
            self._begin()

    async def close(self) -> None:
        """Commit what is left and end the thread; while the store is full, what is left is given up."""
        self._is_closing = True
        if not self._is_committing:
            self._begin()
        await self._idle.wait()
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _begin(self) -> None:
        """One transaction of everything that has collected; tried again later if there is no room for it."""
        self._cancel_timer()
        writes, self._pending = self._pending, {}
        self._committing = writes
        self._is_committing = True
        self._covered, self._tokens = self._tokens, []
        self._try()

    def _try(self) -> None:
        self._timer = None
        self._began_s = time.monotonic()
        if not self._committing:
            self._loop.call_soon(self._done)  # not at once: the machine's step is still being carried out
            return
        try:
            prepared = self._store.prepare(self._committing, self._clock.now_ns())
        except StoreError as error:
            self._failed(error)
        else:
            self._work.put(prepared)

    def _run(self) -> None:
        while (prepared := self._work.get()) is not None:
            try:
                self._store.finish(prepared)
            except StoreError as error:
                self._tell(self._failed, error)
            else:
                self._tell(self._done)

    def _tell(self, what: Callable[..., None], *more: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *more)

    def _failed(self, error: StoreError) -> None:
        if isinstance(error, StoreFullError) and not self._is_closing:
            if not self.is_full:
                self.is_full = True
                self._on_full(error)
            self._timer = self._loop.call_later(RETRY_S, self._try)
            return
        self._idle.set()
        if not self._is_closing:
            self._on_failure(error)

    def _done(self) -> None:
        self.commits += 1
        self.commit_s += time.monotonic() - self._began_s
        self._is_committing = False
        if self.is_full:
            self.is_full = False
            self._on_full(None)
        for token in self._covered:
            self._on_synced(token)
        if self._is_committing:
            return  # what was synced has asked for the next one
        if self._tokens or (self._is_closing and self._pending):
            self._begin()
        elif self._is_closing:
            self._idle.set()
        elif self._pending:
            self._timer = self._loop.call_later(LAZY_S, self._begin)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
