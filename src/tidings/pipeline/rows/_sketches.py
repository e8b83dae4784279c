"""Quantile sketches of groups of values, in the form that Spark's `kll_*_bigint` functions read and merge.

A KLL sketch (Karnin, Lang, Liberty: Optimal Quantile Approximation in Streams, 2016) keeps at level h values that stand
for 2**h each. A level that is too full is sorted and every other value of it goes up. All values of a group are here at
once, so the whole group is one such level: it is halved until at most SKETCH_K values are left, and where their number
is odd one stays behind. Halving moves a rank by at most one value of its level, so the sketch of n values is off by
less than n / 100, and exact up to SKETCH_K values; merging sketches adds what KLL sketches of this size have, 1.33 % in
rank with 99 % confidence.

Which half goes up is a coin. It is thrown from the group's own values, so the same group gives the same sketch.

The bytes are those of Apache DataSketches' compact form (little-endian): ints in the preamble, version, family 15,
flags, k, m; of more than one value also n, k, the number of levels, where each begins, the least and the greatest.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.compiled import compiled

__all__ = ["SKETCH_K", "sketches"]

Array = npt.NDArray[Any]

SKETCH_K: Final = 200
_LEAST_LEVEL: Final = 8
_LEVELS: Final = 31
_HEAD: Final = 20
_CAPACITIES: Final = np.cumsum(
    [max(_LEAST_LEVEL, (((2 * SKETCH_K) << depth) // 3**depth + 1) >> 1) for depth in range(_LEVELS)]
).astype(np.int64)
"""How many values a sketch of so many levels (less one) has room for; levels begin at the end of that room."""


def sketches(values: Array, counts: Array) -> pa.Array:
    """One sketch for each group: `values` are those of the first group, then those of the second, and so on."""
    ends, data = written(values.astype(np.int64), counts.astype(np.int64), _CAPACITIES)
    return pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(ends), pa.py_buffer(data)])


@compiled
def written(values: Array, counts: Array, capacities: Array) -> tuple[Array, Array]:
    """Where each group's bytes end (with a 0 before), and the bytes."""
    ends = np.zeros(len(counts) + 1, np.int32)
    for group in range(len(counts)):
        ends[group + 1] = ends[group] + sketch_bytes(counts[group])
    data = np.zeros(ends[-1], np.uint8)
    first = 0
    for group in range(len(counts)):
        count = counts[group]
        write_sketch(np.sort(values[first : first + count]), capacities, data[ends[group] : ends[group + 1]])
        first += count
    return ends, data


@compiled
def sketch_bytes(count: int) -> int:
    if count <= 1:
        return 8 + 8 * count
    levels, kept = 1, 0
    while count > SKETCH_K:
        kept += count & 1
        count >>= 1
        levels += 1
    return _HEAD + 4 * levels + 16 + 8 * (kept + count)


@compiled
def write_number(data: Array, at: int, number: int, size: int) -> None:
    for byte in range(size):
        data[at + byte] = (number >> (8 * byte)) & 255


@compiled
def write_sketch(ordered: Array, capacities: Array, data: Array) -> None:
    """The sketch of values in ascending order, which are used up, into bytes that are all 0."""
    n = len(ordered)
    data[0] = 2 if n <= 1 else 5
    data[1] = 2 if n == 1 else 1
    data[2] = 15
    data[3] = 1 if n == 0 else 4 if n == 1 else 0
    write_number(data, 4, SKETCH_K, 2)
    data[6] = _LEAST_LEVEL
    if n == 0:
        return
    if n == 1:
        write_number(data, 8, ordered[0], 8)
        return
    least, greatest = ordered[0], ordered[n - 1]
    sizes = np.zeros(64, np.int64)
    levels, kept, count = 1, 0, n
    while count > SKETCH_K:
        sizes[levels - 1] = count & 1
        kept += count & 1
        count >>= 1
        levels += 1
    sizes[levels - 1] = count
    kept += count
    write_number(data, 8, n, 8)
    write_number(data, 16, SKETCH_K, 2)
    data[18] = levels
    begin = capacities[levels - 1] - kept
    for level in range(levels):
        write_number(data, _HEAD + 4 * level, begin, 4)
        begin += sizes[level]
    at = _HEAD + 4 * levels
    write_number(data, at, least, 8)
    write_number(data, at + 8, greatest, 8)
    at += 16
    coin = (((least ^ greatest) & 0x7FFFFFFF) + n) & 0x7FFFFFFF
    count = n
    for _ in range(levels - 1):
        coin = (coin * 1103515245 + 12345) & 0x7FFFFFFF
        start = 0
        if count & 1:
            # The one that stays behind is the first or the last.
            is_first = (coin >> 29) & 1
            write_number(data, at, ordered[0] if is_first else ordered[count - 1], 8)
            at += 8
            start = is_first
        start += (coin >> 28) & 1
        count >>= 1
        for i in range(count):
            ordered[i] = ordered[start + 2 * i]
    for i in range(count):
        write_number(data, at, ordered[i], 8)
        at += 8
