"""Pairs of a publisher and a subscription: how long events take, and two laws that describe it.

- Delays are those from departure to arrival, of the events that arrived.
- Delay differences are those of events that arrived and follow each other in the publisher's order, inside a chunk (the
  one that crosses from a chunk to the next is left out). Their two-Laplace scale is what receivers latch by
  (probabilistic FIFO ordering).
- The hypoexponential law has the smallest delay as its constant part, and the delays' mean and variance.
- The distance of a law is Kolmogorov and Smirnov's at GRID quantiles of the sketch: the sketch's rank error of 1.33 %
  is in it, so only distances well above that speak against a law.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from tidings.pipeline._facts import Facts
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

__all__ = ["GRID", "PAIRS", "merge_pairs", "partial_pairs"]

GRID: Final = 64
"""Quantiles that a distance is taken at, in the middle of as many equal shares."""
_MIDDLES: Final = tuple((i + 0.5) / GRID for i in range(GRID))

PAIRS = (
    "publisher string, subscription string, matched bigint, arrived double, arrived_low double, arrived_high double, "
    f"{duration_columns('delay')}, hypoexponential_shift_s double, hypoexponential_rates_per_s array<double>, "
    "hypoexponential_distance double, difference_count bigint, difference_mean_absolute_s double, "
    "difference_quantiles_ns array<bigint>, difference_sketch binary, two_laplace_scale_s double, "
    "two_laplace_distance double"
)


def partial_pairs(facts: Facts) -> DataFrame:
    fates = facts.fates.select(
        "publisher", "chunk", "subscription", "sequence", (fn.col("arrived_ns") - fn.col("departure_ns")).alias("delay")
    )
    # What did not arrive comes last, so that the row before is the one that arrived before.
    order = Window.partitionBy("publisher", "chunk", "subscription").orderBy(fn.col("delay").isNull(), "sequence")
    difference = fn.col("delay") - fn.lag("delay").over(order)
    kept = bounded(fn.col("difference"))
    return (
        fates.withColumn("difference", difference)
        .groupBy("publisher", "chunk", "subscription")
        .agg(
            fn.count("*").alias("matched"),
            *partial_value("delay", fn.col("delay")),
            fn.count("difference").alias("difference_count"),
            or_zero(fn.sum(fn.abs(kept))).alias("difference_absolute_sum"),
            fn.kll_sketch_agg_bigint(kept, SKETCH_K).alias("difference_sketch"),
        )
    )


def merge_pairs(partials: DataFrame, *, level: float = LEVEL) -> DataFrame:
    merged = partials.groupBy("publisher", "subscription").agg(
        fn.sum("matched").alias("matched"),
        *merged_value("delay"),
        fn.sum("difference_count").alias("difference_count"),
        merged_sum("difference_absolute_sum"),
        fn.kll_merge_agg_bigint("difference_sketch").alias("difference_sketch"),
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
