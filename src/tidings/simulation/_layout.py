"""The records that the event loop works on, and the words for what is in them.

Everything is a dense number into one of these arrays; -1 is nobody. Times are whole nanoseconds. One record is one or
two cache lines, and a kernel takes a few arrays instead of dozens.

- LINK: an outgoing link with its queue (a list through the copies, in order of arrival) and the copy being sent. After
  the overlay's links come the publishers' access links, one each.
- BROKER: the queue of copies that wait to be processed, and the one being processed.
- EVENT: a published event while any copy of it is alive, with its entries.
- COPY: one copy of an event on its way over one link, from the queue until the link's target has processed it.
- Entries are (event, subscription) pairs, kept in blocks of one arena: those of an event in the order of its tree, so
  that what lies behind a link is one range; with several paths each copy has a block of its own.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

NANOSECONDS: Final = 1e9
NEVER_NS: Final = 2**62
NOBODY: Final = -1

TRANSMITTED, ARRIVED, SERVED, PROCESSED = range(4)
"""What happens at a time in the heap: to a link, to a copy, to a broker, to a copy."""
KIND_BITS: Final = 2
KINDS: Final = (1 << KIND_BITS) - 1

PENDING, DELIVERED, DISCARDED, MISSED, UNDERWAY = 0, 1, 2, 4, 8
"""States of an entry, as bits: what became of the copies that were to serve it."""

OUTCOMES: Final = ("received", "lost", "expired", "hopeless", "in-flight", "failed")
RECEIVED, LOST, EXPIRED, HOPELESS, IN_FLIGHT, FAILED = range(6)

(
    HEAP_SIZE,
    ORDER,
    FREE_COPY,
    COPIES_USED,
    FREE_EVENT,
    EVENTS_USED,
    ARENA_USED,
    ALIVE,
    STEPS,
    NEXT_PUBLICATION,
    HOPS_OUT,
    DELIVERIES_OUT,
    TRAFFIC,
    WIDEST,
    PUBLISHED,
    NOW,
    CONTROLS,
) = range(17)
"""Places in the array of counters that lives through the whole run."""

INPUT_USED, PAUSED, POOL_FULL, OUTPUT_FULL, OVERLOADED = range(5)
"""Why the event loop came back."""

SIZE_CLASSES: Final = 40

LAW = np.dtype(
    [
        ("state", np.uint64),
        ("a", np.float64),
        ("b", np.float64),
        ("c", np.float64),
        ("d", np.float64),
        ("kind", np.int64),
        ("first", np.int64),
        ("count", np.int64),
    ],
    align=True,
)
LINK = np.dtype(
    [
        ("source", np.int64),
        ("target", np.int64),
        ("head", np.int64),
        ("tail", np.int64),
        ("length", np.int64),
        ("sending", np.int64),
        ("strategy", np.int64),
        ("is_free", np.int64),
        ("slowness", np.int64),
        ("propagation", np.int64),
        ("loss", np.int64),
        ("loss_chance", np.float64),
        ("weight", np.float64),
        ("postponed_s", np.float64),
        ("quantile", np.float64),
        ("busy_ns", np.int64),
    ],
    align=True,
)
BROKER = np.dtype(
    [
        ("head", np.int64),
        ("tail", np.int64),
        ("serving", np.int64),
        ("has_service", np.int64),
        ("has_processing", np.int64),
        ("service", np.int64),
        ("processing", np.int64),
        ("table", np.float64),
        ("busy_ns", np.int64),
    ],
    align=True,
)
EVENT = np.dtype(
    [
        ("published", np.int64),
        ("sequence", np.int64),
        ("lifetime", np.int64),
        ("size_kb", np.float64),
        ("publisher", np.int64),
        ("start", np.int64),
        ("stop", np.int64),
        ("block", np.int64),
        ("copies", np.int64),
        ("pending", np.int64),
        ("is_counted", np.int64),
        ("is_sampled", np.int64),
    ],
    align=True,
)
COPY = np.dtype(
    [
        ("enqueued", np.int64),
        ("sent", np.int64),
        ("received", np.int64),
        ("began", np.int64),
        ("delete_at", np.int64),
        ("is_new", np.int64),
        ("event", np.int64),
        ("link", np.int64),
        ("start", np.int64),
        ("stop", np.int64),
        ("block", np.int64),
        ("next", np.int64),
        ("previous", np.int64),
    ],
    align=True,
)
PUBLICATION = np.dtype(
    [
        ("time", np.int64),
        ("sequence", np.int64),
        ("lifetime", np.int64),
        ("size_kb", np.float64),
        ("first", np.int64),
        ("count", np.int64),
        ("publisher", np.int64),
        ("is_sampled", np.int64),
    ],
    align=True,
)
HEAP = np.dtype([("time", np.int64), ("order", np.int64), ("what", np.int64)], align=True)
HOP = np.dtype(
    [
        ("sequence", np.int64),
        ("enqueued", np.int64),
        ("sent", np.int64),
        ("received", np.int64),
        ("began", np.int64),
        ("ended", np.int64),
        ("publisher", np.int64),
        ("link", np.int64),
        ("outcome", np.int64),
    ],
    align=True,
)
DELIVERY = np.dtype(
    [("sequence", np.int64), ("arrived", np.int64), ("publisher", np.int64), ("subscription", np.int64)], align=True
)
SUBSCRIPTION = np.dtype(
    [
        ("allowed", np.int64),
        ("price", np.float64),
        ("home", np.int64),
        ("matched", np.int64),
        ("on_time", np.int64),
        ("late", np.int64),
        ("discarded", np.int64),
        ("lost", np.int64),
        ("in_flight", np.int64),
    ],
    align=True,
)
