"""The calendar of the event loop: a heap with four children a node, ordered by time and then by order of entry.

Four children halve the depth of a binary heap and sit in two cache lines. The order of entry decides between equal
times, so a run never depends on how the heap happens to lie.
"""

from tidings.compiled import borrowing_step
from tidings.simulation._layout import HEAP_SIZE, ORDER, Array


@borrowing_step
def push(heap: Array, control: Array, time: int, what: int) -> None:
    """Note that something happens at a time: the number of what it happens to, shifted by KIND_BITS, and its kind."""
    order = control[ORDER]
    place = control[HEAP_SIZE]
    control[ORDER] = order + 1
    control[HEAP_SIZE] = place + 1
    while place > 0:
        above = (place - 1) >> 2
        if heap[above].time <= time:  # it was there first, so among equals it stays above
            break
        heap[place] = heap[above]
        place = above
    heap[place].time = time
    heap[place].order = order
    heap[place].what = what


@borrowing_step
def pop(heap: Array, control: Array) -> None:
    """Remove the first; the last takes its place and sinks."""
    size = control[HEAP_SIZE] - 1
    control[HEAP_SIZE] = size
    time = heap[size].time
    order = heap[size].order
    place = 0
    while True:
        child = 4 * place + 1
        if child >= size:
            break
        least = child
        soonest = heap[child].time
        for other in range(child + 1, min(child + 4, size)):
            candidate = heap[other].time
            if candidate < soonest or (candidate == soonest and heap[other].order < heap[least].order):
                least = other
                soonest = candidate
        if soonest > time or (soonest == time and heap[least].order > order):
            break
        heap[place] = heap[least]
        place = least
    heap[place] = heap[size]
