"""The rules for rows (ingest/_rules.py) as PyArrow's expressions.

What is known (brokers, subscriptions, filters that parse) is a column of booleans beside the others, as it is in Spark.
One expression finds the bad rows; their reasons are evaluated for these rows only.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.pipeline.ingest._reasons import MISSING_ID
from tidings.pipeline.ingest._rules import broken_by_reason, rules_of

__all__ = ["found_bad", "is_known", "known_mark"]

Array = npt.NDArray[Any]

_ROW: Final = "_row"
_FAULT: Final = "_fault"
_GREATEST: Final = (1 << 63) - 1


def known_mark(column: str) -> str:
    return f"_known_{column}"


class _Expressions:
    """The rules' Algebra in PyArrow; `has` are the columns of a batch."""

    def __init__(self, clock_tolerance_ns: int, has: Sequence[str]) -> None:
        self.clock_tolerance_ns = clock_tolerance_ns
        self._has = set(has)

    def column(self, path: Sequence[str]) -> Any:
        return pc.field(*path)

    def is_null(self, value: Any) -> Any:
        return value.is_null()

    def is_in(self, value: Any, words: Sequence[str]) -> Any:
        return value.isin(list(words))

    def greatest(self, values: Sequence[Any]) -> Any:
        return pc.max_element_wise(*values)

    def plus(self, value: Any, number: int) -> Any:
        return pc.if_else(value > _GREATEST - number, pa.scalar(None, pa.int64()), pc.add(value, number))

    def is_known(self, column: str, of: str) -> Any | None:  # noqa: ARG002 - the mark says what of
        return pc.field(known_mark(column)) if known_mark(column) in self._has else None


def is_known(names: pa.Array, known: pa.Array) -> pa.Array:
    """Which names of a dictionary are known; false for NULL."""
    found = np.asarray(pc.is_in(names.dictionary, known))
    codes = np.asarray(names.indices.fill_null(-1))
    return pa.array(np.append(found, False)[codes])


def found_bad(
    table: str,
    rows: pa.Table,
    faults: pa.Array | None,
    kinds: Mapping[str, Sequence[str]],
    *,
    clock_tolerance_ns: int,
) -> tuple[Array, list[list[str]]]:
    """Which rows are bad, ascending, and the reasons of each; `faults` are those found while reading."""
    broken = broken_by_reason(rules_of(table, kinds), _Expressions(clock_tolerance_ns, rows.column_names))
    marked = rows.append_column(_ROW, pa.array(np.arange(len(rows))))
    if faults is not None:
        marked = marked.append_column(_FAULT, faults)
        found = faults.drop_null().unique().to_pylist()
        # A value that was wrong is NULL now: that is one reason, not two.
        broken[MISSING_ID] = pc.field(_FAULT).is_null() & broken[MISSING_ID]
        broken = {**{reason: pc.field(_FAULT) == reason for reason in found}, **broken}
    bad = marked.filter(reduce(or_, broken.values()))
    if not len(bad):
        return np.zeros(0, np.int64), []
    reasons: dict[int, list[str]] = {row: [] for row in bad[_ROW].to_pylist()}
    for reason, is_broken in broken.items():
        for row in bad.filter(is_broken)[_ROW].to_pylist():
            reasons[row].append(reason)
    order = sorted(reasons)
    return np.array(order, np.int64), [reasons[row] for row in order]
