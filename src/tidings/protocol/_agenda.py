"""The tasks of a machine by time: one entry per task, moved or cancelled at will, the earliest first.

Entries that were moved stay in the heap, marked as void, until they reach the top; the heap holds at most twice as many
as there are tasks.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Any, Final

__all__ = ["Agenda"]

_SPARE: Final = 64
_VALID: Final = 2
"""The place in an entry, after time and task, of whether it is valid."""


class Agenda:
    """Tasks by name, each with its time; equal times are ordered by name, so the order is always the same."""

    __slots__ = ("_entries", "_heap", "next_ns")

    def __init__(self) -> None:
        self.next_ns: int | None = None
        """The time of the next task; None if there is none."""
        self._entries: dict[Hashable, list[Any]] = {}  # time, task, whether it is valid
        self._heap: list[list[Any]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, task: Hashable, at_ns: int) -> None:
        """Do the task at this time, instead of at the time set before."""
        known = self._entries.get(task)
        if known is not None:
            if known[0] == at_ns:
                return
            known[_VALID] = False
        self._enter(task, at_ns)

    def advance(self, task: Hashable, at_ns: int) -> None:
        """Do the task at this time at the latest."""
        known = self._entries.get(task)
        if known is not None:
            if known[0] <= at_ns:
                return
            known[_VALID] = False
        self._enter(task, at_ns)

    def cancel(self, task: Hashable) -> None:
        """Do not do the task, if it is on the agenda."""
        known = self._entries.pop(task, None)
        if known is not None:
            known[_VALID] = False
            self._surface()

    def pop(self, now_ns: int) -> Any | None:
        """The next task whose time has come, removed from the agenda; None if there is none."""
        if self.next_ns is None or self.next_ns > now_ns:
            return None
        heap = self._heap
        task = heappop(heap)[1]
        del self._entries[task]
        if heap and heap[0][_VALID]:
            self.next_ns = heap[0][0]
        else:
            self._surface()
        return task

    def _enter(self, task: Hashable, at_ns: int) -> None:
        entry = self._entries[task] = [at_ns, task, True]
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > 2 * len(self._entries) + _SPARE:
            heap = self._heap = list(self._entries.values())
            heapify(heap)
        if heap[0][_VALID]:
            self.next_ns = heap[0][0]
        else:
            self._surface()

    def _surface(self) -> None:
        """Remove void entries from the top of the heap."""
        heap = self._heap
        while heap and not heap[0][_VALID]:
            heappop(heap)
        self.next_ns = heap[0][0] if heap else None
