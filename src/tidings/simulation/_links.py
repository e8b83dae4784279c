"""A link: its queue, what it sends next, and the transit of a copy to the other end (paper C, section 5).

Rules:

- The queue is in order of arrival. What is chosen from it is the business of `tidings.scheduling`, the same function
  that live brokers decide by: its strategies, its ties, its bounds from earlier decisions.
- Times are whole nanoseconds here and seconds there. A decision is asked for as if it were made at time 0, so that what
  it computes depends on how long ago an event was published and not on how long the run has lasted.
- At a decision, copies past their deletion time go: expired ones, and with all strategies but FIFO and RL also hopeless
  ones. First in, first out only looks at the head; what lies behind it is deleted when it gets there. A link that has
  nothing else to do gives up on nothing that has a chance, however bold the strategy.
- Where receivers put events in order, a publisher's events leave a queue in sequence, as those of live brokers do
  (`scheduling._chains`): the strategy chooses among all, and the first of the chosen event's publisher leaves.
- A link without slowness has no queue: nothing is chosen there.
- Where nothing fails, a stretch in which a copy keeps nobody waiting is one happening: propagation and processing at a
  broker that serves without a queue are drawn together. Where things fail each is a happening of its own.
"""

from math import inf, sqrt

from tidings.compiled import borrowing, borrowing_inner
from tidings.scheduling import FIFO, HOPELESS_QUANTILE, RL, TRIAGE, TURNS, choose, deletion_time, expiry_time
from tidings.simulation._brokers import enter
from tidings.simulation._copies import discard
from tidings.simulation._draws import draw, uniform, whole_ns
from tidings.simulation._heap import push
from tidings.simulation._layout import (
    ARRIVED,
    DATA,
    END,
    FAILED,
    FLYING,
    IS_DROPPING,
    IS_FAILING,
    IS_MULTI,
    IS_ORDERED,
    KIND_BITS,
    LINKS,
    LONGEST,
    LOST,
    NANOSECONDS,
    NEVER_NS,
    NOBODY,
    PROCESSED,
    QUEUED,
    RETRANSMISSIONS,
    TRAFFIC,
    TRANSMITTED,
    WARMUP,
    Array,
)
from tidings.simulation._lists import appended, removed
from tidings.simulation._stores import block, count_tries, fail, is_usable
from tidings.simulation._world import World

__all__ = ["deletion_ns", "enqueue", "retry", "transmitted"]

_SECOND = 1.0 / NANOSECONDS


@borrowing_inner
def set_figures(w: World, copy: int) -> None:
    """What is left of the path for each entry, from the copy's link on.

    On a tree it is counted from the parent of the broker that the copy is for, also on a detour: the detours are
    not known beforehand.
    """
    link, event = w.copies[copy].link, w.copies[copy].event
    row, before_fixed_s, before_mean, before_variance = link, 0.0, 0.0, 0.0
    if w.settings[IS_MULTI] == 0:
        row = w.events[event].tree
        source = w.links[link].source
        if source >= 0 and w.settings[IS_FAILING] != 0:
            source = w.parent[row, w.copies[copy].node]
        if source >= 0:
            before_fixed_s = w.routes[row, source].fixed_s
            before_mean = w.routes[row, source].mean
            before_variance = w.routes[row, source].variance
        else:
            access = len(w.places) + link - w.settings[LINKS]
            before_fixed_s = -w.routes[access, 0].fixed_s
            before_mean = -w.routes[access, 0].mean
            before_variance = -w.routes[access, 0].variance
    known, fixed_s, mean, sd = NOBODY, 0.0, 0.0, 0.0
    for entry in range(w.copies[copy].start, w.copies[copy].stop):
        home = w.subscriptions[w.entries[entry].subscription].home
        if home != known:  # those of one home follow each other
            known = home
            fixed_s = w.routes[row, home].fixed_s - before_fixed_s
            mean = w.routes[row, home].mean - before_mean
            sd = sqrt(max(0.0, w.routes[row, home].variance - before_variance))
        w.board.paths.nodes[entry] = fixed_s
        w.board.paths.mean_s_per_kb[entry] = mean
        w.board.paths.sd_s_per_kb[entry] = sd


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


@borrowing_inner
def set_deletion(w: World, copy: int, link: int) -> None:
    """When a copy that comes to a link now is given up; triage wants to know it even if nothing is."""
    strategy, start, stop = w.links[link].strategy, w.copies[copy].start, w.copies[copy].stop
    if (w.settings[IS_DROPPING] == 0 and strategy != TRIAGE) or start == stop:
        return
    if w.links[link].is_free != 0 and w.links[link].source < 0:
        return  # a publisher does not know who wants its events
    if w.settings[IS_FAILING] != 0 and strategy in (FIFO, RL):
        w.copies[copy].delete_at = w.copies[copy].expires
        return
    quantile = w.links[link].quantile
    if w.links[link].sending < 0:
        quantile = max(quantile, HOPELESS_QUANTILE)
    event = w.copies[copy].event
    w.copies[copy].delete_at = deletion_ns(
        strategy,
        w.events[event].published,
        w.events[event].size_kb,
        start,
        stop,
        w.board.pairs.target,
        w.board.pairs.allowed_s,
        w.board.paths.nodes,
        w.board.paths.mean_s_per_kb,
        w.board.paths.sd_s_per_kb,
        quantile,
    )


@borrowing_inner
def choose_copy(w: World, link: int, now: int) -> int:
    """The copy to send next from a queue that is not empty."""
    queue, slots = w.board.queue, w.board.slots
    count = 0
    copy = w.links[link].head
    while copy >= 0:
        event = w.copies[copy].event
        queue[count] = copy
        count += 1
        slots.published_s[copy] = (w.events[event].published - now) * _SECOND
        delete_at = w.copies[copy].delete_at
        slots.delete_s[copy] = (delete_at - now) * _SECOND if delete_at < NEVER_NS else inf
        # Remaining lifetimes are compared as deadlines, which an earlier decision counted from another time 0.
        if w.copies[copy].is_new != 0 or w.links[link].strategy == RL:
            w.copies[copy].is_new = 0
            slots.size_kb[copy] = w.events[event].size_kb
            slots.start[copy] = w.copies[copy].start
            slots.stop[copy] = w.copies[copy].stop
            for turn in range(TURNS):
                slots.known[copy, turn] = inf
        copy = w.copies[copy].next
    strategy, weight, postponed_s = w.links[link].strategy, w.links[link].weight, w.links[link].postponed_s
    return int(queue[choose(w.board, strategy, weight, 0.0, postponed_s, count, 1.0)])


@borrowing_inner
def first_in_sequence(w: World, link: int, chosen: int) -> int:
    """The first that waits of the publisher of a copy in the queue; of copies of one event the first enqueued."""
    publisher = w.events[w.copies[chosen].event].publisher
    first = w.links[link].head
    while w.events[w.copies[first].event].publisher != publisher:
        first = w.copies[first].next
    copy = w.copies[first].next
    while copy >= 0:
        event = w.copies[copy].event
        if (
            w.events[event].publisher == publisher
            and w.events[event].sequence < w.events[w.copies[first].event].sequence
        ):
            first = copy
        copy = w.copies[copy].next
    return int(first)


@borrowing_inner
def append(w: World, link: int, copy: int) -> None:
    """Put a copy at the end of a link's queue."""
    w.copies[copy].place = QUEUED
    w.copies[copy].is_new = 1
    head, tail = appended(w.copies, copy, w.links[link].head, w.links[link].tail)
    w.links[link].head, w.links[link].tail = head, tail
    w.links[link].length += 1
    w.control[LONGEST] = max(w.control[LONGEST], w.links[link].length)


@borrowing_inner
def unlink(w: World, link: int, copy: int) -> None:
    """Take a copy out of a link's queue."""
    head, tail = removed(w.copies, copy, w.links[link].head, w.links[link].tail)
    w.links[link].head, w.links[link].tail = head, tail
    w.links[link].length -= 1


@borrowing_inner
def enqueue(w: World, copy: int, now: int) -> None:
    """Give a copy to its link: to the queue, or over it if it is free."""
    link = w.copies[copy].link
    if w.copies[copy].is_stored != 0 and w.links[link].blocked_head >= 0:
        block(w, copy, now)
        return
    strategy = w.links[link].strategy
    if strategy not in (FIFO, RL):
        set_figures(w, copy)
    set_deletion(w, copy, link)
    if w.links[link].is_free == 0 and w.links[link].sending >= 0:
        append(w, link, copy)
    elif w.settings[IS_DROPPING] != 0 and w.copies[copy].delete_at <= now:
        discard(w, copy, now)
    else:
        depart(w, copy, now)


@borrowing_inner
def depart(w: World, copy: int, now: int) -> None:
    """Begin to send a copy over a link that is free."""
    link = w.copies[copy].link
    if w.settings[IS_FAILING] != 0:
        if link < w.settings[LINKS]:
            w.control[DATA if w.copies[copy].sent < 0 else RETRANSMISSIONS] += 1
        w.copies[copy].link_epoch = w.components[w.links[link].component].epoch
    w.copies[copy].sent = now
    if w.links[link].is_free != 0:
        cross(w, copy, now, False)
        return
    w.copies[copy].place = QUEUED
    w.links[link].sending = copy
    slowness = draw(w.distributions, w.links[link].slowness)
    sent = now + whole_ns(w.events[w.copies[copy].event].size_kb * slowness)
    w.links[link].sent_at = sent
    w.links[link].busy_ns += max(0, min(sent, w.settings[END]) - max(now, w.settings[WARMUP]))
    push(w.heap, w.control, sent, link << KIND_BITS | TRANSMITTED)


@borrowing_inner
def cross(w: World, copy: int, now: int, at_once: bool) -> int:
    """A copy leaves its link's sending end; the copy if it is through with the next broker already, or else -1."""
    link = w.copies[copy].link
    if w.settings[IS_FAILING] != 0:
        component = w.links[link].component
        if w.components[component].up == 0 or w.components[component].epoch != w.copies[copy].link_epoch:
            fail(w, copy, FAILED, now)
            return NOBODY
    if w.links[link].loss_chance > 0.0 and uniform(w.distributions, w.links[link].loss) < w.links[link].loss_chance:
        fail(w, copy, LOST, now)
        return NOBODY
    received = now + whole_ns(draw(w.distributions, w.links[link].propagation))
    if w.settings[IS_FAILING] != 0:
        w.copies[copy].place = FLYING
        push(w.heap, w.control, received, copy << KIND_BITS | ARRIVED)
        return NOBODY
    return reach(w, copy, now, received, at_once)


@borrowing_inner
def reach(w: World, copy: int, now: int, received: int, at_once: bool) -> int:
    """A copy gets to the target of its link, now or later, where nothing fails; as `cross`."""
    broker = w.links[w.copies[copy].link].target
    w.copies[copy].received = received
    w.control[TRAFFIC] += w.events[w.copies[copy].event].is_counted
    if w.brokers[broker].has_service != 0:
        if received > now or not at_once:
            push(w.heap, w.control, received, copy << KIND_BITS | ARRIVED)
        else:
            enter(w, broker, copy, now)
        return NOBODY
    w.copies[copy].began = received
    if w.brokers[broker].has_processing != 0:
        received += whole_ns(draw(w.distributions, w.brokers[broker].processing))
    if received > now or not at_once:
        push(w.heap, w.control, received, copy << KIND_BITS | PROCESSED)
        return NOBODY
    return copy


@borrowing_inner
def prune(w: World, link: int, now: int) -> None:
    """Delete what waits and is past its time."""
    copy = w.links[link].head
    while copy >= 0:
        after = w.copies[copy].next
        if w.copies[copy].delete_at <= now:
            unlink(w, link, copy)
            discard(w, copy, now)
        elif w.links[link].strategy == FIFO:
            break
        copy = after


@borrowing_inner
def transmitted(w: World, link: int, now: int) -> int:
    """A link has sent a copy and begins the next; the copy if it is through with the next broker, or else -1."""
    copy = w.links[link].sending
    if copy < 0 or w.links[link].sent_at != now:
        return NOBODY  # of a transmission that a crash cut short
    w.links[link].sending = NOBODY
    if w.settings[IS_DROPPING] != 0 and w.links[link].head >= 0:
        prune(w, link, now)
    chosen = w.links[link].head
    if chosen >= 0:
        if w.links[link].strategy != FIFO and w.links[link].length > 1:
            chosen = choose_copy(w, link, now)
        if w.settings[IS_ORDERED] != 0:
            chosen = first_in_sequence(w, link, chosen)
        unlink(w, link, chosen)
        depart(w, chosen, now)
    return cross(w, copy, now, True)


@borrowing_inner
def retry(w: World, link: int, now: int) -> None:
    """A link that did not answer is tried; if it is there again, everything that waits is sent."""
    copy = w.links[link].blocked_head
    if copy < 0 or not is_usable(w, link):
        return
    count_tries(w, link, now)
    if now > w.links[link].blocked_since:
        w.control[RETRANSMISSIONS] -= 1  # the try that gets through is the transmission of the first copy
    w.links[link].blocked_head = NOBODY
    w.links[link].blocked_tail = NOBODY
    while copy >= 0:
        following = w.copies[copy].next
        if now >= w.copies[copy].expires:
            discard(w, copy, now)
        else:
            w.copies[copy].enqueued = now  # every try is a row of the trace
            enqueue(w, copy, now)
        copy = following
