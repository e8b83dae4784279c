"""Columns of a partition as arrays: whole numbers with what is known of them, names as numbers into a list.

A partition is taken whole, since the rows of a unit have to meet; how many rows it has is bounded by the number of
partitions, not by the length of the trace.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Names", "Values", "arrow_schema", "names_of", "names_taken", "over_partitions", "table_of", "values_of"]

Array = npt.NDArray[Any]

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "array<int>": pa.list_(pa.int32()),
    "array<double>": pa.list_(pa.float64()),
    "array<bigint>": pa.list_(pa.int64()),
    "array<string>": pa.list_(pa.string()),
}


class Values(NamedTuple):
    """A column of whole numbers: `values` is 0 where it is not `known`."""

    values: Array  # i64
    known: Array  # bool

    def at(self, rows: Array) -> "Values":
        return Values(self.values[rows], self.known[rows])

    def minus(self, other: "Values") -> "Values":
        """The difference, known where both are."""
        known = self.known & other.known
        return Values(np.where(known, self.values - other.values, 0), known)

    def where(self, condition: Array) -> "Values":
        """Known only where the condition holds as well."""
        known = self.known & condition
        return Values(np.where(known, self.values, 0), known)

    def to_arrow(self) -> pa.Array:
        return pa.array(self.values, pa.int64(), mask=None if self.known.all() else ~self.known)


class Names(NamedTuple):
    """A column of strings: `codes` are numbers into `names`, -1 for NULL."""

    codes: Array  # i64
    names: pa.Array

    def at(self, rows: Array) -> "Names":
        return Names(self.codes[rows], self.names)

    def to_arrow(self) -> pa.Array:
        return names_taken(self.names, self.codes)


def values_of(column: pa.Array | pa.ChunkedArray) -> Values:
    if not column.null_count:
        return Values(np.asarray(column).astype(np.int64, copy=False), np.ones(len(column), np.bool_))
    known = np.asarray(column.is_valid())
    return Values(np.asarray(column.fill_null(0)).astype(np.int64, copy=False), known)


def names_of(column: pa.Array | pa.ChunkedArray) -> Names:
    """Of strings, or of a dictionary of strings, which may have some that no row has."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = np.asarray(coded.indices.fill_null(-1)).astype(np.int64, copy=False)
    return Names(codes, coded.dictionary.cast(pa.string()))


def names_taken(names: pa.Array, codes: Array) -> pa.Array:
    """The names of these codes; NULL for a negative one."""
    return names.take(pa.array(codes, pa.int64(), mask=codes < 0))


@cache
def arrow_schema(columns: str) -> pa.Schema:
    """The schema of "name type, name type, ..." in Spark's words for types."""
    pairs = (column.split(" ", 1) for column in columns.split(", "))
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in pairs])


def table_of(columns: Mapping[str, Any], kinds: str) -> pa.Table:
    """A table of these columns in the order and of the types that `kinds` says."""
    schema = arrow_schema(kinds)
    return pa.Table.from_arrays([_as_arrow(columns[field.name], field.type) for field in schema], schema=schema)


def _as_arrow(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, Values | Names):
        column = column.to_arrow()
    return column.cast(kind) if isinstance(column, pa.Array) else pa.array(column, kind)


def over_partitions(
    rows: "DataFrame", compute: Callable[[pa.Table], pa.Table], columns: "str | StructType"
) -> "DataFrame":
    """What `compute` makes of each partition that has rows, with these columns."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        taken = [batch for batch in batches if batch.num_rows]
        if taken:
            yield from compute(pa.Table.from_batches(taken)).combine_chunks().to_batches()

    return rows.mapInArrow(run, columns)
