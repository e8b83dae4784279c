"""Publishers: how often they publish, how regularly, how much, and from where.

Gaps are those between events of consecutive sequence numbers inside a chunk; the one gap in CHUNK_EVENTS that crosses
from a chunk to the next is left out, and a sample of the events has gaps only where neighbours were sampled. The rate
is that of sequence numbers over the time between the first and the last departure, so a sample does not change it.
"""

from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from tidings.pipeline._facts import Facts
from tidings.pipeline.profiles._finishing import duration, duration_columns, finished, floats, scv_columns, scv_of
from tidings.pipeline.profiles._profile import LEVEL
from tidings.pipeline.profiles._sums import merged_sum, merged_value, partial_value, shown
from tidings.statistics import events_interval, ratio

__all__ = ["PUBLISHERS", "merge_publishers", "partial_publishers"]

PUBLISHERS = (
    "publisher string, brokers array<string>, events bigint, first_ns bigint, last_ns bigint, rate_per_s double, "
    f"rate_low_per_s double, rate_high_per_s double, {duration_columns('gap')}, {scv_columns('gap')}, "
    "size_mean_bytes double, size_min_bytes bigint, size_max_bytes bigint"
)


def partial_publishers(facts: Facts) -> DataFrame:
    order = Window.partitionBy("publisher", "chunk").orderBy("sequence")
    gap = fn.when(
        fn.lag("sequence").over(order) == fn.col("sequence") - 1,
        fn.col("departure_ns") - fn.lag("departure_ns").over(order),
    )
    events = facts.events.select("publisher", "chunk", "sequence", "departure_ns", "size_bytes", "broker")
    return (
        events.withColumn("gap", gap)
        .groupBy("publisher", "chunk")
        .agg(
            fn.array_sort(fn.collect_set("broker")).alias("brokers"),
            fn.count("*").alias("events"),
            fn.min("sequence").alias("first_sequence"),
            fn.max("sequence").alias("last_sequence"),
            fn.min("departure_ns").alias("first_ns"),
            fn.max("departure_ns").alias("last_ns"),
            fn.sum("size_bytes").alias("size_sum"),
            fn.min("size_bytes").alias("size_min"),
            fn.max("size_bytes").alias("size_max"),
            *partial_value("gap", fn.col("gap")),
        )
    )


def merge_publishers(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    merged = partials.groupBy("publisher").agg(
        fn.array_sort(fn.array_distinct(fn.flatten(fn.collect_list("brokers")))).alias("brokers"),
        fn.sum("events").alias("events"),
        fn.min("first_sequence").alias("first_sequence"),
        fn.max("last_sequence").alias("last_sequence"),
        fn.min("first_ns").alias("first_ns"),
        fn.max("last_ns").alias("last_ns"),
        merged_sum("size_sum"),
        fn.min("size_min").alias("size_min_bytes"),
        fn.max("size_max").alias("size_max_bytes"),
        *merged_value("gap"),
    )
    return finished(merged.select("*", *shown("gap")), partial(_finish, level=level), PUBLISHERS)


def _finish(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    gap = duration(batch, "gap")
    steps = floats(batch, "last_sequence") - floats(batch, "first_sequence")
    rate = ratio(steps, (floats(batch, "last_ns") - floats(batch, "first_ns")) / 1e9)
    low, high = events_interval(rate, steps, gap["gap_scv"], level=level)
    return {
        **gap,
        **scv_of(batch, "gap", gap["gap_scv"], level=level),
        "rate_per_s": rate,
        "rate_low_per_s": low,
        "rate_high_per_s": high,
        "size_mean_bytes": ratio(floats(batch, "size_sum"), floats(batch, "events")),
    }
