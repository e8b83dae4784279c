"""Detours around what is down, and the memory that keeps duplicates out (paper D, sections 2.4.3 and 4.5).

- An event that a broker cannot give to its child in the tree goes to the *immediately reachable children* instead: on
  the way from that child to each home that wants the event, the first broker that can be reached at all. It is the same
  for subscriptions, which travel a tree the other way.
- Detours and retransmissions together bring an event twice. Whoever hands events on remembers which it has seen, in a
  table with a bound: the oldest is forgotten first, so a duplicate slips through only if as many other events came in
  between.

`topmost_reachable` is compiled and is what the simulator calls; brokers call `bypass_targets`.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import borrowing
from tidings.errors import ConfigurationError

__all__ = ["DuplicateTable", "bypass_targets", "topmost_reachable"]

LongArray = NDArray[np.int64]

NOBODY = -1


@borrowing
def topmost_reachable(parent: LongArray, home: int, below: int, reachable: LongArray) -> int:
    """The first broker on the tree path from `below` to `home`, both included, that is reachable; -1 if none is.

    `parent` and `reachable` are by broker; one is reachable if its entry is not -1. Whoever calls knows that `below`
    lies above `home` or is it.
    """
    found = NOBODY
    broker = home
    while broker >= 0:
        if reachable[broker] >= 0:
            found = broker
        if broker == below:
            break
        broker = parent[broker]
    return int(found)


def bypass_targets(
    parent: Sequence[int], child: int, homes: Iterable[int], reachable: Collection[int]
) -> tuple[int, ...]:
    """Who gets an event in place of a child that does not answer, so that it reaches these homes below the child.

    `parent` gives each broker's parent in the tree (-1 at the root). The answer is in ascending order; the child itself
    is in it, alone, if a detour leads to it. Homes that do not lie below the child are an error of the caller.
    """
    tree = np.asarray(parent, np.int64)
    reached = np.full(len(tree), NOBODY, np.int64)
    reached[list(reachable)] = 0
    found = {int(topmost_reachable(tree, int(home), child, reached)) for home in homes}
    return tuple(sorted(found - {NOBODY}))


class DuplicateTable:
    """The last `size_max` things seen; `add` says whether one is new."""

    def __init__(self, size_max: int) -> None:
        if size_max < 1:
            raise ConfigurationError(
                f"a table of duplicates for {size_max!r} events remembers nothing; give at least 1"
            )
        self._size_max = size_max
        self._seen: dict[Hashable, None] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, identity: object) -> bool:
        return identity in self._seen

    def add(self, identity: Hashable) -> bool:
        """Remember it; True if it was not there. Beyond the bound the oldest is forgotten."""
        if identity in self._seen:
            return False
        self._seen[identity] = None
        if len(self._seen) > self._size_max:
            del self._seen[next(iter(self._seen))]
        return True
