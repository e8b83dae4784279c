"""Rows of the three large tables in one form, since they come from one shuffle, as the arrays of a partition.

A row has the columns of its own table (`KEPT_IN`) and NULL in those of the others. One that is bad in itself travels
with the good ones; `Faults` takes down those that are found bad by the other rows of their event.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.pipeline._units import CHUNK_EVENTS, WITHOUT_EVENT
from tidings.pipeline.rows._columns import Names, Values, arrow_schema, names_of, table_of, values_of
from tidings.pipeline.rows._facts import TIMES
from tidings.pipeline.rows._groups import packed, truncated_quotient

__all__ = [
    "BAD",
    "DELIVERIES",
    "FAULTS",
    "GATHERED",
    "HOPS",
    "KEPT_IN",
    "OWN",
    "PUBLICATIONS",
    "TABLES",
    "Faults",
    "GatheredRows",
    "gathered_rows",
    "one_array",
    "together",
]

Array = npt.NDArray[Any]

KEPT_IN: Final[dict[str, tuple[str, ...]]] = {
    "publications": ("departure_ns", "size_bytes", "lifetime_ns", "clock", "broker", "topic", "matches"),
    "hops": (*TIMES, "outcome", "source", "target"),
    "deliveries": ("arrived_ns", "delivered_ns", "number", "clock", "broker"),
}
"""Which columns the rows of a table have. `outcome` is a number into OUTCOMES of the ingest, `number` that of a
subscription. `clock` is the number of the host whose clock the times are of; rows have it only where clocks were
compared (ingest/_clocks.py)."""
TABLES: Final = tuple(KEPT_IN)
PUBLICATIONS, HOPS, DELIVERIES = range(3)
STRINGS: Final = ("broker", "topic", "source", "target")
NUMBERS: Final = tuple(
    dict.fromkeys(name for names in KEPT_IN.values() for name in names if name not in (*STRINGS, "matches"))
)
OWN: Final = {**dict.fromkeys(NUMBERS, "bigint"), **dict.fromkeys(STRINGS, "string"), "matches": "array<int>"}
"""The columns of all three tables, with Spark's types."""
_OWN: Final = ", ".join(f"{name} {kind}" for name, kind in OWN.items())

BAD: Final = pa.struct([("file", pa.string()), ("reasons", pa.list_(pa.string())), ("row", pa.string())])
GATHERED: Final = pa.schema(
    [("of", pa.int32()), ("publisher", pa.string()), ("sequence", pa.int64()), *arrow_schema(_OWN), ("bad", BAD)]
)
"""A row of one of the TABLES (`of`), NULL in the columns that its table lacks; `bad` is its place in the quarantine,
NULL for a row that is good in itself. Names may be dictionaries as well."""
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

    def identity(self, of: int, rows: Array) -> list[Array]:
        """Columns that are equal for two of these rows of a table only if the rows are (but for the matches)."""
        own = KEPT_IN[TABLES[of]]
        numbers = [self.numbers[name].at(rows) for name in own if name in NUMBERS]
        known = np.zeros(len(rows), np.int64)
        for column in numbers:
            known = 2 * known + column.known
        columns = [column.values for column in numbers]
        return [self.event[rows], *columns, known, *(self.strings[name].codes[rows] for name in own if name in STRINGS)]


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
        own = {name: one_array(taken[name]) for name in ("sequence", *OWN)}
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


def together(found: list[pa.Table]) -> pa.Table:
    """Rows of any columns of GATHERED as one table; those that they lack are NULL."""
    return pa.Table.from_arrays([_column(field, found) for field in GATHERED], names=GATHERED.names)


def _column(field: pa.Field, found: list[pa.Table]) -> pa.ChunkedArray:
    chunks: list[pa.Array] = []
    for table in found:
        has = field.name in table.column_names
        chunks += table[field.name].chunks if has else [pa.nulls(len(table), field.type)]
    kinds = {chunk.type for chunk in chunks}
    if len(kinds) > 1 and field.type == pa.string():
        # Those that are numbers stay so: a table that lacks the column would cost all others their dictionaries.
        chunks = [chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in chunks]
        kinds = {chunk.type for chunk in chunks}
    if len(kinds) > 1 or not kinds:
        chunks = [chunk.cast(field.type) for chunk in chunks]
        kinds = {field.type}
    return pa.chunked_array(chunks, kinds.pop())
