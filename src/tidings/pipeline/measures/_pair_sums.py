"""The partials of pairs put together, once for all tables that are made of them.

Violations of order across the border of a chunk are found here: an event among the last BORDER_EVENTS sequence numbers
of a chunk that nothing in its own chunk overtook is overtaken if a later chunk has a delivery before its own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidings.pipeline.measures._batch_sums import batch_sums, sum_columns, with_usual
from tidings.pipeline.measures._sums import Total, merged_value, totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "BATCHED",
    "COUNTS",
    "PAIR_TOTALS",
    "SCORE_TOTALS",
    "SETS",
    "SHARES",
    "batched",
    "merged_pairs",
    "of_set",
    "sums_by",
]

SETS: Final = (("publisher", "subscription", "subscriber"), ("topic", "window_ns"))
"""What partials are put together by at first: everything else is put together of these, which are far fewer."""

COUNTS: Final = ("matched", "on_time", "on_time_least", "on_time_most", "late", "duplicates")
"""What partials count, beside violations of order."""

BATCHED: Final = (
    ("subscription", "subscriber"),
    ("publisher",),
    ("topic",),
    ("window_ns",),
    ("publisher", "subscription"),
)
"""By what tables show shares with intervals: batches cannot be put together of those of others."""
PAIR_TOTALS: Final = (
    *(Total(name, "sum") for name in (*COUNTS, "fifo_violations")),
    *merged_value("delay"),
    Total("difference_count", "sum"),
    Total("difference_absolute_sum", "exact"),
    Total("difference_sketch", "sketch"),
)
"""What is added up by SETS; the earnings beside it."""
SCORE_TOTALS: Final = (
    *(
        each
        for each in PAIR_TOTALS
        if each.name in (*COUNTS, "fifo_violations", "delay_sum", "delay_min", "delay_max", "delay_sketch")
    ),
)
"""What scores are made of."""
SHARES: Final = {"on_time": ("on_time", "matched"), "arrived": ("arrived", "matched")}


def merged_pairs(partials: "DataFrame") -> "DataFrame":
    """Sums by each of SETS; `sums_by` makes others of them, `of_set` chooses one. Rows of `batched` are among them."""

    from pyspark.sql import functions as fn

    merged = _merged_sums(partials)
    batched = batch_sums(partials, BATCHED, SHARES).withColumn("is_batched", fn.lit(True))
    return merged.withColumn("is_batched", fn.lit(False)).unionByName(batched, allowMissingColumns=True)


def _merged_sums(partials: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as fn

    earned = (fn.col("on_time") * fn.col("price")).cast("decimal(28,9)")
    return (
        _with_violations(partials)
        .groupingSets([[*keys] for keys in SETS], *_columns(SETS))
        .agg(
            fn.grouping_id().cast("int").alias("grouping"),
            *totals(*PAIR_TOTALS),
            fn.sum(earned).alias("earnings"),
        )
    )


def batched(merged: "DataFrame", rows: "DataFrame", keys: Sequence[str], share: str) -> "DataFrame":
    """The rows by these columns, one of BATCHED, with the sums of batches that the interval of a share is made of."""

    from pyspark.sql import functions as fn

    columns = [*_columns(BATCHED), "batch_ns"]
    number = _number(columns, [*keys, "batch_ns"])
    mine = merged.where(fn.col("is_batched") & (fn.col("grouping") == number)).select(*keys, *sum_columns(share))
    return with_usual(rows.join(mine, [*keys], "left"), share)


def sums_by(merged: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """What scores are made of, by some columns of one of SETS. What belongs to none (a NULL in one) has no row."""

    from pyspark.sql import functions as fn

    (chosen,) = (each for each in SETS if {*keys} <= {*each})
    return (
        of_set(merged, chosen, SETS)
        .dropna(subset=[*keys])
        .groupBy(*keys)
        .agg(
            *totals(*SCORE_TOTALS),
            fn.sum("earnings").cast("double").alias("earnings"),
        )
    )


def of_set(merged: "DataFrame", keys: Sequence[str], sets: Sequence[Sequence[str]]) -> "DataFrame":
    """The rows by these columns, without the columns of other sets."""

    from pyspark.sql import functions as fn

    columns = _columns(sets)
    of_batches = ["is_batched", *(column for share in SHARES for column in sum_columns(share))]
    others = [name for name in (*columns, "grouping", *of_batches) if name not in keys]
    is_sum = ~fn.col("is_batched") if "is_batched" in merged.columns else fn.lit(True)
    return merged.where(is_sum & (fn.col("grouping") == _number(columns, keys))).drop(*others)


def _number(columns: Sequence[str], keys: Sequence[str]) -> int:
    """What `grouping_id` of all columns is for the set of these."""
    return sum(1 << (len(columns) - 1 - place) for place, name in enumerate(columns) if name not in keys)


def _columns(sets: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for keys in sets for name in keys))


def _with_violations(partials: "DataFrame") -> "DataFrame":
    """`fifo_violations`: those inside each chunk, and those that later chunks make of the border's events."""

    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    pair = ("publisher", "subscription")
    chunks = partials.groupBy(*pair, "chunk").agg(fn.min("first_delivered_ns").alias("first_ns"))
    after = Window.partitionBy(*pair).orderBy(fn.desc("chunk")).rowsBetween(Window.unboundedPreceding, -1)
    later = chunks.select(*pair, "chunk", fn.min("first_ns").over(after).alias("later_ns"))
    overtaken = fn.filter("border_ns", lambda delivered_ns: delivered_ns > fn.col("later_ns"))
    return partials.join(later, [*pair, "chunk"], "left").withColumn(
        "fifo_violations",
        fn.col("overtaken") + fn.when(fn.col("later_ns").isNotNull(), fn.size(overtaken)).otherwise(0),
    )
