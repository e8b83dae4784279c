"""Everything that grows with the load: the heap, the copies and events alive, and the arena of their entries.

Slots that are given back are used again before new ones, so memory follows the load and not the length of a run. The
event loop looks for room before each step and comes back when there is too little; `grown` doubles the pool.

The arena hands out blocks of a power of two of entries, with a list of free blocks for each size.
"""

from typing import Any, NamedTuple

import numpy as np

from tidings.compiled import borrowing, borrowing_inner, borrowing_step
from tidings.scheduling._layout import Room, Slots, empty_slots, make_room
from tidings.simulation._layout import (
    ALIVE,
    ARENA_USED,
    CONTROLS,
    COPIES_USED,
    COPY,
    DELIVERED,
    DISCARDED,
    EVENT,
    EVENTS_USED,
    FREE_COPY,
    FREE_EVENT,
    HEAP,
    NOBODY,
    SIZE_CLASSES,
    UNDERWAY,
    Array,
)

__all__ = [
    "Pools",
    "end_copy",
    "give_block",
    "grown",
    "longer",
    "make_pools",
    "take_block",
    "take_copy",
    "take_event",
]


class Pools(NamedTuple):
    """The pools; entry arrays are parallel, and `itself` holds each entry's own number (see scheduling._kernels).

    `slots` are what decisions know of copies that wait, by the copy's number; `queue` is room to list them
    in, `room` to decide in.
    """

    control: Array
    free_blocks: Array
    heap: Array
    copies: Array
    slots: Slots
    queue: Array
    room: Room
    events: Array
    subscription: Array
    origin: Array
    state: Array
    itself: Array
    allowed_s: Array
    price: Array
    fixed_s: Array
    mean: Array
    sd: Array


_ENTRY_ARRAYS = ("subscription", "origin", "state", "itself", "allowed_s", "price", "fixed_s", "mean", "sd")


def make_pools(*, copies: int = 1024, events: int = 256, entries: int = 8192) -> Pools:
    """Empty pools with room for some."""
    control = np.zeros(CONTROLS, np.int64)
    control[FREE_COPY] = control[FREE_EVENT] = NOBODY
    return Pools(
        control=control,
        free_blocks=np.full(SIZE_CLASSES, NOBODY, np.int64),
        heap=np.zeros(copies, HEAP),
        copies=np.zeros(copies, COPY),
        slots=empty_slots(copies),
        queue=np.zeros(copies, np.int64),
        room=make_room(copies),
        events=np.zeros(events, EVENT),
        subscription=np.zeros(entries, np.int64),
        origin=np.zeros(entries, np.int64),
        state=np.zeros(entries, np.int8),
        itself=np.arange(entries, dtype=np.int64),
        allowed_s=np.zeros(entries),
        price=np.zeros(entries),
        fixed_s=np.zeros(entries),
        mean=np.zeros(entries),
        sd=np.zeros(entries),
    )


def grown(pools: Pools, *, copies: int, heap: int, entries: int) -> Pools:
    """The same pools with room for this many more copies and events, times and entries, and at least twice as large."""
    control = pools.control
    larger: dict[str, Any] = {
        "copies": longer(pools.copies, control[COPIES_USED] + copies),
        "events": longer(pools.events, control[EVENTS_USED] + copies),
        "heap": longer(pools.heap, heap),
    }
    larger["slots"] = Slots(*(longer(each, len(larger["copies"])) for each in pools.slots))
    larger["queue"] = longer(pools.queue, len(larger["copies"]))
    larger["room"] = make_room(len(larger["copies"]))
    for name in _ENTRY_ARRAYS:
        larger[name] = longer(getattr(pools, name), control[ARENA_USED] + entries)
    larger["itself"] = np.arange(len(larger["itself"]), dtype=np.int64)
    return pools._replace(**larger)


def longer(array: Array, length: int) -> Array:
    if length <= len(array):
        return array
    longer = np.zeros((max(int(length), 2 * len(array)), *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


@borrowing_step
def take_copy(copies: Array, control: Array) -> int:
    copy = control[FREE_COPY]
    if copy >= 0:
        control[FREE_COPY] = copies[copy].next
    else:
        copy = control[COPIES_USED]
        control[COPIES_USED] = copy + 1
    control[ALIVE] += 1
    return int(copy)


@borrowing_inner
def take_event(events: Array, control: Array) -> int:
    event = control[FREE_EVENT]
    if event >= 0:
        control[FREE_EVENT] = events[event].start
    else:
        event = control[EVENTS_USED]
        control[EVENTS_USED] = event + 1
    return int(event)


@borrowing_inner
def take_block(size: int, subscription: Array, free_blocks: Array, control: Array) -> tuple[int, int]:
    """A block of the arena for this many entries: where it starts, and its size as a power of two."""
    block = 0
    while (1 << block) < size:
        block += 1
    start = free_blocks[block]
    if start >= 0:
        free_blocks[block] = subscription[start]
    else:
        start = control[ARENA_USED]
        control[ARENA_USED] = start + (1 << block)
    return start, block


@borrowing_step
def give_block(start: int, block: int, subscription: Array, free_blocks: Array) -> None:
    subscription[start] = free_blocks[block]
    free_blocks[block] = start


@borrowing_inner
def settle(event: int, events: Array, subscription: Array, state: Array, subscriptions: Array) -> None:
    """Count what became of the pairs of an event that were not delivered."""
    if events[event].pending == 0 or events[event].is_counted == 0:
        return
    for entry in range(events[event].start, events[event].stop):
        fate = state[entry]
        if fate & DELIVERED == 0:
            if fate & UNDERWAY != 0:
                subscriptions[subscription[entry]].in_flight += 1
            elif fate & DISCARDED != 0:
                subscriptions[subscription[entry]].discarded += 1
            else:
                subscriptions[subscription[entry]].lost += 1


@borrowing_step
def end_copy(
    copy: int,
    copies: Array,
    events: Array,
    subscription: Array,
    state: Array,
    subscriptions: Array,
    free_blocks: Array,
    control: Array,
) -> None:
    """Give a copy back, and its event with its last copy."""
    event = copies[copy].event
    if copies[copy].block >= 0:
        give_block(copies[copy].start, copies[copy].block, subscription, free_blocks)
    copies[copy].event = NOBODY
    copies[copy].next = control[FREE_COPY]
    control[FREE_COPY] = copy
    control[ALIVE] -= 1
    events[event].copies -= 1
    if events[event].copies == 0:
        settle(event, events, subscription, state, subscriptions)
        if events[event].block >= 0:
            give_block(events[event].start, events[event].block, subscription, free_blocks)
        events[event].start = control[FREE_EVENT]
        control[FREE_EVENT] = event


@borrowing
def settle_unfinished(
    copies: Array, events: Array, subscription: Array, origin: Array, state: Array, subscriptions: Array, control: Array
) -> None:
    """Count the pairs of all events that are still alive when the run ends."""
    for copy in range(control[COPIES_USED]):
        if copies[copy].event >= 0:
            for entry in range(copies[copy].start, copies[copy].stop):
                state[origin[entry]] |= UNDERWAY
    for event in range(control[EVENTS_USED]):
        if events[event].copies > 0:
            settle(event, events, subscription, state, subscriptions)
