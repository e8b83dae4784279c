"""The last step of a merge: estimates from merged sums, in one pass over one row per thing profiled.

The estimators are `tidings.statistics`; here Arrow batches become arrays and go back. NaN, the result of
an estimator without enough data, becomes NULL.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.pipeline.rows import LOW_BITS
from tidings.pipeline.rows._groups import HALVES
from tidings.statistics import Moments, moments, scv_interval

LEVEL: Final = 0.95
"""The level of confidence of intervals by default."""

__all__ = [
    "LEVEL",
    "Finish",
    "duration",
    "duration_columns",
    "floats",
    "moments_of",
    "partial_columns",
    "product_columns",
    "scv_columns",
    "scv_of",
    "sum_of_products",
    "whole",
]

Finish = Callable[[pa.RecordBatch], Mapping[str, Any]]


def floats(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float64]:
    """A column as floating-point numbers, rounded beyond 2**53; NULL is NaN."""
    return np.asarray(batch.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def whole(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """A column of whole numbers as Python's integers, which do not overflow; NULL, the sum of nothing, is 0."""
    return np.array([int(value or 0) for value in batch.column(name).to_pylist()], dtype=object)


def sum_of_products(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """Put together from its halves."""
    high, middle, low = (whole(batch, f"{name}_{half}") for half in HALVES)
    return np.asarray(high * (1 << 2 * LOW_BITS) + middle * (1 << LOW_BITS) + low, dtype=object)


def moments_of(batch: pa.RecordBatch, name: str) -> Moments:
    """Of a merged value, in its own unit."""
    squares = sum_of_products(batch, f"{name}_squares")
    return moments(whole(batch, f"{name}_count"), whole(batch, f"{name}_sum"), squares)


def duration_columns(name: str) -> str:
    """The columns that describe a duration in a table."""
    return (
        f"{name}_count bigint, {name}_mean_s double, {name}_scv double, {name}_min_ns bigint, {name}_max_ns bigint, "
        f"{name}_quantiles_ns array<bigint>, {name}_sketch binary"
    )


def duration(batch: pa.RecordBatch, name: str) -> dict[str, Any]:
    """Those of them that have to be estimated."""
    known = moments_of(batch, name)
    return {f"{name}_mean_s": known.mean / 1e9, f"{name}_scv": known.scv}


def partial_columns(name: str, *, sketch: bool = True) -> str:
    """The columns that a partial has of a value."""
    sketched = f", {name}_sketch binary" if sketch else ""
    return (
        f"{name}_count bigint, {name}_sum bigint, {product_columns(f'{name}_squares')}, {name}_min bigint, "
        f"{name}_max bigint{sketched}"
    )


def product_columns(name: str) -> str:
    return f"{name}_hh double, {name}_hl double, {name}_ll bigint"


def scv_columns(name: str) -> str:
    return f"{name}_scv_low double, {name}_scv_high double"


def scv_of(batch: pa.RecordBatch, name: str, scv: npt.NDArray[np.float64], *, level: float) -> dict[str, Any]:
    """The interval for the scv of a duration whose values are independent."""
    low, high = scv_interval(scv, floats(batch, f"{name}_count"), level=level)
    return {f"{name}_scv_low": low, f"{name}_scv_high": high}
