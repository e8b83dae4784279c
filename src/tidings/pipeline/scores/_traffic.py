"""Traffic: what each link carried, and how much of it was for nothing.

A transmission is *expired work* if the target had all of it after the loosest deadline of the subscriptions that its
event matches: from then on it can be on time for nobody. Access links, from a publisher to its home broker, have no
source.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidings.pipeline._facts import Facts

__all__ = ["TRAFFIC", "merge_traffic", "partial_traffic"]

_COUNTS: Final = (
    "enqueued",
    "sent",
    "received",
    "lost",
    "dropped",
    "sent_bytes",
    "received_bytes",
    "expired",
    "expired_bytes",
)

TRAFFIC: Final = "source string, target string, " + ", ".join(f"{name} bigint" for name in _COUNTS)
"""Per link: copies enqueued, sent, received, lost on it, dropped from its queue; bytes; expired work."""


def partial_traffic(facts: Facts) -> DataFrame:
    size = fn.col("size_bytes")
    is_sent, is_received = fn.col("sent_ns").isNotNull(), fn.col("received_ns").isNotNull()
    is_expired = fn.col("received_ns") - fn.col("departure_ns") >= fn.col("deadline_ns")
    counts = (
        fn.count("*"),
        fn.count_if(is_sent),
        fn.count_if(is_received),
        fn.count_if(fn.col("outcome") == "lost"),
        fn.count_if(fn.col("outcome").isin("expired", "hopeless")),
        fn.coalesce(fn.sum(fn.when(is_sent, size)), fn.lit(0)),
        fn.coalesce(fn.sum(fn.when(is_received, size)), fn.lit(0)),
        fn.count_if(is_expired),
        fn.coalesce(fn.sum(fn.when(is_expired, size)), fn.lit(0)),
    )
    return facts.transmissions.groupBy("publisher", "chunk", "source", "target").agg(
        *(count.cast("bigint").alias(name) for name, count in zip(_COUNTS, counts, strict=True))
    )


def merge_traffic(partials: DataFrame) -> DataFrame:
    merged = partials.groupBy("source", "target").agg(*(fn.sum(name).alias(name) for name in _COUNTS))
    return merged.select("source", "target", *_COUNTS)
