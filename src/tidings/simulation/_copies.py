"""Copies, events and their entries: taken from the pools, given back, and counted when they end.

Slots that are given back are used again before new ones, so memory follows the load and not the length of a run. The
event loop looks for room before each step and comes back when there is too little. Arenas hand out blocks of a power of
two, with a list of free blocks for each size.
"""

from tidings.compiled import borrowing_inner, borrowing_step
from tidings.scheduling import expiry_time
from tidings.simulation._draws import whole_ns
from tidings.simulation._layout import (
    ALIVE,
    BROKERS,
    COPIES_USED,
    DELIVERED,
    DISCARDED,
    ENTRIES_USED,
    EVENTS_USED,
    EXPIRED,
    FLYING,
    FREE_COPY,
    FREE_ENTRIES,
    FREE_EVENT,
    FREE_WORDS,
    GROUP,
    HAS_OWN_ENTRIES,
    HELD,
    HOPELESS,
    HOPS_OUT,
    IS_DROPPING,
    IS_FAILING,
    NEVER_NS,
    NOBODY,
    STORED,
    STORED_PEAK,
    UNDERWAY,
    WORDS_USED,
)
from tidings.simulation._world import World


@borrowing_inner
def take_entries(w: World, count: int) -> tuple[int, int]:
    """A block for this many entries: where it starts, and its size as a power of two."""
    block = 0
    while (1 << block) < count:
        block += 1
    start = w.free[FREE_ENTRIES, block]
    if start >= 0:
        w.free[FREE_ENTRIES, block] = w.entries[start].subscription
    else:
        start = w.control[ENTRIES_USED]
        w.control[ENTRIES_USED] = start + (1 << block)
    return start, block


@borrowing_step
def give_entries(w: World, start: int, block: int) -> None:
    w.entries[start].subscription = w.free[FREE_ENTRIES, block]
    w.free[FREE_ENTRIES, block] = start


@borrowing_inner
def take_words(w: World, count: int) -> tuple[int, int]:
    block = 0
    while (1 << block) < count:
        block += 1
    start = w.free[FREE_WORDS, block]
    if start >= 0:
        w.free[FREE_WORDS, block] = w.words[start]
    else:
        start = w.control[WORDS_USED]
        w.control[WORDS_USED] = start + (1 << block)
    return start, block


@borrowing_inner
def take_event(w: World) -> int:
    event = w.control[FREE_EVENT]
    if event >= 0:
        w.control[FREE_EVENT] = w.events[event].start
    else:
        event = w.control[EVENTS_USED]
        w.control[EVENTS_USED] = event + 1
    return int(event)


@borrowing_inner
def new_copy(w: World, event: int, link: int, now: int) -> int:
    """A copy that is to go over a link from now on; its entries are still to be given."""
    copy = w.control[FREE_COPY]
    if copy >= 0:
        w.control[FREE_COPY] = w.copies[copy].next
    else:
        copy = w.control[COPIES_USED]
        w.control[COPIES_USED] = copy + 1
    w.control[ALIVE] += 1
    w.copies[copy].event = event
    w.copies[copy].link = link
    w.copies[copy].block = NOBODY
    w.copies[copy].enqueued = now
    w.copies[copy].sent = NOBODY
    w.copies[copy].received = NOBODY
    w.copies[copy].began = NOBODY
    w.copies[copy].delete_at = NEVER_NS
    w.copies[copy].place = FLYING
    w.copies[copy].is_stored = 0
    w.events[event].copies += 1
    return int(copy)


@borrowing_step
def expiry_ns(w: World, event: int, start: int, stop: int, allowed: int) -> int:
    """When entries that allow at most this are too late, if that is the end of them."""
    if w.settings[IS_DROPPING] == 0 or start == stop or allowed >= NEVER_NS:
        return NEVER_NS
    return int(w.events[event].published + allowed)


@borrowing_inner
def span(w: World, event: int, node: int) -> tuple[int, int, int]:
    """The entries of an event behind a broker of its tree, that broker included, and when they are too late."""
    tree, first_group = w.events[event].tree, w.events[event].words + w.settings[BROKERS]
    first, last = w.places[tree, node].position, w.places[tree, node].end
    start, stop, allowed = w.events[event].start, w.events[event].start, 0
    is_found = False
    for group in range(w.events[event].groups):
        place = first_group + GROUP * group
        position = w.places[tree, w.words[place]].position
        if first <= position < last:
            if not is_found:
                start = w.words[place + 1]
                is_found = True
            stop = w.words[place + 2]
            allowed = max(allowed, w.words[place + 3])
        elif is_found:
            break
    return start, stop, expiry_ns(w, event, start, stop, allowed)


@borrowing_inner
def copy_for(w: World, event: int, node: int, link: int, now: int, is_stored: int, served: tuple[int, int, int]) -> int:
    """A copy for a broker of the event's tree, where things fail; `served` is the span of that broker."""
    copy = new_copy(w, event, link, now)
    start, stop, expires = served
    w.copies[copy].start = start
    w.copies[copy].stop = stop
    w.copies[copy].expires = expires
    if w.settings[HAS_OWN_ENTRIES] != 0 and start < stop:
        own_entries(w, copy)
    w.copies[copy].node = node
    w.copies[copy].hops_left = w.settings[BROKERS]
    source = w.links[link].source
    w.copies[copy].source_epoch = w.components[source].epoch if source >= 0 else 0
    w.copies[copy].is_stored = is_stored
    if is_stored != 0:
        stored = w.control[STORED] + 1
        w.control[STORED] = stored
        w.control[STORED_PEAK] = max(w.control[STORED_PEAK], stored)
    return copy


@borrowing_inner
def own_entries(w: World, copy: int) -> None:
    """Give a copy a block of its own: others may serve the same entries, each with a path of its own before it."""
    first, last = w.copies[copy].start, w.copies[copy].stop
    start, block = take_entries(w, last - first)
    w.copies[copy].block = block
    w.copies[copy].start = start
    w.copies[copy].stop = start + last - first
    for entry in range(first, last):
        copy_entry(w, entry, start + entry - first)


@borrowing_inner
def copy_entry(w: World, entry: int, target: int) -> None:
    w.entries[target].subscription = w.entries[entry].subscription
    w.entries[target].origin = w.entries[entry].origin
    w.board.pairs.allowed_s[target] = w.board.pairs.allowed_s[entry]
    w.board.paths.price[target] = w.board.paths.price[entry]


@borrowing_inner
def settle(w: World, event: int) -> None:
    """Count what became of the pairs of an event that were not delivered."""
    if w.events[event].pending == 0 or w.events[event].is_counted == 0:
        return
    for entry in range(w.events[event].start, w.events[event].stop):
        state = w.entries[entry].state
        if state & DELIVERED == 0:
            wanted = w.entries[entry].subscription
            if state & UNDERWAY != 0:
                w.subscriptions[wanted].in_flight += 1
            elif state & DISCARDED != 0:
                w.subscriptions[wanted].discarded += 1
            else:
                w.subscriptions[wanted].lost += 1


@borrowing_inner
def end_event(w: World, event: int) -> None:
    settle(w, event)
    if w.events[event].block >= 0:
        give_entries(w, w.events[event].start, w.events[event].block)
    words, block = w.events[event].words, w.events[event].words_block
    if block >= 0:
        w.words[words] = w.free[FREE_WORDS, block]
        w.free[FREE_WORDS, block] = words
    w.events[event].start = w.control[FREE_EVENT]
    w.control[FREE_EVENT] = event


@borrowing_inner
def end_copy(w: World, copy: int) -> None:
    """Give a copy back, and its event with its last copy."""
    event = w.copies[copy].event
    if w.copies[copy].block >= 0:
        give_entries(w, w.copies[copy].start, w.copies[copy].block)
    if w.copies[copy].is_stored != 0:
        w.control[STORED] -= 1
    w.copies[copy].event = NOBODY
    w.copies[copy].next = w.control[FREE_COPY]
    w.control[FREE_COPY] = copy
    w.control[ALIVE] -= 1
    w.events[event].copies -= 1
    if w.events[event].copies == 0:
        end_event(w, event)


@borrowing_inner
def mark(w: World, start: int, stop: int, state: int) -> None:
    """Note what becomes of entries."""
    for entry in range(start, stop):
        w.entries[w.entries[entry].origin].state |= state


@borrowing_inner
def report(w: World, copy: int, outcome: int, ended: int) -> None:
    """Leave a row of the trace about a copy that has come to its end, if its event is sampled."""
    event = w.copies[copy].event
    if w.events[event].is_sampled != 0:
        row = w.control[HOPS_OUT]
        w.control[HOPS_OUT] = row + 1
        w.hops[row].publisher = w.events[event].publisher
        w.hops[row].sequence = w.events[event].sequence
        w.hops[row].link = w.copies[copy].link
        w.hops[row].enqueued = w.copies[copy].enqueued
        w.hops[row].sent = w.copies[copy].sent
        w.hops[row].received = w.copies[copy].received
        w.hops[row].began = w.copies[copy].began
        w.hops[row].ended = ended
        w.hops[row].outcome = outcome


@borrowing_inner
def is_expired(w: World, copy: int, now: int) -> bool:
    """Whether a copy that is deleted is too late for everybody, and not merely hopeless."""
    if w.settings[IS_FAILING] != 0:
        return bool(now >= w.copies[copy].expires)
    last_s = expiry_time(0.0, w.copies[copy].start, w.copies[copy].stop, w.board.pairs.allowed_s)
    return bool(now - w.events[w.copies[copy].event].published >= whole_ns(last_s))


@borrowing_inner
def discard(w: World, copy: int, now: int) -> None:
    """Delete a copy that is past its time and in no list."""
    start, stop = w.copies[copy].start, w.copies[copy].stop
    mark(w, start, stop, DISCARDED)
    if w.copies[copy].place != HELD and w.copies[copy].sent < 0:  # what was sent has a row that says what became of it
        report(w, copy, EXPIRED if is_expired(w, copy, now) else HOPELESS, NOBODY)
    end_copy(w, copy)
