"""Events that must leave in sequence, whatever the strategy: one publisher's, towards somebody who wants order.

Rules:

- Events of one `chain` leave in the order of their `place`, of equals in the order in which they were enqueued. Events
  without a chain (None) are free.
- A chain competes for the link with the best of its members: the strategy chooses among all that wait, as if there were
  no chains, and if the choice has a chain, the first of that chain leaves in its stead. So an urgent event is not lost
  because a patient one stands before it, and the strategy knows how much waits in all.
- What is expired, hopeless or dropped because the queue is full leaves its place to the next.

For one chain and events that take equally long this is the best that can be done in sequence: at every turn the first
that is not hopeless leaves, and no other sequence gets more of them there in time. The price is paid with several: a
member that is worth much lends its worth to all that stand before it.
"""

import heapq
from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["Chains"]

_SPARE: Final = 16
"""So many members that have left may be kept, and as many as wait."""


class Chains:
    """The members of every chain, by place and number; who has left is passed over when it comes up."""

    def __init__(self, waits: Callable[[int], bool]) -> None:
        self._waits = waits
        self._members: dict[Hashable, list[tuple[int, int]]] = {}
        self._counts: dict[Hashable, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, chain: Hashable, place: int, number: int) -> None:
        """Enter an event."""
        heapq.heappush(self._members.setdefault(chain, []), (place, number))
        self._counts[chain] = self._counts.get(chain, 0) + 1

    def remove(self, chain: Hashable) -> None:
        """An event of this chain has left, and waits no more."""
        count = self._counts[chain] - 1
        if not count:
            del self._counts[chain], self._members[chain]
            return
        self._counts[chain] = count
        members = self._members[chain]
        if len(members) > 2 * count + _SPARE:
            members[:] = [member for member in members if self._waits(member[1])]
            heapq.heapify(members)

    def first(self, chain: Hashable) -> int:
        """The number of the first waiting event of a chain that has one."""
        members = self._members[chain]
        while not self._waits(members[0][1]):
            heapq.heappop(members)
        return members[0][1]
