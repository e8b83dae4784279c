"""Facts made by hand, their partials by the kernels of a run (which takes rows of files instead), and their tables."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidings.pipeline._partials import KINDS, RECEIVED
from tidings.pipeline.arrow._job import arrivals_by_slice, together
from tidings.pipeline.arrow._small_tables import Setting, small_partials
from tidings.pipeline.arrow._sums import sums_of
from tidings.pipeline.arrow._tables import tables_of
from tidings.pipeline.ingest import OUTCOMES
from tidings.pipeline.interest import SUBSCRIPTIONS, parse_filters
from tidings.pipeline.measures import (
    LEVEL,
    WINDOW_NS,
    content_of,
    pairs_of,
    publishers_of,
    receptions_of,
    spans_of,
    transmissions_of,
)
from tidings.pipeline.rows import (
    QUARANTINED,
    ROWS,
    EventRows,
    FateRows,
    HopRows,
    arrow_schema,
    audience_of,
    names_of,
    values_of,
)
from tidings.pipeline.rows._facts import TIMES

EVENTS: Final = (
    "publisher string, sequence bigint, chunk bigint, departure_ns bigint, broker string, size_bytes bigint, "
    "lifetime_ns bigint, matches array<int>, topic string"
)
"""One row per event: `matches` are the numbers of the subscriptions that it matches, ascending (see `Facts`); `topic`
is the attribute whose values are the topics, as a string, NULL if there is none."""

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

    `subscriptions` has the trace's columns and `number` (int), which `events.matches` refers to; `topology` and
    `transitions` are the trace's own.
    """

    events: pa.Table
    fates: pa.Table
    transmissions: pa.Table
    subscriptions: pa.Table
    topology: pa.Table
    transitions: pa.Table


def event_rows(table: pa.Table) -> EventRows:
    matches = table["matches"].combine_chunks()
    return EventRows(
        publisher=names_of(table["publisher"]),
        chunk=values_of(table["chunk"]).values,
        sequence=values_of(table["sequence"]).values,
        departure_ns=values_of(table["departure_ns"]),
        broker=names_of(table["broker"]),
        size_bytes=values_of(table["size_bytes"]),
        lifetime_ns=values_of(table["lifetime_ns"]),
        starts=np.concatenate(([0], np.cumsum(np.asarray(matches.value_lengths().fill_null(0))))).astype(np.int64),
        numbers=np.asarray(matches.flatten()),
    )


def fate_rows(table: pa.Table) -> FateRows:
    departure = values_of(table["departure_ns"])
    fate = names_of(table["fate"])
    words = [*fate.names.to_pylist(), None]
    is_on_time = np.array([word == "on-time" for word in words])[fate.codes]
    return FateRows(
        publisher=names_of(table["publisher"]),
        chunk=values_of(table["chunk"]).values,
        sequence=values_of(table["sequence"]).values,
        number=values_of(table["number"]).values,
        topic=names_of(table["topic"]),
        departure_ns=departure.values,
        delay_ns=values_of(table["arrived_ns"]).minus(departure),
        delivered_ns=values_of(table["delivered_ns"]),
        is_on_time=is_on_time,
        is_surely_on_time=is_on_time,
        is_maybe_on_time=is_on_time,
        is_late=np.array([word == "late" for word in words])[fate.codes],
        duplicates=values_of(table["duplicates"]).values,
    )


def hop_rows(table: pa.Table) -> HopRows:
    outcome = names_of(table["outcome"])
    places = [OUTCOMES.index(word) for word in outcome.names.to_pylist()]
    return HopRows(
        publisher=names_of(table["publisher"]),
        chunk=values_of(table["chunk"]).values,
        source=names_of(table["source"]),
        target=names_of(table["target"]),
        times_ns={name: values_of(table[name]) for name in TIMES},
        outcome=np.array([*places, -1])[outcome.codes],
        departure_ns=values_of(table["departure_ns"]),
        size_bytes=values_of(table["size_bytes"]),
        deadline_ns=values_of(table["deadline_ns"]),
    )


def partials_of(facts: Facts, *, window_ns: int = WINDOW_NS, is_first: bool = True) -> dict[str, pa.Table]:
    """The partials of facts, by kind; those of the small tables are among the first ones only."""
    audience = audience_of(facts.subscriptions)
    events, hops = event_rows(facts.events), hop_rows(facts.transmissions)
    found = {
        "pairs": [pairs_of(fate_rows(facts.fates), audience, window_ns=window_ns)],
        "transmissions": [transmissions_of(hops)],
        "publishers": [publishers_of(events)],
        "content": [content_of(events, audience)],
        "components": [spans_of(events)],
        RECEIVED: [receptions_of(hops)],
    }
    setting = Setting(
        subscriptions=facts.subscriptions,
        topology=facts.topology,
        transitions=facts.transitions,
        brokers=None,
        interests=parse_filters(SUBSCRIPTIONS.empty_table())[0],
        audience=audience,
        fingerprint="",
        quarantined=arrow_schema(QUARANTINED).empty_table(),
        rows=arrow_schema(ROWS).empty_table(),
    )
    for kind, tables in small_partials(setting).items() if is_first else ():
        found.setdefault(kind, []).extend(tables)
    return {kind: together(kind, found.get(kind, [])) for kind in KINDS}


def tables_of_partials(partials: dict[str, pa.Table], *, level: float = LEVEL) -> dict[str, pa.Table]:
    return tables_of(sums_of(partials, arrivals_by_slice(partials[RECEIVED])), level=level)


def tables_of_facts(facts: Facts, *, level: float = LEVEL, window_ns: int = WINDOW_NS) -> dict[str, pa.Table]:
    return tables_of_partials(partials_of(facts, window_ns=window_ns), level=level)


PROFILES: Final = ("publishers", "content", "brokers", "arrivals", "links", "components", "pairs")
