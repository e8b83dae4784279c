"""What waits by deletion time, and whether there is time for all of it (triage).

There is time for all if the k-th to be deleted has at least k steps left, for every k. Events come and go anywhere in
that order, and a step of time or an event more changes every comparison behind it; so nothing is kept for each event:

- Deletion times are kept sorted, of equals by number, in blocks of at most BLOCK. An event enters and leaves its block;
  a block that is full is split, and neighbours that fit into half a block are merged, so there are at most n / 32 + 1.
- A block knows its *room*: the least of (deletion time - k steps) over its events, k counted within the block. With k
  counted over all blocks before, that is the moment up to which there is time for all of the block: one comparison
  each.
- Sums in another order round differently. If the moment found is as near to now as rounding may matter, the
  comparison is made event by event, as it is defined.
"""

from math import inf
from typing import Final, NamedTuple

import numpy as np

from tidings.compiled import borrowing, borrowing_step
from tidings.scheduling._kernels import FloatArray, IntArray

__all__ = ["Urgency", "empty_urgency", "enter", "grown", "is_time_for_all", "leave", "most_urgent", "retime"]

BLOCK: Final = 128
_ROUNDING: Final = 1e-12
"""Relative to the figures added, far more than rounding of 65,536 of them can amount to in double precision."""


class Urgency(NamedTuple):
    """Blocks in `order`, of which the first `marks[0]` are in use; kernels unpack it by position."""

    times_s: FloatArray
    numbers: IntArray
    order: IntArray
    counts: IntArray
    rooms_s: FloatArray
    marks: IntArray


def empty_urgency(events: int) -> Urgency:
    """Room for so many events."""
    blocks = events // (BLOCK // 4) + 4
    return Urgency(
        times_s=np.zeros((blocks, BLOCK)),
        numbers=np.zeros((blocks, BLOCK), np.int64),
        order=np.arange(blocks),
        counts=np.zeros(blocks, np.int64),
        rooms_s=np.zeros(blocks),
        marks=np.zeros(1, np.int64),
    )


def grown(urgency: Urgency, events: int) -> Urgency:
    """The same events, with room for so many."""
    new = empty_urgency(events)
    for old, other in zip(urgency, new, strict=True):
        other[: len(old)] = old
    return new


@borrowing_step
def _is_before(time_s: float, number: int, other_s: float, other: int) -> bool:
    return time_s < other_s or (time_s == other_s and number < other)


@borrowing_step
def _block_for(time_s: float, number: int, urgency: Urgency) -> int:
    """The place in the order of the last block that begins with this event or before; the first, if none does."""
    times_s, numbers, order, _, _, marks = urgency
    low, high = 1, marks[0]
    while low < high:
        middle = (low + high) >> 1
        block = order[middle]
        if _is_before(time_s, number, times_s[block, 0], numbers[block, 0]):
            high = middle
        else:
            low = middle + 1
    return low - 1


@borrowing_step
def _place_in(block: int, time_s: float, number: int, urgency: Urgency) -> int:
    """How many events of a block come before this one."""
    times_s, numbers, _, counts, _, _ = urgency
    low, high = 0, counts[block]
    while low < high:
        middle = (low + high) >> 1
        if _is_before(times_s[block, middle], numbers[block, middle], time_s, number):
            low = middle + 1
        else:
            high = middle
    return low


@borrowing_step
def _measure(block: int, step_s: float, urgency: Urgency) -> None:
    times_s, _, _, counts, rooms_s, _ = urgency
    room_s = inf
    for place in range(counts[block]):
        room_s = min(room_s, times_s[block, place] - (place + 1) * step_s)
    rooms_s[block] = room_s


@borrowing_step
def _move(block: int, first: int, other: int, at: int, urgency: Urgency) -> None:
    """Move the events of a block from `first` on to another, from its place `at` on."""
    times_s, numbers, _, counts, _, _ = urgency
    for place in range(first, counts[block]):
        times_s[other, at + place - first] = times_s[block, place]
        numbers[other, at + place - first] = numbers[block, place]
    counts[other] = at + counts[block] - first
    counts[block] = first


@borrowing_step
def enter(time_s: float, number: int, step_s: float, urgency: Urgency) -> None:
    """An event has come."""
    times_s, numbers, order, counts, _, marks = urgency
    if marks[0] == 0:
        marks[0] = 1
        counts[order[0]] = 0
    at = _block_for(time_s, number, urgency)
    block = order[at]
    if counts[block] == BLOCK:
        other = order[marks[0]]
        for place in range(marks[0], at + 1, -1):
            order[place] = order[place - 1]
        order[at + 1] = other
        marks[0] += 1
        _move(block, BLOCK // 2, other, 0, urgency)
        _measure(block, step_s, urgency)
        _measure(other, step_s, urgency)
        if not _is_before(time_s, number, times_s[other, 0], numbers[other, 0]):
            block = other
    place = _place_in(block, time_s, number, urgency)
    for later in range(counts[block], place, -1):
        times_s[block, later] = times_s[block, later - 1]
        numbers[block, later] = numbers[block, later - 1]
    times_s[block, place] = time_s
    numbers[block, place] = number
    counts[block] += 1
    _measure(block, step_s, urgency)


@borrowing_step
def leave(time_s: float, number: int, step_s: float, urgency: Urgency) -> None:
    """An event that is here has left."""
    times_s, numbers, order, counts, _, marks = urgency
    at = _block_for(time_s, number, urgency)
    block = order[at]
    for place in range(_place_in(block, time_s, number, urgency) + 1, counts[block]):
        times_s[block, place - 1] = times_s[block, place]
        numbers[block, place - 1] = numbers[block, place]
    counts[block] -= 1
    if counts[block] == 0:
        _take_out(at, urgency)
        return
    # Merge with the next, else with the one before; in both cases `at` and the one after it.
    if at + 1 == marks[0] or counts[block] + counts[order[at + 1]] > BLOCK // 2:
        at -= 1
    if at >= 0 and at + 1 < marks[0] and counts[order[at]] + counts[order[at + 1]] <= BLOCK // 2:
        block = order[at]
        _move(order[at + 1], 0, block, counts[block], urgency)
        _take_out(at + 1, urgency)
    _measure(block, step_s, urgency)


@borrowing_step
def _take_out(at: int, urgency: Urgency) -> None:
    _, _, order, _, _, marks = urgency
    block = order[at]
    for place in range(at + 1, marks[0]):
        order[place - 1] = order[place]
    marks[0] -= 1
    order[marks[0]] = block


@borrowing_step
def most_urgent(urgency: Urgency) -> int:
    """The number of the event that is deleted first, of equals the earliest; there must be one."""
    _, numbers, order, _, _, _ = urgency
    return int(numbers[order[0], 0])


@borrowing_step
def is_time_for_all(now_s: float, step_s: float, urgency: Urgency) -> bool:
    """Whether, at `step_s` for each and the most urgent first, the last of all would leave before it is deleted."""
    times_s, _, order, counts, rooms_s, marks = urgency
    if step_s <= 0.0:
        return True
    before = 0
    until_s = inf
    for at in range(marks[0]):
        block = order[at]
        until_s = min(until_s, rooms_s[block] - before * step_s)
        before += counts[block]
    doubt_s = _ROUNDING * (abs(now_s) + before * step_s)
    if until_s > now_s + doubt_s or until_s < now_s - doubt_s:
        return until_s > now_s
    needed = 0
    for at in range(marks[0]):
        block = order[at]
        for place in range(counts[block]):
            needed += 1
            if (times_s[block, place] - now_s) / step_s < needed:
                return False
    return True


@borrowing
def retime(step_s: float, urgency: Urgency) -> None:
    """From now on everyone is given this much time."""
    _, _, order, _, _, marks = urgency
    for at in range(marks[0]):
        _measure(order[at], step_s, urgency)
