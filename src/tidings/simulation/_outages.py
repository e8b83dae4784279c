"""What happens to brokers and links that fail, and to the events there (paper D; docs/reference/simulation.md).

What may be many at once (events that are offered, copies that look for a detour) enters the calendar one by one, so
that a step needs a bounded amount of room.
"""

from tidings.compiled import borrowing_inner
from tidings.simulation._copies import discard, end_copy, report
from tidings.simulation._draws import draw, whole_ns
from tidings.simulation._heap import push
from tidings.simulation._layout import (
    ACCEPTED,
    BLOCKED,
    BROKERS,
    DETECTED,
    DETOURED,
    DUPLICATES,
    EXPIRY,
    FAILED,
    HELD,
    IS_BYPASSING,
    IS_VOLATILE,
    KIND_BITS,
    LINK_STATE,
    NOBODY,
    OFFERED,
    RECEIVED,
    REFRESH,
    REROUTED,
    RETRY,
    ROW_ARRIVED,
    TRANSITION,
    TRANSITIONS_OUT,
)
from tidings.simulation._links import enqueue, retry
from tidings.simulation._maps import detected, detoured, forget_map, look, rerouted, told, way
from tidings.simulation._stores import acknowledge, count_tries, fail, is_usable, next_try, unblock
from tidings.simulation._tables import dispatch, expire_held, forget_rows, hold, offered, refresh, row_arrived
from tidings.simulation._world import World

__all__ = ["accept", "happen"]


@borrowing_inner
def pass_on(w: World, copy: int, broker: int, now: int) -> None:
    """Send a copy that is on a detour to the next broker of it."""
    onward = way(w, broker, w.copies[copy].node)
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


@borrowing_inner
def accept(w: World, copy: int, now: int) -> None:
    """A copy is through with its broker, which takes the event in, or passes it on if it is on a detour."""
    link, event, node = w.copies[copy].link, w.copies[copy].event, w.copies[copy].node
    broker = w.links[link].target
    if w.copies[copy].target_epoch != w.components[broker].epoch:
        fail(w, copy, FAILED, now)
        return
    report(w, copy, RECEIVED, now)
    if broker != node:
        pass_on(w, copy, broker, now)
        return
    place = w.events[event].words + broker
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
def cut_off(w: World, copy: int, now: int) -> None:
    """What waits in a list is cut off by a crash: copies that their senders store wait there, the others are gone."""
    while copy >= 0:
        following = w.copies[copy].next
        fail(w, copy, FAILED, now)
        copy = following


@borrowing_inner
def end_all(w: World, copy: int) -> None:
    """What was stored in a list is lost."""
    while copy >= 0:
        following = w.copies[copy].next
        end_copy(w, copy)
        copy = following


@borrowing_inner
def crash_link(w: World, link: int, now: int) -> None:
    """The sending end of a link crashes: its queue is cut off, and what is stored waits, or is lost too."""
    sending, head = w.links[link].sending, w.links[link].head
    waiting = w.links[link].blocked_head
    if waiting >= 0:
        count_tries(w, link, now)
        w.links[link].blocked_since = now
    w.links[link].sending = w.links[link].head = w.links[link].tail = NOBODY
    w.links[link].length = 0
    if w.settings[IS_VOLATILE] != 0:
        w.links[link].blocked_head = w.links[link].blocked_tail = NOBODY
        end_all(w, waiting)
    if sending >= 0:
        fail(w, sending, FAILED, now)
    cut_off(w, head, now)


@borrowing_inner
def crash(w: World, broker: int, now: int) -> None:
    """A broker stops: its table, its map and its queue are lost, and what it had stored waits, or is lost too."""
    forget_rows(w, broker)
    forget_map(w, broker)
    serving, head = w.brokers[broker].serving, w.brokers[broker].head
    w.brokers[broker].serving = w.brokers[broker].head = w.brokers[broker].tail = NOBODY
    if serving >= 0:
        fail(w, serving, FAILED, now)
    cut_off(w, head, now)
    for place in range(w.brokers[broker].first_out, w.brokers[broker].last_out):
        crash_link(w, w.lists[place], now)
    held = w.brokers[broker].held_head
    if w.settings[IS_VOLATILE] != 0:
        w.brokers[broker].held_head = w.brokers[broker].held_tail = NOBODY
        end_all(w, held)


@borrowing_inner
def come_back(w: World, component: int, now: int) -> None:
    """What waits for links that a component concerns is tried again."""
    for place in range(w.components[component].first_link, w.components[component].last_link):
        link = w.lists[place]
        if w.links[link].blocked_head >= 0 and is_usable(w, link):
            tried = next_try(w, w.links[link].blocked_since, now)
            if w.links[link].source == component:
                w.links[link].blocked_since = now
                tried = now
            push(w.heap, w.control, tried, link << KIND_BITS | RETRY)
        elif w.links[link].source == component:
            w.links[link].blocked_since = now


@borrowing_inner
def transition(w: World, component: int, now: int) -> None:
    """A component fails or comes back."""
    is_up = 1 - w.components[component].up
    w.components[component].up = is_up
    w.components[component].epoch += 1
    w.components[component].changed = now
    distribution = w.components[component].up_distribution if is_up != 0 else w.components[component].down_distribution
    lasts = max(1, whole_ns(draw(w.distributions, distribution)))
    push(w.heap, w.control, now + lasts, component << KIND_BITS | TRANSITION)
    if len(w.transitions) > 0:
        row = w.control[TRANSITIONS_OUT]
        w.control[TRANSITIONS_OUT] = row + 1
        w.transitions[row].component = component
        w.transitions[row].at = now
        w.transitions[row].up = is_up
    if is_up != 0:
        come_back(w, component, now)
    elif component < w.settings[BROKERS]:
        crash(w, component, now)
    if w.settings[IS_BYPASSING] != 0:
        look(w, component, now)


@borrowing_inner
def expire(w: World, copy: int, now: int) -> None:
    """A stored or held copy is too late for everybody."""
    if w.copies[copy].event < 0 or w.copies[copy].expires != now:
        return
    if w.copies[copy].place == BLOCKED:
        link = w.copies[copy].link
        unblock(w, copy)
        if w.links[link].blocked_head < 0 and w.components[w.links[link].source].up != 0:
            count_tries(w, link, now)
        discard(w, copy, now)
    elif w.copies[copy].place == HELD:
        expire_held(w, copy, now)


@borrowing_inner
def happen(w: World, kind: int, number: int, now: int) -> None:
    """Everything that is not part of an event's usual course."""
    if kind == TRANSITION:
        transition(w, number, now)
    elif kind == RETRY:
        retry(w, number, now)
    elif kind == EXPIRY:
        expire(w, number, now)
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
