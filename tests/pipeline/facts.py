"""Facts as DataFrames: made by hand, and their partials by the kernels of a run (which takes rows of files instead)."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidings.pipeline.ingest import OUTCOMES
from tidings.pipeline.measures import (
    LEVEL,
    PARTIAL_CONTENT,
    PARTIAL_PAIRS,
    PARTIAL_PUBLISHERS,
    PARTIAL_TRANSMISSIONS,
    RECEPTIONS,
    WINDOW_NS,
    arrivals_in_slices,
    brokers_table,
    content_of,
    links_table,
    merge_arrivals,
    merge_components,
    merge_content,
    merge_publishers,
    merged_pairs,
    merged_transmissions,
    pairs_of,
    pairs_table,
    publishers_of,
    receptions_of,
    scores_table,
    small_components,
    spans_of,
    traffic_table,
    transmissions_of,
    unmatched,
)
from tidings.pipeline.measures._components import SPANS
from tidings.pipeline.rows import EventRows, FateRows, HopRows, audience_of, names_of, over_partitions, values_of
from tidings.pipeline.rows._facts import TIMES

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests

WITHOUT_EVENT: Final = -1
"""The chunk (of no publisher) of rows that belong to no event, and of the small tables; it is always computed."""

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

    The rows of a publisher's chunk are in one partition.

    `subscriptions` has the trace's columns and `number` (int), which `events.matches` refers to; `topology` and
    `transitions` are the trace's own.
    """

    events: DataFrame
    fates: DataFrame
    transmissions: DataFrame
    subscriptions: DataFrame
    topology: DataFrame
    transitions: DataFrame


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


def partial_pairs(facts: Facts, *, window_ns: int = WINDOW_NS) -> DataFrame:
    audience = audience_of(facts.subscriptions.toArrow())

    def compute(table: pa.Table) -> pa.Table:
        return pairs_of(fate_rows(table), audience, window_ns=window_ns)

    counted = over_partitions(facts.fates, compute, PARTIAL_PAIRS)
    return counted.unionByName(unmatched(facts.subscriptions), allowMissingColumns=True)


def partial_content(facts: Facts) -> DataFrame:
    audience = audience_of(facts.subscriptions.toArrow())
    return over_partitions(facts.events, lambda table: content_of(event_rows(table), audience), PARTIAL_CONTENT)


def partial_transmissions(facts: Facts) -> DataFrame:
    return over_partitions(facts.transmissions, lambda table: transmissions_of(hop_rows(table)), PARTIAL_TRANSMISSIONS)


def partial_components(facts: Facts) -> DataFrame:
    lasted = over_partitions(facts.events, lambda table: spans_of(event_rows(table)), SPANS)
    return small_components(facts.topology, facts.transitions).unionByName(_of_events(lasted))


def _of_events(lasted: DataFrame) -> DataFrame:
    kinds = {"kind": "string", "source": "string", "target": "string", "at_ns": "bigint", "up": "boolean"}
    nothing = [fn.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]
    return lasted.select("publisher", "chunk", *nothing, "first_ns", "last_ns")


def partial_publishers(facts: Facts) -> DataFrame:
    return over_partitions(facts.events, lambda table: publishers_of(event_rows(table)), PARTIAL_PUBLISHERS)


def partial_arrivals(facts: Facts) -> DataFrame:
    received = over_partitions(facts.transmissions, lambda table: receptions_of(hop_rows(table)), RECEPTIONS)
    return arrivals_in_slices(received)


def merge_pairs(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    return pairs_table(merged_pairs(partials), level=level)


def merge_links(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    return links_table(merged_transmissions(partials), level=level)


def merge_brokers(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    return brokers_table(merged_transmissions(partials), level=level)


def merge_scores(partials: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    return scores_table(merged_pairs(partials), keys=keys)


def merge_traffic(partials: DataFrame) -> DataFrame:
    return traffic_table(merged_transmissions(partials))


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One table: its partials are by `by`, and add up to it however the facts were split."""

    name: str
    by: str
    partial: Callable[[Facts], DataFrame]
    merge: Callable[[DataFrame], DataFrame]


PROFILES: Final = (
    Profile(name="publishers", by="chunk", partial=partial_publishers, merge=merge_publishers),
    Profile(name="content", by="chunk", partial=partial_content, merge=merge_content),
    Profile(name="brokers", by="chunk", partial=partial_transmissions, merge=merge_brokers),
    Profile(name="arrivals", by="slice", partial=partial_arrivals, merge=merge_arrivals),
    Profile(name="links", by="chunk", partial=partial_transmissions, merge=merge_links),
    Profile(name="components", by="chunk", partial=partial_components, merge=merge_components),
    Profile(name="pairs", by="chunk", partial=partial_pairs, merge=merge_pairs),
)
