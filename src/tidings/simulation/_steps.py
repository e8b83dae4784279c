"""The steps in the life of a copy, as the event loop takes them.

What a step has to know is passed one array at a time: the names are those of `Pools`, `Plan` and `Routes`.
"""

from math import sqrt

from tidings.compiled import borrowing_inner, borrowing_step
from tidings.scheduling._kernels import expiry_time
from tidings.simulation._heap import push
from tidings.simulation._laws import draw, whole_ns
from tidings.simulation._layout import (
    ARRIVED,
    DELIVERED,
    DELIVERIES_OUT,
    DISCARDED,
    EXPIRED,
    HOPELESS,
    HOPS_OUT,
    KIND_BITS,
    NANOSECONDS,
    NEVER_NS,
    NOBODY,
    PENDING,
    PROCESSED,
    PUBLISHED,
    SERVED,
    TRAFFIC,
    TRANSMITTED,
    Array,
)
from tidings.simulation._pools import end_copy, take_block, take_copy, take_event

WAITING, AT_DOOR, READY = range(3)
"""Where a copy is after `reach`: in the heap, at a broker that serves in turn, or through with processing."""


@borrowing_step
def new_copy(event: int, link: int, now: int, copies: Array, events: Array, control: Array) -> int:
    """A copy that enters a link's queue now; its entries are still to be given."""
    copy = take_copy(copies, control)
    copies[copy].event = event
    copies[copy].link = link
    copies[copy].block = NOBODY
    copies[copy].enqueued = now
    copies[copy].sent = NOBODY
    copies[copy].received = NOBODY
    copies[copy].began = NOBODY
    copies[copy].delete_at = NEVER_NS
    events[event].copies += 1
    return copy


@borrowing_inner
def begin_event(
    publication: int,
    publications: Array,
    warmup: int,
    events: Array,
    subscription: Array,
    free_blocks: Array,
    control: Array,
) -> int:
    """An event without copies and with room for its entries."""
    event = take_event(events, control)
    events[event].published = publications[publication].time
    events[event].sequence = publications[publication].sequence
    events[event].lifetime = publications[publication].lifetime
    events[event].size_kb = publications[publication].size_kb
    events[event].publisher = publications[publication].publisher
    events[event].is_sampled = publications[publication].is_sampled
    events[event].is_counted = 1 if publications[publication].time >= warmup else 0
    events[event].copies = 0
    count = publications[publication].count
    events[event].pending = count
    start, block = 0, NOBODY
    if count > 0:
        start, block = take_block(count, subscription, free_blocks, control)
    events[event].start = start
    events[event].stop = start + count
    events[event].block = block
    return event


@borrowing_inner
def set_entry(
    entry: int,
    wanted: int,
    lifetime: int,
    subscriptions: Array,
    subscription: Array,
    origin: Array,
    state: Array,
    allowed_s: Array,
    price: Array,
) -> None:
    """Write one pair of an event and a subscription that it matches."""
    allowed = min(lifetime, subscriptions[wanted].allowed)
    subscription[entry] = wanted
    origin[entry] = entry
    state[entry] = PENDING
    allowed_s[entry] = allowed / NANOSECONDS if allowed < NEVER_NS else float("inf")
    price[entry] = subscriptions[wanted].price


@borrowing_inner
def publish(
    publication: int,
    publications: Array,
    matches: Array,
    warmup: int,
    is_multi: bool,
    tree_of: Array,
    position: Array,
    reaches: Array,
    access_link: Array,
    copies: Array,
    events: Array,
    subscriptions: Array,
    subscription: Array,
    origin: Array,
    state: Array,
    allowed_s: Array,
    price: Array,
    free_blocks: Array,
    control: Array,
) -> int:
    """A new event with its entries, and its copy for the publisher's access link."""
    event = begin_event(publication, publications, warmup, events, subscription, free_blocks, control)
    publisher = events[event].publisher
    link = access_link[publisher]
    start = events[event].start
    lifetime = events[event].lifetime
    first = publications[publication].first
    count = publications[publication].count
    # What no path leads to stands at the end, outside the range that the copy serves.
    served_to, outside = start, start + count
    for match in range(first, first + count):
        wanted = matches[match]
        home = subscriptions[wanted].home
        if events[event].is_counted != 0:
            subscriptions[wanted].matched += 1
        is_reached = reaches[link, home] if is_multi else position[tree_of[publisher], home] >= 0
        if is_reached:
            entry = served_to
            served_to += 1
        else:
            outside -= 1
            entry = outside
        set_entry(entry, wanted, lifetime, subscriptions, subscription, origin, state, allowed_s, price)
    control[PUBLISHED] += events[event].is_counted
    copy = new_copy(event, link, publications[publication].time, copies, events, control)
    copies[copy].start = start
    copies[copy].stop = served_to
    return int(copy)


@borrowing_inner
def set_tree_figures(
    start: int,
    stop: int,
    tree: int,
    source: int,
    access_row: int,
    subscriptions: Array,
    subscription: Array,
    fixed_s: Array,
    mean: Array,
    sd: Array,
    tree_fixed_s: Array,
    tree_mean: Array,
    tree_variance: Array,
) -> None:
    """What is left of each entry's path from a broker on, or from the publisher on (source -1)."""
    before_fixed_s, before_mean, before_variance = 0.0, 0.0, 0.0
    if source >= 0:
        before_fixed_s = tree_fixed_s[tree, source]
        before_mean = tree_mean[tree, source]
        before_variance = tree_variance[tree, source]
    else:
        before_mean = -tree_mean[access_row, 0]
        before_variance = -tree_variance[access_row, 0]
    for entry in range(start, stop):
        home = subscriptions[subscription[entry]].home
        fixed_s[entry] = tree_fixed_s[tree, home] - before_fixed_s
        mean[entry] = tree_mean[tree, home] - before_mean
        sd[entry] = sqrt(max(0.0, tree_variance[tree, home] - before_variance))


@borrowing_inner
def set_link_figures(
    start: int,
    stop: int,
    link: int,
    subscriptions: Array,
    subscription: Array,
    fixed_s: Array,
    mean: Array,
    sd: Array,
    link_fixed_s: Array,
    link_mean: Array,
    link_variance: Array,
) -> None:
    """The same with several paths: the best one that begins with this link."""
    for entry in range(start, stop):
        home = subscriptions[subscription[entry]].home
        fixed_s[entry] = link_fixed_s[link, home]
        mean[entry] = link_mean[link, home]
        sd[entry] = sqrt(link_variance[link, home])


@borrowing_step
def report(copy: int, outcome: int, ended: int, copies: Array, events: Array, hops: Array, control: Array) -> None:
    """Leave a row of the trace about a copy that has come to its end, if its event is sampled."""
    event = copies[copy].event
    if events[event].is_sampled != 0:
        row = control[HOPS_OUT]
        control[HOPS_OUT] = row + 1
        hops[row].publisher = events[event].publisher
        hops[row].sequence = events[event].sequence
        hops[row].link = copies[copy].link
        hops[row].enqueued = copies[copy].enqueued
        hops[row].sent = copies[copy].sent
        hops[row].received = copies[copy].received
        hops[row].began = copies[copy].began
        hops[row].ended = ended
        hops[row].outcome = outcome


@borrowing_step
def mark(copy: int, fate: int, copies: Array, origin: Array, state: Array) -> None:
    for entry in range(copies[copy].start, copies[copy].stop):
        state[origin[entry]] |= fate


@borrowing_inner
def discard(
    copy: int,
    now: int,
    copies: Array,
    events: Array,
    subscription: Array,
    origin: Array,
    state: Array,
    allowed_s: Array,
    subscriptions: Array,
    hops: Array,
    free_blocks: Array,
    control: Array,
) -> None:
    """Delete a copy that is past its deletion time and out of its queue."""
    last_s = expiry_time(0.0, copies[copy].start, copies[copy].stop, allowed_s)
    is_expired = now - events[copies[copy].event].published >= whole_ns(last_s)
    mark(copy, DISCARDED, copies, origin, state)
    report(copy, EXPIRED if is_expired else HOPELESS, NOBODY, copies, events, hops, control)
    end_copy(copy, copies, events, subscription, state, subscriptions, free_blocks, control)


@borrowing_step
def begin_sending(
    link: int,
    copy: int,
    now: int,
    warmup: int,
    end: int,
    links: Array,
    copies: Array,
    events: Array,
    laws: Array,
    law_rows: Array,
    heap: Array,
    control: Array,
) -> None:
    """Put a copy on a link that is free."""
    copies[copy].sent = now
    links[link].sending = copy
    slowness = draw(laws, links[link].slowness, law_rows)
    sent = now + whole_ns(events[copies[copy].event].size_kb * slowness)
    links[link].busy_ns += max(0, min(sent, end) - max(now, warmup))
    push(heap, control, sent, link << KIND_BITS | TRANSMITTED)


@borrowing_step
def begin_service(
    broker: int,
    copy: int,
    now: int,
    warmup: int,
    end: int,
    brokers: Array,
    copies: Array,
    laws: Array,
    law_rows: Array,
    heap: Array,
    control: Array,
) -> None:
    """Take a copy to the broker's server, which is free."""
    copies[copy].began = now
    brokers[broker].serving = copy
    served = now + whole_ns(brokers[broker].table * draw(laws, brokers[broker].service, law_rows))
    brokers[broker].busy_ns += max(0, min(served, end) - max(now, warmup))
    push(heap, control, served, broker << KIND_BITS | SERVED)


@borrowing_step
def reach(
    copy: int,
    now: int,
    received: int,
    links: Array,
    brokers: Array,
    copies: Array,
    events: Array,
    laws: Array,
    law_rows: Array,
    heap: Array,
    control: Array,
) -> int:
    """A copy gets to the target of its link, now or later; where it is after that."""
    broker = links[copies[copy].link].target
    copies[copy].received = received
    control[TRAFFIC] += events[copies[copy].event].is_counted
    place = WAITING
    if brokers[broker].has_service != 0:
        if received > now:
            push(heap, control, received, copy << KIND_BITS | ARRIVED)
        else:
            place = AT_DOOR
    else:
        copies[copy].began = received
        if brokers[broker].has_processing != 0:
            received += whole_ns(draw(laws, brokers[broker].processing, law_rows))
        if received > now:
            push(heap, control, received, copy << KIND_BITS | PROCESSED)
        else:
            place = READY
    return place


@borrowing_step
def deliver(
    entry: int,
    event: int,
    now: int,
    events: Array,
    subscription: Array,
    origin: Array,
    state: Array,
    subscriptions: Array,
    deliveries: Array,
    control: Array,
) -> None:
    """Hand an event to a subscriber; only the first copy counts, and on time is strictly before the deadline."""
    first = origin[entry]
    if state[first] & DELIVERED == 0:
        state[first] |= DELIVERED
        events[event].pending -= 1
        wanted = subscription[entry]
        if events[event].is_counted != 0:
            if now - events[event].published < min(events[event].lifetime, subscriptions[wanted].allowed):
                subscriptions[wanted].on_time += 1
            else:
                subscriptions[wanted].late += 1
        if events[event].is_sampled != 0:
            row = control[DELIVERIES_OUT]
            control[DELIVERIES_OUT] = row + 1
            deliveries[row].publisher = events[event].publisher
            deliveries[row].sequence = events[event].sequence
            deliveries[row].subscription = wanted
            deliveries[row].arrived = now
