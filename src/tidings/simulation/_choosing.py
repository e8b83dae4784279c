"""A link that has become free chooses what to send next (paper C, section 5).

Rules:

- The queue is in order of arrival; values that differ by at most TIE are equal, and the earliest of equals is sent.
- At a decision, copies past their deletion time go: expired ones, and with EB, PC and EBPC also hopeless ones. First
  in, first out only looks at the head; what lies behind it is deleted when it gets there.
- EB never rises with time. So the value found at an earlier decision bounds today's, and a copy whose bound does not
  beat the best so far is passed over without being evaluated; the choice is the same. EB also bounds EBPC and PC.

Values are those of `tidings.scheduling`; nothing is computed here but who is first.
"""

from math import inf

from tidings.compiled import borrowing, borrowing_inner, borrowing_step
from tidings.scheduling._kernels import (
    NORMAL_TABLE,
    deletion_time,
    expiry_time,
    remaining_lifetime,
    tabulated_benefit,
)
from tidings.simulation._laws import whole_ns
from tidings.simulation._layout import EB, FIFO, NANOSECONDS, NEVER_NS, NOBODY, RL, Array

__all__ = ["TIE", "append", "choose", "deletion_ns", "unlink", "value"]

TIE = 1e-9
_SECOND = 1.0 / NANOSECONDS


@borrowing_step
def append(link: int, copy: int, links: Array, copies: Array) -> None:
    """Put a copy at the end of a link's queue."""
    tail = links[link].tail
    copies[copy].next = NOBODY
    copies[copy].previous = tail
    copies[copy].key = inf
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


@borrowing
def value(
    strategy: int,
    weight: float,
    postponed_s: float,
    elapsed_s: float,
    size_kb: float,
    start: int,
    stop: int,
    itself: Array,
    allowed_s: Array,
    price: Array,
    fixed_s: Array,
    mean: Array,
    sd: Array,
) -> tuple[float, float]:
    """What sending these entries now is worth by a strategy, and a bound of what it will be worth later."""
    if strategy == RL:
        return -remaining_lifetime(elapsed_s, 0.0, start, stop, allowed_s), inf
    bound, worth = 0.0, 0.0
    for turn in range(1 if strategy == EB else 2):
        # One place for the long call keeps the compiled code small: first EB, then EB'.
        benefit = tabulated_benefit(
            elapsed_s,
            0.0,
            size_kb,
            start,
            stop,
            itself,
            allowed_s,
            price,
            fixed_s,
            mean,
            sd,
            1.0,
            postponed_s * turn,
            NORMAL_TABLE,
        )
        if turn == 0:
            bound = worth = benefit
        else:
            worth -= (1.0 - weight) * benefit
    return worth, bound


@borrowing_inner
def choose(
    link: int,
    now: int,
    links: Array,
    copies: Array,
    events: Array,
    itself: Array,
    allowed_s: Array,
    price: Array,
    fixed_s: Array,
    mean: Array,
    sd: Array,
) -> int:
    """The copy to send next from a queue that is not first in, first out: the first with the greatest value."""
    copy = links[link].head
    best = copy
    greatest = -inf
    while copy >= 0:
        if copies[copy].key > greatest + TIE:
            event = copies[copy].event
            worth, bound = value(
                links[link].strategy,
                links[link].weight,
                links[link].postponed_s,
                (now - events[event].published) * _SECOND,
                events[event].size_kb,
                copies[copy].start,
                copies[copy].stop,
                itself,
                allowed_s,
                price,
                fixed_s,
                mean,
                sd,
            )
            copies[copy].key = bound
            if worth > greatest + TIE:
                greatest = worth
                best = copy
        copy = copies[copy].next
    return int(best)


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
