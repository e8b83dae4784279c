"""Subscription tables as soft state, and what an event meets there (paper D, sections 2.3, 2.4.1 and 2.4.2).

- A row is good until its time-out; every refresh that reaches the broker puts that off. A crash loses all rows. A home
  broker issues the subscriptions of its clients every `refresh`, at a phase of its own, and they travel hop by hop;
  with bypassing they make detours as events do.
- A broker that takes an event in delivers it to its own subscribers and sends it to each child behind which somebody
  wants it, as far as its table says. Who receives it looks into his own table: an event is not addressed.
- *Late* acknowledgement: a subscription lives for a time-out without refreshes, so for that long after a crash a table
  may lack one that is alive. Until then the broker keeps what it takes in, and gives it to subscriptions that come
  back before the event expires. With *early* acknowledgement, and without buffering, they miss it.
"""

from tidings.compiled import borrowing_inner
from tidings.simulation._brokers import deliver
from tidings.simulation._copies import copy_for, discard, end_copy, mark, span
from tidings.simulation._heap import push
from tidings.simulation._layout import (
    BROKERS,
    DELIVERED,
    DISCARDED,
    EXPIRY,
    GROUP,
    HELD,
    IS_BUFFERING,
    IS_BYPASSING,
    IS_EARLY,
    KIND_BITS,
    NEVER_NS,
    OFFERED,
    REFRESH,
    REFRESH_NS,
    REFRESHES,
    ROW_ARRIVED,
    SENT,
    TIMEOUT_NS,
)
from tidings.simulation._links import enqueue
from tidings.simulation._lists import appended, removed
from tidings.simulation._maps import detour, row_of, way
from tidings.simulation._stores import block
from tidings.simulation._world import World


@borrowing_inner
def deliver_group(w: World, event: int, group: int, now: int) -> None:
    """Hand an event to the subscribers of its `group`-th home."""
    place = w.events[event].words + w.settings[BROKERS] + GROUP * group
    deliver(w, event, w.words[place + 1], w.words[place + 2], now)


@borrowing_inner
def send_on(w: World, event: int, broker: int, child: int, link: int, now: int) -> None:
    """Send an event to a child in its tree, or around it if it is known not to answer."""
    w.words[w.events[event].words + child] |= SENT
    served = span(w, event, child)
    start, stop, expires = served
    if now >= expires:
        mark(w, start, stop, DISCARDED)
        return
    is_stored = w.settings[IS_BUFFERING]
    if w.settings[IS_BYPASSING] == 0 or w.views[broker, link].up != 0:
        enqueue(w, copy_for(w, event, child, link, now, is_stored, served), now)
        return
    if is_stored != 0:
        block(w, copy_for(w, event, child, link, now, 1, served), now)
    detour(w, event, broker, child, now)


@borrowing_inner
def serve_groups(w: World, event: int, broker: int, now: int, is_sending: bool) -> int:
    """Give an event to everybody the table knows, unless that is done; how many homes are not served after that."""
    words, tree = w.events[event].words, w.events[event].tree
    first, last = w.places[tree, broker].position, w.places[tree, broker].end
    slot = w.places[tree, broker].first_child
    missing = 0
    for group in range(w.events[event].groups):
        record = words + w.settings[BROKERS] + GROUP * group
        home = w.words[record]
        place = w.places[tree, home].position
        if not first <= place < last:
            continue
        is_known = w.rows[row_of(w, tree, home, broker)].until > now
        if home == broker:
            if w.entries[w.words[record + 1]].state & DELIVERED == 0:
                if is_known and is_sending:
                    deliver_group(w, event, group, now)
                else:
                    missing += 1
            continue
        while w.places[tree, w.branches[tree, slot].broker].end <= place:
            slot += 1
        child = w.branches[tree, slot].broker
        if w.words[words + child] & SENT == 0:
            if is_known and is_sending:
                send_on(w, event, broker, child, w.branches[tree, slot].link, now)
            else:
                missing += 1
    return missing


@borrowing_inner
def dispatch(w: World, event: int, broker: int, now: int) -> int:
    """Deliver and forward an event at a broker; how many homes the broker cannot serve, now or ever."""
    missing = serve_groups(w, event, broker, now, True)
    if missing > 0:  # a child that was served for another's sake serves them too
        missing = serve_groups(w, event, broker, now, False)
    return missing


@borrowing_inner
def hold(w: World, event: int, broker: int, link: int, now: int) -> None:
    """Keep an event for subscriptions that may come back, if any may."""
    if w.settings[IS_BUFFERING] == 0 or w.settings[IS_EARLY] != 0 or w.components[broker].epoch == 0:
        return
    served = span(w, event, broker)
    _, _, expires = served
    if now >= w.components[broker].changed + w.settings[TIMEOUT_NS] or now >= expires:
        return
    copy = copy_for(w, event, broker, link, now, 1, served)
    w.copies[copy].place = HELD
    head, tail = appended(w.copies, copy, w.brokers[broker].held_head, w.brokers[broker].held_tail)
    w.brokers[broker].held_head, w.brokers[broker].held_tail = head, tail
    if expires < NEVER_NS:
        push(w.heap, w.control, expires, copy << KIND_BITS | EXPIRY)


@borrowing_inner
def release(w: World, copy: int) -> None:
    """Take a copy out of its broker's list of held ones."""
    broker = w.copies[copy].node
    head, tail = removed(w.copies, copy, w.brokers[broker].held_head, w.brokers[broker].held_tail)
    w.brokers[broker].held_head, w.brokers[broker].held_tail = head, tail


@borrowing_inner
def offered(w: World, copy: int, now: int) -> None:
    """Give a held event to subscriptions that have come back; it stays while others are missing."""
    if w.copies[copy].event < 0 or w.copies[copy].place != HELD:
        return
    if dispatch(w, w.copies[copy].event, w.copies[copy].node, now) == 0:
        release(w, copy)
        end_copy(w, copy)


@borrowing_inner
def expire_held(w: World, copy: int, now: int) -> None:
    release(w, copy)
    discard(w, copy, now)


@borrowing_inner
def _offer(w: World, row: int, broker: int, now: int) -> None:
    """Offer the held events of a broker to the subscriptions of a row that has come in."""
    copy = w.brokers[broker].held_head
    while copy >= 0:
        event = w.copies[copy].event
        words, tree = w.events[event].words, w.events[event].tree
        first, last = w.places[tree, broker].position, w.places[tree, broker].end
        for group in range(w.events[event].groups):
            home = w.words[words + w.settings[BROKERS] + GROUP * group]
            if first <= w.places[tree, home].position < last and row_of(w, tree, home, broker) == row:
                push(w.heap, w.control, now, copy << KIND_BITS | OFFERED)
                break
        copy = w.copies[copy].next


@borrowing_inner
def _around(w: World, row: int, broker: int, now: int) -> None:
    """Send a refresh around a broker that does not answer: to the first rows behind it that can be reached."""
    way(w, broker, broker)
    bottom = w.settings[BROKERS]  # what lies below is room for finding paths
    w.walk[bottom] = row
    top = bottom + 1
    while top > bottom:
        top -= 1
        here = w.walk[top]
        target = w.rows[here].broker
        if w.first_link[broker, target] >= 0:
            w.control[REFRESHES] += w.ways[broker, target].hops
            is_open, walked = True, target
            while walked != broker:
                link = w.ways[broker, walked].back
                if w.components[w.links[link].component].up == 0 or w.components[walked].up == 0:
                    is_open = False
                walked = w.links[link].source
            if is_open:
                push(w.heap, w.control, now + w.ways[broker, target].ns, (2 * here + 1) << KIND_BITS | ROW_ARRIVED)
        else:
            for place in range(w.rows[here].first_child, w.rows[here].last_child):
                w.walk[top] = w.lists[place]
                top += 1


@borrowing_inner
def refresh_row(w: World, row: int, now: int) -> None:
    """Subscriptions of one home reach a broker, which notes them and sends them on."""
    broker = w.rows[row].broker
    w.rows[row].until = now + w.settings[TIMEOUT_NS]
    if w.brokers[broker].held_head >= 0:
        _offer(w, row, broker, now)
    for place in range(w.rows[row].first_child, w.rows[row].last_child):
        following = w.lists[place]
        link = w.rows[following].link
        if w.settings[IS_BYPASSING] != 0 and w.views[broker, link].up == 0:
            _around(w, following, broker, now)
        else:
            w.control[REFRESHES] += 1
            if w.components[w.links[link].component].up != 0:
                push(w.heap, w.control, now + w.links[link].control_ns, (2 * following) << KIND_BITS | ROW_ARRIVED)


@borrowing_inner
def row_arrived(w: World, message: int, now: int) -> None:
    """A refresh gets to a broker, if that and, without a detour, the link are up."""
    row = message >> 1
    if w.components[w.rows[row].broker].up == 0:
        return
    if message & 1 != 0 or w.components[w.links[w.rows[row].link].component].up != 0:
        refresh_row(w, row, now)


@borrowing_inner
def refresh(w: World, home: int, now: int) -> None:
    """The subscribers of a broker issue their subscriptions anew."""
    push(w.heap, w.control, now + w.settings[REFRESH_NS], home << KIND_BITS | REFRESH)
    if w.components[home].up != 0:
        refresh_row(w, w.brokers[home].root, now)


@borrowing_inner
def forget_rows(w: World, broker: int) -> None:
    """A crash empties a broker's table."""
    for place in range(w.brokers[broker].first_row, w.brokers[broker].last_row):
        w.rows[w.lists[place]].until = 0
