"""The life of a copy on one channel: queued, sent, lost or on the way; stored until it is acknowledged or too late.

- Without buffering a copy that does not arrive is gone.
- With it the sender stores the copy. If it or its acknowledgement does not arrive, the copy is *blocked*: the channel
  is known not to answer, what comes after it waits without being sent, and the sender tries again every `retry`, each
  try with one copy; when one gets through, all follow. Tries that cannot succeed are counted, not simulated: they
  change nothing. A copy that is merely slow is not sent twice.
- A broker that comes back tries at once. What it had stored is still there, unless queues are volatile.
"""

from tidings.compiled import borrowing_inner, borrowing_step
from tidings.simulation._heap import push
from tidings.simulation._laws import draw, uniform, whole_ns
from tidings.simulation._layout import (
    ALIVE,
    EXPIRED,
    FAILED,
    FREE_COPY,
    FREE_EVENT,
    LOST,
    NEVER_NS,
    NOBODY,
)
from tidings.simulation._pools import give_block, take_copy
from tidings.simulation._steps import report
from tidings.simulation.failing._layout import (
    ACKED,
    ACKS,
    ARRIVED,
    AWAITING,
    BLOCKED,
    BROKERS,
    DATA,
    DELIVERED,
    DISCARDED,
    END,
    EXPIRY,
    FLYING,
    HELD,
    IS_VOLATILE,
    KIND_BITS,
    LINKS,
    QUEUED,
    RETRANSMISSIONS,
    RETRY,
    RETRY_NS,
    STORED,
    STORED_PEAK,
    TRANSMITTED,
    UNDERWAY,
    WARMUP,
)
from tidings.simulation.failing._lists import appended, removed
from tidings.simulation.failing._world import World


@borrowing_inner
def new_copy(w: World, event: int, node: int, link: int, now: int, is_stored: int, is_detour: int) -> int:
    """A copy for a broker of the event's tree, to go over this link now."""
    copy = take_copy(w.copies, w.control)
    record = w.copies[copy]
    record.event = event
    record.node = node
    record.link = link
    record.place = FLYING
    record.is_stored = is_stored
    record.is_detour = is_detour
    record.hops_left = w.settings[BROKERS]
    record.enqueued = now
    record.sent = NOBODY
    record.received = NOBODY
    record.began = NOBODY
    source = w.channels[link].source
    record.source_epoch = w.components[source].epoch if source >= 0 else 0
    w.events[event].copies += 1
    if is_stored != 0:
        store(w)
    return int(copy)


@borrowing_step
def store(w: World) -> None:
    stored = w.control[STORED] + 1
    w.control[STORED] = stored
    w.control[STORED_PEAK] = max(w.control[STORED_PEAK], stored)


@borrowing_inner
def settle(w: World, event: int) -> None:
    """Count what became of the pairs of an event that were not delivered."""
    if w.events[event].is_counted == 0:
        return
    start = w.events[event].start
    for group in range(w.events[event].groups):
        place = start + w.settings[BROKERS] + 3 * group
        flags = w.words[start + w.words[place]]
        if flags & DELIVERED == 0:
            for entry in range(w.words[place + 1], w.words[place + 2]):
                wanted = w.words[start + entry]
                if flags & UNDERWAY != 0:
                    w.subscriptions[wanted].in_flight += 1
                elif flags & DISCARDED != 0:
                    w.subscriptions[wanted].discarded += 1
                else:
                    w.subscriptions[wanted].lost += 1


@borrowing_inner
def end_copy(w: World, copy: int) -> None:
    """Give a copy back, and its event with its last copy."""
    event = w.copies[copy].event
    if w.copies[copy].is_stored != 0:
        w.control[STORED] -= 1
    w.copies[copy].event = NOBODY
    w.copies[copy].next = w.control[FREE_COPY]
    w.control[FREE_COPY] = copy
    w.control[ALIVE] -= 1
    w.events[event].copies -= 1
    if w.events[event].copies == 0:
        settle(w, event)
        give_block(w.events[event].start, w.events[event].block, w.words, w.free_blocks)
        w.events[event].start = w.control[FREE_EVENT]
        w.control[FREE_EVENT] = event


@borrowing_inner
def mark(w: World, event: int, node: int, flag: int) -> None:
    """Set a flag for all who want an event behind a broker of its tree, the broker included."""
    start, tree = w.events[event].start, w.events[event].tree
    first, last = w.places[tree, node].position, w.places[tree, node].end
    for group in range(w.events[event].groups):
        home = w.words[start + w.settings[BROKERS] + 3 * group]
        if first <= w.places[tree, home].position < last:
            w.words[start + home] |= flag


@borrowing_inner
def discard(w: World, copy: int) -> None:
    """Give up a copy that is in no list and too late for everybody."""
    mark(w, w.copies[copy].event, w.copies[copy].node, DISCARDED)
    if w.copies[copy].place != HELD and w.copies[copy].sent < 0:  # what was sent has a row that says what became of it
        report(copy, EXPIRED, NOBODY, w.copies, w.events, w.hops, w.control)
    end_copy(w, copy)


@borrowing_step
def is_usable(w: World, link: int) -> bool:
    """Whether something sent over a channel now gets there."""
    channel = w.channels[link]
    return bool(
        w.components[channel.source].up != 0
        and w.components[channel.component].up != 0
        and w.components[channel.target].up != 0
    )


@borrowing_step
def next_try(w: World, since: int, now: int) -> int:
    """The first try from now on of a channel that was first found not to answer at `since`."""
    retry = w.settings[RETRY_NS]
    return int(since + max(1, (now - since + retry - 1) // retry) * retry)


@borrowing_inner
def block(w: World, copy: int, now: int) -> None:
    """A stored copy has to wait for its channel."""
    link, event = w.copies[copy].link, w.copies[copy].event
    source = w.channels[link].source
    if w.settings[IS_VOLATILE] != 0 and w.copies[copy].source_epoch != w.components[source].epoch:
        end_copy(w, copy)
        return
    if now >= w.events[event].expires:
        discard(w, copy)
        return
    w.copies[copy].place = BLOCKED
    w.copies[copy].received = NOBODY
    w.copies[copy].began = NOBODY
    is_first = w.channels[link].blocked_head < 0
    head, tail = appended(w.copies, copy, w.channels[link].blocked_head, w.channels[link].blocked_tail)
    w.channels[link].blocked_head, w.channels[link].blocked_tail = head, tail
    if is_first:
        since = w.copies[copy].sent if w.copies[copy].sent >= 0 else now
        w.channels[link].blocked_since = since
        if is_usable(w, link):
            push(w.heap, w.control, next_try(w, since, now), link << KIND_BITS | RETRY)
    if w.events[event].expires < NEVER_NS:
        push(w.heap, w.control, w.events[event].expires, copy << KIND_BITS | EXPIRY)


@borrowing_inner
def unblock(w: World, copy: int) -> None:
    """Take a copy out of its channel's list."""
    link = w.copies[copy].link
    head, tail = removed(w.copies, copy, w.channels[link].blocked_head, w.channels[link].blocked_tail)
    w.channels[link].blocked_head, w.channels[link].blocked_tail = head, tail


@borrowing_inner
def count_tries(w: World, link: int, now: int) -> None:
    """Count the tries of a blocked channel that led to nothing."""
    w.control[RETRANSMISSIONS] += (now - w.channels[link].blocked_since) // w.settings[RETRY_NS]


@borrowing_inner
def fail(w: World, copy: int, outcome: int, now: int) -> None:
    """A copy did not get to the other end of its link, or not through the broker there."""
    report(copy, outcome, NOBODY, w.copies, w.events, w.hops, w.control)
    if w.copies[copy].is_stored != 0:
        block(w, copy, now)
    else:
        end_copy(w, copy)


@borrowing_inner
def cross(w: World, copy: int, now: int) -> None:
    """A copy leaves its channel's sending end."""
    link = w.copies[copy].link
    component = w.channels[link].component
    if w.components[component].up == 0 or w.components[component].epoch != w.copies[copy].link_epoch:
        fail(w, copy, FAILED, now)
    elif w.channels[link].loss_chance > 0.0 and uniform(w.laws, w.channels[link].loss) < w.channels[link].loss_chance:
        fail(w, copy, LOST, now)
    else:
        w.copies[copy].place = FLYING
        received = now + whole_ns(draw(w.laws, w.channels[link].propagation, w.law_rows))
        push(w.heap, w.control, received, copy << KIND_BITS | ARRIVED)


@borrowing_inner
def depart(w: World, copy: int, now: int) -> None:
    """Begin to send a copy over a channel that is free."""
    link = w.copies[copy].link
    if link < w.settings[LINKS]:
        w.control[DATA if w.copies[copy].sent < 0 else RETRANSMISSIONS] += 1
    w.copies[copy].sent = now
    w.copies[copy].link_epoch = w.components[w.channels[link].component].epoch
    if w.channels[link].is_free != 0:
        cross(w, copy, now)
    else:
        w.copies[copy].place = QUEUED
        w.channels[link].sending = copy
        slowness = draw(w.laws, w.channels[link].slowness, w.law_rows)
        sent = now + whole_ns(w.events[w.copies[copy].event].size_kb * slowness)
        w.channels[link].sent_at = sent
        w.channels[link].busy_ns += max(0, min(sent, w.settings[END]) - max(now, w.settings[WARMUP]))
        push(w.heap, w.control, sent, link << KIND_BITS | TRANSMITTED)


@borrowing_inner
def enqueue(w: World, copy: int, now: int) -> None:
    """Give a copy to its channel."""
    link = w.copies[copy].link
    if w.copies[copy].is_stored != 0 and w.channels[link].blocked_head >= 0:
        block(w, copy, now)
    elif w.channels[link].sending < 0:
        depart(w, copy, now)
    else:
        w.copies[copy].place = QUEUED
        w.copies[copy].next = NOBODY
        if w.channels[link].tail >= 0:
            w.copies[w.channels[link].tail].next = copy
        else:
            w.channels[link].head = copy
        w.channels[link].tail = copy


@borrowing_inner
def transmitted(w: World, link: int, now: int) -> None:
    """A channel has sent a copy; the next one that is not too late begins."""
    copy = w.channels[link].sending
    if copy < 0 or w.channels[link].sent_at != now:
        return  # of a transmission that a crash cut short
    w.channels[link].sending = NOBODY
    cross(w, copy, now)
    while w.channels[link].sending < 0 and w.channels[link].head >= 0:
        following = w.channels[link].head
        w.channels[link].head = w.copies[following].next
        if w.channels[link].head < 0:
            w.channels[link].tail = NOBODY
        if now >= w.events[w.copies[following].event].expires:
            discard(w, following)
        else:
            depart(w, following, now)


@borrowing_inner
def retry(w: World, link: int, now: int) -> None:
    """A channel that did not answer is tried; if it is there again, everything that waits is sent."""
    copy = w.channels[link].blocked_head
    if copy < 0 or not is_usable(w, link):
        return
    count_tries(w, link, now)
    if now > w.channels[link].blocked_since:
        w.control[RETRANSMISSIONS] -= 1  # the try that gets through is the transmission of the first copy
    w.channels[link].blocked_head = NOBODY
    w.channels[link].blocked_tail = NOBODY
    while copy >= 0:
        following = w.copies[copy].next
        if now >= w.events[w.copies[copy].event].expires:
            discard(w, copy)
        else:
            w.copies[copy].enqueued = now  # every try is a row of the trace
            enqueue(w, copy, now)
        copy = following


@borrowing_inner
def acked(w: World, copy: int, now: int) -> None:
    """An acknowledgement gets to the sender, if that is still there."""
    link = w.copies[copy].link
    back = w.channels[w.channels[link].reverse].component
    if w.components[w.channels[link].source].up != 0 and w.components[back].up != 0:
        end_copy(w, copy)
    else:
        block(w, copy, now)


@borrowing_inner
def acknowledge(w: World, copy: int, now: int) -> None:
    """The target of a stored copy has taken it in and says so."""
    back = w.channels[w.copies[copy].link].reverse
    w.control[ACKS] += 1
    w.copies[copy].place = AWAITING
    if w.components[w.channels[back].component].up == 0:
        block(w, copy, now)
    elif w.channels[back].control_ns == 0:
        acked(w, copy, now)
    else:
        push(w.heap, w.control, now + w.channels[back].control_ns, copy << KIND_BITS | ACKED)
