"""How partials of a value are put together; what they hold and why it is exact: rows/_groups.py.

Whole numbers are added as decimals: 64 bits hold one partial's sum, not that of all. A sketch that merges more than
SKETCH_K values throws coins: quantiles may differ from run to run within its 1.33 % in rank.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from tidings.pipeline.rows import LONGEST, LOW_BITS
from tidings.pipeline.rows._groups import HALVES
from tidings.statistics import PROBABILITIES

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "PROBABILITIES",
    "Total",
    "merged_products",
    "merged_value",
    "or_zero",
    "partial_value",
    "quantiles",
    "shown",
    "totals",
]


def _bounded(value: "Column") -> "Column":
    """The value, within LONGEST of 0. NULL stays: `least` and `greatest` alone would make it a bound."""

    from pyspark.sql import functions as fn

    return fn.when(value.isNotNull(), fn.least(fn.greatest(value, fn.lit(-LONGEST)), fn.lit(LONGEST)))


def or_zero(total: "Column") -> "Column":
    """The sum of nothing is 0, not NULL."""

    from pyspark.sql import functions as fn

    return fn.coalesce(total, fn.lit(0))


def _partial_products(name: str, x: "Column", y: "Column") -> "list[Column]":
    """The sums of x y over the rows where neither is NULL, in halves."""

    from pyspark.sql import functions as fn

    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    crossed = x_high * y_low + x_low * y_high
    products = ((x_high * y_high).cast("double"), crossed.cast("double"), x_low * y_low)
    return [or_zero(fn.sum(product)).alias(f"{name}_{half}") for half, product in zip(HALVES, products, strict=True)]


def partial_value(name: str, value: "Column") -> "list[Column]":
    """Count, sum, squares and extremes of a value, over the rows where it is not NULL."""

    from pyspark.sql import functions as fn

    kept = _bounded(value)
    return [
        fn.count(value).alias(f"{name}_count"),
        or_zero(fn.sum(kept)).alias(f"{name}_sum"),
        *_partial_products(f"{name}_squares", value, value),
        fn.min(kept).alias(f"{name}_min"),
        fn.max(kept).alias(f"{name}_max"),
    ]


class Total(NamedTuple):
    """How a column of partials is put together: added, added beyond 64 bits, the least, the greatest, or merged."""

    name: str
    how: Literal["sum", "exact", "least", "greatest", "sketch"]


def merged_products(name: str) -> list[Total]:
    return [Total(f"{name}_{half}", "exact") for half in HALVES]


def merged_value(name: str, *, sketch: bool = True) -> list[Total]:
    """What a partial holds of a value (`partial_columns`)."""
    return [
        Total(f"{name}_count", "sum"),
        Total(f"{name}_sum", "exact"),
        *merged_products(f"{name}_squares"),
        Total(f"{name}_min", "least"),
        Total(f"{name}_max", "greatest"),
        *([Total(f"{name}_sketch", "sketch")] if sketch else []),
    ]


def totals(*given: Total) -> "list[Column]":
    """Totals as Spark's aggregates."""
    from pyspark.sql import functions as fn

    def exact(name: str) -> "Column":
        # As decimals: 64 bits hold one partial's sum, not that of all.
        return fn.sum(fn.col(name).cast("decimal(28,0)")).cast("decimal(38,0)")

    functions: dict[str, Callable[[str], Column]] = {
        "sum": fn.sum,
        "exact": exact,
        "least": fn.min,
        "greatest": fn.max,
        "sketch": fn.kll_merge_agg_bigint,
    }
    return [functions[each.how](each.name).alias(each.name) for each in given]


def quantiles(name: str, probabilities: Sequence[float]) -> "Column":
    """The quantiles of a merged sketch as an array; NULL if it is empty."""

    from pyspark.sql import functions as fn

    ranks = fn.array(*(fn.lit(p) for p in probabilities))
    sketch = fn.col(f"{name}_sketch")
    return fn.when(fn.kll_sketch_get_n_bigint(sketch) > 0, fn.kll_sketch_get_quantile_bigint(sketch, ranks))


def shown(name: str) -> "list[Column]":
    """What a table shows of a merged duration beside its estimates."""

    from pyspark.sql import functions as fn

    return [
        quantiles(name, PROBABILITIES).alias(f"{name}_quantiles_ns"),
        fn.col(f"{name}_min").alias(f"{name}_min_ns"),
        fn.col(f"{name}_max").alias(f"{name}_max_ns"),
    ]


def _halves(value: "Column") -> "tuple[Column, Column]":
    from pyspark.sql import functions as fn

    kept = _bounded(value)
    return fn.shiftright(kept, LOW_BITS), kept.bitwiseAND(fn.lit((1 << LOW_BITS) - 1))
