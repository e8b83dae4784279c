"""The trace of a run, written while it runs (model/trace.py is the contract).

Rules:

- A table is a folder of parts. A part is written under a name that begins with ``_`` and renamed when it is complete.
- Rows go out in groups of exactly ROWS_PER_GROUP and parts of exactly GROUPS_PER_PART groups, however they come in, so
  the files do not depend on the size of any buffer.
- A directory that already holds a trace is refused.
- With a sample below 1 only sampled events are in the tables; the share is in every file's metadata (`tidings.sample`).
- A warm-up is in every file's metadata too (`tidings.warmup_ns`): events published before it do not count in scores.
"""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.model.trace import TABLES, as_stored, publications
from tidings.simulation._layout import HOP, IN_FLIGHT, NEVER_NS, NOBODY, OUTCOMES, Array
from tidings.simulation._plan import SimulationPlan
from tidings.simulation._publications import Chunk, attribute_kinds

__all__ = ["TraceOutput", "TraceWriter", "unfinished_hops"]

ROWS_PER_GROUP = 65_536
GROUPS_PER_PART = 32


class TraceOutput(Protocol):
    """Where the rows of a run go while it runs."""

    def write_publications(self, chunk: Chunk) -> None:
        """The events of a chunk, before they are simulated."""

    def write_hops(self, rows: Array) -> None:
        """Rows of HOP."""

    def write_deliveries(self, rows: Array, delivered_ns: Array | None = None) -> None:
        """Rows of DELIVERY, and when the applications get them if that is not when they arrive."""

    def write_transitions(self, rows: Array) -> None:
        """What failed or came back."""

    def reached(self, now_ns: int, events: Array) -> None:
        """Everything was written that happened before now; `events` are the records of EVENT, alive or not."""


class TraceWriter(TraceOutput):
    """Writes the tables of one run into a directory."""

    def __init__(self, directory: Path, plan: SimulationPlan, *, sample: float) -> None:
        network = plan.network
        self._publishers = pa.array([publisher.name for publisher in network.publishers], pa.string())
        self._subscriptions = pa.array([subscription.id for subscription in network.subscriptions], pa.string())
        homes = [network.homes[subscription.subscriber] for subscription in network.subscriptions]
        self._homes = pa.array(homes, pa.string())
        self._brokers = pa.array([broker.name for broker in network.topology.brokers], pa.string())
        source = plan.links["source"]
        self._sources = self._brokers.take(pa.array(source, mask=source < 0))  # access links have none
        self._targets = self._brokers.take(pa.array(plan.links["target"]))
        self._component_links: list[list[int]] = [[] for _ in range(max(network.link_components, default=-1) + 1)]
        for link, component in enumerate(network.link_components):
            self._component_links[component].append(link)
        self._outcomes = pa.array(OUTCOMES, pa.string())
        schemas = {**TABLES, "publications": as_stored(publications(attribute_kinds(network)))}
        _require_new(directory, schemas)
        metadata = {"tidings.sample": repr(sample)} if sample < 1.0 else {}
        if plan.warmup_ns > 0:
            metadata["tidings.warmup_ns"] = str(plan.warmup_ns)
        self._tables = {
            name: _Table(directory / name, schema.with_metadata({**(schema.metadata or {}), **metadata}))
            for name, schema in schemas.items()
        }
        self._write_setting(plan)

    def write_publications(self, chunk: Chunk) -> None:
        assert chunk.attributes is not None or len(chunk.events) == 0
        rows = np.flatnonzero(chunk.events["is_sampled"])
        if len(rows) == 0 or chunk.attributes is None:
            return
        events = chunk.events[rows]
        attributes = chunk.attributes.take(pa.array(rows)).combine_chunks()
        schema = self._tables["publications"].schema
        content = []
        if "attributes" in schema.names:
            kind = schema.field("attributes").type
            fields = [_flat(attributes.column(field.name), field.type) for field in kind]
            content = [pa.StructArray.from_arrays(fields, fields=list(kind))]
        lifetimes = pa.array(events["lifetime"], mask=events["lifetime"] >= NEVER_NS)
        self._tables["publications"].write(
            [
                self._publishers.take(pa.array(events["publisher"])),
                pa.array(events["sequence"]),
                pa.array(events["time"]),
                self._targets.take(pa.array(events["link"])),
                pa.array(np.rint(events["size_kb"] * 1000.0).astype(np.int64)),
                lifetimes,
                *content,
            ]
        )

    def write_hops(self, rows: Array) -> None:
        if len(rows) == 0:
            return
        publishers, link = self._publishers.take(pa.array(rows["publisher"])), pa.array(rows["link"])
        times = [pa.array(rows[name], mask=rows[name] < 0) for name in ("sent", "received", "began", "ended")]
        self._tables["hops"].write(
            [
                publishers,
                pa.array(rows["sequence"]),
                self._sources.take(link),
                self._targets.take(link),
                pa.array(rows["enqueued"]),
                *times,
                self._outcomes.take(pa.array(rows["outcome"])),
            ]
        )

    def write_deliveries(self, rows: Array, delivered_ns: Array | None = None) -> None:
        """By default, an event is delivered when it arrives."""
        if len(rows) == 0:
            return
        subscription = pa.array(rows["subscription"])
        self._tables["deliveries"].write(
            [
                self._publishers.take(pa.array(rows["publisher"])),
                pa.array(rows["sequence"]),
                self._subscriptions.take(subscription),
                self._homes.take(subscription),
                pa.array(rows["arrived"]),
                pa.array(rows["arrived"] if delivered_ns is None else delivered_ns),
            ]
        )

    def write_transitions(self, rows: Array) -> None:
        """What failed or came back: a component of links is a row for each of its links."""
        if len(rows) == 0:
            return
        brokers, links = len(self._brokers), self._component_links
        places = [[-1] if c < brokers else links[c - brokers] for c in rows["component"].tolist()]
        counts = [len(each) for each in places]
        link = np.array([each for place in places for each in place], np.int64)
        component, at_ns, up = (np.repeat(rows[name], counts) for name in ("component", "at", "up"))
        is_broker = link < 0
        broker_names = self._brokers.take(pa.array(np.where(is_broker, component, 0)))
        link_sources, link_targets = (
            each.take(pa.array(link, mask=is_broker)) for each in (self._sources, self._targets)
        )
        self._tables["transitions"].write(
            [
                pa.array(np.where(is_broker, "broker", "link").tolist(), pa.string()),
                pc.if_else(pa.array(is_broker), broker_names, link_sources),
                link_targets,
                pa.array(at_ns),
                pa.array(up != 0),
            ]
        )

    def reached(self, now_ns: int, events: Array) -> None:
        """Rows go to their files whenever there are enough."""

    def close(self) -> None:
        """Complete every file; a table without rows is one file without rows."""
        for table in self._tables.values():
            table.close()

    def _write_setting(self, plan: SimulationPlan) -> None:
        """Subscriptions and topology, which stand from the beginning to the end of the run."""
        network = plan.network
        allowed = plan.subscriptions["allowed"]
        self._tables["subscriptions"].write(
            [
                self._subscriptions,
                pa.array([subscription.subscriber for subscription in network.subscriptions], pa.string()),
                self._homes,
                pa.array([str(subscription.filter) for subscription in network.subscriptions], pa.string()),
                pa.array(allowed, mask=allowed >= NEVER_NS),
                pa.array(plan.subscriptions["price"]),
                pa.array(np.zeros(len(allowed), np.int64)),
                pa.nulls(len(allowed), pa.int64()),
            ]
        )
        rows: list[dict[str, Any]] = []
        for broker in network.topology.brokers:
            x, y = broker.position or (None, None)
            rows.append({"kind": "broker", "source": broker.name, "x": x, "y": y})
        rows += [
            {"kind": "link", "source": link.source, "target": link.target, "length_km": link.length_km}
            for link in network.topology.links
        ]
        table = self._tables["topology"]
        table.write([pa.array([row.get(field.name) for row in rows], field.type) for field in table.schema])


def unfinished_hops(copies: Array, events: Array, last_ns: int) -> Array:
    """Rows for the sampled copies, of these that are still on their way when a run ends."""
    event = events[copies["event"]]
    rows = np.zeros(len(copies), HOP)
    for name in ("publisher", "sequence"):
        rows[name] = event[name]
    for name in ("link", "enqueued", "sent"):
        rows[name] = copies[name]
    for name in ("received", "began"):  # noted ahead for copies that keep nobody waiting
        rows[name] = np.where(copies[name] < last_ns, copies[name], NOBODY)
    rows["ended"] = NOBODY
    rows["outcome"] = IN_FLIGHT
    sampled: Array = rows[event["is_sampled"] != 0]
    return sampled


class _Table:
    """One table: rows in any portion in, files with fixed groups of rows out."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self._folder = folder
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._part, self._groups = 0, 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, columns: list[pa.Array]) -> None:
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        self._held.append(batch)
        self._held_rows += batch.num_rows
        while self._held_rows >= ROWS_PER_GROUP:
            rows = pa.Table.from_batches(self._held, self.schema)
            self._write_group(rows.slice(0, ROWS_PER_GROUP))
            rest = rows.slice(ROWS_PER_GROUP)
            self._held, self._held_rows = rest.to_batches(), rest.num_rows

    def close(self) -> None:
        if self._held_rows or (self._part == 0 and self._writer is None):
            self._write_group(pa.Table.from_batches(self._held, self.schema))
            self._held, self._held_rows = [], 0
        self._finish_part()

    def _write_group(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._writer = _open(self._temporary, self.schema)
        self._writer.write_table(rows.combine_chunks(), row_group_size=ROWS_PER_GROUP)
        self._groups += 1
        if self._groups == GROUPS_PER_PART:
            self._finish_part()

    def _finish_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._temporary.rename(self._folder / f"part-{self._part:05}.parquet")
            self._writer, self._groups, self._part = None, 0, self._part + 1

    @property
    def _temporary(self) -> Path:
        return self._folder / f"_part-{self._part:05}.parquet"


def _open(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return pq.ParquetWriter(path, schema, compression="zstd")
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be written: {error.strerror or error}") from None


def _require_new(directory: Path, tables: Any) -> None:
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file; a trace needs a directory: give another name")
    for name in tables:
        if (directory / name).is_dir() and any((directory / name).iterdir()):
            raise InputError(f"{directory} already holds a trace ({name}): give another directory, or remove it first")


def _flat(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)
