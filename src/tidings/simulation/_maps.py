"""Who is up, as each broker knows it, and the detours that follow from it (paper D, section 2.4.3).

- The sending end of each link notices, `detection` late, whether the other end answers: both directions and the broker
  there must be up. It numbers the change and reports it to all its neighbours, who report it
  to theirs (a report that is no news is not passed on). Two brokers that find each other again
  exchange all they know. Maps are soft state: a crash empties them.
- A connection is on a broker's map if both ends report the other. Paths are those of fewest hops, by the broker's own
  map; on a detour every broker goes by its own, for at most as many hops as there are brokers.
- Control messages are small: they wait for nobody and take the link's mean propagation. One that is sent over a link
  that is down, or arrives at a broker that is, is lost.
"""

from tidings.compiled import borrowing_inner, borrowing_step
from tidings.faults import topmost_reachable
from tidings.simulation._copies import copy_for, span
from tidings.simulation._heap import push
from tidings.simulation._layout import (
    BLOCKED,
    BROKERS,
    CLOCK,
    DETECTED,
    DETECTION_NS,
    DETOUR,
    DETOURED,
    GROUP,
    IS_BUFFERING,
    KIND_BITS,
    LINK_STATE,
    LINK_STATES,
    LINKS,
    NOBODY,
    REROUTED,
)
from tidings.simulation._links import enqueue
from tidings.simulation._world import World


@borrowing_step
def row_of(w: World, tree: int, home: int, broker: int) -> int:
    """The row by which a broker on the path to a home knows it."""
    return int(w.lists[w.places[tree, home].first_row + w.places[tree, home].depth - w.places[tree, broker].depth])


@borrowing_inner
def find_ways(w: World, broker: int) -> None:
    """Paths of fewest hops from a broker to all that its map leads to."""
    w.brokers[broker].is_dirty = 0
    for other in range(w.settings[BROKERS]):
        w.first_link[broker, other] = NOBODY
        w.ways[broker, other].back = NOBODY
    w.ways[broker, broker].hops = 0
    w.ways[broker, broker].ns = 0
    w.walk[0] = broker
    first, last = 0, 1
    while first < last:
        here = w.walk[first]
        first += 1
        for place in range(w.brokers[here].first_out, w.brokers[here].last_out):
            link = w.lists[place]
            there, back = w.links[link].target, w.links[link].reverse
            if there == broker or w.first_link[broker, there] >= 0 or back < 0:
                continue
            if w.views[broker, link].up != 0 and w.views[broker, back].up != 0:
                w.first_link[broker, there] = link if here == broker else w.first_link[broker, here]
                w.ways[broker, there].back = link
                w.ways[broker, there].hops = w.ways[broker, here].hops + 1
                w.ways[broker, there].ns = w.ways[broker, here].ns + w.links[link].control_ns
                w.walk[last] = there
                last += 1


@borrowing_inner
def way(w: World, broker: int, target: int) -> int:
    """The first link of a broker's path to another, -1 if its map has none."""
    if w.brokers[broker].is_dirty != 0:
        find_ways(w, broker)
    return int(w.first_link[broker, target])


@borrowing_inner
def detour(w: World, event: int, broker: int, child: int, now: int) -> None:
    """Send an event around a child that does not answer, to the first that can be reached on the path to each home."""
    if w.brokers[broker].is_dirty != 0:
        find_ways(w, broker)
    words, tree = w.events[event].words, w.events[event].tree
    first, last = w.places[tree, child].position, w.places[tree, child].end
    for group in range(w.events[event].groups):
        home = w.words[words + w.settings[BROKERS] + GROUP * group]
        if not first <= w.places[tree, home].position < last or w.rows[row_of(w, tree, home, broker)].until <= now:
            continue
        target = topmost_reachable(w.parent[tree], home, child, w.first_link[broker])
        if target >= 0 and w.words[words + target] & DETOUR == 0:
            w.words[words + target] |= DETOUR
            enqueue(w, copy_for(w, event, target, w.first_link[broker, target], now, 0, span(w, event, target)), now)


@borrowing_inner
def detoured(w: World, copy: int, now: int) -> None:
    """Look for a detour for a stored copy that waits, now that the map has changed."""
    if w.copies[copy].event < 0 or w.copies[copy].place != BLOCKED:
        return
    link = w.copies[copy].link
    broker = w.links[link].source
    if w.components[broker].up != 0 and w.views[broker, link].up == 0:
        detour(w, w.copies[copy].event, broker, w.copies[copy].node, now)


@borrowing_inner
def rerouted(w: World, broker: int, now: int) -> None:
    """A broker's map has changed: everything that waits there may find a detour."""
    w.brokers[broker].is_waiting = 0
    for place in range(w.brokers[broker].first_out, w.brokers[broker].last_out):
        copy = w.links[w.lists[place]].blocked_head
        while copy >= 0:
            push(w.heap, w.control, now, copy << KIND_BITS | DETOURED)
            copy = w.copies[copy].next


@borrowing_inner
def changed_map(w: World, broker: int, now: int) -> None:
    w.brokers[broker].is_dirty = 1
    if w.settings[IS_BUFFERING] != 0 and w.brokers[broker].is_waiting == 0:
        w.brokers[broker].is_waiting = 1
        push(w.heap, w.control, now, broker << KIND_BITS | REROUTED)


@borrowing_inner
def tell(w: World, link: int, reported: int, now: int) -> None:
    """Send what a broker knows of one link, or of all (as many as there are), over one of its links."""
    w.control[LINK_STATES] += 1
    if w.components[w.links[link].component].up != 0:
        message = link * (w.settings[LINKS] + 1) + reported
        push(w.heap, w.control, now + w.links[link].control_ns, message << KIND_BITS | LINK_STATE)


@borrowing_inner
def tell_others(w: World, broker: int, reported: int, but: int, now: int) -> None:
    """Report a change to all neighbours that answer but one."""
    for place in range(w.brokers[broker].first_out, w.brokers[broker].last_out):
        link = w.lists[place]
        if w.views[broker, link].up != 0 and w.links[link].target != but:
            tell(w, link, reported, now)


@borrowing_inner
def detected(w: World, link: int, now: int) -> None:
    """The sending end of a link looks whether the other end answers."""
    broker, back = w.links[link].source, w.links[link].reverse
    if w.components[broker].up == 0 or back < 0:
        return
    answers = (
        w.components[w.links[link].component].up
        * w.components[w.links[back].component].up
        * w.components[w.links[link].target].up
    )
    if w.views[broker, link].up == answers:
        return
    w.control[CLOCK] += 1
    w.views[broker, link].up = answers
    w.views[broker, link].seq = w.control[CLOCK]
    changed_map(w, broker, now)
    tell_others(w, broker, link, w.links[link].target, now)
    if answers != 0:
        tell(w, link, w.settings[LINKS], now)


@borrowing_inner
def learn(w: World, broker: int, teacher: int, reported: int, now: int) -> None:
    """Take over what a neighbour knows of a link, if it is news; a broker knows its own links best."""
    if w.links[reported].source == broker or w.views[teacher, reported].seq <= w.views[broker, reported].seq:
        return
    w.views[broker, reported].up = w.views[teacher, reported].up
    w.views[broker, reported].seq = w.views[teacher, reported].seq
    changed_map(w, broker, now)
    tell_others(w, broker, reported, teacher, now)


@borrowing_inner
def told(w: World, message: int, now: int) -> None:
    """A report of one link, or of all, gets to the other end of a link."""
    links = w.settings[LINKS]
    link, reported = message // (links + 1), message % (links + 1)
    teacher, broker = w.links[link].source, w.links[link].target
    if w.components[broker].up == 0 or w.components[w.links[link].component].up == 0:
        return
    if reported < links:
        learn(w, broker, teacher, reported, now)
    else:
        for each in range(links):
            learn(w, broker, teacher, each, now)


@borrowing_inner
def look(w: World, component: int, now: int) -> None:
    """Have everybody whom a change concerns notice it."""
    later = now + w.settings[DETECTION_NS]
    for place in range(w.components[component].first_link, w.components[component].last_link):
        link = w.lists[place]
        push(w.heap, w.control, later, link << KIND_BITS | DETECTED)
        if component >= w.settings[BROKERS] and w.links[link].reverse >= 0:
            push(w.heap, w.control, later, w.links[link].reverse << KIND_BITS | DETECTED)


@borrowing_inner
def forget_map(w: World, broker: int) -> None:
    """A crash empties a broker's map."""
    for link in range(w.settings[LINKS]):
        w.views[broker, link].up = 0
        w.views[broker, link].seq = 0
    w.brokers[broker].is_dirty = 1
