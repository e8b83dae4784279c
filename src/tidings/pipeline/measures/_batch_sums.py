"""Batches of time put together: for each row of a table, the sums that the interval of a share is made of.

Partials hold counts by batch (rows/_batches.py). Here they are added up by row and batch, batches are made as long as
leaves at most BATCHES_MOST from the first to the last of the row, and what is left are sums over them
(`statistics.BatchSums`), in whole numbers: the same however the rows were split. Only Spark's own functions are used,
and a row's batches are never in one place but for their sums.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tidings.pipeline.measures._estimates import floats
from tidings.pipeline.rows import BATCHES_MOST
from tidings.statistics import BATCHES_LEAST, BatchSums, Shares, shares_of_sums

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["batch_sums", "shares_of", "sum_columns", "with_usual"]

_SUMS: Final = ("batches", "hits", "misses", "hit_squares", "products", "miss_squares")


def sum_columns(name: str) -> list[str]:
    """The columns with the sums of a share of this name."""
    return [f"{name}_{each}" for each in _SUMS]


def batch_sums(
    partials: "DataFrame", keys: Sequence[Sequence[str]], shares: Mapping[str, tuple[str, str]]
) -> "DataFrame":
    """By each of these sets of columns: the sums of shares, by name those of one count of batches among another.

    `grouping` is the number of the set; the columns of the others are NULL.
    """

    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    counts = sorted({count for pair in shares.values() for count in pair})
    lists = [f"batch_{name}" for name in ("ns", *counts)]
    columns = list(dict.fromkeys(name for each in keys for name in each))
    flat = partials.select(*columns, fn.explode(fn.arrays_zip(*lists)).alias("batch")).select(*columns, "batch.*")
    merged = flat.groupingSets([[*each, "batch_ns"] for each in keys], *columns, "batch_ns").agg(
        fn.grouping_id().cast("int").alias("grouping"),
        *(fn.sum(name).alias(name) for name in lists[1:]),
    )
    row = Window.partitionBy("grouping", *columns)
    span = merged.select("*", fn.min("batch_ns").over(row).alias("low"), fn.max("batch_ns").over(row).alias("high"))
    bits = fn.expr(
        f"array_min(filter(sequence(0, 62), k -> shiftright(high, k) - shiftright(low, k) < {BATCHES_MOST}))"
    )
    batches = (
        span.withColumn("number", fn.call_function("shiftright", fn.col("batch_ns"), bits))
        .groupBy("grouping", *columns, "number")
        .agg(*(fn.sum(name).cast("decimal(19,0)").alias(name) for name in lists[1:]))
    )
    sums = [
        total.alias(column)
        for name, (hits, trials) in shares.items()
        for total, column in zip(_sums(f"batch_{hits}", f"batch_{trials}"), sum_columns(name), strict=True)
    ]
    return batches.groupBy("grouping", *columns).agg(*sums)


def _sums(hits: str, trials: str) -> "list[Column]":
    from pyspark.sql import functions as fn

    hit, miss = fn.col(hits), (fn.col(trials) - fn.col(hits)).cast("decimal(19,0)")
    totals = [fn.sum(each).cast("decimal(38,0)") for each in (hit, miss, hit * hit, hit * miss, miss * miss)]
    return [fn.count(fn.when(fn.col(trials) > 0, 1)), *totals]


def with_usual(rows: "DataFrame", name: str) -> "DataFrame":
    """The rows, with how clustered they are as a rule: the median of those that have seen enough (`{name}_usual`)."""

    from pyspark.sql import functions as fn

    count, hits, misses, hit_squares, products, miss_squares = (
        fn.col(column).cast("double") for column in sum_columns(name)
    )
    share, rest = hits / (hits + misses), misses / (hits + misses)
    spread = rest * rest * hit_squares - 2.0 * share * rest * products + share * share * miss_squares
    clustering = fn.greatest(fn.lit(1.0), spread * count / (count - 1.0) / (share * rest * (hits + misses)))
    knows = (count >= BATCHES_LEAST) & (fn.least(hits, misses) >= count)
    usual = rows.where(knows).agg(fn.coalesce(fn.median(clustering), fn.lit(1.0)).alias(f"{name}_usual"))
    return rows.crossJoin(fn.broadcast(usual))


def shares_of(batch: pa.RecordBatch, name: str, *, level: float) -> Shares:
    """The shares of rows with sums and what is usual; NaN where nothing was counted."""
    sums = BatchSums(*(np.nan_to_num(floats(batch, column)) for column in sum_columns(name)))
    return shares_of_sums(sums, level=level, usual=floats(batch, f"{name}_usual"))
