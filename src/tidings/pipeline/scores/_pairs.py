"""Scores of pairs of an event and a subscription that it matches.

Rules:

- matched = on_time + late + lost; `lost` (a false negative) was never delivered as far as the trace goes, whatever the
  reason: lost on a link, dropped, or still on its way at the end.
- On-time reliability R is on_time / matched (papers B and D), with Wilson's interval; over all subscriptions it is
  paper C's delivery rate (equation 1). `delivered_share` counts what came late as well. Earnings are the prices of what
  came on time (equation 2), added as decimals so that they do not depend on the order.
- A FIFO violation is an event that is delivered after a later event of the same publisher to the same subscription.
  Inside a chunk every one is found. Across the border of a chunk the last BORDER_EVENTS sequence numbers before it are
  held against everything after it; an event that is overtaken from the next chunk although it is further from the
  border is not counted.
- Delays are arrived_ns - departure_ns; their quantiles come from a KLL sketch (profiles/_sums.py says how exact).
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from tidings.pipeline._facts import CHUNK_EVENTS, WITHOUT_EVENT, Facts
from tidings.pipeline.profiles._finishing import finished, floats
from tidings.pipeline.profiles._profile import LEVEL
from tidings.pipeline.profiles._sums import SKETCH_K
from tidings.statistics import ratio, wilson_interval

__all__ = ["BORDER_EVENTS", "LEVEL", "SCORES", "merge_scores", "partial_scores", "with_overtaken"]

BORDER_EVENTS: Final = 256
"""How many sequence numbers before the end of a chunk are remembered, to be held against the next ones."""

QUANTILES: Final = (0.5, 0.9, 0.99)

SCORES: Final = (
    "matched bigint, on_time bigint, late bigint, lost bigint, on_time_reliability double, reliability_low double, "
    "reliability_high double, delivered_share double, earnings double, duplicates bigint, fifo_violations bigint, "
    "delay_min_ns bigint, delay_mean_ns double, delay_max_ns bigint, delay_p50_ns bigint, delay_p90_ns bigint, "
    "delay_p99_ns bigint, delay_sketch binary"
)
"""The columns of every table of scores, after those that say whose they are."""

_PAIR: Final = ("publisher", "chunk", "number", "topic", "window_ns")
_PARTIAL: Final = (
    *("publisher", "chunk", "subscription", "subscriber", "topic", "window_ns", "price"),
    *("matched", "on_time", "late", "duplicates", "overtaken", "first_delivered_ns", "border_ns"),
    *("delay_sum", "delay_min_ns", "delay_max_ns", "delay_sketch"),
)


def with_overtaken(fates: DataFrame) -> DataFrame:
    """`is_overtaken`: a later event of the chunk was delivered before; `border_ns`: when, if it is near the border."""
    later = Window.partitionBy("publisher", "chunk", "number").orderBy(fn.desc("sequence"))
    earliest = fn.min("delivered_ns").over(later.rowsBetween(Window.unboundedPreceding, -1))
    is_overtaken = fn.coalesce(earliest < fn.col("delivered_ns"), fn.lit(False))
    is_near = fn.col("sequence") % CHUNK_EVENTS >= CHUNK_EVENTS - BORDER_EVENTS
    marked = fates.withColumn("is_overtaken", is_overtaken)
    return marked.withColumn("border_ns", fn.when(is_near & ~fn.col("is_overtaken"), fn.col("delivered_ns")))


def partial_scores(facts: Facts, *, window_ns: int) -> DataFrame:
    start = fn.expr(f"departure_ns - pmod(departure_ns, {window_ns}L)")
    fates = with_overtaken(facts.fates).withColumn("window_ns", start)
    delay = fn.col("arrived_ns") - fn.col("departure_ns")
    # What is the same for all rows of a subscription is joined to the sums, not to the rows.
    terms = fn.broadcast(facts.subscriptions.select("number", "subscription", "subscriber", "price"))
    counted = fates.groupBy(*_PAIR).agg(
        fn.count("*").alias("matched"),
        fn.count_if(fn.col("fate") == "on-time").alias("on_time"),
        fn.count_if(fn.col("fate") == "late").alias("late"),
        fn.sum("duplicates").alias("duplicates"),
        fn.count_if("is_overtaken").alias("overtaken"),
        fn.min("delivered_ns").alias("first_delivered_ns"),
        fn.collect_list("border_ns").alias("border_ns"),
        fn.sum(delay).alias("delay_sum"),
        fn.min(delay).alias("delay_min_ns"),
        fn.max(delay).alias("delay_max_ns"),
        fn.kll_sketch_agg_bigint(delay, SKETCH_K).alias("delay_sketch"),
    )
    known = counted.join(terms, "number", "inner").withColumnRenamed("topic", "topic_hash")
    topics = facts.events.select("publisher", "chunk", "topic").distinct()
    topics = topics.select("publisher", "chunk", fn.xxhash64("topic").alias("topic_hash"), "topic")
    named = known.join(topics, ["publisher", "chunk", "topic_hash"], "left").select(*_PARTIAL)
    return named.unionByName(_unmatched(facts.subscriptions), allowMissingColumns=True)


def _unmatched(subscriptions: DataFrame) -> DataFrame:
    """Every subscription with nothing matched yet, in the unit of no event: it has a score even so."""
    zeros = [fn.lit(0).cast("bigint").alias(name) for name in ("matched", "on_time", "late", "duplicates", "overtaken")]
    unit = [fn.lit(None).cast("string").alias("publisher"), fn.lit(WITHOUT_EVENT).cast("bigint").alias("chunk")]
    return subscriptions.select(*unit, "subscription", "subscriber", "price", *zeros)


def merge_scores(partials: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """The table by these columns of the partials, without what belongs to none."""
    belonging = _with_border(partials).dropna(subset=[*keys])
    merged = belonging.groupBy(*keys).agg(
        *(fn.sum(name).alias(name) for name in ("matched", "on_time", "late", "duplicates")),
        fn.sum("violations").alias("fifo_violations"),
        fn.sum(fn.col("delay_sum").cast("decimal(38,0)")).cast("double").alias("delay_sum"),
        fn.min("delay_min_ns").alias("delay_min_ns"),
        fn.max("delay_max_ns").alias("delay_max_ns"),
        fn.sum((fn.col("on_time") * fn.col("price")).cast("decimal(28,9)")).cast("double").alias("earnings"),
        fn.kll_merge_agg_bigint("delay_sketch").alias("delay_sketch"),
    )
    known = dict(partials.dtypes)
    columns = ", ".join([*(f"{key} {known[key]}" for key in keys), SCORES])
    return finished(merged.select("*", *_quantiles()), _finish, columns)


def _with_border(partials: DataFrame) -> DataFrame:
    """`violations`: those inside each chunk, and those that deliveries of later chunks make of the border's events."""
    pair = ("publisher", "subscription")
    chunks = partials.groupBy(*pair, "chunk").agg(fn.min("first_delivered_ns").alias("first_ns"))
    after = Window.partitionBy(*pair).orderBy(fn.desc("chunk")).rowsBetween(Window.unboundedPreceding, -1)
    later = chunks.select(*pair, "chunk", fn.min("first_ns").over(after).alias("later_ns"))
    overtaken = fn.filter("border_ns", lambda delivered_ns: delivered_ns > fn.col("later_ns"))
    return partials.join(later, [*pair, "chunk"], "left").withColumn(
        "violations", fn.col("overtaken") + fn.when(fn.col("later_ns").isNotNull(), fn.size(overtaken)).otherwise(0)
    )


def _quantiles() -> list[Column]:
    sketch = fn.col("delay_sketch")
    return [
        fn.when(
            fn.kll_sketch_get_n_bigint(sketch) > 0, fn.kll_sketch_get_quantile_bigint(sketch, fn.lit(probability))
        ).alias(f"delay_p{round(100 * probability)}_ns")
        for probability in QUANTILES
    ]


def _finish(batch: pa.RecordBatch) -> dict[str, Any]:
    matched, on_time, late = (batch.column(name).to_numpy() for name in ("matched", "on_time", "late"))
    low, high = wilson_interval(on_time, matched, level=LEVEL)
    return {
        "lost": matched - on_time - late,
        "on_time_reliability": ratio(on_time, matched),
        "reliability_low": np.where(matched > 0, low, np.nan),
        "reliability_high": np.where(matched > 0, high, np.nan),
        "delivered_share": ratio(on_time + late, matched),
        "delay_mean_ns": ratio(floats(batch, "delay_sum"), on_time + late),
    }
