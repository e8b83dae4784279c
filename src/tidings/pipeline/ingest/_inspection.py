"""What is understood of a log, before anything is computed from it: without Spark, in seconds.

The first rows of each table are read in plain Python (_plain.py) and compared: columns, keys, names, clocks, and what
would go to the quarantine. Only what the beginning of the files can show is reported: where files go on, rows that
refer to later events are not called unknown.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from os import PathLike
from typing import Any, Final

import msgspec
import pyarrow as pa

from tidings.errors import InputError
from tidings.model.filters import Filter
from tidings.model.trace import TABLES
from tidings.pipeline.ingest._clocks import LEGS, Corrections, find_clocks, least_delays
from tidings.pipeline.ingest._files import TraceFile, find_files
from tidings.pipeline.ingest._mapping import EVENT, HOSTED, Clocks, load_mapping, several
from tidings.pipeline.ingest._mapping import Mapping as FileMapping
from tidings.pipeline.ingest._plain import PlainRow, number_events, read_plain
from tidings.pipeline.ingest._reasons import (
    DUPLICATE,
    MISSING_ID,
    NEGATIVE_DELAY,
    NOT_MATCHING,
    UNKNOWN_PUBLICATION,
    UNKNOWN_SUBSCRIPTION,
)

__all__ = ["ROWS_MAX", "Bad", "Collision", "Inspection", "TableFound", "inspect_log"]

ROWS_MAX: Final = 50_000
"""Of each table by default: some seconds of reading."""
SHOWN: Final = 3
NAMES_MAX: Final = 20
"""Names that are listed."""
COLLISIONS_MAX: Final = 1000

Key = tuple[Any, Any]


class TableFound(msgspec.Struct, frozen=True, kw_only=True):
    """What a table's files hold: `fields` are the contract's, with their columns and how many rows have a value."""

    files: int
    size_bytes: int
    format: str
    rows: int
    is_whole: bool
    fields: dict[str, tuple[str, int]]
    unused: list[str]
    faults: list[str]


class Bad(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a table that would be set aside, why, and the first of them as it stood."""

    table: str
    reason: str
    rows: int
    file: str
    row: str


class Collision(msgspec.Struct, frozen=True, kw_only=True):
    """Different events have one key; with one of these columns in it, they would not."""

    rows: int
    key: str
    remedy: list[str]


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A log as it is understood. `clocks` are as they would be corrected, None if they cannot be (`clocks_fault`)."""

    tables: dict[str, TableFound]
    events: list[dict[str, Any]]
    publishers: dict[str, int]
    topics: dict[str, int]
    hosts: dict[str, int]
    subscriptions: dict[str, dict[str, int | None]]
    first_ns: int | None
    last_ns: int | None
    bad: list[Bad]
    collision: Collision | None
    negative_delays: int
    clocks: dict[str, dict[str, float]] | None
    clocks_fault: str | None
    clocks_asked: bool
    advice: list[str]


def inspect_log(
    traces: Sequence[str | PathLike[str]], mapping_path: str | PathLike[str], *, rows_max: int = ROWS_MAX
) -> Inspection:
    """What a mapping makes of the first rows of a log on this machine."""
    mapping = load_mapping(str(mapping_path))
    files = find_files(traces, mapping=mapping, needed=["publications"])
    rows = {table: list(read_plain(table, files, mapping, rows_max=rows_max)) for table in mapping.tables}
    rows.setdefault("publications", [])
    rows.setdefault("deliveries", [])
    if any(EVENT in plan.columns for plan in mapping.tables.values()):
        number_events(rows["publications"], {"deliveries": rows["deliveries"]}, mapping.tables)
    return _Log(files, mapping, rows, rows_max).inspected()


class _Log:
    """The rows of one look."""

    def __init__(
        self, files: Sequence[TraceFile], mapping: FileMapping, rows: dict[str, list[PlainRow]], rows_max: int
    ) -> None:
        self._files, self._mapping, self._rows, self._rows_max = files, mapping, rows, rows_max
        self._bad: dict[tuple[str, str], list[PlainRow]] = {}
        self._events: dict[Key, list[PlainRow]] = {}
        self._ahead_ns: dict[str, int] = {}
        self._filters = {given.subscription or given.subscriber: given for given in mapping.subscribers}

    def inspected(self) -> Inspection:
        sends = self._rows["publications"]
        self._judge_alone()
        received = self._judge_together()
        collision = self._collision()
        negative = self._negative(received)
        clocks, fault = self._clocks(received)
        if self._mapping.clocks is not None and clocks is not None:
            self._ahead_ns = dict(zip(clocks.hosts, clocks.ahead_ns.tolist(), strict=True))
        times = [row.values["departure_ns"] for row in sends if row.values["departure_ns"] is not None]
        found = Inspection(
            tables={table: self._table(table) for table in self._mapping.tables},
            events=[self._shown(row, received) for row in islice((row for row in sends if not row.faults), SHOWN)],
            publishers=_most(row.values["publisher"] for row in sends),
            topics=_most(row.attributes.get("topic") for row in sends),
            hosts=_most(row.host for table in HOSTED for row in self._rows[table]) if self._has_hosts() else {},
            subscriptions=self._subscriptions(received),
            first_ns=min(times, default=None),
            last_ns=max(times, default=None),
            bad=self._bad_rows(),
            collision=collision,
            negative_delays=negative,
            clocks=None if clocks is None else clocks.summary(),
            clocks_fault=fault,
            clocks_asked=self._mapping.clocks is not None,
            advice=[],
        )
        return msgspec.structs.replace(found, advice=_advice(found))

    def _set_aside(self, table: str, row: PlainRow, reason: str) -> None:
        self._bad.setdefault((table, reason), []).append(row)

    def _judge_alone(self) -> None:
        for table, some in self._rows.items():
            needed = [field.name for field in TABLES[table] if not field.nullable and field.name != "attributes"]
            for row in some:
                if not row.faults and any(row.values[name] is None for name in needed):
                    row.faults.append(MISSING_ID)
                for reason in row.faults:
                    if reason != UNKNOWN_PUBLICATION or self._has_all_events():
                        self._set_aside(table, row, reason)

    def _judge_together(self) -> list[PlainRow]:
        """Find the events, and judge deliveries by them; those that are left are returned."""
        for row in self._rows["publications"]:
            if not row.faults:
                self._events.setdefault(_key(row), []).append(row)
        for same in self._events.values():
            for row in same[1:]:
                self._set_aside("publications", row, DUPLICATE)
        has_all = self._has_all_events()
        knows_all = "subscriptions" not in self._mapping.tables and bool(self._filters)
        filters = {name: Filter.parse(given.filter) for name, given in self._filters.items()}
        received, seen = [], set[tuple[Any, ...]]()
        for row in self._rows["deliveries"]:
            if row.faults:
                continue
            name, events = row.values["subscription"], self._events.get(_key(row))
            reason = None
            if knows_all and name not in filters:
                reason = UNKNOWN_SUBSCRIPTION
            elif events is None:
                reason = UNKNOWN_PUBLICATION if has_all else None
            elif name in filters and not filters[name].matches(events[0].attributes):
                reason = NOT_MATCHING
            elif (*_key(row), name) in seen:
                reason = DUPLICATE
            seen.add((*_key(row), name))
            if reason is not None:
                self._set_aside("deliveries", row, reason)
            elif events is not None:
                received.append(row)
        return received

    def _has_all_events(self) -> bool:
        """Whether every publication was read: an event that is not among them was never sent."""
        return "publications" in self._mapping.tables and len(self._rows["publications"]) < self._rows_max

    def _has_hosts(self) -> bool:
        return self._mapping.clocks is not None or any(plan.host for plan in self._mapping.tables.values())

    def _negative(self, received: Sequence[PlainRow]) -> int:
        early = [row for row in received if _delay(self._events, row) < 0]
        if self._mapping.clocks is None:
            for row in early:
                self._set_aside("deliveries", row, NEGATIVE_DELAY)
        return len(early)

    def _collision(self) -> Collision | None:
        """Events with one key that differ: in which columns do all of them?"""
        groups = [some for some in self._events.values() if len({row.raw for row in some}) > 1]
        if not groups:
            return None
        plan = self._mapping.tables["publications"]
        time = plan.columns.get("departure_ns")
        found = [[json.loads(row.raw) for row in some] for some in groups[:COLLISIONS_MAX]]
        shown = [{name: value for name, value in row.items() if _is_plain(value)} for some in found for row in some]
        names = {name for row in shown for name in row} - {str(time)}
        telling = [
            name for name in names if all(len({str(row.get(name)) for row in some}) == len(some) for some in found)
        ]
        telling.sort(key=lambda name: (len({str(row.get(name)) for row in shown}), name))
        used = {name: plan.columns[name] for name in ("publisher", "sequence", EVENT) if name in plan.columns}
        key = ", ".join(f"{name} = {_written(columns)}" for name, columns in used.items())
        return Collision(rows=sum(map(len, groups)), key=key, remedy=telling[:SHOWN])

    def _clocks(self, received: Sequence[PlainRow]) -> tuple[Corrections | None, str | None]:
        asked = self._mapping.clocks or Clocks()
        try:
            return find_clocks(asked, least_delays(self._legs(received), drift=asked.drift)), None
        except InputError as error:
            return None, str(error)

    def _legs(self, received: Sequence[PlainRow]) -> pa.Table:
        """LEGS from publishers to subscribers; an event whose key another has too shows nothing."""
        sent = ((self._events[_key(row)], row) for row in received)
        legs = [
            (events[0].host, row.host, events[0].values["departure_ns"], row.values["arrived_ns"])
            for events, row in sent
            if len(events) == 1
        ]
        return pa.table([list(column) for column in zip(*legs, strict=True)] or [[]] * len(LEGS), schema=LEGS)

    def _table(self, table: str) -> TableFound:
        plan, rows = self._mapping.tables[table], self._rows[table]
        files = [file for file in self._files if file.table == table]
        fields = {}
        for name, columns in plan.columns.items():
            known = sum((row.event if name == EVENT else row.values[name]) is not None for row in rows)
            fields[name] = (_written(columns), known)
        for name, (column, _) in plan.attribute_columns().items():
            fields[f"attributes.{name}"] = (column, sum(row.attributes.get(name) is not None for row in rows))
        if plan.host is not None:
            fields["host"] = (_written(plan.host), sum(row.host is not None for row in rows))
        used = {column.removeprefix("$.").partition("[")[0].partition(".")[0] for column in plan.file_columns()}
        used |= {*plan.file_columns()}
        seen = dict.fromkeys(name for row in rows[:NAMES_MAX] if not row.faults for name in json.loads(row.raw))
        return TableFound(
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files),
            format=plan.format,
            rows=len(rows),
            is_whole=len(rows) < self._rows_max,
            fields=fields,
            unused=[name for name in seen if name not in used][:NAMES_MAX] if plan.format != "otlp" else [],
            faults=[f"{file.path}: {file.fault}" for file in files if file.fault is not None],
        )

    def _subscriptions(self, received: Sequence[PlainRow]) -> dict[str, dict[str, int | None]]:
        got = Counter(row.values["subscription"] for row in received)
        filters = {name: Filter.parse(given.filter) for name, given in self._filters.items()}
        firsts = [some[0] for some in self._events.values()]
        matched = {name: sum(each.matches(row.attributes) for row in firsts) for name, each in filters.items()}
        names = [*filters, *(name for name in got if name not in filters)]
        return {name: {"matched": matched.get(name), "received": got[name]} for name in names[:NAMES_MAX]}

    def _bad_rows(self) -> list[Bad]:
        return [
            Bad(table=table, reason=reason, rows=len(rows), file=rows[0].file, row=rows[0].raw)
            for (table, reason), rows in sorted(self._bad.items(), key=lambda item: -len(item[1]))
        ]

    def _shown(self, row: PlainRow, received: Sequence[PlainRow]) -> dict[str, Any]:
        mine = [other for other in received if _key(other) == _key(row)]
        return {
            "publisher": row.values["publisher"],
            "sequence": row.values["sequence"],
            "departure_ns": self._right(row, "departure_ns"),
            "host": row.host,
            "attributes": row.attributes,
            "received_after_ms": {
                other.values["subscription"]: (self._right(other, "arrived_ns") - self._right(row, "departure_ns"))
                / 1e6
                for other in mine
            },
        }

    def _right(self, row: PlainRow, name: str) -> int:
        """A time as it will be corrected; without its drift, which a beginning of a log does not show."""
        return int(row.values[name]) - self._ahead_ns.get(row.host or "", 0)


def _key(row: PlainRow) -> Key:
    return row.values["publisher"], row.values["sequence"]


def _delay(events: Mapping[Key, Sequence[PlainRow]], row: PlainRow) -> int:
    return int(row.values["arrived_ns"] - events[_key(row)][0].values["departure_ns"])


def _most(names: Iterable[Any]) -> dict[str, int]:
    return dict(Counter(name for name in names if name is not None).most_common(NAMES_MAX))


def _written(columns: Any) -> str:
    return " + ".join(several(columns))


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _advice(found: Inspection) -> list[str]:
    """What to change in the mapping, the most important first."""
    advice = []
    if found.collision is not None:
        remedy = (
            f"add {' or '.join(found.collision.remedy)} to the key, such as publisher = "
            f'["{found.collision.remedy[0]}", ...]'
            if found.collision.remedy
            else "no column of the log tells them apart"
        )
        advice.append(f"{found.collision.rows:,} events share a key ({found.collision.key}): {remedy}")
    if found.negative_delays and not found.clocks_asked and found.collision is None:
        advice.append(
            f"messages seem to arrive before they were sent ({found.negative_delays:,}): clocks differ; write [clocks] "
            "and name the column of the host in each table (host = ...)"
        )
    if found.clocks_asked and found.clocks_fault is not None:
        advice.append(found.clocks_fault)
    unmatched = [name for name, counts in found.subscriptions.items() if counts["matched"] == 0]
    if unmatched:
        advice.append(
            f"nothing matches the filter of {', '.join(unmatched)}: look at the attributes of the first events"
        )
    return advice
