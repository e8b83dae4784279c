"""The records that the event loop works on, and the words for what is in them.

Everything is a dense number into one of these arrays; -1 is nobody. Times are whole nanoseconds. One record is a few
cache lines, and what every event needs comes first in it; the rest is for networks in which something fails.

- LINK: an outgoing link with its queue (a list through the copies, in order of arrival), the copy being sent, and the
  list of stored copies that wait because nobody answers (`blocked`). After the overlay's links come the publishers'
  access links, one each.
- BROKER: the queue of copies that wait to be processed, the one being processed, and the list of events held for
  subscriptions still unknown; where its links and table rows stand in the lists; whether its map has changed since it
  found its paths.
- EVENT: a published event while any copy of it is alive, with its entries.
- COPY: one copy of an event on its way over one link, from the queue until the link's target has processed it. Where
  things fail it is meant for one broker of its tree (`node`), over the tree's link or a detour, and a *stored* copy
  stays with its sender until it is acknowledged or expires.
- ENTRY: an (event, subscription) pair. They are kept in blocks of one arena: those of an event in the order of its
  tree, so that what lies behind a broker is one range. Where several copies of one event may serve the same pair
  (several paths, failures), each copy has a block of its own, and `origin` is the event's entry, which has the state.
- An event's words, where things fail: a flag for each broker, then its groups (home, first and last entry, the longest
  that anybody there allows).
- COMPONENT: what fails, brokers first, then what fails as one among links: up or down, how often it changed (`epoch`,
  so that a crash in between is noticed later), and its distributions.
- ROW: one node of the paths that subscriptions take from their home to the publishers: the entry that the broker there
  has in its table for that home. Paths that begin alike share nodes, and one message refreshes them together.
- PLACE: a broker in a tree: its place in preorder, its depth, its first row as a home, its first BRANCH to a child.
- VIEW: what a broker knows of a link's sending end. WAY: the last link, the hops and the time to another broker.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

NANOSECONDS: Final = 1e9
NEVER_NS: Final = 2**62
NOBODY: Final = -1

(
    TRANSMITTED,
    ARRIVED,
    SERVED,
    PROCESSED,
    ACKED,
    TRANSITION,
    RETRY,
    EXPIRY,
    REFRESH,
    ROW_ARRIVED,
    DETECTED,
    LINK_STATE,
    OFFERED,
    DETOURED,
    REROUTED,
) = range(15)
"""What happens at a time in the heap: to a link, copy, broker, copy, copy, component, link, copy, home, row, link, pair
of links, held copy, blocked copy, broker."""
KIND_BITS: Final = 4
KINDS: Final = (1 << KIND_BITS) - 1

PENDING, DELIVERED, DISCARDED, UNDERWAY = 0, 1, 2, 4
"""States of an entry, as bits: what became of the copies that were to serve it."""

ACCEPTED, SENT, DETOUR = 1, 2, 4
"""Flags of an event at a broker: it took the event in; its parent in the tree sent it there; a detour was tried."""

GROUP: Final = 4
"""Words of a group: home, first entry, last entry, the longest delay allowed."""

FLYING, QUEUED, BLOCKED, AWAITING, HELD = range(5)
"""Where a copy is: on its way or at its target, in its link's queue or being sent, in its link's list of blocked
copies, taken in by its target and not acknowledged, held at a broker."""

OUTCOMES: Final = ("received", "lost", "expired", "hopeless", "in-flight", "failed")
RECEIVED, LOST, EXPIRED, HOPELESS, IN_FLIGHT, FAILED = range(6)

(
    HEAP_SIZE,
    ORDER,
    FREE_COPY,
    COPIES_USED,
    FREE_EVENT,
    EVENTS_USED,
    ENTRIES_USED,
    WORDS_USED,
    ALIVE,
    STEPS,
    NEXT_PUBLICATION,
    HOPS_OUT,
    DELIVERIES_OUT,
    TRANSITIONS_OUT,
    TRAFFIC,
    WIDEST,
    LONGEST,
    PUBLISHED,
    NOW,
    DATA,
    ACKS,
    RETRANSMISSIONS,
    REFRESHES,
    LINK_STATES,
    DUPLICATES,
    STORED,
    STORED_PEAK,
    CLOCK,
    CONTROLS,
) = range(29)
"""Places in the array of counters that lives through the whole run: pools, output, what was counted; where things fail
also messages by kind, copies stored now and at most, and the number of the last change that anybody noticed."""

(
    BROKERS,
    LINKS,
    WARMUP,
    END,
    IS_DROPPING,
    IS_MULTI,
    IS_FAILING,
    HAS_OWN_ENTRIES,
    COPIES_STEP,
    HEAP_STEP,
    ENTRIES_STEP,
    RETRY_NS,
    REFRESH_NS,
    TIMEOUT_NS,
    DETECTION_NS,
    IS_BUFFERING,
    IS_BYPASSING,
    IS_EARLY,
    IS_VOLATILE,
    IS_ORDERED,
    SETTINGS,
) = range(21)
"""Places in the array of the settings of a run. COPIES_STEP, HEAP_STEP and ENTRIES_STEP (in widest events) are how much
room one step may need."""

MESSAGES: Final = {
    "data": DATA,
    "ack": ACKS,
    "retransmission": RETRANSMISSIONS,
    "refresh": REFRESHES,
    "link-state": LINK_STATES,
}

INPUT_USED, PAUSED, POOL_FULL, OUTPUT_FULL, OVERLOADED = range(5)
"""Why the event loop came back."""

SIZE_CLASSES: Final = 40
FREE_ENTRIES, FREE_WORDS = range(2)


def _record(**fields: type[np.generic]) -> np.dtype[Any]:
    return np.dtype(list(fields.items()), align=True)


_int, _float = np.int64, np.float64

DISTRIBUTION = _record(state=np.uint64, a=_float, b=_float, c=_float, d=_float, kind=_int, first=_int, count=_int)
LINK = _record(
    source=_int,
    target=_int,
    head=_int,
    tail=_int,
    length=_int,
    sending=_int,
    strategy=_int,
    is_free=_int,
    slowness=_int,
    propagation=_int,
    loss=_int,
    loss_chance=_float,
    weight=_float,
    postponed_s=_float,
    quantile=_float,
    busy_ns=_int,
    sent_at=_int,
    reverse=_int,
    component=_int,
    blocked_head=_int,
    blocked_tail=_int,
    blocked_since=_int,
    control_ns=_int,
)
BROKER = _record(
    head=_int,
    tail=_int,
    serving=_int,
    served_at=_int,
    has_service=_int,
    has_processing=_int,
    service=_int,
    processing=_int,
    table=_float,
    busy_ns=_int,
    first_out=_int,
    last_out=_int,
    held_head=_int,
    held_tail=_int,
    first_row=_int,
    last_row=_int,
    root=_int,
    is_dirty=_int,
    is_waiting=_int,
)
EVENT = _record(
    published=_int,
    sequence=_int,
    lifetime=_int,
    size_kb=_float,
    publisher=_int,
    tree=_int,
    start=_int,
    stop=_int,
    block=_int,
    copies=_int,
    pending=_int,
    is_counted=_int,
    is_sampled=_int,
    words=_int,
    words_block=_int,
    groups=_int,
)
COPY = _record(
    event=_int,
    link=_int,
    start=_int,
    stop=_int,
    block=_int,
    next=_int,
    previous=_int,
    enqueued=_int,
    sent=_int,
    received=_int,
    began=_int,
    delete_at=_int,
    is_new=_int,
    place=_int,
    is_stored=_int,
    node=_int,
    expires=_int,
    hops_left=_int,
    link_epoch=_int,
    source_epoch=_int,
    target_epoch=_int,
)
ENTRY = _record(subscription=_int, origin=_int, state=_int)
PUBLICATION = _record(
    time=_int,
    sequence=_int,
    lifetime=_int,
    size_kb=_float,
    first=_int,
    count=_int,
    publisher=_int,
    is_sampled=_int,
    tree=_int,
    link=_int,
)
PUBLISHER = _record(tree=_int, link=_int)
HEAP = _record(time=_int, order=_int, what=_int)
ROUTE = _record(fixed_s=_float, mean=_float, variance=_float)
PLACE = _record(position=_int, end=_int, depth=_int, first_row=_int, first_child=_int)
BRANCH = _record(broker=_int, link=_int)
SUBSCRIPTION = _record(
    allowed=_int,
    price=_float,
    home=_int,
    matched=_int,
    on_time=_int,
    late=_int,
    discarded=_int,
    lost=_int,
    in_flight=_int,
)
COMPONENT = _record(
    up=_int, epoch=_int, changed=_int, up_distribution=_int, down_distribution=_int, first_link=_int, last_link=_int
)
ROW = _record(until=_int, broker=_int, link=_int, first_child=_int, last_child=_int)
VIEW = _record(up=_int, seq=_int)
WAY = _record(back=_int, hops=_int, ns=_int)
HOP = _record(
    sequence=_int,
    enqueued=_int,
    sent=_int,
    received=_int,
    began=_int,
    ended=_int,
    publisher=_int,
    link=_int,
    outcome=_int,
)
DELIVERY = _record(sequence=_int, arrived=_int, publisher=_int, subscription=_int)
TRANSITION_OUT = _record(component=_int, at=_int, up=_int)
