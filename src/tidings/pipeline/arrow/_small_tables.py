"""The setting of a trace: its small tables (subscriptions, topology, transitions), checked and numbered.

Whoever reads them, the driver holds them (some hundred bytes for a subscription) to build the matching index, so they
are checked here for both engines. Subscriptions are numbered in the order of their names, so their numbers do not
depend on files. The fingerprint is that of their content and of the brokers': files that repeat them change nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.model.trace import TABLES
from tidings.pipeline._options import SMALL
from tidings.pipeline._units import WITHOUT_EVENT
from tidings.pipeline.arrow._batches import NAME, Batch, shown_rows
from tidings.pipeline.arrow._checks import found_bad, is_known, known_mark
from tidings.pipeline.ingest import DUPLICATE, KEYS, QUARANTINE_SCHEMA, TraceFile, unreadable_files
from tidings.pipeline.interest import Interests, are_no_filters, fingerprint, parse_filters
from tidings.pipeline.measures import PARTIAL_COMPONENTS, PARTIAL_PAIRS
from tidings.pipeline.measures._pair_sums import COUNTS
from tidings.pipeline.rows import QUARANTINED, ROWS, Audience, audience_of, table_of

__all__ = ["Setting", "read_setting", "small_partials", "with_unit"]

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


def read_setting(
    batches: Mapping[str, Sequence[Batch]], faults: Sequence[TraceFile], *, clock_tolerance_ns: int
) -> Setting:
    """The setting from the rows of each small table; `faults` are the files of any table that cannot be read."""
    names = sorted(
        {
            row["source"]
            for batch in batches["topology"]
            for row in batch.rows.select(["kind", "source"]).to_pylist()
            if row["kind"] == "broker" and row["source"] is not None
        }
    )
    brokers = pa.array(names, pa.string()) if names else None
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


def small_partials(setting: Setting) -> dict[str, list[pa.Table]]:
    """The partials that come of the small tables, by kind."""
    unmatched = setting.subscriptions.select(["subscription", "subscriber", "price"])
    for name in (*COUNTS, "overtaken"):
        unmatched = unmatched.append_column(name, pa.array(np.zeros(len(unmatched), np.int64)))
    components = []
    for small in (setting.topology, setting.transitions):
        kept = [name for name in small.column_names if name in ("kind", "source", "target", "at_ns", "up")]
        components.append(with_unit(small.select(kept), PARTIAL_COMPONENTS))
    return {
        "pairs": [with_unit(unmatched, PARTIAL_PAIRS)],
        "components": components,
        "quarantine": [setting.quarantined],
        "rows": [setting.rows],
    }


def _checked(
    table: str, batches: Sequence[Batch], brokers: pa.Array | None, clock_tolerance_ns: int
) -> tuple[pa.Table, pa.Table]:
    """The good rows, in the contract's columns, and the bad ones as rows of the quarantine."""
    schema = TABLES[table]
    plain: list[pa.Table] = []
    reasons: list[list[str]] = []
    for batch in batches:
        rows = batch.rows
        for name in _REFERRING[table] if brokers is not None else ():
            rows = rows.append_column(known_mark(name), is_known(rows[name].combine_chunks(), brokers))
        if table == "subscriptions":
            parses = pc.invert(are_no_filters(rows["filter"].cast(pa.string())))
            rows = rows.append_column(known_mark("filter"), parses)
        places, why = found_bad(table, _decoded(rows), batch.faults, {}, clock_tolerance_ns=clock_tolerance_ns)
        found = dict(zip(places.tolist(), why, strict=True))
        reasons += [found.get(row, []) for row in range(len(rows))]
        plain.append(_decoded(batch.rows).cast(pa.schema([field.with_nullable(True) for field in schema])))
    rows = pa.concat_tables(plain) if plain else schema.empty_table()
    _mark_duplicates(table, rows.to_pylist(), reasons)
    is_bad = np.array([bool(each) for each in reasons], np.bool_)
    aside, start = list[dict[str, Any]](), 0
    for batch in batches:
        places = np.flatnonzero(is_bad[start : start + len(batch.rows)])
        for place, row in zip(places.tolist(), shown_rows(batch, places, {}), strict=True):
            origin = {"table": table, "file": batch.file.path or None, "reasons": reasons[start + place]}
            aside.append({**origin, "row": row, "rows": 1})
        start += len(batch.rows)
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
