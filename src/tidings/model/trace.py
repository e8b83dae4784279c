"""The trace contract: the tables that a run leaves behind, as Arrow schemas.

The simulator, the live brokers and the Spark pipeline all use these and no others, so a reader cannot tell who wrote
a trace. Rules:

- Times are whole nanoseconds (int64) from an origin that all tables of a trace share; durations likewise.
- Identifiers are strings. An event is named by its publisher and its sequence number at that publisher.
- A field that may be NULL states the meaning of NULL; all others are never NULL.
- A trace is a directory with a folder per table, holding Parquet files. A file is written under a name that begins
  with ``_`` or ``.`` and renamed when it is complete, so a reader that skips such names never sees half a file.
- Attributes are a struct whose fields are the attribute names; it is the one part that differs from trace to trace.
  `publications` makes the schema for given attributes; files whose structs differ are read together by name. Parquet
  has no empty structs: where events have no attributes at all, the column is not in the file (`as_stored`).

A schema's metadata holds the version of the contract under ``tidings.trace``. A reader refuses a version it does not
know rather than guess. Two more entries are optional: ``tidings.sample``, the share of the events that the tables hold,
and ``tidings.warmup_ns``, the time before which events do not count in scores.
"""

from collections.abc import Mapping
from typing import Final, Literal

import pyarrow as pa

from tidings.errors import InputError

__all__ = ["TABLES", "VERSION", "AttributeKind", "as_stored", "check_schema", "publications"]

VERSION: Final = "1"

AttributeKind = Literal["number", "whole", "string", "boolean"]
_ATTRIBUTE_TYPES: Final = {"number": pa.float64(), "whole": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}


def _schema(*fields: tuple[str, pa.DataType, str]) -> pa.Schema:
    """Fields as (name, type, meaning); a meaning that begins with "NULL" or names it makes the field nullable."""
    return pa.schema(
        [
            pa.field(name, kind, nullable="NULL" in meaning, metadata={"meaning": meaning})
            for name, kind, meaning in fields
        ],
        metadata={"tidings.trace": VERSION},
    )


def publications(attributes: Mapping[str, AttributeKind]) -> pa.Schema:
    """Publications: one row per event, with these attributes (a missing one is NULL in its row)."""
    content = pa.struct([pa.field(name, _ATTRIBUTE_TYPES[kind]) for name, kind in attributes.items()])
    return _schema(
        ("publisher", pa.string(), "who published the event"),
        ("sequence", pa.int64(), "its number at that publisher, from 0 on without gaps"),
        ("departure_ns", pa.int64(), "when it left the publisher"),
        ("broker", pa.string(), "the publisher's home broker at that time"),
        ("size_bytes", pa.int64(), "attributes and payload on the wire"),
        ("lifetime_ns", pa.int64(), "the publisher's deadline from departure on; NULL: none"),
        ("attributes", content, "the event's attributes by name"),
    )


_HOPS = _schema(
    ("publisher", pa.string(), "the event's publisher"),
    ("sequence", pa.int64(), "the event's sequence number"),
    ("source", pa.string(), "the broker that sent it; NULL: the publisher itself, on its access link"),
    ("target", pa.string(), "the broker it was sent to"),
    ("enqueued_ns", pa.int64(), "when it entered the source's output queue for this link"),
    ("sent_ns", pa.int64(), "when its transmission began; NULL: it never did, see outcome"),
    ("received_ns", pa.int64(), "when the target had all of it; NULL: it never had, see outcome"),
    ("began_ns", pa.int64(), "when the target began to process it; NULL: not received, or not before the end"),
    ("ended_ns", pa.int64(), "when the target had processed it; NULL: not received, or not before the end"),
    (
        "outcome",
        pa.string(),
        "received, lost (on the link), expired or hopeless (deleted in the queue), in-flight, failed",
    ),
)

_DELIVERIES = _schema(
    ("publisher", pa.string(), "the event's publisher"),
    ("sequence", pa.int64(), "the event's sequence number"),
    ("subscription", pa.string(), "the subscription it satisfies"),
    ("broker", pa.string(), "the subscriber's home broker"),
    ("arrived_ns", pa.int64(), "when it reached the subscriber"),
    ("delivered_ns", pa.int64(), "when the application got it: later than arrived_ns if it was held to restore order"),
)

_SUBSCRIPTIONS = _schema(
    ("subscription", pa.string(), "its name, one of its own for each change of its terms"),
    ("subscriber", pa.string(), "whose it is"),
    ("broker", pa.string(), "the subscriber's home broker"),
    ("filter", pa.string(), "what it wants, in the filter language"),
    ("max_delay_ns", pa.int64(), "the subscriber's deadline from departure on; NULL: none"),
    ("price", pa.float64(), "what an on-time delivery is worth"),
    ("from_ns", pa.int64(), "events that depart from then on count"),
    ("until_ns", pa.int64(), "events that depart from then on no longer count; NULL: still subscribed at the end"),
)

_TRANSITIONS = _schema(
    ("kind", pa.string(), "broker or link"),
    ("source", pa.string(), "the broker, or the link's sending end"),
    ("target", pa.string(), "the link's receiving end; NULL: a broker"),
    ("at_ns", pa.int64(), "when it changed"),
    ("up", pa.bool_(), "whether it works from then on"),
)

_TOPOLOGY = _schema(
    ("kind", pa.string(), "broker or link"),
    ("source", pa.string(), "the broker, or the link's sending end"),
    ("target", pa.string(), "the link's receiving end; NULL: a broker"),
    ("length_km", pa.float64(), "the link's length; NULL: unknown, or a broker"),
    ("x", pa.float64(), "the broker's place on the map (longitude); NULL: unknown, or a link"),
    ("y", pa.float64(), "the broker's place on the map (latitude); NULL: unknown, or a link"),
)

TABLES: Final[Mapping[str, pa.Schema]] = {
    "publications": publications({}),
    "hops": _HOPS,
    "deliveries": _DELIVERIES,
    "subscriptions": _SUBSCRIPTIONS,
    "transitions": _TRANSITIONS,
    "topology": _TOPOLOGY,
}
"""Every table of a trace by name; that of publications is shown without attributes."""


def as_stored(schema: pa.Schema) -> pa.Schema:
    """The schema as a Parquet file can have it: without `attributes` if there are none."""
    place = schema.get_field_index("attributes")
    return schema.remove(place) if place >= 0 and schema.field(place).type.num_fields == 0 else schema


def check_schema(table: str, schema: pa.Schema) -> None:
    """InputError unless a schema fits the contract for this table: every field, its type, a version that is known."""
    if table not in TABLES:
        raise InputError(f"a trace has no table {table!r}; there are: {', '.join(TABLES)}")
    version = (schema.metadata or {}).get(b"tidings.trace", VERSION.encode()).decode()
    if version != VERSION:
        raise InputError(
            f"table {table!r} follows version {version} of the trace contract, and this Tidings knows version "
            f"{VERSION}: read it with the Tidings that wrote it, or upgrade"
        )
    for field in TABLES[table]:
        if field.name not in schema.names:
            if field.name == "attributes":
                continue
            raise InputError(f"table {table!r} has no field {field.name!r} ({_meaning(field)})")
        found = schema.field(field.name).type
        fits = pa.types.is_struct(found) if field.name == "attributes" else found.equals(field.type)
        if not fits:
            raise InputError(f"table {table!r}: field {field.name!r} is of type {found}, not {field.type}")


def _meaning(field: pa.Field) -> str:
    return str((field.metadata or {}).get(b"meaning", b"").decode())
