"""EB and RL by a lazy heap: the same choices as a scan, without looking at what cannot win.

The heap holds slot numbers, the greatest known worth (`known[slot, 0]`) on top, of equals the earliest enqueued. Known
worths are stale, but worth never rises, so they are upper bounds: when the top, computed afresh, stays on top, nothing
below can beat it. What lies within TIE of it may still tie; only those enqueued earlier matter, and the heap order
finds them without visiting the rest.
"""

from tidings.compiled import compiled, compiled_inline
from tidings.scheduling._choosing import TIE, monotone_worth, purge
from tidings.scheduling._kernels import FloatArray, IntArray
from tidings.scheduling._layout import Pairs, Paths, Slots

__all__ = ["heap_choose", "heap_purge", "heap_push", "heap_take"]


@compiled_inline
def heap_push(heap: IntArray, count: int, slot: int, slots: Slots) -> None:
    """Put a slot into a heap of `count` slots."""
    _, _, _, _, _, sequence, known = slots
    heap[count] = slot
    _rise(heap, count, known, sequence)


@compiled_inline
def heap_take(heap: IntArray, count: int, position: int, slots: Slots) -> int:
    """Remove the slot at `position` of the heap and return it."""
    _, _, _, _, _, sequence, known = slots
    slot = heap[position]
    heap[position] = heap[count - 1]
    if position < count - 1:
        _sink(heap, count - 1, position, known, sequence)
        _rise(heap, position, known, sequence)
    return int(slot)


@compiled_inline
def heap_purge(now_s: float, heap: IntArray, count: int, slots: Slots, deleted: IntArray) -> tuple[int, int, float]:
    """As `purge`, for a heap: how many stay, how many went, and the next deletion time."""
    _, _, _, _, delete_s, sequence, known = slots
    kept, removed, soonest_s = purge(now_s, heap, count, delete_s, deleted)
    if removed > 0:
        for position in range(kept // 2 - 1, -1, -1):
            _sink(heap, kept, position, known, sequence)
    return kept, removed, soonest_s


@compiled
def heap_choose(
    code: int,
    now_s: float,
    heap: IntArray,
    count: int,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
    processing_s: float,
    table: FloatArray,
) -> int:
    """The position in the heap of the slot to send next, -1 if nothing waits; nothing is removed. For EB and RL."""
    if count == 0:
        return -1
    published_s, size_kb, start, stop, _, sequence, known = slots
    target, allowed_s = pairs
    price, nodes, mean_s_per_kb, sd_s_per_kb = paths
    fresh = -1
    best = 0.0
    chosen = 0
    position = 0
    # First the top again and again until it is fresh, then once through what may tie with it: one loop, so that the
    # long call stands once.
    while True:
        slot = heap[position]
        worth = monotone_worth(
            code,
            slot,
            now_s,
            published_s,
            size_kb,
            start,
            stop,
            target,
            allowed_s,
            price,
            nodes,
            mean_s_per_kb,
            sd_s_per_kb,
            processing_s,
            table,
        )
        if fresh < 0:
            known[slot, 0] = worth
            _sink(heap, count, 0, known, sequence)
            if heap[0] != slot:
                continue
            fresh = slot
            best = worth
        elif worth >= best - TIE:
            chosen = position
        position = _next_rival(heap, count, position, best - TIE, sequence[heap[chosen]], known, sequence)
        if position < 0:
            return chosen


@compiled_inline
def _next_rival(
    heap: IntArray, count: int, position: int, bound: float, before: int, known: FloatArray, sequence: IntArray
) -> int:
    """The next position, in the order parent, left, right, that may be worth `bound` and was enqueued `before`."""
    descend = True
    while True:
        if descend and 2 * position + 1 < count:
            position = 2 * position + 1
        else:
            while position > 0 and (position % 2 == 0 or position + 1 >= count):
                position = (position - 1) // 2
            if position == 0:
                return -1
            position += 1
        slot = heap[position]
        descend = known[slot, 0] >= bound
        if descend and sequence[slot] < before:
            return position


@compiled_inline
def _ahead(slot: int, other: int, known: FloatArray, sequence: IntArray) -> bool:
    if known[slot, 0] != known[other, 0]:
        return bool(known[slot, 0] > known[other, 0])
    return bool(sequence[slot] < sequence[other])


@compiled_inline
def _rise(heap: IntArray, position: int, known: FloatArray, sequence: IntArray) -> None:
    while position > 0:
        parent = (position - 1) // 2
        if not _ahead(heap[position], heap[parent], known, sequence):
            break
        heap[position], heap[parent] = heap[parent], heap[position]
        position = parent


@compiled_inline
def _sink(heap: IntArray, count: int, position: int, known: FloatArray, sequence: IntArray) -> None:
    while 2 * position + 1 < count:
        child = 2 * position + 1
        if child + 1 < count and _ahead(heap[child + 1], heap[child], known, sequence):
            child += 1
        if not _ahead(heap[child], heap[position], known, sequence):
            break
        heap[position], heap[child] = heap[child], heap[position]
        position = child
