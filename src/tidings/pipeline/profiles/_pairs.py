"""Pairs of a publisher and a subscription: what became of events, how long they take, and two laws that describe it.

The partials are those of the scores as well (scores/_pairs.py), by topic and window of departure: fates are sorted and
counted once for both.

- Delays are those from departure to arrival, of the events that arrived.
- Delay differences are those of events that arrived and follow each other in the publisher's order, inside a chunk (the
  one that crosses from a chunk to the next is left out). Their two-Laplace scale is what receivers latch by
  (probabilistic FIFO ordering).
- The hypoexponential law has the smallest delay as its constant part, and the delays' mean and variance.
- The distance of a law is Kolmogorov and Smirnov's at GRID quantiles of the sketch: the sketch's rank error of 1.33 %
  is in it, so only distances well above that speak against a law.
- An event is overtaken if a later one of the publisher was delivered to the subscription before it. Those that a later
  event of the same chunk overtakes are counted; of those in the last BORDER_EVENTS sequence numbers before the end of
  the chunk that are not, `border_ns` keeps when they were delivered, to be held against the next chunks.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from tidings.pipeline._facts import CHUNK_EVENTS, WITHOUT_EVENT, Facts
from tidings.pipeline.profiles._finishing import duration, duration_columns, finished, floats, moments_of
from tidings.pipeline.profiles._profile import LEVEL
from tidings.pipeline.profiles._sums import (
    PROBABILITIES,
    SKETCH_K,
    bounded,
    merged_sum,
    merged_value,
    or_zero,
    partial_value,
    quantiles,
    shown,
)
from tidings.statistics import (
    Stages,
    distance_from_quantiles,
    ratio,
    stages_cdf,
    stages_from_moments,
    two_laplace_cdf,
    two_laplace_scale,
    wilson_interval,
)

__all__ = ["BORDER_EVENTS", "GRID", "PAIRS", "WINDOW_NS", "merge_pairs", "partial_pairs"]

WINDOW_NS: Final = 60_000_000_000
"""Length of the windows of departure, unless another is asked for."""
BORDER_EVENTS: Final = 256
"""How many sequence numbers before the end of a chunk are remembered, to be held against the next ones."""

GRID: Final = 64
"""Quantiles that a distance is taken at, in the middle of as many equal shares."""
_UNIT: Final = ("publisher", "chunk")
_MIDDLES: Final = tuple((i + 0.5) / GRID for i in range(GRID))

PAIRS = (
    "publisher string, subscription string, matched bigint, arrived double, arrived_low double, arrived_high double, "
    f"{duration_columns('delay')}, hypoexponential_shift_s double, hypoexponential_rates_per_s array<double>, "
    "hypoexponential_distance double, difference_count bigint, difference_mean_absolute_s double, "
    "difference_quantiles_ns array<bigint>, difference_sketch binary, two_laplace_scale_s double, "
    "two_laplace_distance double"
)


def partial_pairs(facts: Facts, *, window_ns: int = WINDOW_NS) -> DataFrame:
    start = fn.expr(f"departure_ns - pmod(departure_ns, {window_ns}L)").alias("window_ns")
    delay = (fn.col("arrived_ns") - fn.col("departure_ns")).alias("delay")
    fates = facts.fates.select(
        *_UNIT, "number", "sequence", "topic", start, delay, "delivered_ns", "fate", "duplicates"
    )
    # Backwards, so that the rows before are the later events; what did not arrive comes last, out of the way.
    later = Window.partitionBy(*_UNIT, "number").orderBy(fn.col("delay").isNull(), fn.desc("sequence"))
    earliest = fn.min("delivered_ns").over(later.rowsBetween(Window.unboundedPreceding, -1))
    judged = fates.select(
        *fates.columns,
        (fn.lag("delay").over(later) - fn.col("delay")).alias("difference"),
        fn.coalesce(earliest < fn.col("delivered_ns"), fn.lit(False)).alias("is_overtaken"),
    )
    is_near = fn.col("sequence") % CHUNK_EVENTS >= CHUNK_EVENTS - BORDER_EVENTS
    kept = bounded(fn.col("difference"))
    counted = judged.groupBy(*_UNIT, "number", "topic", "window_ns").agg(
        fn.count("*").alias("matched"),
        fn.count_if(fn.col("fate") == "on-time").alias("on_time"),
        fn.count_if(fn.col("fate") == "late").alias("late"),
        fn.sum("duplicates").alias("duplicates"),
        fn.count_if("is_overtaken").alias("overtaken"),
        fn.min("delivered_ns").alias("first_delivered_ns"),
        fn.collect_list(fn.when(is_near & ~fn.col("is_overtaken"), fn.col("delivered_ns"))).alias("border_ns"),
        *partial_value("delay", fn.col("delay")),
        fn.count("difference").alias("difference_count"),
        or_zero(fn.sum(fn.abs(kept))).alias("difference_absolute_sum"),
        fn.kll_sketch_agg_bigint(kept, SKETCH_K).alias("difference_sketch"),
    )
    return _named(counted, facts).unionByName(_unmatched(facts.subscriptions), allowMissingColumns=True)


def _named(counted: DataFrame, facts: Facts) -> DataFrame:
    """Names in the place of numbers: of what is the same for many rows, after counting them."""
    terms = fn.broadcast(facts.subscriptions.select("number", "subscription", "subscriber", "price"))
    known = counted.join(terms, "number", "inner").withColumnRenamed("topic", "topic_hash")
    topics = facts.events.select(*_UNIT, "topic").distinct()
    topics = topics.select(*_UNIT, fn.xxhash64("topic").alias("topic_hash"), "topic")
    return known.join(topics, [*_UNIT, "topic_hash"], "left").drop("number", "topic_hash")


def _unmatched(subscriptions: DataFrame) -> DataFrame:
    """Every subscription with nothing matched yet, in the unit of no event: it has a score even so."""
    zeros = [fn.lit(0).cast("bigint").alias(name) for name in ("matched", "on_time", "late", "duplicates", "overtaken")]
    unit = [fn.lit(None).cast("string").alias("publisher"), fn.lit(WITHOUT_EVENT).cast("bigint").alias("chunk")]
    return subscriptions.select(*unit, "subscription", "subscriber", "price", *zeros)


def merge_pairs(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    merged = (
        partials.where("publisher IS NOT NULL")
        .groupBy("publisher", "subscription")
        .agg(
            fn.sum("matched").alias("matched"),
            *merged_value("delay"),
            fn.sum("difference_count").alias("difference_count"),
            merged_sum("difference_absolute_sum"),
            fn.kll_merge_agg_bigint("difference_sketch").alias("difference_sketch"),
        )
    )
    sketched = merged.select(
        "*",
        *shown("delay"),
        quantiles("difference", PROBABILITIES).alias("difference_quantiles_ns"),
        quantiles("delay", _MIDDLES).alias("delay_grid"),
        quantiles("difference", _MIDDLES).alias("difference_grid"),
    )
    return finished(sketched, partial(_finish, level=level), PAIRS)


def _finish(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    matched, arrived = floats(batch, "matched"), floats(batch, "delay_count")
    arrived_low, arrived_high = wilson_interval(arrived, matched, level=level)
    delays = moments_of(batch, "delay")
    law = stages_from_moments(floats(batch, "delay_min"), delays.mean, delays.variance)
    absolute = ratio(floats(batch, "difference_absolute_sum"), floats(batch, "difference_count"))
    scale = two_laplace_scale(absolute)
    return {
        **duration(batch, "delay"),
        "arrived": ratio(arrived, matched),
        "arrived_low": arrived_low,
        "arrived_high": arrived_high,
        "hypoexponential_shift_s": law.shift / 1e9,
        "hypoexponential_rates_per_s": _rates(law),
        "hypoexponential_distance": _distance(stages_cdf(_grid(batch, "delay"), law), law.phases == 0),
        "difference_mean_absolute_s": absolute / 1e9,
        "two_laplace_scale_s": scale / 1e9,
        "two_laplace_distance": _distance(two_laplace_cdf(_grid(batch, "difference"), scale[:, None]), scale == 0.0),
    }


def _rates(law: Stages) -> list[list[float] | None]:
    """Rates per second, ascending; none where there is no fit, no phases where all delays are equal."""
    return [
        None if np.isnan(shift) else [1e9 / mean for mean in [long] * min(phases, 1) + [short] * (phases - 1)]
        for shift, phases, long, short in zip(*(part.tolist() for part in law), strict=True)
    ]


def _distance(cdf: npt.NDArray[np.float64], constant: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """A constant fits a constant exactly, which quantiles of a step would not show."""
    distances = distance_from_quantiles(cdf, _MIDDLES)
    return np.where(constant & ~np.isnan(distances), 0.0, distances)


def _grid(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float64]:
    """The quantiles as rows of GRID values; a row of NaN where the sketch is empty."""
    lists = batch.column(f"{name}_grid")
    grid = np.full((batch.num_rows, GRID), np.nan)
    known = lists.is_valid().to_numpy(zero_copy_only=False)
    grid[known] = lists.flatten().to_numpy().astype(np.float64).reshape(-1, GRID)
    return grid
