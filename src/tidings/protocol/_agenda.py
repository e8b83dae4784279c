"""What a machine has to do when: one entry per task, moved or cancelled at will, the earliest first.

Entries that were moved stay in the heap until they surface; it holds at most twice as many as there are tasks.
"""

import heapq
from collections.abc import Hashable

__all__ = ["Agenda"]

_SPARE = 64


class Agenda:
    """Tasks by name, each with its time; of equal times, the name decides, so the order is always the same."""

    def __init__(self) -> None:
        self._at_ns: dict[Hashable, int] = {}
        self._heap: list[tuple[int, Hashable]] = []

    def __len__(self) -> int:
        return len(self._at_ns)

    def set(self, task: Hashable, at_ns: int) -> None:
        """Do the task at this time, instead of when it was to be done before."""
        if self._at_ns.get(task) != at_ns:
            self._at_ns[task] = at_ns
            heapq.heappush(self._heap, (at_ns, task))
            if len(self._heap) > 2 * len(self._at_ns) + _SPARE:
                self._heap = [(at, task) for task, at in self._at_ns.items()]
                heapq.heapify(self._heap)

    def advance(self, task: Hashable, at_ns: int) -> None:
        """Do the task at this time at the latest."""
        known_ns = self._at_ns.get(task)
        if known_ns is None or at_ns < known_ns:
            self.set(task, at_ns)

    def cancel(self, task: Hashable) -> None:
        """Do not do it, if it was to be done at all."""
        self._at_ns.pop(task, None)

    @property
    def next_ns(self) -> int | None:
        """When there is something to do; None if never."""
        heap = self._heap
        while heap:
            at_ns, task = heap[0]
            if self._at_ns.get(task) == at_ns:
                return at_ns
            heapq.heappop(heap)
        return None

    def pop(self, now_ns: int) -> Hashable | None:
        """The next task whose time has come; it is off the agenda. None if there is none."""
        at_ns = self.next_ns
        if at_ns is None or at_ns > now_ns:
            return None
        task = heapq.heappop(self._heap)[1]
        del self._at_ns[task]
        return task
