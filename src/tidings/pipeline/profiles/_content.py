"""Content: a publisher's events by match signature, the set of subscriptions that they match, and by lifetime.

For what a network does with it, an event is its signature, its lifetime and its size; so a publisher's content is the
count of each. Signatures are kept as names, since the numbers of subscriptions hold for one run only. No signature is
dropped or merged, however many there are; a publisher with more than MOST_SIGNATURES rows is marked `is_crowded`: its
signatures hardly repeat, and whoever works through them has to expect as much work as with the events themselves.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from tidings.pipeline._facts import Facts
from tidings.pipeline.profiles._sums import merged_sum

__all__ = ["MOST_SIGNATURES", "merge_content", "partial_content"]

MOST_SIGNATURES: Final = 10_000
"""Rows of one publisher from which on its content is marked as crowded."""


def partial_content(facts: Facts) -> DataFrame:
    counted = facts.events.groupBy("publisher", "chunk", "matches", "lifetime_ns").agg(
        fn.count("*").alias("events"), fn.sum("size_bytes").alias("size_sum")
    )
    # Names are put in place of numbers after counting. All of this stays inside a chunk: nothing is shuffled again.
    row = ["publisher", "chunk", "lifetime_ns", "events", "size_sum", "row"]
    numbered = counted.withColumn("row", fn.monotonically_increasing_id()).select(
        *row, fn.explode_outer("matches").alias("number")
    )
    names = fn.broadcast(facts.subscriptions.select("number", "subscription"))
    named = numbered.join(names, "number", "left").groupBy(*row)
    return named.agg(fn.array_sort(fn.collect_list(_known_name())).alias("subscriptions")).select(
        "publisher", "chunk", "subscriptions", "lifetime_ns", "events", "size_sum"
    )


def _known_name() -> Column:
    """The subscription of a number; NULL, which is not collected, for an event that matches nothing."""
    wrong = fn.concat(fn.lit("events match subscription number "), "number", fn.lit(", and there is none"))
    is_unknown = fn.col("number").isNotNull() & fn.col("subscription").isNull()
    return fn.when(is_unknown, fn.raise_error(wrong)).otherwise(fn.col("subscription"))


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
