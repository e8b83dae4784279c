"""The tables of a trace as batches of the contract's columns: Parquet files, logs read through a mapping, or both.

A foreign log is parsed once (ingest/_plain.py), file by file, into Arrow files in a temporary folder; whoever reads a
table after that reads those. So memory holds a batch, and where events are known by ids, the ids of all events. Clocks
are corrected as on Spark (ingest/_envelope.py): `with_clocks` compares them, `batches` then brings times to one clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import InputError
from tidings.model.trace import TABLES
from tidings.pipeline.arrow._batches import KIND_TYPES, NAME, Batch, Kinds, read_batches, united_kinds
from tidings.pipeline.ingest import Mapping as FileMapping
from tidings.pipeline.ingest import TraceFile
from tidings.pipeline.ingest._clocks import LEGS, Corrections, find_clocks, least_delays
from tidings.pipeline.ingest._mapping import EVENT, FROM_THE_BEGINNING_NS, HOSTED, SOURCE_TIMES, TARGET_TIMES
from tidings.pipeline.ingest._plain import EventNumbers, PlainRow, read_plain
from tidings.pipeline.ingest._rules import DURATIONS
from tidings.pipeline.rows import Values, grouped, values_of

__all__ = ["Log", "Readable", "open_log"]

ROWS_PER_BATCH: Final = 1 << 16
_ASIDE: Final = [("_host", pa.string()), ("_fault", pa.string()), ("_raw", pa.string())]


class Readable(Protocol):
    """A trace whose rows can be read in the contract's columns."""

    def batches(self, table: str) -> Iterator[Batch]: ...

    def rows(self, tables: Sequence[str]) -> int: ...

    @property
    def kinds(self) -> Kinds: ...

    @property
    def corrections(self) -> Corrections | None: ...


@dataclass(frozen=True, kw_only=True)
class Log:
    """A trace whose rows can be read; `parsed` are the Arrow files of foreign ones, by their path."""

    files: Sequence[TraceFile]
    mapping: FileMapping | None
    parsed: Mapping[tuple[str, str], Path]
    corrections: Corrections | None = None

    def batches(self, table: str) -> Iterator[Batch]:
        """The rows of a table, some at a time, their times corrected."""
        for batch in self._as_read(table):
            yield batch if self.corrections is None else _on_one_clock(batch, self.corrections)

    @property
    def kinds(self) -> Kinds:
        """The attributes of all publications."""
        if self.mapping is None or "publications" not in self.mapping.tables:
            return united_kinds(self.files)
        columns = self.mapping.tables["publications"].attribute_columns()
        return {name: (kind,) for name, (_, kind) in columns.items()}

    def rows(self, tables: Sequence[str]) -> int:
        """How many rows these tables have."""
        known = sum(file.rows or 0 for file in self.files if file.table in tables and file.fault is None)
        for (table, _), place in self.parsed.items():
            if table in tables:
                with pa.memory_map(str(place)) as source:
                    opened = pa.ipc.open_file(source)
                    known += sum(opened.get_batch(number).num_rows for number in range(opened.num_record_batches))
        return known

    def with_clocks(self) -> "Log":
        """The log with the corrections of clocks that its mapping asks for."""
        if self.mapping is None or self.mapping.clocks is None:
            return self
        asked = self.mapping.clocks
        legs = pa.concat_tables([self._deliveries(), self._hops()])
        return replace(self, corrections=find_clocks(asked, least_delays(legs, drift=asked.drift)))

    def _as_read(self, table: str) -> Iterator[Batch]:
        for file in self.files:
            if file.table == table and file.fault is None:
                place = self.parsed.get((table, file.path))
                yield from read_batches(file) if place is None else _parsed_batches(file, place)
        if self.mapping is not None and table in self.mapping.given_tables:
            yield _given_batch(self.mapping)

    def _deliveries(self) -> pa.Table:
        """LEGS from the publisher of each event to its subscribers."""
        sends = self._good("publications", ("publisher", "sequence", "departure_ns"))
        arrivals = self._good("deliveries", ("publisher", "sequence", "arrived_ns"))
        both = pa.concat_tables([sends.select(["publisher", "sequence"]), arrivals.select(["publisher", "sequence"])])
        publisher = both["publisher"].combine_chunks().dictionary_encode()
        sequence = values_of(both["sequence"])
        is_known = np.asarray(publisher.is_valid()) & sequence.known
        groups = grouped(np.asarray(publisher.indices.fill_null(-1)), sequence.values, is_known)
        is_send = np.arange(len(both)) < len(sends)
        number = np.empty(len(both), np.int64)
        number[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.counts())
        # A key that two events share would give delays from one to the other: nothing follows from it.
        is_single = groups.sums(is_send) == 1
        send = np.zeros(len(groups.starts), np.int64)
        send[number[: len(sends)]] = np.arange(len(sends))
        of = number[len(sends) :]
        chosen = np.flatnonzero(is_single[of] & is_known[len(sends) :])
        sent, got = sends.take(pa.array(send[of[chosen]])), arrivals.take(pa.array(chosen))
        return pa.table([sent["_host"], got["_host"], sent["departure_ns"], got["arrived_ns"]], schema=LEGS)

    def _hops(self) -> pa.Table:
        """LEGS over each link."""
        rows = self._good("hops", ("source", "target", "publisher", "sent_ns", "received_ns"))
        source = pc.coalesce(rows["source"], rows["publisher"])
        return pa.table([source, rows["target"], rows["sent_ns"], rows["received_ns"]], schema=LEGS)

    def _good(self, table: str, names: Sequence[str]) -> pa.Table:
        """These columns of rows without a fault, with their hosts; names as strings."""
        found = []
        for batch in self._as_read(table):
            rows = batch.rows.select(names)
            if table in HOSTED:
                rows = rows.append_column("_host", _hosts(batch))
            if batch.faults is not None:
                rows = rows.filter(batch.faults.is_null())
            plain = [pa.string() if field.type == NAME else field.type for field in rows.schema]
            found.append(rows.cast(pa.schema(list(zip(rows.column_names, plain, strict=True)))))
        if found:
            return pa.concat_tables(found)
        kinds = {field.name: field.type for field in TABLES[table]}
        return pa.schema([(name, kinds[name]) for name in names] + [("_host", pa.string())]).empty_table()


def open_log(files: Sequence[TraceFile], mapping: FileMapping | None, folder: Path) -> Log:
    """The log of these files; those of a foreign format are parsed into `folder`."""
    parsed: dict[tuple[str, str], Path] = {}
    numbers: EventNumbers | None = None
    for table in TABLES:  # publications come first: other tables refer to their numbers
        mine = [file for file in files if file.table == table and file.format != "parquet" and file.fault is None]
        if mapping is None or not mine:
            continue
        if table == "publications" and EVENT in mapping.tables[table].columns:
            numbers = EventNumbers(row for file in mine for row in _rows(file, mapping))
        for file in mine:
            place = folder / f"{table}-{len(parsed)}.arrow"
            _parse(file, mapping, numbers, place)
            parsed[table, file.path] = place
    return Log(files=files, mapping=mapping, parsed=parsed)


def _rows(file: TraceFile, mapping: FileMapping) -> Iterator[PlainRow]:
    try:
        yield from read_plain(file.table, [file], mapping)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(
            f"{file.path}: its beginning can be read, but its data is damaged; bring a whole copy, or put a _ in front "
            "of its name to leave it out"
        ) from error


def _parse(file: TraceFile, mapping: FileMapping, numbers: EventNumbers | None, place: Path) -> None:
    plan = mapping.tables[file.table]
    kinds = {name: KIND_TYPES[kind] for name, (_, kind) in plan.attribute_columns().items()}
    schema = _schema(file.table, kinds)
    rows = _rows(file, mapping)
    with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        while some := list(islice(rows, ROWS_PER_BATCH)):
            if numbers is not None and EVENT in plan.columns:
                _number(some, file.table, numbers, has_publisher="publisher" in plan.columns)
            writer.write_batch(_arrow_rows(some, schema))


def _number(rows: Sequence[PlainRow], table: str, numbers: EventNumbers, *, has_publisher: bool) -> None:
    for row in rows:
        if table == "publications":
            numbers.number_publication(row)
        else:
            numbers.number_reference(row, has_publisher=has_publisher)


def _schema(table: str, kinds: Mapping[str, pa.DataType]) -> pa.Schema:
    fields = [pa.field(field.name, field.type) for field in TABLES[table] if field.name != "attributes"]
    struct = [pa.field("attributes", pa.struct(list(kinds.items())))] if table == "publications" else []
    return pa.schema([*fields, *struct, *_ASIDE])


def _arrow_rows(rows: Sequence[PlainRow], schema: pa.Schema) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        name: [row.values[name] for row in rows] for name in schema.names if name in rows[0].values
    }
    if "attributes" in schema.names:
        columns["attributes"] = [row.attributes for row in rows]
    columns["_host"] = [row.host for row in rows]
    columns["_fault"] = [row.faults[0] if row.faults else None for row in rows]
    columns["_raw"] = [row.raw if row.faults else None for row in rows]
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _parsed_batches(file: TraceFile, place: Path) -> Iterator[Batch]:
    with pa.memory_map(str(place)) as source:
        opened = pa.ipc.open_file(source)
        for number in range(opened.num_record_batches):
            yield _batch(file, opened.get_batch(number))


def _batch(file: TraceFile, read: pa.RecordBatch) -> Batch:
    rows = {
        name: read[name].dictionary_encode() if read[name].type == pa.string() else read[name]
        for name in read.schema.names
        if name not in dict(_ASIDE)
    }
    attributes = {}
    if "attributes" in rows:
        held = rows["attributes"]
        attributes = {field.name: held.field(number) for number, field in enumerate(held.type)}
        if not attributes:
            rows["attributes"] = pa.array(np.ones(len(read), np.bool_))
    has_faults = "_fault" in read.schema.names and read["_fault"].null_count < len(read)
    return Batch(
        file=file,
        rows=pa.table(rows),
        attributes=attributes,
        faults=read["_fault"] if has_faults else None,
        raw=read["_raw"] if has_faults else None,
        hosts=read["_host"] if file.table in HOSTED else None,
    )


def _given_batch(mapping: FileMapping) -> Batch:
    """The subscriptions that the mapping itself gives."""
    rows = [
        {
            "subscription": given.subscription or given.subscriber,
            "subscriber": given.subscriber,
            "broker": given.broker,
            "filter": given.filter,
            "max_delay_ns": None if given.max_delay is None else round(given.max_delay * 1e9),
            "price": given.price,
            "from_ns": FROM_THE_BEGINNING_NS,
        }
        for given in mapping.subscribers
    ]
    schema = pa.schema([pa.field(field.name, field.type) for field in TABLES["subscriptions"]])
    file = TraceFile(table="subscriptions", path=mapping.source, size_bytes=0, modified_ns=0)
    return _batch(file, pa.RecordBatch.from_pylist(rows, schema))


# Clocks: times as the reference's clock would have shown them.


def _hosts(batch: Batch) -> pa.Array:
    """The host whose clock the times of each row are of, as strings."""
    named = batch.rows[HOSTED[batch.file.table]].cast(pa.string()).combine_chunks()
    return named if batch.hosts is None else pc.coalesce(batch.hosts, named)


def _on_one_clock(batch: Batch, corrections: Corrections) -> Batch:
    """The times as one clock would have shown them, and for HOSTED tables the number of the host (`clock`)."""
    table, rows = batch.file.table, batch.rows
    if table in HOSTED:
        times = [name for name in rows.column_names if name.endswith("_ns") and name not in DURATIONS]
        number = _numbers(_hosts(batch), corrections)
        rows = _corrected(rows, number, times, corrections)
        rows = rows.append_column("clock", number.to_arrow())
    elif table == "hops":
        ends = [rows[name].cast(pa.string()) for name in ("source", "publisher", "target")]
        source = _numbers(pc.coalesce(*ends[:2]).combine_chunks(), corrections)
        rows = _corrected(rows, source, SOURCE_TIMES, corrections)
        rows = _corrected(rows, _numbers(ends[2].combine_chunks(), corrections), TARGET_TIMES, corrections)
    return batch._replace(rows=rows)


def _numbers(hosts: pa.Array, corrections: Corrections) -> Values:
    known = pa.array(corrections.hosts, pa.string())
    return values_of(pc.index_in(hosts, known, skip_nulls=True).cast(pa.int64()))


def _corrected(rows: pa.Table, host: Values, times: Sequence[str], corrections: Corrections) -> pa.Table:
    """A time whose host is unknown, or that would leave 64 bits, is as it was."""
    if not len(corrections.hosts):
        return rows
    for name in times:
        given = values_of(rows[name])
        ahead = corrections.ahead_ns[host.values]
        if corrections.rate.any():
            drifted = (given.values - corrections.origin_ns) * corrections.rate[host.values]
            ahead = ahead + np.asarray(pc.round(pa.array(drifted), round_mode="half_towards_infinity")).astype(np.int64)
        with np.errstate(over="ignore"):
            right = given.values - ahead
        is_beyond = (right > given.values) != (ahead < 0)
        kept = np.where(host.known & ~is_beyond, right, given.values)
        rows = rows.set_column(rows.column_names.index(name), name, Values(kept, given.known).to_arrow())
    return rows
