"""Batches of time put together: for each row of a table, the sums that the interval of a share is made of.

Partials hold counts by batch (rows/_batches.py). They are added up by row and batch, batches are made as long as leaves
at most BATCHES_MOST from the first to the last of the row, and what is left are sums over them
(`statistics.BatchSums`), in whole numbers: the same however the rows were split (arrow/_totals.py).
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tidings.pipeline.measures._estimates import floats
from tidings.statistics import BatchSums, Shares, shares_of_sums

__all__ = ["shares_of", "sum_columns"]

_SUMS: Final = ("batches", "hits", "misses", "hit_squares", "products", "miss_squares")


def sum_columns(name: str) -> list[str]:
    """The columns with the sums of a share of this name."""
    return [f"{name}_{each}" for each in _SUMS]


def shares_of(batch: pa.RecordBatch, name: str, *, level: float) -> Shares:
    """The shares of rows with sums and what is usual; NaN where nothing was counted."""
    sums = BatchSums(*(np.nan_to_num(floats(batch, column)) for column in sum_columns(name)))
    return shares_of_sums(sums, level=level, usual=floats(batch, f"{name}_usual"))
