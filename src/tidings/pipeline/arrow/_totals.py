"""Totals of partials (measures/_sums.py) over groups of rows."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.compiled import compiled
from tidings.pipeline.measures._batch_sums import sum_columns
from tidings.pipeline.measures._estimates import Finish
from tidings.pipeline.measures._sums import Total
from tidings.pipeline.rows import (
    BATCHES_MOST,
    Groups,
    arrow_schema,
    grouped,
    merged_sketches,
    names_of,
    sketch_quantiles,
    values_of,
)
from tidings.statistics import BATCHES_LEAST, PROBABILITIES

__all__ = [
    "EXACT",
    "batch_sums",
    "batches_by",
    "clustering",
    "codes_of",
    "earned",
    "exact_sum",
    "finished",
    "later_least",
    "quantile_lists",
    "rows_by",
    "shown",
    "summed",
    "usual",
]

Array = npt.NDArray[Any]
EXACT: Final = pa.decimal128(38, 0)
_FITS: Final = 2.0**62
_NANO: Final = Decimal("1e-9")


def rows_by(table: pa.Table, keys: Sequence[str]) -> Groups:
    """Rows by equal values in these columns, of which NULL is one."""
    return grouped(*codes_of(table, keys))


def codes_of(table: pa.Table, keys: Sequence[str]) -> list[Array]:
    """Arrays of numbers that are equal where the values of these columns are; NULL is a value of its own."""
    columns: list[Array] = []
    for name in keys:
        if pa.types.is_string(table[name].type):
            columns.append(names_of(table[name]).codes)
        else:
            values = values_of(table[name])
            columns += [values.known.astype(np.int64), values.values]
    return columns


def summed(table: pa.Table, keys: Sequence[str], totals: Iterable[Total], groups: Groups | None = None) -> pa.Table:
    """One row for each group, with its keys and totals."""
    found = rows_by(table, keys) if groups is None else groups
    firsts = pa.array(found.firsts)
    columns = {name: table[name].take(firsts) for name in keys}
    for total in totals:
        columns[total.name] = _total(table[total.name], found, total.how)
    return pa.table(columns)


def _total(column: pa.ChunkedArray, groups: Groups, how: str) -> pa.Array:
    if how == "sketch":
        return merged_sketches(column.combine_chunks(), groups.order, groups.starts)
    if how == "exact":
        return exact_sum(column, groups)
    values = values_of(column)
    if how == "sum":
        return pa.array(groups.sums(values.values), mask=groups.sums(values.known) == 0)
    return (groups.least(values) if how == "least" else groups.greatest(values)).to_arrow()


def exact_sum(column: pa.ChunkedArray, groups: Groups) -> pa.Array:
    """Whole numbers, which may be written as floating-point ones, added without a bound; NULL if there is none."""
    known = np.asarray(column.is_valid())
    filled = column.fill_null(pa.scalar(0, pa.int64()).cast(column.type))
    rough = np.asarray(filled.cast(pa.float64(), safe=False))
    counted = groups.sums(known) > 0
    if len(rough) and max(abs(rough.max()), abs(rough.min())) * len(rough) < _FITS:
        sums = groups.sums(np.asarray(filled.cast(pa.int64(), safe=False)))
        return pa.array(sums, mask=~counted).cast(EXACT)
    whole = np.array([int(value) for value in filled.to_pylist()], dtype=object)
    totals: Any = groups.sums(whole) if len(groups.starts) else []
    return pa.array(
        [Decimal(total) if is_known else None for total, is_known in zip(totals, counted, strict=True)], EXACT
    )


def earned(partials: pa.Table) -> pa.Array:
    """What partials earned, each to nine decimals, in whole units of the last of them, which no table shows."""
    # The product of two doubles, and as text: a double has more digits than its shortest one.
    products = np.asarray(partials["on_time"].cast(pa.float64())) * np.asarray(partials["price"])
    known: dict[float, int] = {}
    for product in set(products.tolist()):
        known[product] = int(Decimal(repr(product)).quantize(_NANO, ROUND_HALF_UP).scaleb(9))
    return pa.array([Decimal(known[product]) for product in products.tolist()], EXACT)


def quantile_lists(sketches: pa.Array, probabilities: tuple[float, ...]) -> pa.Array:
    """The quantiles of each sketch as a list; NULL if it is empty."""
    found, known = sketch_quantiles(sketches, probabilities)
    flat = pa.array(found[known].reshape(-1))
    ends = np.concatenate(([0], np.cumsum(known) * len(probabilities))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), flat)
    return lists.take(pa.array(np.arange(len(known)), mask=~known))


def shown(merged: pa.Table, *names: str) -> pa.Table:
    """With what a table shows of merged durations beside its estimates."""
    for name in names:
        lists = quantile_lists(merged[f"{name}_sketch"], PROBABILITIES)
        merged = merged.append_column(f"{name}_quantiles_ns", lists)
        for end in ("min", "max"):
            merged = merged.append_column(f"{name}_{end}_ns", merged[f"{name}_{end}"])
    return merged


def finished(merged: pa.Table, finish: Finish, columns: str) -> pa.Table:
    """The table with these columns ("name type, ..."): the merged ones as they are, all others by `finish`."""
    schema = arrow_schema(columns)
    batches = merged.combine_chunks().to_batches()
    computed: Mapping[str, Any] = finish(batches[0]) if batches else {}
    arrays = []
    for field in schema:
        if field.name in merged.column_names:
            arrays.append(merged[field.name].combine_chunks().cast(field.type))
        else:
            arrays.append(pa.array(computed.get(field.name, ()), field.type, from_pandas=True))
    return pa.Table.from_arrays(arrays, schema=schema)


@compiled
def later_least(pair: Array, first: Array, known: Array) -> tuple[Array, Array]:
    """For rows by pair and, in each, by chunk: the least `first` of the pair's later rows, and whether there is one."""
    least, found = np.zeros(len(pair), np.int64), np.zeros(len(pair), np.bool_)
    best, has = np.int64(0), False
    for row in range(len(pair) - 1, -1, -1):
        if row == len(pair) - 1 or pair[row] != pair[row + 1]:
            has = False
        least[row], found[row] = best, has
        if known[row] and (not has or first[row] < best):
            best, has = first[row], True
    return least, found


def batches_by(rows: pa.Table, parents: Array, batches: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The counts of batches by these columns, in batches as long as those of the whole have to be (rows/_batches.py).

    Each row of `batches` (`batch_ns` and counts) belongs to the row of `rows` that `parents` names.
    """
    owners = rows_by(rows, keys)
    owner = np.empty(len(rows), np.int64)
    owner[owners.order] = np.repeat(np.arange(len(owners.starts)), owners.counts())
    group, at_ns = owner[parents], np.asarray(batches["batch_ns"])
    by_owner = grouped(group)
    mine = group[by_owner.firsts]
    ordered = at_ns[by_owner.order]
    low = np.zeros(len(owners.starts), np.int64)
    high = np.zeros(len(owners.starts), np.int64)
    if len(mine):
        low[mine] = np.minimum.reduceat(ordered, by_owner.starts)
        high[mine] = np.maximum.reduceat(ordered, by_owner.starts)
    bits = np.zeros(len(low), np.int64)
    while (is_long := (high >> bits) - (low >> bits) >= BATCHES_MOST).any():
        bits[is_long] += 1
    begins = at_ns >> bits[group] << bits[group]
    found = grouped(group, begins)
    firsts = pa.array(owners.firsts[group[found.firsts]])
    columns: dict[str, Any] = {name: rows[name].take(firsts) for name in keys}
    columns["batch_ns"] = pa.array(begins[found.firsts])
    for name in batches.column_names:
        if name not in columns:
            columns[name] = pa.array(found.sums(np.asarray(batches[name])))
    return pa.table(columns)


def batch_sums(batches: pa.Table, keys: Sequence[str], share: str, hits: str, trials: str) -> pa.Table:
    """By these columns: the sums over batches that the interval of a share is made of (see profiles/_batch_sums.py)."""
    hit = np.asarray(batches[hits]).astype(object)
    trial = np.asarray(batches[trials]).astype(object)
    miss = trial - hit
    rows = rows_by(batches, keys)
    firsts = pa.array(rows.firsts)
    columns: dict[str, Any] = {name: batches[name].take(firsts) for name in keys}
    sums = [hit, miss, hit * hit, hit * miss, miss * miss]
    columns[sum_columns(share)[0]] = pa.array(rows.sums((trial > 0).astype(np.bool_)))
    for name, values in zip(sum_columns(share)[1:], sums, strict=True):
        totals: Any = rows.sums(values) if len(rows.starts) else []
        columns[name] = pa.array([Decimal(total) for total in totals], EXACT)
    return pa.table(columns)


def clustering(rows: pa.Table, share: str) -> pa.Array:
    """How clustered the batches of each row are; NULL where they have not seen enough to tell."""
    known = np.asarray(rows[sum_columns(share)[0]].is_valid())
    count, hits, misses, hit_squares, products, miss_squares = (
        np.asarray(rows[name].cast(pa.float64(), safe=False).fill_null(0.0)) for name in sum_columns(share)
    )
    knows = known & (count >= BATCHES_LEAST) & (np.minimum(hits, misses) >= count)
    with np.errstate(divide="ignore", invalid="ignore"):
        part, rest = hits / (hits + misses), misses / (hits + misses)
        spread = rest * rest * hit_squares - 2.0 * part * rest * products + part * part * miss_squares
        found = np.maximum(1.0, spread * count / (count - 1.0) / (part * rest * (hits + misses)))
    return pa.array(found, pa.float64(), mask=~knows)


def usual(rows: pa.Table, share: str) -> float:
    """How clustered rows are as a rule: the median of those that have seen enough."""
    found = np.sort(clustering(rows, share).drop_null().to_numpy())
    if not len(found):
        return 1.0
    place = (len(found) - 1) * 0.5
    lower, upper = found[int(np.floor(place))], found[int(np.ceil(place))]
    return float(lower if lower == upper else 0.5 * lower + 0.5 * upper)
