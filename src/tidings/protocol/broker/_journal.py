"""Durability: actions that wait until the writes they depend on are on disk. Every acknowledgement is one.

Writes are effects. One sync at a time is under way. An action waits for the sync that covers the last write before it,
so many writes share a sync and no action waits for a later one than it needs.
"""

from collections.abc import Callable
from typing import Any

from tidings.protocol._effects import Effect, Erase, Store, Sync

__all__ = ["Journal"]


class Journal:
    """The writes of one machine; `perform` is called with actions whose writes are durable."""

    def __init__(self, *, emit: Callable[[Effect], None], perform: Callable[[tuple[Any, ...]], None]) -> None:
        self._emit = emit
        self._perform = perform
        self._token = 0
        self._is_dirty = self._is_syncing = False
        self.unsynced: list[tuple[Any, ...]] = []  # for the next sync
        self._syncing: list[tuple[Any, ...]] = []  # for the one under way

    def store(self, key: str, value: bytes) -> None:
        """Store a value."""
        self._is_dirty = True
        self._emit(Store(key, value))

    def erase(self, key: str, *, matters: bool = False) -> None:
        """Erase a value; only if that matters, actions wait for it to be durable."""
        self._is_dirty |= matters
        self._emit(Erase(key))

    def erase_ahead(self, key: str) -> None:
        """Erase a value that no earlier write replaces, so that it need not wait for earlier writes."""
        self._emit(Erase(key, ahead=True))

    def when_durable(self, what: tuple[Any, ...]) -> None:
        """Perform an action once everything stored so far is durable; at once if it is."""
        if self._is_dirty:
            self.unsynced.append(what)
        elif self._is_syncing:
            self._syncing.append(what)
        else:
            self._perform(what)

    def finish_step(self) -> None:
        """Request a sync if an action waits for one and none is under way."""
        if self.unsynced and not self._is_syncing:
            self._token += 1
            self._is_syncing, self._is_dirty = True, False
            self._syncing, self.unsynced = self.unsynced, []
            self._emit(Sync(self._token))

    def synced(self, token: int) -> None:
        """The sync of this token is done; any other token is ignored."""
        if token == self._token and self._is_syncing:
            self._is_syncing = False
            done, self._syncing = self._syncing, []
            for what in done:
                self._perform(what)
