"""Links: what becomes of transmissions, how long they wait and take, and what that says of the link.

A link whose `source` is NULL is the publishers' way to that broker. The queueing wait is `sent_ns` - `enqueued_ns`, the
transfer delay `received_ns` - `sent_ns`: size times slowness, then propagation. Where sizes vary, least squares of the
delay on the size tells the two apart: the slope is the mean slowness, the intercept the mean propagation; all variation
about the line is put down to the slowness, which makes it proportional to the size. Where all sizes are equal nobody
can tell, and slowness and propagation are NULL. The loss share is that of transmissions that came to an end, lost or
received.

The partials are those of the brokers (_brokers.py) and of the traffic (scores/_traffic.py) as well: transmissions are
counted once for all three, by link.
"""

from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidings.pipeline._facts import Facts
from tidings.pipeline.profiles._finishing import (
    duration,
    duration_columns,
    finished,
    floats,
    sum_of_products,
    whole,
)
from tidings.pipeline.profiles._profile import LEVEL
from tidings.pipeline.profiles._sums import (
    merged_products,
    merged_sum,
    merged_value,
    or_zero,
    partial_products,
    partial_value,
    shown,
)
from tidings.statistics import line_from_sums, ratio, wilson_interval

__all__ = ["LINKS", "merge_links", "partial_transmissions"]

OUTCOMES: Final = ("received", "lost", "expired", "hopeless", "in-flight", "failed")
# One unit of the slope, a nanosecond per byte, in seconds per kB.
_SLOPE_S_PER_KB: Final = 1e-9 * 1e3

LINKS = (
    "source string, target string, copies bigint, received bigint, lost bigint, expired bigint, hopeless bigint, "
    "in_flight bigint, failed bigint, loss double, loss_low double, loss_high double, bytes bigint, first_ns bigint, "
    "last_ns bigint, transmissions_per_s double, "
    f"{duration_columns('wait')}, {duration_columns('delay')}, "
    "slowness_mean_s_per_kb double, slowness_low_s_per_kb double, slowness_high_s_per_kb double, "
    "slowness_variance double, propagation_s double"
)


def partial_transmissions(facts: Facts) -> DataFrame:
    size, is_received = fn.col("size_bytes"), fn.col("received_ns").isNotNull()
    # From its loosest deadline on an event can be on time for nobody.
    is_expired = fn.col("received_ns") - fn.col("departure_ns") >= fn.col("deadline_ns")
    delay = fn.col("received_ns") - fn.col("sent_ns")
    size_sent = fn.when(delay.isNotNull(), size)
    return facts.transmissions.groupBy("publisher", "chunk", "source", "target").agg(
        fn.count("*").alias("copies"),
        *(fn.count_if(fn.col("outcome") == outcome).alias(_column(outcome)) for outcome in OUTCOMES),
        fn.count("sent_ns").alias("sent"),
        or_zero(fn.sum(fn.when(fn.col("sent_ns").isNotNull(), size))).alias("bytes"),
        fn.min("sent_ns").alias("first_sent_ns"),
        fn.max("sent_ns").alias("last_sent_ns"),
        fn.count("received_ns").alias("arrivals"),
        or_zero(fn.sum(fn.when(is_received, size))).alias("received_bytes"),
        fn.min("received_ns").alias("first_received_ns"),
        fn.max("received_ns").alias("last_received_ns"),
        fn.max(fn.when(is_received, fn.col("ended_ns"))).alias("last_ended_ns"),
        fn.count_if(is_expired).alias("in_vain"),
        or_zero(fn.sum(fn.when(is_expired, size))).alias("in_vain_bytes"),
        *partial_value("wait", fn.col("sent_ns") - fn.col("enqueued_ns")),
        *partial_value("delay", delay),
        *partial_value("size", size_sent, sketch=False),
        *partial_products("size_delay", size_sent, delay),
        *partial_value("service", fn.when(is_received, fn.col("ended_ns") - fn.col("began_ns"))),
        *partial_value("waiting", fn.when(is_received, fn.col("began_ns") - fn.col("received_ns"))),
    )


def _column(outcome: str) -> str:
    return outcome.replace("-", "_")


def merge_links(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    counts = ["copies", *map(_column, OUTCOMES), "sent"]
    merged = partials.groupBy("source", "target").agg(
        *(fn.sum(name).alias(name) for name in counts),
        merged_sum("bytes"),
        fn.min("first_sent_ns").alias("first_ns"),
        fn.max("last_sent_ns").alias("last_ns"),
        *merged_value("wait"),
        *merged_value("delay"),
        *merged_value("size", sketch=False),
        *merged_products("size_delay"),
    )
    return finished(merged.select("*", *shown("wait"), *shown("delay")), partial(_finish, level=level), LINKS)


def _finish(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    lost = floats(batch, "lost")
    ended = lost + floats(batch, "received")
    loss_low, loss_high = wilson_interval(lost, ended, level=level)
    line = line_from_sums(
        whole(batch, "delay_count"),
        whole(batch, "size_sum"),
        sum_of_products(batch, "size_squares"),
        whole(batch, "delay_sum"),
        sum_of_products(batch, "delay_squares"),
        sum_of_products(batch, "size_delay"),
        whole(batch, "size_max"),
        level=level,
    )
    lasted_s = (floats(batch, "last_ns") - floats(batch, "first_ns")) / 1e9
    return {
        **duration(batch, "wait"),
        **duration(batch, "delay"),
        "loss": ratio(lost, ended),
        "loss_low": loss_low,
        "loss_high": loss_high,
        "transmissions_per_s": ratio(floats(batch, "sent") - 1.0, lasted_s),
        "slowness_mean_s_per_kb": line.slope * _SLOPE_S_PER_KB,
        "slowness_low_s_per_kb": line.slope_low * _SLOPE_S_PER_KB,
        "slowness_high_s_per_kb": line.slope_high * _SLOPE_S_PER_KB,
        "slowness_variance": line.slope_variance * _SLOPE_S_PER_KB**2,
        "propagation_s": line.intercept / 1e9,
    }
