"""The facts: what happened to every event, as three tables that all scores and profiles are computed from.

Theory of operation. What becomes of an event depends only on rows that carry its own publisher and sequence number.
So a trace is cut into *chunks* of CHUNK_EVENTS sequence numbers; the rows of a publisher's chunk meet in one partition
(one shuffle by publisher and chunk serves the joins, the search for duplicates and the windows over consecutive
events), and whatever is computed of a chunk is a pure function of its rows. That is what makes a re-run incremental:
new files touch some chunks, those are computed again, all others are taken as they are.

In a run the facts are arrays of one partition (rows/_facts.py), made and used up by one pass; as DataFrames they are
for whoever has facts from elsewhere.

Units: times are nanoseconds of the trace's clock, `deadline_ns` and `lifetime_ns` are durations from departure on.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CHUNK_EVENTS", "EVENTS", "FATES", "TRANSMISSIONS", "WITHOUT_EVENT", "Facts"]

CHUNK_EVENTS: Final = 1 << 14
"""Sequence numbers of one publisher in a chunk: chunk = sequence div CHUNK_EVENTS."""

WITHOUT_EVENT: Final = -1
"""The chunk (of no publisher) of rows that belong to no event, and of the small tables; it is always computed."""

EVENTS: Final = (
    "publisher string, sequence bigint, chunk bigint, departure_ns bigint, broker string, size_bytes bigint, "
    "lifetime_ns bigint, matches array<int>, topic string"
)
"""One row per event: `matches` are the numbers of the subscriptions that it matches, ascending (see `Facts`); `topic`
is the attribute that topics are told by, as a string, NULL if there is none."""

FATES: Final = (
    "publisher string, sequence bigint, chunk bigint, subscription string, departure_ns bigint, size_bytes bigint, "
    "deadline_ns bigint, arrived_ns bigint, delivered_ns bigint, fate string, number int, topic string, "
    "duplicates bigint"
)
"""One row per event and subscription that it matches. `deadline_ns` is the tighter of the publisher's and the
subscriber's, NULL for none; `arrived_ns` and `delivered_ns` are those of the first arrival, NULL if there was none;
`fate` is on-time (arrived_ns - departure_ns < deadline_ns, or no deadline), late or lost: never arrived as far as the
trace goes. `number` is the subscription's, `topic` the event's, `duplicates` how often it arrived again."""

TRANSMISSIONS: Final = (
    "publisher string, sequence bigint, chunk bigint, source string, target string, enqueued_ns bigint, "
    "sent_ns bigint, received_ns bigint, began_ns bigint, ended_ns bigint, outcome string, departure_ns bigint, "
    "size_bytes bigint, deadline_ns bigint"
)
"""One row per hop, with what its publication adds. `deadline_ns` is the loosest deadline of the subscriptions that the
event matches, NULL if one of them has none: whatever is received later than that can be on time for nobody."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts of some chunks of a trace, and the small tables beside them, clean and without duplicates.

    The rows of a publisher's chunk are in one partition.

    `subscriptions` has the trace's columns and `number` (int), which `events.matches` refers to; `topology` and
    `transitions` are the trace's own.
    """

    events: "DataFrame"
    fates: "DataFrame"
    transmissions: "DataFrame"
    subscriptions: "DataFrame"
    topology: "DataFrame"
    transitions: "DataFrame"
