"""The queue of a link, and what the link sends next when it has become free (paper C, section 5).

Rules:

- The queue is in order of arrival. What is chosen from it is the business of `tidings.scheduling`, the same function
  that live brokers decide by: its strategies, its ties, its bounds from earlier decisions.
- Times are whole nanoseconds here and seconds there. A decision is asked for as if it were made at time 0, so that what
  it computes depends on how long ago an event was published and not on how long the run has lasted.
- At a decision, copies past their deletion time go: expired ones, and with all strategies but FIFO and RL also hopeless
  ones. First in, first out only looks at the head; what lies behind it is deleted when it gets there.
"""

from math import inf

from tidings.compiled import borrowing, borrowing_inner, borrowing_step
from tidings.scheduling._choosing import choose_in
from tidings.scheduling._kernels import NORMAL_TABLE, deletion_time, expiry_time
from tidings.scheduling._layout import TURNS, Pairs, Paths, Room, Slots
from tidings.scheduling._strategies import FIFO, RL
from tidings.simulation._laws import whole_ns
from tidings.simulation._layout import NANOSECONDS, NEVER_NS, NOBODY, Array

__all__ = ["append", "choose_copy", "deletion_ns", "unlink"]

_SECOND = 1.0 / NANOSECONDS


@borrowing_step
def append(link: int, copy: int, links: Array, copies: Array) -> None:
    """Put a copy at the end of a link's queue."""
    tail = links[link].tail
    copies[copy].next = NOBODY
    copies[copy].previous = tail
    copies[copy].is_new = 1
    if tail >= 0:
        copies[tail].next = copy
    else:
        links[link].head = copy
    links[link].tail = copy
    links[link].length += 1


@borrowing_step
def unlink(link: int, copy: int, links: Array, copies: Array) -> None:
    """Take a copy out of a link's queue."""
    before = copies[copy].previous
    after = copies[copy].next
    if before >= 0:
        copies[before].next = after
    else:
        links[link].head = after
    if after >= 0:
        copies[after].previous = before
    else:
        links[link].tail = before
    links[link].length -= 1


@borrowing_inner
def choose_copy(
    link: int,
    now: int,
    links: Array,
    copies: Array,
    events: Array,
    queue: Array,
    room: Room,
    slots: Slots,
    pairs: Pairs,
    paths: Paths,
) -> int:
    """The copy to send next from a queue that is not empty; `queue` is room to list it in."""
    published_s, size_kb, start, stop, delete_s, _, known = slots
    count = 0
    copy = links[link].head
    while copy >= 0:
        event = copies[copy].event
        queue[count] = copy
        count += 1
        published_s[copy] = (events[event].published - now) * _SECOND
        delete_s[copy] = (copies[copy].delete_at - now) * _SECOND if copies[copy].delete_at < NEVER_NS else inf
        # Remaining lifetimes are compared as deadlines, which an earlier decision counted from another time 0.
        if copies[copy].is_new != 0 or links[link].strategy == RL:
            copies[copy].is_new = 0
            size_kb[copy] = events[event].size_kb
            start[copy] = copies[copy].start
            stop[copy] = copies[copy].stop
            for turn in range(TURNS):
                known[copy, turn] = inf
        copy = copies[copy].next
    postponed_s = links[link].postponed_s
    chosen = choose_in(
        room,
        links[link].strategy,
        links[link].weight,
        0.0,
        postponed_s,
        queue,
        count,
        slots,
        pairs,
        paths,
        1.0,
        NORMAL_TABLE,
    )
    return int(queue[chosen])


@borrowing
def deletion_ns(
    strategy: int,
    published: int,
    size_kb: float,
    start: int,
    stop: int,
    itself: Array,
    allowed_s: Array,
    fixed_s: Array,
    mean: Array,
    sd: Array,
    quantile: float,
) -> int:
    """From when on a copy is deleted; exact to the nanosecond where that is the moment of its expiry."""
    after_s = 0.0
    if strategy in (FIFO, RL):
        after_s = expiry_time(0.0, start, stop, allowed_s)
    else:
        after_s = deletion_time(0.0, size_kb, start, stop, itself, allowed_s, fixed_s, mean, sd, 1.0, quantile)
    return published + whole_ns(after_s) if after_s < inf else NEVER_NS
