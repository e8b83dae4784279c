"""Brokers: what they have to do, how long they take for it and how long it waits.

Two tables, since they are cut differently. `brokers` (by chunk, from the partials of _links.py): service and waiting
times of what each broker received. `arrivals` (by slice of time): the gaps between consecutive receptions whoever
published them; these need the receptions of all publishers in order of time, a second shuffle of two narrow columns.
Gaps across slices are added in the merge, so the table does not depend on where slices end.

The service time is `ended_ns` - `began_ns`, with any processing that keeps nobody waiting; the waiting time is
`began_ns` - `received_ns`. Utilisation is the time served over the time from the first reception to the last end: the
busy share of a broker with one server. Waiting times are not independent of each other, so their scv has no interval.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from tidings.pipeline._facts import Facts
from tidings.pipeline.profiles._finishing import (
    duration,
    duration_columns,
    finished,
    floats,
    scv_columns,
    scv_of,
    sum_of_products,
    whole,
)
from tidings.pipeline.profiles._profile import LEVEL
from tidings.pipeline.profiles._sums import merged_value, partial_value, shown
from tidings.statistics import events_interval, moments, ratio, scv_interval

__all__ = [
    "ARRIVALS",
    "BROKERS",
    "SLICE_NS",
    "merge_arrivals",
    "merge_brokers",
    "partial_arrivals",
]

SLICE_NS: Final = 60_000_000_000
"""Length of a slice: slice = received_ns div SLICE_NS."""

BROKERS = (
    "broker string, arrivals bigint, first_ns bigint, last_ns bigint, arrival_rate_per_s double, utilisation double, "
    f"{duration_columns('service')}, {scv_columns('service')}, {duration_columns('waiting')}"
)

ARRIVALS = (
    "broker string, arrivals bigint, first_ns bigint, last_ns bigint, rate_per_s double, rate_low_per_s double, "
    f"rate_high_per_s double, gap_mean_s double, gap_scv double, {scv_columns('gap')}"
)


def merge_brokers(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    merged = (
        partials.where("arrivals > 0")
        .groupBy(fn.col("target").alias("broker"))
        .agg(
            fn.sum("arrivals").alias("arrivals"),
            fn.min("first_received_ns").alias("first_ns"),
            fn.max("last_received_ns").alias("last_ns"),
            fn.max("last_ended_ns").alias("last_ended_ns"),
            *merged_value("service"),
            *merged_value("waiting"),
        )
    )
    sketched = merged.select("*", *shown("service"), *shown("waiting"))
    return finished(sketched, partial(_finish_brokers, level=level), BROKERS)


def _finish_brokers(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    service = duration(batch, "service")
    first_ns = floats(batch, "first_ns")
    return {
        **service,
        **scv_of(batch, "service", service["service_scv"], level=level),
        **duration(batch, "waiting"),
        "arrival_rate_per_s": ratio(floats(batch, "arrivals") - 1.0, (floats(batch, "last_ns") - first_ns) / 1e9),
        "utilisation": ratio(floats(batch, "service_sum"), floats(batch, "last_ended_ns") - first_ns),
    }


def partial_arrivals(facts: Facts) -> DataFrame:
    received = facts.transmissions.where("received_ns IS NOT NULL").select(
        fn.col("target").alias("broker"), fn.expr(f"received_ns div {SLICE_NS}L").alias("slice"), "received_ns"
    )
    order = Window.partitionBy("broker", "slice").orderBy("received_ns")
    gap = fn.col("received_ns") - fn.lag("received_ns").over(order)
    return (
        received.withColumn("gap", gap)
        .groupBy("broker", "slice")
        .agg(
            fn.count("*").alias("arrivals"),
            fn.min("received_ns").alias("first_ns"),
            fn.max("received_ns").alias("last_ns"),
            *partial_value("gap", fn.col("gap"), sketch=False),
        )
    )


def merge_arrivals(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    order = Window.partitionBy("broker").orderBy("slice")
    bordered = partials.withColumn("border", fn.col("first_ns") - fn.lag("last_ns").over(order))
    merged = bordered.groupBy("broker").agg(
        fn.sum("arrivals").alias("arrivals"),
        fn.min("first_ns").alias("first_ns"),
        fn.max("last_ns").alias("last_ns"),
        *merged_value("gap", sketch=False),
        *partial_value("border", fn.col("border"), sketch=False),
    )
    return finished(merged, partial(_finish_arrivals, level=level), ARRIVALS)


def _finish_arrivals(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    count = whole(batch, "gap_count") + whole(batch, "border_count")
    total = whole(batch, "gap_sum") + whole(batch, "border_sum")
    squares = sum_of_products(batch, "gap_squares") + sum_of_products(batch, "border_squares")
    gaps = moments(count, total, squares)
    rate = ratio(1e9, gaps.mean)
    low, high = events_interval(rate, count.astype(np.float64), gaps.scv, level=level)
    scv_low, scv_high = scv_interval(gaps.scv, count.astype(np.float64), level=level)
    return {
        "rate_per_s": rate,
        "rate_low_per_s": low,
        "rate_high_per_s": high,
        "gap_mean_s": gaps.mean / 1e9,
        "gap_scv": gaps.scv,
        "gap_scv_low": scv_low,
        "gap_scv_high": scv_high,
    }
