"""Batches of time inside a partial, for intervals that know that events are late together (statistics/_batches.py).

A group's rows are cut into at most BATCHES_MOST batches of 2**k ns, counted from time 0, with the least k that does.
Whatever groups are put together, the least k for all of them is no smaller than that of any one: so their batches lie
inside those of the whole, and sums by batch are the same however the rows were split. Batches of the whole are chosen
where partials are merged (measures/_batch_sums.py), 8 to BATCHES_MOST of them where there is something in each.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidings.pipeline.rows._groups import Array, Groups

__all__ = ["BATCHES_MOST", "batch_columns", "grouped_batches"]

BATCHES_MOST: Final = 16


def batch_columns(*counts: str) -> str:
    """The columns that a partial has of batches: when they begin, and so many of each of these in them."""
    return ", ".join(f"batch_{name} array<bigint>" for name in ("ns", *counts))


def grouped_batches(groups: Groups, at_ns: Array, counts: Mapping[str, Array]) -> dict[str, Any]:
    """The batches of each group in which any of the counts is above 0; rows are at these times."""
    if not len(groups.starts):
        return {f"batch_{name}": pa.array([], pa.list_(pa.int64())) for name in ("ns", *counts)}
    ordered = at_ns[groups.order]
    first, last = np.minimum.reduceat(ordered, groups.starts), np.maximum.reduceat(ordered, groups.starts)
    bits = np.maximum(np.frexp((last - first).astype(np.float64))[1].astype(np.int64) - 5, 0)  # as many, or two less
    while (is_long := (last >> bits) - (first >> bits) >= BATCHES_MOST).any():
        bits[is_long] += 1
    owner = np.repeat(np.arange(len(first)), groups.counts())
    place = owner * BATCHES_MOST + (ordered >> bits[owner]) - (first >> bits)[owner]
    room = len(first) * BATCHES_MOST
    sums = {
        name: np.bincount(place, weights=each[groups.order], minlength=room).astype(np.int64)
        for name, each in counts.items()
    }
    chosen = np.flatnonzero(np.any([each > 0 for each in sums.values()], axis=0))
    begins = ((first >> bits)[chosen // BATCHES_MOST] + chosen % BATCHES_MOST) << bits[chosen // BATCHES_MOST]
    ends = np.searchsorted(chosen, np.arange(len(first) + 1) * BATCHES_MOST)
    found = {"ns": begins, **{name: each[chosen] for name, each in sums.items()}}
    return {
        f"batch_{name}": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(each))
        for name, each in found.items()
    }
