"""The event loop of a network that fails (docs/reference/simulation.md tells the model).

As the loop without failures it jumps from one happening to the next, publications first at equal times, then the order
of entry, and comes back when its input is used up, when a pool or an output buffer may be too small for one more step,
or after a number of steps. What may be many at once (events that are offered, copies that look for a detour) enters the
calendar one by one, so that a step needs a bounded amount of room.
"""

from tidings.compiled import borrowing, borrowing_inner, borrowing_step
from tidings.simulation._heap import pop, push
from tidings.simulation._laws import draw, whole_ns
from tidings.simulation._layout import (
    ALIVE,
    ARENA_USED,
    COPIES_USED,
    DELIVERIES_OUT,
    EVENTS_USED,
    FAILED,
    HEAP_SIZE,
    HOPS_OUT,
    INPUT_USED,
    NEVER_NS,
    NEXT_PUBLICATION,
    NOBODY,
    NOW,
    OUTPUT_FULL,
    OVERLOADED,
    PAUSED,
    POOL_FULL,
    PUBLISHED,
    RECEIVED,
    STEPS,
    TRAFFIC,
    WIDEST,
    Array,
)
from tidings.simulation._pools import take_block, take_event
from tidings.simulation._steps import report
from tidings.simulation.failing._copies import (
    acked,
    acknowledge,
    count_tries,
    depart,
    discard,
    end_copy,
    enqueue,
    fail,
    is_usable,
    mark,
    new_copy,
    next_try,
    retry,
    settle,
    transmitted,
    unblock,
)
from tidings.simulation.failing._layout import (
    ACCEPTED,
    ACKED,
    ARRIVED,
    BLOCKED,
    BROKERS,
    DETECTED,
    DETOURED,
    DUPLICATES,
    END,
    EXPIRY,
    HELD,
    IS_BYPASSING,
    IS_DROPPING,
    IS_EARLY,
    IS_VOLATILE,
    KIND_BITS,
    KINDS,
    LINK_STATE,
    OFFERED,
    PROCESSED,
    REFRESH,
    REROUTED,
    RETRY,
    ROW_ARRIVED,
    SERVED,
    TRANSITION,
    TRANSITIONS_OUT,
    TRANSMITTED,
    UNDERWAY,
    WANTED,
    WARMUP,
)
from tidings.simulation.failing._lists import appended
from tidings.simulation.failing._maps import detected, detoured, forget_map, look, rerouted, told, way
from tidings.simulation.failing._tables import (
    dispatch,
    expire_held,
    forget_rows,
    hold,
    offered,
    refresh,
    row_arrived,
)
from tidings.simulation.failing._world import World

__all__ = ["advance", "finish"]


@borrowing_step
def _publish(w: World, number: int, publications: Array, matches: Array) -> None:
    """A new event with its groups, and a copy for its publisher's home broker."""
    publication = publications[number]
    event = take_event(w.events, w.control)
    brokers, publisher, now = w.settings[BROKERS], publication.publisher, publication.time
    tree = w.publishers[publisher].tree
    is_counted = 1 if now >= w.settings[WARMUP] else 0
    record = w.events[event]
    record.published = now
    record.sequence = publication.sequence
    record.lifetime = publication.lifetime
    record.size_kb = publication.size_kb
    record.publisher = publisher
    record.tree = tree
    record.copies = 0
    record.is_counted = is_counted
    record.is_sampled = publication.is_sampled
    first, last = publication.first, publication.first + publication.count
    size = brokers + 3 * min(brokers, publication.count) + publication.count
    start, block_size = take_block(size, w.words, w.free_blocks, w.control)
    record.start = start
    record.block = block_size
    for broker in range(brokers):
        w.words[start + broker] = 0
    entry = brokers + 3 * min(brokers, publication.count)
    groups, home, allowed = 0, NOBODY, 0
    for match in range(first, last):
        wanted = matches[match]
        w.subscriptions[wanted].matched += is_counted
        here = w.subscriptions[wanted].home
        if w.places[tree, here].position < 0:  # no path leads there
            w.subscriptions[wanted].lost += is_counted
            continue
        if here != home:
            home = here
            place = start + brokers + 3 * groups
            w.words[place] = home
            w.words[place + 1] = entry
            w.words[start + home] = WANTED
            groups += 1
        w.words[start + entry] = wanted
        entry += 1
        w.words[start + brokers + 3 * groups - 1] = entry
        allowed = max(allowed, min(publication.lifetime, w.subscriptions[wanted].allowed))
    record.groups = groups
    record.expires = NEVER_NS
    if w.settings[IS_DROPPING] != 0 and groups > 0 and allowed < NEVER_NS:
        record.expires = now + allowed
    w.control[PUBLISHED] += is_counted
    link = w.publishers[publisher].link
    depart(w, new_copy(w, event, w.channels[link].target, link, now, 0, 0), now)


@borrowing_step
def _accept(w: World, copy: int, now: int) -> None:
    """A copy is through with its broker, which takes the event in, or passes it on if it is on a detour."""
    link, event, node = w.copies[copy].link, w.copies[copy].event, w.copies[copy].node
    broker = w.channels[link].target
    if w.copies[copy].target_epoch != w.components[broker].epoch:
        fail(w, copy, FAILED, now)
        return
    report(copy, RECEIVED, now, w.copies, w.events, w.hops, w.control)
    if broker != node:
        onward = way(w, broker, node)
        w.copies[copy].hops_left -= 1
        if onward < 0 or w.copies[copy].hops_left <= 0:
            end_copy(w, copy)
            return
        w.copies[copy].link = onward
        w.copies[copy].source_epoch = w.components[broker].epoch
        w.copies[copy].enqueued = now
        w.copies[copy].sent = NOBODY
        w.copies[copy].received = NOBODY
        w.copies[copy].began = NOBODY
        enqueue(w, copy, now)
        return
    place = w.events[event].start + broker
    if w.words[place] & ACCEPTED != 0:
        w.control[DUPLICATES] += 1
    else:
        w.words[place] |= ACCEPTED
        if dispatch(w, event, broker, now) > 0:
            hold(w, event, broker, link, now)
    if w.copies[copy].is_stored != 0:
        acknowledge(w, copy, now)
    else:
        end_copy(w, copy)


@borrowing_inner
def _process(w: World, broker: int, copy: int, now: int) -> int:
    """What keeps nobody waiting; the copy if it is through already, or else -1."""
    if w.stations[broker].has_processing != 0:
        delay = whole_ns(draw(w.laws, w.stations[broker].processing, w.law_rows))
        if delay > 0:
            push(w.heap, w.control, now + delay, copy << KIND_BITS | PROCESSED)
            return NOBODY
    return copy


@borrowing_inner
def _serve(w: World, broker: int, copy: int, now: int) -> None:
    """Take a copy to the broker's server, which is free."""
    w.copies[copy].began = now
    w.stations[broker].serving = copy
    served = now + whole_ns(w.stations[broker].table * draw(w.laws, w.stations[broker].service, w.law_rows))
    w.stations[broker].served_at = served
    w.stations[broker].busy_ns += max(0, min(served, w.settings[END]) - max(now, w.settings[WARMUP]))
    push(w.heap, w.control, served, broker << KIND_BITS | SERVED)


@borrowing_step
def _arrive(w: World, copy: int, now: int) -> int:
    """A copy gets to the other end of its link; the copy that is through with the broker already, or else -1."""
    link = w.copies[copy].link
    broker = w.channels[link].target
    if w.components[w.channels[link].component].epoch != w.copies[copy].link_epoch or w.components[broker].up == 0:
        fail(w, copy, FAILED, now)
        return NOBODY
    w.control[TRAFFIC] += w.events[w.copies[copy].event].is_counted
    if w.copies[copy].is_stored != 0 and w.settings[IS_EARLY] != 0:
        inside = new_copy(w, w.copies[copy].event, w.copies[copy].node, link, w.copies[copy].enqueued, 0, 0)
        w.copies[inside].sent = w.copies[copy].sent
        acknowledge(w, copy, now)
        copy = inside
    w.copies[copy].received = now
    w.copies[copy].target_epoch = w.components[broker].epoch
    if w.stations[broker].has_service == 0:
        w.copies[copy].began = now
        return _process(w, broker, copy, now)
    if w.stations[broker].serving < 0:
        _serve(w, broker, copy, now)
    else:
        head, tail = appended(w.copies, copy, w.stations[broker].head, w.stations[broker].tail)
        w.stations[broker].head, w.stations[broker].tail = head, tail
    return NOBODY


@borrowing_inner
def _served(w: World, broker: int, now: int) -> int:
    """A broker has served a copy and takes the next one; the copy that is through already, or else -1."""
    copy = w.stations[broker].serving
    if copy < 0 or w.stations[broker].served_at != now:
        return NOBODY  # of a service that a crash cut short
    w.stations[broker].serving = NOBODY
    following = w.stations[broker].head
    if following >= 0:
        w.stations[broker].head = w.copies[following].next
        if w.stations[broker].head < 0:
            w.stations[broker].tail = NOBODY
        _serve(w, broker, following, now)
    return _process(w, broker, copy, now)


@borrowing_inner
def _drop_queue(w: World, copy: int, now: int) -> None:
    """What waits in a list is cut off by a crash: copies that their senders store wait there, the others are gone."""
    while copy >= 0:
        following = w.copies[copy].next
        fail(w, copy, FAILED, now)
        copy = following


@borrowing_inner
def _end_all(w: World, copy: int) -> None:
    """What was stored in a row is lost."""
    while copy >= 0:
        following = w.copies[copy].next
        end_copy(w, copy)
        copy = following


@borrowing_inner
def _crash(w: World, broker: int, now: int) -> None:
    """A broker stops: its table, its map and its queue are lost, and what it had stored waits, or is lost too."""
    forget_rows(w, broker)
    forget_map(w, broker)
    serving, head = w.stations[broker].serving, w.stations[broker].head
    w.stations[broker].serving = w.stations[broker].head = w.stations[broker].tail = NOBODY
    if serving >= 0:
        fail(w, serving, FAILED, now)
    _drop_queue(w, head, now)
    is_volatile = w.settings[IS_VOLATILE] != 0
    for place in range(w.stations[broker].first_out, w.stations[broker].last_out):
        link = w.lists[place]
        sending, head = w.channels[link].sending, w.channels[link].head
        waiting = w.channels[link].blocked_head
        if waiting >= 0:
            count_tries(w, link, now)
            w.channels[link].blocked_since = now
        w.channels[link].sending = w.channels[link].head = w.channels[link].tail = NOBODY
        if is_volatile:
            w.channels[link].blocked_head = w.channels[link].blocked_tail = NOBODY
            _end_all(w, waiting)
        if sending >= 0:
            fail(w, sending, FAILED, now)
        _drop_queue(w, head, now)
    held = w.stations[broker].held_head
    if is_volatile:
        w.stations[broker].held_head = w.stations[broker].held_tail = NOBODY
        _end_all(w, held)


@borrowing_inner
def _transition(w: World, component: int, now: int) -> None:
    """A component fails or comes back."""
    record = w.components[component]
    is_up = 1 - record.up
    record.up = is_up
    record.epoch += 1
    record.changed = now
    law = record.up_law if is_up != 0 else record.down_law
    lasts = max(1, whole_ns(draw(w.laws, law, w.law_rows)))
    push(w.heap, w.control, now + lasts, component << KIND_BITS | TRANSITION)
    if len(w.transitions) > 0:
        row = w.control[TRANSITIONS_OUT]
        w.control[TRANSITIONS_OUT] = row + 1
        w.transitions[row].component = component
        w.transitions[row].at = now
        w.transitions[row].up = is_up
    if is_up == 0 and component < w.settings[BROKERS]:
        _crash(w, component, now)
    if is_up != 0:
        for place in range(record.first_link, record.last_link):
            link = w.lists[place]
            if w.channels[link].blocked_head >= 0 and is_usable(w, link):
                tried = next_try(w, w.channels[link].blocked_since, now)
                if w.channels[link].source == component:
                    w.channels[link].blocked_since = now
                    tried = now
                push(w.heap, w.control, tried, link << KIND_BITS | RETRY)
            elif w.channels[link].source == component:
                w.channels[link].blocked_since = now
    if w.settings[IS_BYPASSING] != 0:
        look(w, component, now)


@borrowing_inner
def _expire(w: World, copy: int, now: int) -> None:
    """A stored or held copy is too late for everybody."""
    event = w.copies[copy].event
    if event < 0 or w.events[event].expires != now:
        return
    if w.copies[copy].place == BLOCKED:
        link = w.copies[copy].link
        unblock(w, copy)
        if w.channels[link].blocked_head < 0 and w.components[w.channels[link].source].up != 0:
            count_tries(w, link, now)
        discard(w, copy)
    elif w.copies[copy].place == HELD:
        expire_held(w, copy)


@borrowing_inner
def _others(w: World, kind: int, number: int, now: int) -> None:
    """Everything that is not part of an event's usual way."""
    if kind == TRANSITION:
        _transition(w, number, now)
    elif kind == RETRY:
        retry(w, number, now)
    elif kind == EXPIRY:
        _expire(w, number, now)
    elif kind == REFRESH:
        refresh(w, number, now)
    elif kind == ROW_ARRIVED:
        row_arrived(w, number, now)
    elif kind == DETECTED:
        detected(w, number, now)
    elif kind == LINK_STATE:
        told(w, number, now)
    elif kind == OFFERED:
        offered(w, number, now)
    elif kind == DETOURED:
        detoured(w, number, now)
    elif kind == REROUTED:
        rerouted(w, number, now)


@borrowing
def advance(
    w: World,
    publications: Array,
    matches: Array,
    horizon: int,
    steps_max: int,
    room: int,
    copies_max: int,
    is_draining: bool,
) -> int:
    """Let everything happen before the horizon; why it came back is one of the reasons of `simulation._layout`.

    `room` is how many happenings one step may add beside those of the copies alive. When draining it comes back as
    soon as no copy is left.
    """
    control = w.control
    brokers = w.settings[BROKERS]
    for _ in range(steps_max):
        alive = control[ALIVE]
        words = 2 * (4 * brokers + control[WIDEST] + 1)
        if (
            control[COPIES_USED] + brokers + 3 > len(w.copies)
            or control[EVENTS_USED] + 1 > len(w.events)
            or control[HEAP_SIZE] + 2 * alive + room > len(w.heap)
            or control[ARENA_USED] + words > len(w.words)
        ):
            return POOL_FULL
        if len(w.hops) > 0 and (
            control[HOPS_OUT] + alive + brokers + 3 > len(w.hops)
            or control[DELIVERIES_OUT] + control[WIDEST] > len(w.deliveries)
            or control[TRANSITIONS_OUT] + 1 > len(w.transitions)
        ):
            return OUTPUT_FULL
        if alive > copies_max:
            return OVERLOADED
        if is_draining and alive == 0:
            return INPUT_USED
        number = control[NEXT_PUBLICATION]
        is_new = number < len(publications) and (control[HEAP_SIZE] == 0 or publications[number].time <= w.heap[0].time)
        if not is_new and (control[HEAP_SIZE] == 0 or w.heap[0].time >= horizon):
            return INPUT_USED
        control[STEPS] += 1
        if is_new:
            control[NEXT_PUBLICATION] = number + 1
            control[NOW] = publications[number].time
            _publish(w, number, publications, matches)
            continue
        now = w.heap[0].time
        what = w.heap[0].what
        pop(w.heap, control)
        control[NOW] = now
        kind = what & KINDS
        what >>= KIND_BITS
        ready = NOBODY
        if kind == ARRIVED:
            ready = _arrive(w, what, now)
        elif kind == SERVED:
            ready = _served(w, what, now)
        elif kind == PROCESSED:
            ready = what
        elif kind == TRANSMITTED:
            transmitted(w, what, now)
        elif kind == ACKED:
            acked(w, what, now)
        else:
            _others(w, kind, what, now)
        if ready >= 0:
            _accept(w, ready, now)
    return PAUSED


@borrowing
def finish(w: World) -> None:
    """Count the pairs of all events that are still alive when the run ends."""
    for copy in range(w.control[COPIES_USED]):
        if w.copies[copy].event >= 0:
            mark(w, w.copies[copy].event, w.copies[copy].node, UNDERWAY)
    for event in range(w.control[EVENTS_USED]):
        if w.events[event].copies > 0:
            settle(w, event)
