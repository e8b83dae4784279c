"""Content: a publisher's events by match signature, the set of subscriptions that they match, and by lifetime.

For what a network does with it, an event is its signature, its lifetime and its size; so a publisher's content is the
count of each. Signatures are kept as names, since the numbers of subscriptions hold for one run only. No signature is
dropped or merged, however many there are; a publisher with more than MOST_SIGNATURES rows is marked `is_crowded`: its
signatures hardly repeat, and whoever works through them has to expect as much work as with the events themselves.
"""

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from tidings.errors import InputError
from tidings.pipeline._facts import Facts
from tidings.pipeline.profiles._sums import merged_sum
from tidings.pipeline.rows import Audience, EventRows, audience_of, grouped, over_partitions, table_of

__all__ = ["MOST_SIGNATURES", "PARTIAL_CONTENT", "content_of", "merge_content", "partial_content"]

MOST_SIGNATURES: Final = 10_000
"""Rows of one publisher from which on its content is marked as crowded."""


PARTIAL_CONTENT: Final = (
    "publisher string, chunk bigint, subscriptions array<string>, lifetime_ns bigint, events bigint, size_sum bigint"
)


def partial_content(facts: Facts) -> DataFrame:
    audience = audience_of(facts.subscriptions.toArrow())
    return over_partitions(facts.events, lambda table: content_of(EventRows.of(table), audience), PARTIAL_CONTENT)


def content_of(events: EventRows, audience: Audience) -> pa.Table:
    """The partials (PARTIAL_CONTENT) of these events. Names are put in place of numbers after counting."""
    if len(events.numbers) and events.numbers.max() >= len(audience):
        raise InputError(f"events match subscription number {events.numbers.max()}, and there is none")
    signature, distinct = _signatures(events)
    lifetime = events.lifetime_ns
    groups = grouped(events.publisher.codes, events.chunk, signature, lifetime.known.astype(np.int64), lifetime.values)
    firsts = groups.firsts
    names = audience.subscriptions.to_pylist()
    shown = [sorted(names[number] for number in np.frombuffer(each, np.int32).tolist()) for each in distinct]
    columns = {
        "publisher": events.publisher.at(firsts),
        "chunk": events.chunk[firsts],
        "subscriptions": [shown[each] for each in signature[firsts].tolist()],
        "lifetime_ns": lifetime.at(firsts),
        "events": groups.counts(),
        "size_sum": groups.sums(events.size_bytes.values),
    }
    return table_of(columns, PARTIAL_CONTENT)


def _signatures(events: EventRows) -> tuple[npt.NDArray[np.int64], list[bytes]]:
    """For each event the number of its signature, and the signatures: the bytes of their numbers."""
    data, starts = events.numbers.astype(np.int32).tobytes(), (4 * events.starts).tolist()
    known: dict[bytes, int] = {}
    found = [known.setdefault(data[start:end], len(known)) for start, end in pairwise(starts)]
    return np.array(found, np.int64), list(known)


def merge_content(partials: DataFrame) -> DataFrame:
    merged = partials.groupBy("publisher", "subscriptions", "lifetime_ns").agg(
        fn.sum("events").alias("events"), merged_sum("size_sum")
    )
    of_publisher = Window.partitionBy("publisher")
    return merged.select(
        "publisher",
        "subscriptions",
        "lifetime_ns",
        "events",
        (fn.col("events") / fn.sum("events").over(of_publisher)).alias("share"),
        (fn.col("size_sum").cast("double") / fn.col("events")).alias("size_mean_bytes"),
        (fn.count("*").over(of_publisher) > MOST_SIGNATURES).alias("is_crowded"),
    )
