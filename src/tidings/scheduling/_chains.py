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

from bisect import bisect_left, insort
from collections.abc import Hashable

__all__ = ["Chains"]


class Chains:
    """The members of every chain: each has a number, by which it was enqueued, and a slot, by which the queue finds it.

    Most members come in sequence, so that entering one is appending it; taking out the first of 65,536 moves 512 kB.
    """

    def __init__(self) -> None:
        self._members: dict[Hashable, list[tuple[int, int, int]]] = {}  # by place, then number; and the slot

    def __bool__(self) -> bool:
        return bool(self._members)

    def add(self, chain: Hashable, place: int, number: int, slot: int) -> None:
        """Enter an event."""
        insort(self._members.setdefault(chain, []), (place, number, slot))

    def remove(self, chain: Hashable, place: int, number: int) -> None:
        """An event has left."""
        members = self._members[chain]
        del members[bisect_left(members, (place, number))]
        if not members:
            del self._members[chain]

    def first(self, chain: Hashable) -> int:
        """The slot of the first waiting event of a chain that has one."""
        return self._members[chain][0][2]
