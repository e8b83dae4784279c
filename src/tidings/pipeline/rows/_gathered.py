"""Rows of the three large tables in one form, since they come from one shuffle, as the arrays of a partition.

`KEPT_IN` says which column of its table each column holds. A row that is bad in itself travels with the good ones;
`Faults` takes down those that are found bad by the other rows of their event.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.pipeline._units import CHUNK_EVENTS, WITHOUT_EVENT
from tidings.pipeline.rows._columns import Names, Values, names_of, table_of, values_of
from tidings.pipeline.rows._facts import TIMES
from tidings.pipeline.rows._groups import packed, truncated_quotient

__all__ = [
    "BAD",
    "DELIVERIES",
    "FAULTS",
    "GATHERED",
    "GATHERED_SCHEMA",
    "HOPS",
    "KEPT_IN",
    "NUMBERS",
    "PUBLICATIONS",
    "STRINGS",
    "TABLES",
    "Faults",
    "GatheredRows",
    "gathered_rows",
    "one_array",
]

Array = npt.NDArray[Any]

NUMBERS: Final = ("a", "b", "c", "d", "e", "f")
STRINGS: Final = ("first", "second")
KEPT_IN: Final[dict[str, dict[str, str]]] = {
    "publications": {
        "a": "departure_ns",
        "b": "size_bytes",
        "c": "lifetime_ns",
        "d": "clock",
        "first": "broker",
        "second": "topic",
        "matches": "matches",
    },
    "hops": {**dict(zip(NUMBERS, TIMES, strict=False)), "f": "outcome", "first": "source", "second": "target"},
    "deliveries": {"a": "arrived_ns", "b": "delivered_ns", "c": "number", "d": "clock", "first": "broker"},
}
"""Which column of its table each column of a gathered row holds; `outcome` and `number` are numbers. `clock` is the
number of the host whose clock the times are of; rows have it only where clocks were compared (ingest/_clocks.py)."""
TABLES: Final = tuple(KEPT_IN)
PUBLICATIONS, HOPS, DELIVERIES = range(3)

_OWN: Final = (
    ", ".join(f"{name} bigint" for name in NUMBERS)
    + ", "
    + ", ".join(f"{name} string" for name in STRINGS)
    + ", matches array<int>"
)
GATHERED: Final = (
    f"of int, publisher string, sequence bigint, {_OWN}, bad struct<file: string, reasons: array<string>, row: string>"
)
"""A row of one of the TABLES (`of`); `bad` is its place in the quarantine, NULL for a row that is good in itself."""
BAD: Final = pa.struct([("file", pa.string()), ("reasons", pa.list_(pa.string())), ("row", pa.string())])
GATHERED_SCHEMA: Final = pa.schema(
    [
        ("of", pa.int32()),
        ("publisher", pa.string()),
        ("sequence", pa.int64()),
        *((name, pa.int64()) for name in NUMBERS),
        *((name, pa.string()) for name in STRINGS),
        ("matches", pa.list_(pa.int32())),
        ("bad", BAD),
    ]
)
"""The same as Arrow has it; names may be dictionaries as well."""
FAULTS: Final = f"publisher string, chunk bigint, table string, sequence bigint, reason string, turn bigint, {_OWN}"
"""A row found bad here."""


class GatheredRows(NamedTuple):
    """All rows of a partition. `event` is a number that rows of one event share; -1 for rows without one."""

    table: pa.Table
    of: Array
    is_bad: Array
    publisher: Names
    chunk: Array
    sequence: Array
    event: Array
    numbers: dict[str, Values]
    strings: dict[str, Names]

    def good(self, kind: int) -> Array:
        return np.flatnonzero((self.of == kind) & ~self.is_bad)

    def identity(self, rows: Array) -> list[Array]:
        """Columns that are equal for two of these rows only if the rows are (but for the matches)."""
        numbers = [self.numbers[name].at(rows) for name in NUMBERS]
        known = np.zeros(len(rows), np.int64)
        for column in numbers:
            known = 2 * known + column.known
        columns = [column.values for column in numbers]
        return [self.event[rows], *columns, known, *(self.strings[name].codes[rows] for name in STRINGS)]


class Faults:
    """Rows that are found bad, and why."""

    def __init__(self, rows: GatheredRows) -> None:
        self._rows = rows
        self._found: list[tuple[Array, str, Array]] = []

    def add(self, rows: Array, reason: str, turn: Array) -> None:
        if len(rows):
            self._found.append((rows, reason, turn))

    def table(self) -> pa.Table:
        rows = np.concatenate([np.zeros(0, np.int64), *(each for each, _, _ in self._found)])
        reasons = [reason for each, reason, _ in self._found for _ in range(len(each))]
        turn = np.concatenate([np.zeros(0, np.int64), *(each for _, _, each in self._found)])
        taken = self._rows.table.take(pa.array(rows, pa.int64())).combine_chunks()
        own = {name: one_array(taken[name]) for name in ("sequence", *NUMBERS, *STRINGS, "matches")}
        columns = {
            **own,
            "publisher": self._rows.publisher.at(rows),
            "chunk": self._rows.chunk[rows],
            "table": [TABLES[kind] for kind in self._rows.of[rows].tolist()],
            "reason": reasons,
            "turn": turn,
        }
        return table_of(columns, FAULTS)


def gathered_rows(table: pa.Table) -> GatheredRows:
    publisher, sequence = names_of(table["publisher"]), values_of(table["sequence"])
    has_event = (publisher.codes >= 0) & sequence.known
    chunk = np.where(has_event, truncated_quotient(sequence.values, CHUNK_EVENTS), WITHOUT_EVENT)
    code = np.where(has_event, publisher.codes, -1)
    units = np.asarray(pa.array(packed(code, chunk)).dictionary_encode().indices).astype(np.int64)
    return GatheredRows(
        table=table,
        of=values_of(table["of"]).values,
        is_bad=np.asarray(table["bad"].is_valid()),
        publisher=Names(code, publisher.names),
        chunk=chunk,
        sequence=sequence.values,
        event=np.where(has_event, units * CHUNK_EVENTS + sequence.values % CHUNK_EVENTS, -1),
        numbers={name: values_of(table[name]) for name in NUMBERS},
        strings={name: names_of(table[name]) for name in STRINGS},
    )


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
