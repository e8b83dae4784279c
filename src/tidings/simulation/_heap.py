"""The calendar of the event loop: a heap with four children a node, ordered by time and then by order of entry.

Four children halve the depth of a binary heap and sit in two cache lines. The order of entry decides between equal
times, so a run never depends on how the heap happens to lie.
"""

from tidings.compiled import compiled_inline
from tidings.simulation._layout import HEAP_SIZE, ORDER, Array


@compiled_inline
def push(heap: Array, control: Array, time: int, kind: int, which: int) -> None:
    """Note that something happens at a time."""
    order = control[ORDER]
    place = control[HEAP_SIZE]
    control[ORDER] = order + 1
    control[HEAP_SIZE] = place + 1
    while place > 0:
        above = (place - 1) >> 2
        if heap[above].time <= time:  # it was there first, so among equals it stays above
            break
        heap[place].time = heap[above].time
        heap[place].order = heap[above].order
        heap[place].kind = heap[above].kind
        heap[place].which = heap[above].which
        place = above
    heap[place].time = time
    heap[place].order = order
    heap[place].kind = kind
    heap[place].which = which


@compiled_inline
def pop(heap: Array, control: Array) -> None:
    """Remove the first; the last takes its place and sinks."""
    size = control[HEAP_SIZE] - 1
    control[HEAP_SIZE] = size
    time = heap[size].time
    order = heap[size].order
    kind = heap[size].kind
    which = heap[size].which
    place = 0
    while True:
        child = 4 * place + 1
        if child >= size:
            break
        least = child
        for other in range(child + 1, min(child + 4, size)):
            if heap[other].time < heap[least].time or (
                heap[other].time == heap[least].time and heap[other].order < heap[least].order
            ):
                least = other
        if heap[least].time > time or (heap[least].time == time and heap[least].order > order):
            break
        heap[place].time = heap[least].time
        heap[place].order = heap[least].order
        heap[place].kind = heap[least].kind
        heap[place].which = heap[least].which
        place = least
    heap[place].time = time
    heap[place].order = order
    heap[place].kind = kind
    heap[place].which = which
