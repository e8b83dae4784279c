"""Stored copies, where brokers keep what the next one has not acknowledged (paper D, section 2.4.2).

- Without buffering a copy that does not arrive is gone.
- With it the sender stores the copy. If it or its acknowledgement does not arrive, the copy is *blocked*: the link is
  known not to answer, what comes after it waits without being sent, and the sender tries again every `retry`, each try
  with one copy; when one gets through, all follow. Tries that cannot succeed are counted, not simulated: they change
  nothing. A copy that is merely slow is not sent twice.
- A broker that comes back tries at once. What it had stored is still there, unless queues are volatile.
"""

from tidings.compiled import borrowing_inner, borrowing_step
from tidings.simulation._copies import discard, end_copy, report
from tidings.simulation._heap import push
from tidings.simulation._layout import (
    ACKED,
    ACKS,
    AWAITING,
    BLOCKED,
    EXPIRY,
    IS_VOLATILE,
    KIND_BITS,
    NEVER_NS,
    NOBODY,
    RETRANSMISSIONS,
    RETRY,
    RETRY_NS,
)
from tidings.simulation._lists import appended, removed
from tidings.simulation._world import World


@borrowing_step
def is_usable(w: World, link: int) -> bool:
    """Whether something sent over a link now gets there."""
    return bool(
        w.components[w.links[link].source].up != 0
        and w.components[w.links[link].component].up != 0
        and w.components[w.links[link].target].up != 0
    )


@borrowing_step
def next_try(w: World, since: int, now: int) -> int:
    """The first try from now on of a link that was first found not to answer at `since`."""
    retry = w.settings[RETRY_NS]
    return int(since + max(1, (now - since + retry - 1) // retry) * retry)


@borrowing_inner
def block(w: World, copy: int, now: int) -> None:
    """A stored copy has to wait for its link."""
    link = w.copies[copy].link
    source = w.links[link].source
    if w.settings[IS_VOLATILE] != 0 and w.copies[copy].source_epoch != w.components[source].epoch:
        end_copy(w, copy)
        return
    if now >= w.copies[copy].expires:
        discard(w, copy, now)
        return
    w.copies[copy].place = BLOCKED
    w.copies[copy].received = NOBODY
    w.copies[copy].began = NOBODY
    is_first = w.links[link].blocked_head < 0
    head, tail = appended(w.copies, copy, w.links[link].blocked_head, w.links[link].blocked_tail)
    w.links[link].blocked_head, w.links[link].blocked_tail = head, tail
    if is_first:
        since = w.copies[copy].sent if w.copies[copy].sent >= 0 else now
        w.links[link].blocked_since = since
        if is_usable(w, link):
            push(w.heap, w.control, next_try(w, since, now), link << KIND_BITS | RETRY)
    if w.copies[copy].expires < NEVER_NS:
        push(w.heap, w.control, w.copies[copy].expires, copy << KIND_BITS | EXPIRY)


@borrowing_inner
def unblock(w: World, copy: int) -> None:
    """Take a copy out of its link's list."""
    link = w.copies[copy].link
    head, tail = removed(w.copies, copy, w.links[link].blocked_head, w.links[link].blocked_tail)
    w.links[link].blocked_head, w.links[link].blocked_tail = head, tail


@borrowing_inner
def count_tries(w: World, link: int, now: int) -> None:
    """Count the tries of a blocked link that led to nothing."""
    w.control[RETRANSMISSIONS] += (now - w.links[link].blocked_since) // w.settings[RETRY_NS]


@borrowing_inner
def fail(w: World, copy: int, outcome: int, now: int) -> None:
    """A copy did not get to the other end of its link, or not through the broker there."""
    report(w, copy, outcome, NOBODY)
    if w.copies[copy].is_stored != 0:
        block(w, copy, now)
    else:
        end_copy(w, copy)


@borrowing_inner
def acked(w: World, copy: int, now: int) -> None:
    """An acknowledgement gets to the sender, if that is still there."""
    link = w.copies[copy].link
    back = w.links[w.links[link].reverse].component
    if w.components[w.links[link].source].up != 0 and w.components[back].up != 0:
        end_copy(w, copy)
    else:
        block(w, copy, now)


@borrowing_inner
def acknowledge(w: World, copy: int, now: int) -> None:
    """The target of a stored copy has taken it in and says so."""
    back = w.links[w.copies[copy].link].reverse
    w.control[ACKS] += 1
    w.copies[copy].place = AWAITING
    if w.components[w.links[back].component].up == 0:
        block(w, copy, now)
    elif w.links[back].control_ns == 0:
        acked(w, copy, now)
    else:
        push(w.heap, w.control, now + w.links[back].control_ns, copy << KIND_BITS | ACKED)
