"""Groups of rows, and what a partial holds of a value in each of them, so that partials add up exactly.

- A value is a whole number (nanoseconds, bytes). Its sum and its sum of squares are kept in whole numbers, so they are
  the same in whatever order and however split the rows were added; sums of floating-point numbers are not.
- Squares of nanoseconds soon leave 64 bits. So a value is split in a high and a low half, and the sums of high x high,
  high x low and low x low are kept apart. The low half has LOW_BITS bits: half a million squares of it fit in 64. The
  other two are whole numbers in floating point, which is exact up to 2**53: as long as the values of a partial row are
  below 50 minutes in the root mean square. Above, they are right to 15 digits. Values beyond LONGEST (78 hours in
  nanoseconds) count as that.
- Its distribution is a quantile sketch (_sketches.py).
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.compiled import compiled
from tidings.pipeline.rows._columns import Values
from tidings.pipeline.rows._sketches import sketches

__all__ = [
    "HALVES",
    "LONGEST",
    "LOW_BITS",
    "Groups",
    "grouped",
    "grouped_products",
    "grouped_value",
    "packed",
    "stable_order",
    "truncated_quotient",
    "turns",
]

Array = npt.NDArray[Any]

LOW_BITS: Final = 22
HALVES: Final = ("hh", "hl", "ll")
LONGEST: Final = (1 << 48) - 1
_ROOM: Final = 1 << 62
_DIGIT: Final = 16
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Groups(NamedTuple):
    """Rows in an order in which those of a group follow each other, and where each group starts in it."""

    order: Array
    starts: Array

    @property
    def firsts(self) -> Array:
        """One row of each group."""
        return self.order[self.starts]

    def counts(self) -> Array:
        return np.diff(self.starts, append=len(self.order))

    def sums(self, values: Array) -> Array:
        """Sums of what is in the order of the rows; booleans are counted."""
        if not len(self.starts):
            return np.zeros(0, np.int64 if values.dtype == np.bool_ else values.dtype)
        ordered = values[self.order]
        return np.add.reduceat(ordered.astype(np.int64) if values.dtype == np.bool_ else ordered, self.starts)

    def least(self, column: Values) -> Values:
        return self._extreme(column, np.minimum, _GREATEST)

    def greatest(self, column: Values) -> Values:
        return self._extreme(column, np.maximum, _LEAST)

    def _extreme(self, column: Values, choose: np.ufunc, nothing: int) -> Values:
        known = self.sums(column.known) > 0
        if not len(self.starts):
            return Values(np.zeros(0, np.int64), known)
        found = choose.reduceat(np.where(column.known, column.values, nothing)[self.order], self.starts)
        return Values(np.where(known, found, 0), known)

    def lists(self, values: Array, chosen: Array) -> pa.Array:
        """The chosen values of each group, in order, as a list."""
        ends = np.concatenate(([0], np.cumsum(self.sums(chosen))))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values[self.order][chosen[self.order]]))


def packed(*columns: Array) -> Array:
    """One whole number for each row, equal for rows that are equal in all columns, and in the columns' order."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    key, room = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        numbers, span = _from_zero(column)
        if room * span > _ROOM:
            found, key = np.unique(key, return_inverse=True)
            room = len(found)
            if room * span > _ROOM:
                found, numbers = np.unique(numbers, return_inverse=True)
                span = len(found)
        key = key * span + numbers
        room *= span
    return key


def _from_zero(column: Array) -> tuple[Array, int]:
    """The numbers less the least of them, and how many there may be."""
    least, greatest = int(column.min()), int(column.max())
    if greatest - least < _ROOM:
        return column - least, greatest - least + 1
    found, numbers = np.unique(column, return_inverse=True)
    return numbers, len(found)


def grouped(*columns: Array) -> Groups:
    """Rows by equal values in all columns, groups in the columns' order and rows as they came."""
    key = packed(*columns)
    order = stable_order(key)
    ordered = key[order]
    return Groups(order, np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]))


def stable_order(key: Array) -> Array:
    """The order of whole numbers that are not negative, equal ones as they come.

    Sixteen bits at a time, since NumPy sorts numbers of so many bits by counting, in a tenth of the time.
    """
    if not len(key):
        return np.zeros(0, np.int64)
    order = np.argsort(key.astype(np.uint16), kind="stable")  # the lowest bits
    left = int(key.max()) >> _DIGIT
    shift = _DIGIT
    while left:
        digit = (key >> shift).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        left >>= _DIGIT
        shift += _DIGIT
    return order


def turns(*columns: Array) -> Array:
    """For each row, how many rows up to it are equal to it: 1 for the first."""
    groups = grouped(*columns)
    counted = np.arange(len(groups.order)) - np.repeat(groups.starts, groups.counts()) + 1
    result = np.empty(len(counted), np.int64)
    result[groups.order] = counted
    return result


def truncated_quotient(values: Array, divisor: int) -> Array:
    """As Spark divides: towards 0."""
    return np.where(values >= 0, values // divisor, -(-values // divisor))


def grouped_products(name: str, groups: Groups, x: Values, y: Values) -> dict[str, Array]:
    """The sums of x y over the rows where both are known, in halves."""
    sums = product_sums(groups.order, groups.starts, x.values, x.known, y.values, y.known)
    return {f"{name}_{half}": each for half, each in zip(HALVES, sums, strict=True)}


def grouped_value(name: str, groups: Groups, column: Values, *, sketch: bool = True) -> dict[str, Any]:
    """Count, sum, squares, extremes and sketch of a value, over the rows where it is known."""
    counts, total, least, greatest, kept = value_sums(groups.order, groups.starts, column.values, column.known)
    columns = {
        f"{name}_count": counts,
        f"{name}_sum": total,
        **grouped_products(f"{name}_squares", groups, column, column),
        f"{name}_min": Values(least, counts > 0),
        f"{name}_max": Values(greatest, counts > 0),
    }
    return {**columns, f"{name}_sketch": sketches(kept, counts)} if sketch else columns


@compiled
def value_sums(order: Array, starts: Array, values: Array, known: Array) -> tuple[Array, Array, Array, Array, Array]:
    """By group: how many values are known, their sum, the least and the greatest (0 for none); and the values known, in
    the order of the groups."""
    count, total = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    least, greatest = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    kept = np.empty(len(order), np.int64)
    taken = 0
    for group in range(len(starts)):
        end = starts[group + 1] if group + 1 < len(starts) else len(order)
        before = taken
        for place in range(starts[group], end):
            row = order[place]
            if known[row]:
                value = min(max(values[row], -LONGEST), LONGEST)
                if taken == before or value < least[group]:
                    least[group] = value
                if taken == before or value > greatest[group]:
                    greatest[group] = value
                total[group] += value
                kept[taken] = value
                taken += 1
        count[group] = taken - before
    return count, total, least, greatest, kept[:taken]


@compiled
def product_sums(
    order: Array, starts: Array, x: Array, x_known: Array, y: Array, y_known: Array
) -> tuple[Array, Array, Array]:
    """By group, over the rows where both are known: the sums of high x high, of the two crossed, and of low x low."""
    high, crossed = np.zeros(len(starts), np.float64), np.zeros(len(starts), np.float64)
    low = np.zeros(len(starts), np.int64)
    mask = (1 << LOW_BITS) - 1
    for group in range(len(starts)):
        end = starts[group + 1] if group + 1 < len(starts) else len(order)
        for place in range(starts[group], end):
            row = order[place]
            if x_known[row] and y_known[row]:
                one = min(max(x[row], -LONGEST), LONGEST)
                other = min(max(y[row], -LONGEST), LONGEST)
                high[group] += float((one >> LOW_BITS) * (other >> LOW_BITS))
                crossed[group] += float((one >> LOW_BITS) * (other & mask) + (one & mask) * (other >> LOW_BITS))
                low[group] += (one & mask) * (other & mask)
    return high, crossed, low
