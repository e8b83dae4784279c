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
from collections.abc import Container, Sequence
from math import inf
from typing import Final

from tidings.compiled import borrowing, borrowing_step
from tidings.scheduling._kernels import FloatArray, IntArray
from tidings.scheduling._lane import DELETE, NUMBER, WORTHS, Lane
from tidings.scheduling._tournament import TIE, benefit_of

__all__ = ["ASSESSED_S", "SHARE", "Dropping", "Entry", "assess"]

SHARE: Final = 64
ASSESSED_S: Final = 1.0

Entry = tuple[float, float, int]
"""An event that may go: worth in units of TIE, deletion time, negative number in the order of arrival."""


class Dropping:
    """Who goes next when one queue is full."""

    def __init__(self) -> None:
        self._next: list[Entry] = []
        self._most = -inf
        self._assessed_s = -inf

    @property
    def is_watching(self) -> bool:
        """Whether newcomers have to be noted: there is an assessment that they are not part of."""
        return bool(self._next)

    def note(self, worths: Sequence[float], due_s: Sequence[float], first: int) -> None:
        """Events have come, numbered from the first on: they may be the next to go."""
        for number, (worth, delete_s) in enumerate(zip(worths, due_s, strict=True), first):
            units = float(round(worth / TIE))
            if units <= self._most:
                heapq.heappush(self._next, (units, delete_s, -number))

    def choose(self, many: int, now_s: float, waiting: Container[int]) -> list[int]:
        """The numbers of up to so many events to drop, of those that wait; none: the queue has to be assessed."""
        numbers: list[int] = []
        if now_s - self._assessed_s < ASSESSED_S:
            while self._next and len(numbers) < many:
                number = -heapq.heappop(self._next)[2]
                if number in waiting:
                    numbers.append(number)
        return numbers

    def begin(self, least: list[Entry], now_s: float) -> list[int]:
        """A share of what waits was assessed, the least first: the number of the event to drop."""
        self._most = least[-1][0]
        self._assessed_s = now_s
        self._next = least[1:]
        return [-least[0][2]]


@borrowing
def assess(
    rule: FloatArray, lane: Lane, table: FloatArray, tail: int, now_s: float, worths: FloatArray, least: IntArray
) -> None:
    """Find the positions that are worth least, as many as `least` holds and no more than wait, in no order.

    `worths` gets every worth, in units of TIE.
    """
    trees = lane[4]
    width = trees.shape[1] >> 1
    most = len(least)
    found = 0
    for position in range(tail):
        if trees[WORTHS, width + position] == -inf:
            continue
        worths[position] = round(benefit_of(rule, lane, table, position, now_s, 0.0) / TIE)
        # A heap, the last of them to go on top.
        if found < most:
            least[found] = position
            place = found
            found += 1
            while place > 0 and _is_after(least[place], least[(place - 1) >> 1], worths, lane):
                parent = (place - 1) >> 1
                least[place], least[parent] = least[parent], least[place]
                place = parent
        elif _is_after(least[0], position, worths, lane):
            least[0] = position
            _sink(least, worths, lane)


@borrowing_step
def _sink(least: IntArray, worths: FloatArray, lane: Lane) -> None:
    place = 0
    while 2 * place + 1 < len(least):
        child = 2 * place + 1
        if child + 1 < len(least) and _is_after(least[child + 1], least[child], worths, lane):
            child += 1
        if not _is_after(least[child], least[place], worths, lane):
            break
        least[place], least[child] = least[child], least[place]
        place = child


@borrowing_step
def _is_after(position: int, other: int, worths: FloatArray, lane: Lane) -> bool:
    """Whether the one at `position` goes after the other."""
    facts, spans = lane[0], lane[1]
    if worths[position] != worths[other]:
        return bool(worths[position] > worths[other])
    if facts[position, DELETE] != facts[other, DELETE]:
        return bool(facts[position, DELETE] > facts[other, DELETE])
    return bool(spans[position, NUMBER] < spans[other, NUMBER])
