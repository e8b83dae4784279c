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

__all__ = ["SKETCH_K", "merged_sketches", "sketch_quantiles", "sketches"]

Array = npt.NDArray[Any]
Whole = Any
"""A whole number of Python's or NumPy's."""

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
def write_kind(data: Array, n: Whole) -> None:
    """The first bytes of a sketch of n values."""
    data[0] = 2 if n <= 1 else 5
    data[1] = 2 if n == 1 else 1
    data[2] = 15
    data[3] = 1 if n == 0 else 4 if n == 1 else 0
    write_number(data, 4, SKETCH_K, 2)
    data[6] = _LEAST_LEVEL


@compiled
def write_head(data: Array, n: Whole, sizes: Array, begin: Whole, least: Whole, greatest: Whole) -> Whole:
    """The levels and bounds that precede the values of a sketch; returns where the values begin."""
    levels = len(sizes)
    write_number(data, 8, n, 8)
    write_number(data, 16, SKETCH_K, 2)
    data[18] = levels
    for level in range(levels):
        write_number(data, _HEAD + 4 * level, begin, 4)
        begin += sizes[level]
    at = _HEAD + 4 * levels
    write_number(data, at, least, 8)
    write_number(data, at + 8, greatest, 8)
    return at + 16


@compiled
def write_sketch(ordered: Array, capacities: Array, data: Array) -> None:
    """The sketch of values in ascending order, which are used up, into bytes that are all 0."""
    n = len(ordered)
    write_kind(data, n)
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
    at = write_head(data, n, sizes[:levels], capacities[levels - 1] - kept, least, greatest)
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


_KEPT_MAX: Final = int(_CAPACITIES[-1])
"""Values that a merged sketch keeps at most."""


def merged_sketches(given: pa.Array, order: Array, starts: Array) -> pa.Array:
    """One sketch for each group of sketches: those at ``order[starts[i]:starts[i + 1]]``; NULL is as good as empty.

    All of a group are merged at once: what stands for as many values goes to one level, and levels are halved from the
    lowest up where there is no room. Up to SKETCH_K values it is exact, and it depends on nothing but the values.
    """
    ends, data = _bytes_of(given)
    out_ends, out = merged(ends, data, order.astype(np.int64), starts.astype(np.int64), _CAPACITIES)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(out_ends), pa.py_buffer(out)])


def sketch_quantiles(given: pa.Array, probabilities: tuple[float, ...]) -> tuple[Array, Array]:
    """For each sketch a row of its quantiles, the least value whose share of values up to it is enough; and whether
    the sketch has any values."""
    ends, data = _bytes_of(given)
    return quantiles_at(ends, data, np.array(probabilities, np.float64))


def _bytes_of(given: pa.Array) -> tuple[Array, Array]:
    array = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    array = array.fill_null(b"")
    if not len(array):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    ends = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return ends, np.frombuffer(array.buffers()[2] or b"", np.uint8)


@compiled
def read_number(data: Array, at: Whole, size: int) -> Whole:
    number = np.int64(0)
    for byte in range(size):
        number |= np.int64(data[at + byte]) << (8 * byte)
    return number


@compiled
def count_of(data: Array, begin: Whole, end: Whole) -> Whole:
    """How many values a sketch stands for."""
    if end - begin < 8 or data[begin + 3] & 1:
        return 0
    return 1 if data[begin + 3] & 4 else read_number(data, begin + 8, 8)


@compiled
def read_sketch(data: Array, begin: Whole, end: Whole, values: Array, levels: Array, at: Whole) -> Whole:
    """Put the values of a sketch and their levels behind those that are there; returns where the next ones go."""
    n = count_of(data, begin, end)
    if n == 0:
        return at
    if n == 1:
        values[at], levels[at] = read_number(data, end - 8, 8), 0
        return at + 1
    count = np.int64(data[begin + 18])
    first = read_number(data, begin + _HEAD, 4)
    items = begin + _HEAD + 4 * count + 16
    for level in range(count):
        low = read_number(data, begin + _HEAD + 4 * level, 4) - first
        high = (end - items) // 8
        if level + 1 < count:
            high = read_number(data, begin + _HEAD + 4 * (level + 1), 4) - first
        for item in range(low, high):
            values[at], levels[at] = read_number(data, items + 8 * item, 8), level
            at += 1
    return at


@compiled
def merged(ends: Array, data: Array, order: Array, starts: Array, capacities: Array) -> tuple[Array, Array]:
    groups = len(starts)
    room = _HEAD + 4 * _LEVELS + 16 + 8 * _KEPT_MAX
    out_ends = np.zeros(groups + 1, np.int32)
    out = np.zeros(0, np.uint8)
    piece = np.zeros(room, np.uint8)
    used = 0
    for group in range(groups):
        last = starts[group + 1] if group + 1 < groups else len(order)
        most = np.int64(0)
        for place in range(starts[group], last):
            most += (ends[order[place] + 1] - ends[order[place]]) // 8
        values, levels = np.empty(most, np.int64), np.empty(most, np.int64)
        taken, n = np.int64(0), np.int64(0)
        least, greatest = np.int64(0), np.int64(0)
        for place in range(starts[group], last):
            begin, end = np.int64(ends[order[place]]), np.int64(ends[order[place] + 1])
            count = count_of(data, begin, end)
            if count == 0:
                continue
            before = taken
            taken = read_sketch(data, begin, end, values, levels, taken)
            low = high = values[before]
            if count > 1:
                bounds = begin + _HEAD + 4 * np.int64(data[begin + 18])
                low, high = read_number(data, bounds, 8), read_number(data, bounds + 8, 8)
            least = low if n == 0 else min(least, low)
            greatest = high if n == 0 else max(greatest, high)
            n += count
        piece[:] = 0
        size = write_merged(values[:taken], levels[:taken], n, least, greatest, capacities, piece)
        if used + size > len(out):
            grown = np.zeros(2 * len(out) + size + room, np.uint8)
            grown[:used] = out[:used]
            out = grown
        out[used : used + size] = piece[:size]
        used += size
        out_ends[group + 1] = used
    return out_ends, out[:used]


@compiled
def write_merged(
    values: Array, levels: Array, n: Whole, least: Whole, greatest: Whole, capacities: Array, data: Array
) -> Whole:
    """The sketch of values at their levels, into bytes that are all 0; returns how many bytes it has."""
    write_kind(data, n)
    if n <= 1:
        if n == 1:
            write_number(data, 8, values[0], 8)
        return 8 + 8 * n
    count = levels.max() + 1
    total, target = len(values), capacities[count - 1]
    kept, sizes = np.empty(len(values), np.int64), np.zeros(64, np.int64)
    coin = (((least ^ greatest) & 0x7FFFFFFF) + n) & 0x7FFFFFFF
    carried = np.empty(0, np.int64)
    level, written = 0, 0
    while level < count:
        here = np.concatenate((values[levels == level], carried))
        depth = count - 1 - level
        capacity = capacities[depth] - (capacities[depth - 1] if depth else 0)
        if total <= target or len(here) < capacity:
            carried = np.empty(0, np.int64)
        else:
            here = np.sort(here)
            coin = (coin * 1103515245 + 12345) & 0x7FFFFFFF
            stays = len(here) & 1
            half = (len(here) - stays) >> 1
            carried = np.empty(half, np.int64)
            # The one that stays behind is the first or the last.
            is_last = stays & (coin >> 29) & 1
            begin = (0 if is_last else stays) + ((coin >> 28) & 1)
            for i in range(half):
                carried[i] = here[begin + 2 * i]
            here = here[len(here) - 1 :] if is_last else here[:stays]
            total -= half
            if level == count - 1:
                count += 1
                target = capacities[count - 1]
        sizes[level] = len(here)
        kept[written : written + len(here)] = here
        written += len(here)
        level += 1
    at = write_head(data, n, sizes[:count], capacities[count - 1] - written, least, greatest)
    for i in range(written):
        write_number(data, at, kept[i], 8)
        at += 8
    return at


@compiled
def quantiles_at(ends: Array, data: Array, probabilities: Array) -> tuple[Array, Array]:
    found = np.zeros((len(ends) - 1, len(probabilities)), np.int64)
    known = np.zeros(len(ends) - 1, np.bool_)
    for sketch in range(len(ends) - 1):
        begin, end = np.int64(ends[sketch]), np.int64(ends[sketch + 1])
        n = count_of(data, begin, end)
        if n == 0:
            continue
        known[sketch] = True
        values, levels = np.empty((end - begin) // 8, np.int64), np.empty((end - begin) // 8, np.int64)
        count = read_sketch(data, begin, end, values, levels, 0)
        order = np.argsort(values[:count])
        for i in range(len(probabilities)):
            rank = probabilities[i] * n
            if n <= 1_000_000:
                rank = np.floor(rank * 1e6 + 0.5) / 1e6  # as Apache DataSketches does, so that 0.07 * 100 is 7
            wanted, reached, place = np.ceil(rank), np.int64(0), 0
            while place < count:
                reached += np.int64(1) << levels[order[place]]
                if reached >= wanted:
                    break
                place += 1
            found[sketch, i] = values[order[min(place, count - 1)]]
    return found, known
