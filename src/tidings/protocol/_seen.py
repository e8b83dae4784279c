"""The duplicate suppression at the last hop: what was delivered is known until no copy of it can be alive any more.

It is durable at a broker. At `max_seen` entries the one that expires first is forgotten.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

__all__ = ["Seen"]

Key = TypeVar("Key", bound=Hashable)


class Seen(Generic[Key]):
    """What was delivered, until no copy can come any more; keys of one table can be put in order."""

    def __init__(self, max_seen: int) -> None:
        self._max = max_seen
        self._expires_ns: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._expires_ns)

    def __contains__(self, key: Key) -> bool:
        return key in self._expires_ns

    def add(self, key: Key, expires_ns: int) -> Key | None:
        """Remember an event; another one that had to be forgotten for it."""
        if key in self._expires_ns:
            return None
        self._expires_ns[key] = expires_ns
        heapq.heappush(self._heap, (expires_ns, key))
        return self._pop() if len(self._expires_ns) > self._max else None

    @property
    def next_expiry_ns(self) -> int | None:
        """When something can be forgotten."""
        return self._heap[0][0] if self._heap else None

    def forget_old(self, now_ns: int) -> Iterator[Key]:
        """The events of which no copy can come any more."""
        while self._heap and self._heap[0][0] <= now_ns:
            yield self._pop()

    def _pop(self) -> Key:
        key = heapq.heappop(self._heap)[1]
        del self._expires_ns[key]
        return key
