"""A broker: a server with a queue, a delay that keeps nobody waiting, and the subscribers at home there."""

from tidings.compiled import borrowing_inner
from tidings.simulation._copies import copy_for, span
from tidings.simulation._draws import draw, whole_ns
from tidings.simulation._heap import push
from tidings.simulation._layout import (
    DELIVERED,
    DELIVERIES_OUT,
    END,
    FAILED,
    IS_EARLY,
    KIND_BITS,
    NOBODY,
    PROCESSED,
    SERVED,
    TRAFFIC,
    WARMUP,
)
from tidings.simulation._lists import appended
from tidings.simulation._stores import acknowledge, fail
from tidings.simulation._world import Failing, World


@borrowing_inner
def serve(w: World, broker: int, copy: int, now: int) -> None:
    """Take a copy to the broker's server, which is free."""
    w.copies[copy].began = now
    w.brokers[broker].serving = copy
    served = now + whole_ns(w.brokers[broker].table * draw(w.distributions, w.brokers[broker].service))
    w.brokers[broker].served_at = served
    w.brokers[broker].busy_ns += max(0, min(served, w.settings[END]) - max(now, w.settings[WARMUP]))
    push(w.heap, w.control, served, broker << KIND_BITS | SERVED)


@borrowing_inner
def enter(w: World, broker: int, copy: int, now: int) -> None:
    """A copy is at the door of a broker that serves one after the other."""
    if w.brokers[broker].serving < 0:
        serve(w, broker, copy, now)
    else:
        head, tail = appended(w.copies, copy, w.brokers[broker].head, w.brokers[broker].tail)
        w.brokers[broker].head, w.brokers[broker].tail = head, tail


@borrowing_inner
def process(w: World, broker: int, copy: int, now: int) -> int:
    """What keeps nobody waiting; the copy if it is through already, or else -1."""
    if w.brokers[broker].has_processing != 0:
        delay = whole_ns(draw(w.distributions, w.brokers[broker].processing))
        if delay > 0:
            push(w.heap, w.control, now + delay, copy << KIND_BITS | PROCESSED)
            return NOBODY
    return copy


@borrowing_inner
def served(w: World, broker: int, now: int) -> int:
    """A broker has served a copy and takes the next one; the copy if it is through already, or else -1."""
    copy = w.brokers[broker].serving
    if copy < 0 or w.brokers[broker].served_at != now:
        return NOBODY  # of a service that a crash cut short
    w.brokers[broker].serving = NOBODY
    following = w.brokers[broker].head
    if following >= 0:
        w.brokers[broker].head = w.copies[following].next
        if w.brokers[broker].head < 0:
            w.brokers[broker].tail = NOBODY
        serve(w, broker, following, now)
    return process(w, broker, copy, now)


@borrowing_inner
def land(w: World, copy: int, now: int) -> int:
    """A copy gets to the other end of its link where things fail; the copy that is inside, or -1 if none is."""
    link = w.copies[copy].link
    broker = w.links[link].target
    if w.components[w.links[link].component].epoch != w.copies[copy].link_epoch or w.components[broker].up == 0:
        fail(w, copy, FAILED, now)
        return NOBODY
    w.control[TRAFFIC] += w.events[w.copies[copy].event].is_counted
    if w.copies[copy].is_stored != 0 and w.settings[IS_EARLY] != 0:
        event, node = w.copies[copy].event, w.copies[copy].node
        inside = copy_for(w, event, node, link, w.copies[copy].enqueued, 0, span(w, event, node))
        w.copies[inside].sent = w.copies[copy].sent
        acknowledge(w, copy, now)
        copy = inside
    w.copies[copy].received = now
    w.copies[copy].target_epoch = w.components[broker].epoch
    return copy


@borrowing_inner
def arrive(w: World, copy: int, now: int, failing: Failing) -> int:
    """A copy gets to the other end of its link; the copy that is through with the broker already, or else -1."""
    if failing is not None:
        copy = land(w, copy, now)
        if copy < 0:
            return NOBODY
    broker = w.links[w.copies[copy].link].target
    if w.brokers[broker].has_service == 0:
        w.copies[copy].began = now
        return process(w, broker, copy, now)
    enter(w, broker, copy, now)
    return NOBODY


@borrowing_inner
def deliver(w: World, event: int, start: int, stop: int, now: int) -> None:
    """Hand an event to subscribers; only the first copy counts, and on time is strictly before the deadline."""
    delay, lifetime = now - w.events[event].published, w.events[event].lifetime
    is_counted, is_sampled = w.events[event].is_counted, w.events[event].is_sampled
    delivered = 0
    for entry in range(start, stop):
        first = w.entries[entry].origin
        if w.entries[first].state & DELIVERED != 0:
            continue
        w.entries[first].state |= DELIVERED
        delivered += 1
        wanted = w.entries[entry].subscription
        if is_counted != 0:
            if delay < min(lifetime, w.subscriptions[wanted].allowed):
                w.subscriptions[wanted].on_time += 1
            else:
                w.subscriptions[wanted].late += 1
        if is_sampled != 0:
            row = w.control[DELIVERIES_OUT]
            w.control[DELIVERIES_OUT] = row + 1
            w.deliveries[row].publisher = w.events[event].publisher
            w.deliveries[row].sequence = w.events[event].sequence
            w.deliveries[row].subscription = wanted
            w.deliveries[row].arrived = now
    w.events[event].pending -= delivered
