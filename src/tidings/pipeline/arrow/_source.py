"""Rows of the large tables in one form, by unit, in parts of bounded size: what Spark's shuffle does, on this disk.

A batch is read, converted, checked, matched and dealt to the parts that its units belong to (_spill.py); what is
dealt goes to a file, so memory holds a batch and then one part. A trace of one part stays in memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.pipeline.arrow._batches import Batch, shown_rows
from tidings.pipeline.arrow._checks import found_bad, is_known, known_mark
from tidings.pipeline.arrow._log import Readable
from tidings.pipeline.arrow._small_tables import Setting
from tidings.pipeline.arrow._spill import Spill
from tidings.pipeline.ingest import OUTCOMES
from tidings.pipeline.ingest._json import double_text, json_text
from tidings.pipeline.interest import Matcher
from tidings.pipeline.rows import BAD, KEPT_IN, OWN, QUARANTINED, table_of, together

__all__ = ["LARGE", "Source"]

LARGE: Final = tuple(KEPT_IN)
TOPIC: Final = "topic"
ROWS_PER_PACK: Final = 250_000
_BROKERS: Final = {"publications": ("broker",), "hops": ("source", "target"), "deliveries": ("broker",)}
_ALIKE: Final = ("publisher", "sequence", *OWN)


Seen = Callable[[Batch, pa.Table], None]
"""Called with a batch, and with its rows as columns of GATHERED."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows of a log; `topic` is the attribute whose values are the topics."""

    log: Readable
    setting: Setting
    topic: str | None
    clock_tolerance_ns: int

    def gathered(self, *, parts: int, seen: Seen | None = None) -> Iterator[pa.Table]:
        """The rows (GATHERED) of whole units, part by part; `seen` is called with all of them before that."""
        if parts == 1:
            yield together([rows for table in LARGE for rows in self._looked_at(table, seen)])
            return
        with Spill(parts) as spill:
            for batch in self._long_batches(seen):
                spill.add(batch)
            yield from spill.parts()

    def _looked_at(self, table: str, seen: Seen | None) -> Iterator[pa.Table]:
        for batch, rows in self._rows(table):
            if seen is not None:
                seen(batch, rows)
            yield rows

    def _long_batches(self, seen: Seen | None) -> Iterator[pa.RecordBatch]:
        """Rows of one table at a time, ROWS_PER_PACK or a few more: each piece that is packed costs something."""
        for table in LARGE:
            held, rows = list[pa.Table](), 0
            for some in self._looked_at(table, seen):
                held.append(some)
                rows += len(some)
                if rows >= ROWS_PER_PACK:
                    yield _batch_of(held)
                    held, rows = [], 0
            if rows:
                yield _batch_of(held)

    def found_again(self, faults: pa.Table) -> pa.Table:
        """The rows that these FAULTS are of, as rows of the quarantine (QUARANTINED)."""
        found: list[dict[str, Any]] = []
        for table in LARGE:
            mine = faults.filter(pc.equal(faults["table"], table)).to_pylist()
            if mine:
                found += self._found(table, mine)
        names = [column.split(" ", 1)[0] for column in QUARANTINED.split(", ")]
        return table_of({name: [row[name] for row in found] for name in names}, QUARANTINED)

    def _found(self, table: str, faults: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        wanted = {_key(fault) for fault in faults}
        sequences = pa.array(sorted({fault["sequence"] for fault in faults}), pa.int64())
        alike: dict[tuple[Any, ...], list[tuple[str, str]]] = {}
        for batch, rows in self._rows(table):
            near = np.asarray(pc.is_in(rows["sequence"], sequences))
            if "bad" in rows.column_names:
                near = near & np.asarray(pc.is_null(rows["bad"]))
            places = np.flatnonzero(near)
            keys = [_key(row) for row in together([rows.take(pa.array(places))]).to_pylist()]
            chosen = [number for number, key in enumerate(keys) if key in wanted]
            shown = shown_rows(batch, places[chosen], self.log.kinds)
            for number, row in zip(chosen, shown, strict=True):
                alike.setdefault(keys[number], []).append((batch.file.path, row))
        for origins in alike.values():
            origins.sort()
        for fault in faults:
            origins, turn = alike.get(_key(fault), []), fault["turn"]
            # A file that was counted may be gone.
            file, row = origins[turn - 1] if turn <= len(origins) else (None, json_text(_identity(table, fault)))
            unit = {name: fault[name] for name in ("publisher", "chunk", "table")}
            yield {**unit, "file": file, "reasons": [fault["reason"]], "row": row, "rows": 1}

    def _rows(self, table: str) -> Iterator[tuple[Batch, pa.Table]]:
        """Batches, and their rows as the columns of GATHERED that the table has."""
        matcher = Matcher(self.setting.interests) if table == "publications" else None
        for batch in self.log.batches(table):
            yield batch, self._in_one_form(table, batch, matcher)

    def _in_one_form(self, table: str, batch: Batch, matcher: Matcher | None) -> pa.Table:
        rows, columns = batch.rows, dict[str, Any]()
        marked = rows
        if self.setting.brokers is not None:
            for name in _BROKERS[table]:
                marked = marked.append_column(known_mark(name), is_known(_one(rows[name]), self.setting.brokers))
        if table == "deliveries":
            columns["number"] = _numbers(_one(rows["subscription"]), self.setting.audience.subscriptions)
            marked = marked.append_column(known_mark("subscription"), columns["number"].is_valid())
        if table == "hops":
            columns["outcome"] = _numbers(_one(rows["outcome"]), pa.array(OUTCOMES))
            marked = marked.set_column(
                marked.column_names.index("outcome"), "outcome", rows["outcome"].cast(pa.string())
            )
        kinds = {name: (kind,) for name, kind in _kinds_here(batch).items()}
        bad, reasons = found_bad(table, marked, batch.faults, kinds, clock_tolerance_ns=self.clock_tolerance_ns)
        if matcher is not None:
            wanted = self.setting.interests.attributes
            read = {name: values for name, values in batch.attributes.items() if name in wanted}
            columns["matches"] = matcher.matches(_one(rows["departure_ns"]), read)
            columns["topic"] = _topic(batch.attributes.get(self.topic or TOPIC), len(rows))
        known = {*columns, *rows.column_names}  # `clock` only where a mapping has clocks compared
        kept = [name for name in KEPT_IN[table] if name in known]
        names = ["of", "publisher", "sequence", *kept]
        own = [columns[name] if name in columns else _one(rows[name]) for name in kept]
        of = pa.array(np.full(len(rows), LARGE.index(table), np.int32))
        arrays = [of, _one(rows["publisher"]), _one(rows["sequence"]), *own]
        if len(bad):
            names.append("bad")
            arrays.append(self._aside(batch, bad, reasons))
        return pa.table(arrays, names=names)

    def _aside(self, batch: Batch, bad: Any, reasons: list[list[str]]) -> pa.Array:
        shown = shown_rows(batch, bad, self.log.kinds)
        found = [{"file": batch.file.path, "reasons": why, "row": row} for why, row in zip(reasons, shown, strict=True)]
        places = np.full(len(batch.rows), len(found))
        places[bad] = np.arange(len(found))
        return pa.array([*found, None], BAD).take(pa.array(places))


def _batch_of(tables: Sequence[pa.Table]) -> pa.RecordBatch:
    """One batch of tables that differ only in whether some row is bad."""
    one = pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()
    return one.to_batches()[0]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in _ALIKE)


def _identity(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a gathered row says of itself."""
    return {name: row[name] for name in ("publisher", "sequence")} | {
        name: row[name] for name in KEPT_IN[table] if name.endswith("_ns")
    }


def _kinds_here(batch: Batch) -> dict[str, str]:
    return {name: "number" if pa.types.is_floating(values.type) else "" for name, values in batch.attributes.items()}


def _numbers(names: pa.Array, known: pa.Array) -> pa.Array:
    """Names of a dictionary as their places among known ones; NULL where there is none."""
    places = pc.index_in(names.dictionary, known.cast(pa.string())).cast(pa.int64())
    return places.take(names.indices)


def _topic(values: pa.Array | None, length: int) -> pa.Array:
    """An attribute as text, as Spark casts it."""
    if values is None:
        return pa.nulls(length, pa.string())
    coded = values.dictionary_encode()
    words = [_text(value) for value in coded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(coded.indices, pa.array(words, pa.string()))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return double_text(value) if isinstance(value, float) else str(value)
