"""The event loop: what happens next, happens (docs/reference/simulation.md shows the life of a copy).

Theory of operation:

- Time jumps from one happening to the next: a publication of the chunk given, or the top of the heap. At equal times
  publications come first, then the order of entry. The loop comes back when the chunk is used up, when a pool or an
  output buffer has too little room for one more step, or after a number of steps; called again, it goes on exactly
  where it was, so how often it comes back changes nothing.
- A copy enters a link's queue, is chosen, is sent (size times a fresh draw of slowness), may be lost, is on the way
  (propagation), waits at the target for its turn (service), is delayed (processing), is delivered to the subscribers
  there and forwarded to the links behind which others lie (`_links`, `_brokers`, `_forwarding`).
- Where brokers or links fail the same copies meet components that are down, tables that know less, stores and detours
  (`_failing`, `_stores`, `_tables`, `_maps`).
"""

from tidings.compiled import borrowing, borrowing_step
from tidings.simulation._brokers import arrive, served
from tidings.simulation._copies import mark, settle
from tidings.simulation._forwarding import forward, publish
from tidings.simulation._heap import pop
from tidings.simulation._layout import (
    ACKED,
    ALIVE,
    ARRIVED,
    BROKERS,
    COPIES_STEP,
    COPIES_USED,
    DELIVERIES_OUT,
    ENTRIES_STEP,
    ENTRIES_USED,
    EVENTS_USED,
    GROUP,
    HEAP_SIZE,
    HEAP_STEP,
    HOPS_OUT,
    INPUT_USED,
    IS_FAILING,
    KIND_BITS,
    KINDS,
    LONGEST,
    NEXT_PUBLICATION,
    NOBODY,
    NOW,
    OUTPUT_FULL,
    OVERLOADED,
    PAUSED,
    POOL_FULL,
    PROCESSED,
    SERVED,
    STEPS,
    TRANSITIONS_OUT,
    TRANSMITTED,
    UNDERWAY,
    WIDEST,
    WORDS_USED,
)
from tidings.simulation._links import transmitted
from tidings.simulation._outages import accept, happen
from tidings.simulation._stores import acked
from tidings.simulation._world import Failing, World

__all__ = ["advance", "finish"]


@borrowing_step
def has_room(w: World) -> bool:
    """Whether every pool has room for whatever one step may need."""
    control, settings = w.control, w.settings
    step, heap = settings[COPIES_STEP], settings[HEAP_STEP]
    if settings[IS_FAILING] != 0:
        heap += 2 * control[ALIVE]
        if control[WORDS_USED] + 2 * ((GROUP + 1) * settings[BROKERS] + 1) > len(w.words):
            return False
    return bool(
        control[COPIES_USED] + step <= len(w.copies)
        and control[HEAP_SIZE] + heap <= len(w.heap)
        and control[EVENTS_USED] + 1 <= len(w.events)
        and control[ENTRIES_USED] + settings[ENTRIES_STEP] * control[WIDEST] + 2 * step <= len(w.entries)
    )


@borrowing_step
def has_rows(w: World) -> bool:
    """Whether the output has room for whatever one step may leave there: rows for all that waits in one queue, or is
    cut off by a crash."""
    control = w.control
    rows = w.settings[COPIES_STEP] + 1 + control[ALIVE if w.settings[IS_FAILING] != 0 else LONGEST]
    return bool(
        control[HOPS_OUT] + rows <= len(w.hops)
        and control[DELIVERIES_OUT] + control[WIDEST] <= len(w.deliveries)
        and control[TRANSITIONS_OUT] + 1 <= len(w.transitions)
    )


@borrowing
def advance(
    w: World,
    horizon: int,
    steps_max: int,
    copies_max: int,
    is_draining: bool,
    failing: Failing,
) -> int:
    """Let everything happen that happens before the horizon; says why it came back.

    When draining it comes back as soon as no copy is left.
    """
    control = w.control
    for _ in range(steps_max):
        if not has_room(w):
            return POOL_FULL
        if len(w.hops) > 0 and not has_rows(w):
            return OUTPUT_FULL
        if control[ALIVE] > copies_max:
            return OVERLOADED
        if is_draining and control[ALIVE] == 0:
            return INPUT_USED
        number = control[NEXT_PUBLICATION]
        is_new = number < len(w.publications) and (
            control[HEAP_SIZE] == 0 or w.publications[number].time <= w.heap[0].time
        )
        if not is_new and (control[HEAP_SIZE] == 0 or w.heap[0].time >= horizon):
            return INPUT_USED
        control[STEPS] += 1
        if is_new:
            control[NEXT_PUBLICATION] = number + 1
            control[NOW] = w.publications[number].time
            publish(w, number)
            continue
        now = w.heap[0].time
        kind, which = w.heap[0].what & KINDS, w.heap[0].what >> KIND_BITS
        pop(w.heap, control)
        control[NOW] = now
        ready = NOBODY  # the copy that is through with a broker
        if kind == TRANSMITTED:
            ready = transmitted(w, which, now)
        elif kind == PROCESSED:
            ready = which
        elif kind == SERVED:
            ready = served(w, which, now)
        elif kind == ARRIVED:
            ready = arrive(w, which, now, failing)
        elif failing is not None:
            if kind == ACKED:
                acked(w, which, now)
            else:
                happen(w, kind, which, now)
        if ready >= 0:
            if failing is not None:
                accept(w, ready, now)
            else:
                forward(w, ready, now)
    return PAUSED


@borrowing
def finish(w: World) -> None:
    """Count the pairs of all events that are still alive when the run ends."""
    for copy in range(w.control[COPIES_USED]):
        if w.copies[copy].event >= 0:
            mark(w, w.copies[copy].start, w.copies[copy].stop, UNDERWAY)
    for event in range(w.control[EVENTS_USED]):
        if w.events[event].copies > 0:
            settle(w, event)
