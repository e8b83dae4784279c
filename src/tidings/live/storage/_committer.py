"""The thread that makes commits durable while the event loop continues. The node decides what to commit, and when.

A transaction is assembled on the event loop and committed by the thread (`Store.prepare`, `Store.finish`). There is
one commit at a time.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

from tidings.live._errors import StoreError, StoreFullError
from tidings.live.storage._store import Store
from tidings.protocol.node import Commit

__all__ = ["Committer"]


class Committer:
    """Commits, one after the other; the functions given are called on the event loop."""

    def __init__(
        self,
        store: Store,
        *,
        on_committed: Callable[[], None],
        on_refused: Callable[[StoreFullError], None],
        on_failure: Callable[[StoreError], None],
    ) -> None:
        self.commits = 0
        self.commit_s = 0.0
        self._store = store
        self._on_committed = on_committed
        self._on_refused = on_refused
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._began_s = 0.0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tidings-store", daemon=True)
        self._thread.start()

    def commit(self, commit: Commit) -> None:
        """Make this durable, then report it, but not before the step that requested it has been carried out."""
        self._began_s = time.monotonic()
        if commit.is_ahead:
            self._work.put(partial(self._store.make_room, list(commit.writes)))
            return
        try:
            prepared = self._store.prepare(commit.writes)
        except StoreError as error:
            self._loop.call_soon(self._failed, error)
        else:
            self._work.put(partial(self._store.finish, prepared))

    async def close(self) -> None:
        """Stop the thread after the commit in progress."""
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except StoreError as error:
                self._tell(self._failed, error)
            else:
                self._tell(self._done)

    def _tell(self, what: Callable[..., None], *more: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *more)

    def _failed(self, error: StoreError) -> None:
        if isinstance(error, StoreFullError):
            self._on_refused(error)
        else:
            self._on_failure(error)

    def _done(self) -> None:
        self.commits += 1
        self.commit_s += time.monotonic() - self._began_s
        self._on_committed()
