"""Detours around failures (paper D, section 2.4.3).

An event that a broker cannot give to its child in the tree goes to the *immediately reachable children* instead: on the
path from that child to each home with a match, the first reachable broker. The same holds for subscriptions, which
travel a tree in the other direction.

`topmost_reachable` is the compiled step that the simulator's loop takes for one home; `bypass_targets` is the rule for
all homes together.
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import borrowing

__all__ = ["bypass_targets", "topmost_reachable"]

LongArray = NDArray[np.int64]

NOBODY = -1


@borrowing
def topmost_reachable(parent: LongArray, home: int, below: int, reachable: LongArray) -> int:
    """The first broker on the tree path from `below` to `home`, both included, that is reachable; -1 if none is.

    `parent` and `reachable` are by broker; one is reachable if its entry is not -1. The caller ensures that `below`
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
    """The brokers that get an event in place of a failed child, so that it reaches these homes below the child.

    `parent` gives each broker's parent in the tree (-1 at the root). The answer is in ascending order; the child itself
    is in it, alone, if a detour leads to it. Homes that do not lie below the child are an error of the caller.
    """
    tree = np.asarray(parent, np.int64)
    reached = np.full(len(tree), NOBODY, np.int64)
    reached[list(reachable)] = 0
    found = {int(topmost_reachable(tree, int(home), child, reached)) for home in homes}
    return tuple(sorted(found - {NOBODY}))
