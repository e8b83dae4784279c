"""The small tables of a trace, read, checked and held, without Spark (see `_setting.py` of the pipeline)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.model.trace import TABLES
from tidings.pipeline._facts import WITHOUT_EVENT
from tidings.pipeline._options import SMALL
from tidings.pipeline.arrow._batches import NAME, Batch, read_batches, shown_rows
from tidings.pipeline.arrow._checks import found_bad, is_known, known_mark
from tidings.pipeline.arrow._json import json_text
from tidings.pipeline.ingest import DUPLICATE, KEYS, QUARANTINE_SCHEMA, TraceFile, unreadable_files
from tidings.pipeline.interest import Interests, are_no_filters, fingerprint, parse_filters
from tidings.pipeline.rows import QUARANTINED, ROWS, Audience, audience_of, table_of

__all__ = ["Setting", "read_setting", "with_unit"]

_REFERRING = {
    "subscriptions": ("broker",),
    "topology": ("source", "target"),
    "transitions": ("source", "target"),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The small tables, clean; `brokers` is None if the trace does not say which there are.

    `subscriptions` has the trace's columns and `number`; `quarantined` and `rows` are partials of the unit of no event.
    """

    subscriptions: pa.Table
    topology: pa.Table
    transitions: pa.Table
    brokers: pa.Array | None
    interests: Interests
    audience: Audience
    fingerprint: str
    quarantined: pa.Table
    rows: pa.Table


def read_setting(files: Sequence[TraceFile], *, clock_tolerance_ns: int) -> Setting:
    batches = {table: _batches(table, files) for table in SMALL}
    names = sorted(
        {
            row["source"]
            for batch in batches["topology"]
            for row in batch.rows.select(["kind", "source"]).to_pylist()
            if row["kind"] == "broker" and row["source"] is not None
        }
    )
    brokers = pa.array(names, pa.string()) if names else None
    faults = [file for file in files if file.fault is not None]
    counts = [(file.table, file.rows_or_one) for file in faults]
    bad = [unreadable_files(faults)]
    good: dict[str, pa.Table] = {}
    for table in SMALL:
        good[table], aside = _checked(table, batches[table], brokers, clock_tolerance_ns)
        bad.append(aside)
        counts.append((table, len(good[table]) + len(aside)))
    subscriptions = good["subscriptions"].sort_by("subscription")
    numbered = subscriptions.append_column("number", pa.array(np.arange(len(subscriptions), dtype=np.int32)))
    interests, unread = parse_filters(numbered)
    assert not unread, "subscriptions whose filter does not parse are in the quarantine"
    counted = {"table": [table for table, _ in counts], "rows": [rows for _, rows in counts]}
    return Setting(
        subscriptions=numbered,
        topology=good["topology"],
        transitions=good["transitions"],
        brokers=brokers,
        interests=interests,
        audience=audience_of(numbered),
        fingerprint=fingerprint(numbered, names or None),
        quarantined=with_unit(pa.concat_tables(bad), QUARANTINED),
        rows=with_unit(pa.table(counted), ROWS),
    )


def with_unit(rows: pa.Table, columns: str) -> pa.Table:
    """Rows as partials of the unit of no event; columns that they lack are NULL."""
    own = {name: rows[name].combine_chunks() for name in rows.column_names}
    unit = {"publisher": pa.nulls(len(rows), pa.string()), "chunk": np.full(len(rows), WITHOUT_EVENT)}
    wanted = (column.split(" ", 1)[0] for column in columns.split(", "))
    return table_of({name: {**own, **unit}.get(name, pa.nulls(len(rows))) for name in wanted}, columns)


def _batches(table: str, files: Sequence[TraceFile]) -> list[Batch]:
    return [batch for file in files if file.table == table and file.fault is None for batch in read_batches(file)]


def _checked(
    table: str, batches: Sequence[Batch], brokers: pa.Array | None, clock_tolerance_ns: int
) -> tuple[pa.Table, pa.Table]:
    """The good rows, in the contract's columns, and the bad ones as rows of the quarantine."""
    schema = TABLES[table]
    plain: list[pa.Table] = []
    origins: list[tuple[str, str]] = []
    reasons: list[list[str]] = []
    for batch in batches:
        rows = batch.rows
        for name in _REFERRING[table] if brokers is not None else ():
            rows = rows.append_column(known_mark(name), is_known(rows[name].combine_chunks(), brokers))
        if table == "subscriptions":
            parses = pc.invert(are_no_filters(rows["filter"].cast(pa.string())))
            rows = rows.append_column(known_mark("filter"), parses)
        places, why = found_bad(table, _decoded(rows), batch.wrong, {}, clock_tolerance_ns=clock_tolerance_ns)
        found = dict(zip(places.tolist(), why, strict=True))
        reasons += [found.get(row, []) for row in range(len(rows))]
        everything = np.arange(len(rows))
        origins += [(batch.file.path, json_text(row)) for row in shown_rows(batch, everything, {})]
        plain.append(_decoded(batch.rows).cast(pa.schema([field.with_nullable(True) for field in schema])))
    rows = pa.concat_tables(plain) if plain else schema.empty_table()
    _mark_duplicates(table, rows.to_pylist(), reasons)
    is_bad = np.array([bool(each) for each in reasons], np.bool_)
    aside = [
        {"table": table, "file": file, "reasons": why, "row": row, "rows": 1}
        for (file, row), why in zip(origins, reasons, strict=True)
        if why
    ]
    return rows.filter(pa.array(~is_bad)), pa.Table.from_pylist(aside, QUARANTINE_SCHEMA)


def _decoded(rows: pa.Table) -> pa.Table:
    """Names as strings: the rules compare some of them."""
    for number, field in enumerate(rows.schema):
        if field.type == NAME:
            rows = rows.set_column(number, field.name, rows[field.name].cast(pa.string()))
    return rows


def _mark_duplicates(table: str, rows: Sequence[Mapping[str, Any]], reasons: list[list[str]]) -> None:
    """All but the first of the rows with the same key; a bad row never takes the place of a good one."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        alike.setdefault(tuple(row[name] for name in KEYS[table]), []).append(place)
    others = [name for name in TABLES[table].names if name not in KEYS[table]]

    def order(place: int) -> tuple[Any, ...]:
        values = [rows[place][name] for name in others]
        return bool(reasons[place]), [(value is None, 0 if value is None else value) for value in values]

    for places in alike.values():
        for place in sorted(places, key=order)[1:] if len(places) > 1 else ():
            if not reasons[place]:
                reasons[place] = [DUPLICATE]
