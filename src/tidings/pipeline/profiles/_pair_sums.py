"""The partials of pairs put together, once for all tables that are made of them.

Violations of order across the border of a chunk are found here: an event among the last BORDER_EVENTS sequence numbers
of a chunk that nothing in its own chunk overtook is overtaken if a later chunk has a delivery before its own.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from tidings.pipeline.profiles._sums import merged_sum, merged_value

__all__ = ["SETS", "merged_pairs", "of_set"]

SETS: Final = (
    ("subscription", "subscriber"),
    ("publisher",),
    ("topic",),
    ("window_ns",),
    ("publisher", "subscription"),
)
"""What sums are made by. What belongs to none (a NULL in one of the columns) has no row."""


def merged_pairs(partials: DataFrame) -> DataFrame:
    """Sums by each of SETS; `of_set` chooses one of them."""
    columns = _columns(SETS)
    return (
        _with_violations(partials)
        .groupingSets([[*keys] for keys in SETS], *columns)
        .agg(
            fn.grouping_id().cast("int").alias("grouping"),
            *(fn.sum(name).alias(name) for name in ("matched", "on_time", "late", "duplicates")),
            fn.sum("violations").alias("fifo_violations"),
            fn.sum((fn.col("on_time") * fn.col("price")).cast("decimal(28,9)")).cast("double").alias("earnings"),
            *merged_value("delay"),
            fn.sum("difference_count").alias("difference_count"),
            merged_sum("difference_absolute_sum"),
            fn.kll_merge_agg_bigint("difference_sketch").alias("difference_sketch"),
        )
    )


def of_set(merged: DataFrame, keys: Sequence[str], sets: Sequence[Sequence[str]]) -> DataFrame:
    """The rows by these columns, without the columns of other sets."""
    columns = _columns(sets)
    number = sum(1 << (len(columns) - 1 - place) for place, name in enumerate(columns) if name not in keys)
    others = [name for name in (*columns, "grouping") if name not in keys]
    return merged.where(fn.col("grouping") == number).drop(*others)


def _columns(sets: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for keys in sets for name in keys))


def _with_violations(partials: DataFrame) -> DataFrame:
    """`violations`: those inside each chunk, and those that deliveries of later chunks make of the border's events."""
    pair = ("publisher", "subscription")
    chunks = partials.groupBy(*pair, "chunk").agg(fn.min("first_delivered_ns").alias("first_ns"))
    after = Window.partitionBy(*pair).orderBy(fn.desc("chunk")).rowsBetween(Window.unboundedPreceding, -1)
    later = chunks.select(*pair, "chunk", fn.min("first_ns").over(after).alias("later_ns"))
    overtaken = fn.filter("border_ns", lambda delivered_ns: delivered_ns > fn.col("later_ns"))
    return partials.join(later, [*pair, "chunk"], "left").withColumn(
        "violations", fn.col("overtaken") + fn.when(fn.col("later_ns").isNotNull(), fn.size(overtaken)).otherwise(0)
    )
