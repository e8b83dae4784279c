"""From a publication to its copies, and from a broker on to the next ones, where nothing fails.

On a tree the entries of an event are in the order of the tree, so what lies behind a link is one range of them. With
several paths each broker matches anew: whoever wants the event and can be reached from here, not only those for whose
sake it came; the first copy that arrives counts.
"""

from math import inf

from tidings.compiled import borrowing_inner
from tidings.simulation._brokers import deliver
from tidings.simulation._copies import (
    copy_entry,
    end_copy,
    expiry_ns,
    new_copy,
    own_entries,
    report,
    take_entries,
    take_event,
    take_words,
)
from tidings.simulation._layout import (
    BROKERS,
    GROUP,
    HAS_OWN_ENTRIES,
    IS_FAILING,
    IS_MULTI,
    NANOSECONDS,
    NEVER_NS,
    NOBODY,
    PENDING,
    PUBLISHED,
    RECEIVED,
    WARMUP,
)
from tidings.simulation._links import enqueue
from tidings.simulation._world import World


@borrowing_inner
def begin_event(w: World, number: int) -> int:
    """An event without copies and with room for its entries, and for its words where things fail."""
    event = take_event(w)
    w.events[event].published = w.publications[number].time
    w.events[event].sequence = w.publications[number].sequence
    w.events[event].lifetime = w.publications[number].lifetime
    w.events[event].size_kb = w.publications[number].size_kb
    w.events[event].publisher = w.publications[number].publisher
    w.events[event].tree = w.publications[number].tree
    w.events[event].is_sampled = w.publications[number].is_sampled
    w.events[event].is_counted = 1 if w.publications[number].time >= w.settings[WARMUP] else 0
    w.events[event].copies = 0
    count = w.publications[number].count
    w.events[event].pending = count
    start, block = 0, NOBODY
    if count > 0:
        start, block = take_entries(w, count)
    w.events[event].start = start
    w.events[event].stop = start + count
    w.events[event].block = block
    w.events[event].groups = 0
    w.events[event].words_block = NOBODY
    if w.settings[IS_FAILING] != 0:
        brokers = w.settings[BROKERS]
        start, block = take_words(w, brokers + GROUP * min(brokers, count))
        w.events[event].words = start
        w.events[event].words_block = block
        for broker in range(brokers):
            w.words[start + broker] = 0
    return event


@borrowing_inner
def is_reached(w: World, link: int, tree: int, home: int) -> bool:
    """Whether what a publisher sends over its access link gets to a home."""
    if w.settings[IS_MULTI] != 0:
        return bool(w.reaches[link, home])
    return bool(w.places[tree, home].position >= 0)


@borrowing_inner
def publish(w: World, number: int) -> None:
    """A new event with its entries, and its copy on the publisher's access link."""
    event = begin_event(w, number)
    tree, now = w.events[event].tree, w.events[event].published
    link, is_failing = w.publications[number].link, w.settings[IS_FAILING] != 0
    start, lifetime, is_counted = w.events[event].start, w.events[event].lifetime, w.events[event].is_counted
    first, count = w.publications[number].first, w.publications[number].count
    is_valued = not is_failing or w.settings[HAS_OWN_ENTRIES] != 0  # without strategies a copy knows when it expires
    # Matches are in the order of their homes in the tree: those of one home are a group.
    place, groups, home, group_allows = w.events[event].words + w.settings[BROKERS] - GROUP, 0, NOBODY, 0
    is_served = False
    # What no path leads to stands at the end, outside the range that the copy serves.
    served_to, outside, longest = start, start + count, 0
    for match in range(first, first + count):
        wanted = w.matches[match]
        w.subscriptions[wanted].matched += is_counted
        allowed = min(lifetime, w.subscriptions[wanted].allowed)
        if w.subscriptions[wanted].home != home:
            home, group_allows = w.subscriptions[wanted].home, 0
            is_served = is_reached(w, link, tree, home)
            if is_failing and is_served:
                place += GROUP
                groups += 1
                w.words[place] = home
                w.words[place + 1] = served_to
        entry = served_to
        if is_served:
            served_to += 1
            group_allows = max(group_allows, allowed)
            longest = max(longest, allowed)
            if is_failing:
                w.words[place + 2] = served_to
                w.words[place + 3] = group_allows
        else:
            outside -= 1
            entry = outside
        w.entries[entry].subscription = wanted
        w.entries[entry].origin = entry
        w.entries[entry].state = PENDING
        if is_valued:
            w.board.pairs.allowed_s[entry] = allowed / NANOSECONDS if allowed < NEVER_NS else inf
            w.board.paths.price[entry] = w.subscriptions[wanted].price
    w.control[PUBLISHED] += is_counted
    copy = new_copy(w, event, link, now)
    w.copies[copy].start = start
    w.copies[copy].stop = served_to
    if is_failing:
        w.events[event].groups = groups
        w.copies[copy].node = w.links[link].target
        w.copies[copy].expires = expiry_ns(w, event, start, served_to, longest)
        w.copies[copy].hops_left = w.settings[BROKERS]
        w.copies[copy].source_epoch = 0
        if w.settings[HAS_OWN_ENTRIES] != 0 and start < served_to:
            own_entries(w, copy)
    enqueue(w, copy, now)


@borrowing_inner
def forward_on_tree(w: World, copy: int, broker: int, now: int) -> None:
    """Deliver an event at a broker and send it to each child behind which somebody wants it."""
    event, entry, stop = w.copies[copy].event, w.copies[copy].start, w.copies[copy].stop
    tree = w.events[event].tree
    first = entry
    while entry < stop and w.subscriptions[w.entries[entry].subscription].home == broker:
        entry += 1
    deliver(w, event, first, entry, now)
    slot = w.places[tree, broker].first_child
    while entry < stop:
        place = w.places[tree, w.subscriptions[w.entries[entry].subscription].home].position
        while w.places[tree, w.branches[tree, slot].broker].end <= place:
            slot += 1
        behind = w.places[tree, w.branches[tree, slot].broker].end
        onward = new_copy(w, event, w.branches[tree, slot].link, now)
        w.copies[onward].start = entry
        if w.places[tree, w.subscriptions[w.entries[stop - 1].subscription].home].position < behind:
            entry = stop  # often one link leads to all that are left
        while entry < stop and w.places[tree, w.subscriptions[w.entries[entry].subscription].home].position < behind:
            entry += 1
        w.copies[onward].stop = entry
        enqueue(w, onward, now)


@borrowing_inner
def forward_on_all(w: World, copy: int, broker: int, now: int) -> None:
    """The same over every link that leads to a match."""
    event = w.copies[copy].event
    first, last = w.events[event].start, w.events[event].stop
    for entry in range(first, last):
        if w.subscriptions[w.entries[entry].subscription].home == broker:
            deliver(w, event, entry, entry + 1, now)
    for place in range(w.brokers[broker].first_out, w.brokers[broker].last_out):
        link = w.lists[place]
        count = 0
        for entry in range(first, last):
            if w.reaches[link, w.subscriptions[w.entries[entry].subscription].home] != 0:
                count += 1
        if count == 0:
            continue
        onward = new_copy(w, event, link, now)
        start, block = take_entries(w, count)
        w.copies[onward].block = block
        w.copies[onward].start = start
        w.copies[onward].stop = start + count
        for entry in range(first, last):
            if w.reaches[link, w.subscriptions[w.entries[entry].subscription].home] != 0:
                copy_entry(w, entry, start)
                start += 1
        enqueue(w, onward, now)


@borrowing_inner
def forward(w: World, copy: int, now: int) -> None:
    """A copy is through with its broker: the event is delivered there and goes on."""
    broker = w.links[w.copies[copy].link].target
    report(w, copy, RECEIVED, now)
    if w.settings[IS_MULTI] != 0:
        forward_on_all(w, copy, broker, now)
    else:
        forward_on_tree(w, copy, broker, now)
    end_copy(w, copy)
