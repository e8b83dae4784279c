"""What a full queue gives up: the waiting event with the least expected benefit (paper C, Equation 3).

Rules, the same for every strategy:

- The worth of an event is its expected benefit if it left now. Worths within TIE are equal; of equals the one whose
  deletion time comes first goes, and of those the last enqueued.
- Expected benefit never rises with time. So the worths of one assessment of the whole queue stay upper bounds, and
  serve for several drops: those worth least, at least one and else a share of 1 / SHARE of the queue, are the next to
  go, together with newcomers that are worth no more than the last of them.
- The queue is assessed anew when those are used up, and ASSESSED_S after the last time. So a drop costs about SHARE
  evaluations, however long the queue is.

What holds: nothing dropped was worth more than anything kept, by what each was worth when it was last assessed; and a
queue of fewer than 2 SHARE events is assessed at every drop, so there it holds for the worths of that moment.
"""

import heapq
import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from tidings.compiled import compiled
from tidings.scheduling._choosing import TIE
from tidings.scheduling._kernels import FloatArray, IntArray, tabulated_benefit
from tidings.scheduling._layout import Pairs, Paths, Slots

__all__ = ["ASSESSED_S", "SHARE", "Assessment", "Dropping", "benefits"]

SHARE: Final = 64
ASSESSED_S: Final = 1.0


class Assessment(NamedTuple):
    """Of events that wait: expected benefit now, deletion time, and number in the order of arrival."""

    worth: FloatArray
    delete_s: FloatArray
    sequence: IntArray


class Dropping:
    """Who goes next when one queue is full."""

    def __init__(self) -> None:
        self._next: list[tuple[int, float, int]] = []  # worth in units of TIE, deletion time, negative number
        self._most = -math.inf
        self._assessed_s = -math.inf

    @property
    def is_watching(self) -> bool:
        """Whether newcomers have to be noted: there is an assessment that they are not part of."""
        return bool(self._next)

    def note(self, newcomer: Assessment) -> None:
        """An event has come: it may be the next to go."""
        (entry,) = _entries(newcomer)
        if entry[0] <= self._most:
            heapq.heappush(self._next, entry)

    def choose(self, now_s: float, assess: Callable[[], Assessment], waits: Callable[[int], bool]) -> int:
        """The number of the event to drop, of those that wait."""
        if now_s - self._assessed_s < ASSESSED_S:
            while self._next:
                sequence = -heapq.heappop(self._next)[2]
                if waits(sequence):
                    return sequence
        entries = sorted(_entries(assess()))
        least = entries[: max(len(entries) // SHARE, 1)]
        self._most = least[-1][0]
        self._assessed_s = now_s
        self._next = least[1:]
        return -least[0][2]


def _entries(found: Assessment) -> list[tuple[int, float, int]]:
    steps = np.rint(found.worth / TIE).astype(np.int64).tolist()
    return list(zip(steps, found.delete_s.tolist(), (-found.sequence).tolist(), strict=True))


@compiled
def benefits(
    now_s: float,
    queue: IntArray,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
    table: FloatArray,
    found: FloatArray,
) -> None:
    """The expected benefit now of every slot of a queue."""
    published_s, size_kb, start, stop, _, _, _ = slots
    target, allowed_s = pairs
    price, nodes, mean_s_per_kb, sd_s_per_kb = paths
    for position in range(len(queue)):
        slot = queue[position]
        found[position] = tabulated_benefit(
            now_s,
            published_s[slot],
            size_kb[slot],
            start[slot],
            stop[slot],
            target,
            allowed_s,
            price,
            nodes,
            mean_s_per_kb,
            sd_s_per_kb,
            processing_s,
            0.0,
            table,
        )
