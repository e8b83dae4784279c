"""Events as rows, and rows as events, in Spark's types; how values become columns is the client's (`EventColumns`).

Rules beside those of `EventColumns`:

- Without a schema, the columns are the attributes that the filter names; those about the event come when they are
  asked for.
- A value that is not of its column's type is NULL, unless the job is to fail at it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from tidings.errors import ConfigurationError, InputError
from tidings.live.client import columns
from tidings.live.client.columns import EventColumns, EventRow, filter_types

__all__ = ["METADATA", "attribute_columns", "batches", "checked_schema", "schema_of_filter"]

_OF_ARROW: Final = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamp",
}
_ARROW: Final = {name: kind for kind, name in _OF_ARROW.items()}
_ATTRIBUTES: Final = tuple(_OF_ARROW[kind] for kind in columns.ATTRIBUTE_TYPES)
METADATA: Final = {name: _OF_ARROW[kind] for name, kind in columns.METADATA.items()}
"""Columns about an event, and their types in SQL."""
ROWS_PER_BATCH: Final = 10_000


def schema_of_filter(text: str, metadata: Sequence[str]) -> StructType:
    """The columns that a filter implies, and those about the event that were asked for."""
    schema = StructType()
    for name, kind in filter_types(text).items():
        if isinstance(kind, str):
            raise ConfigurationError(f"option filter {kind}; give the columns: .schema('{name} string, ...')")
        schema = schema.add(name, _OF_ARROW[kind])
    for name in metadata:
        schema = schema.add(name, "long" if METADATA[name] == "bigint" else METADATA[name])
    if not schema.fields:
        raise ConfigurationError(
            "option filter names no attribute, so there are no columns; give them: .schema('symbol string, price "
            "double'), or ask for .option('metadata', 'all')"
        )
    return schema


def checked_schema(schema: StructType) -> StructType:
    """The schema, if events can be its rows."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        wanted = METADATA.get(field.name)
        if wanted is not None and kind != wanted:
            raise ConfigurationError(f"column {field.name} is of type {kind} in the schema, but must be {wanted}")
        if wanted is None and kind not in _ATTRIBUTES:
            raise ConfigurationError(
                f"column {field.name} is of type {kind} in the schema; attributes are {', '.join(_ATTRIBUTES)}, and "
                f"about the event there are {', '.join(METADATA)}"
            )
    return schema


def batches(rows: Iterator[EventRow], schema: StructType, *, fails_fast: bool) -> Iterator[pa.RecordBatch]:
    """Events as rows of the schema, some thousands at a time."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}

    def fail(name: str, row: EventRow, found: Any) -> None:
        raise InputError(
            f"attribute {name} of event {row.sequence} of {row.publisher!r} is {found!r}, which is no {kinds[name]}; "
            "give another type with .schema(...), or .option('mode', 'permissive'), which makes it NULL"
        )

    made = EventColumns(pa.schema(list(map(_arrow_field, schema.fields))), on_misfit=fail if fails_fast else None)
    while some := [row for _, row in zip(range(ROWS_PER_BATCH), rows, strict=False)]:
        yield made.batch(some)


def _arrow_field(field: StructField) -> pa.Field:
    return pa.field(field.name, _ARROW[field.dataType.simpleString()], field.nullable)


def attribute_columns(schema: StructType, payload: str | None) -> list[str]:
    """Of rows that are published: the columns that become attributes, all but the payload's."""
    kinds: Mapping[str, str] = {field.name: field.dataType.simpleString() for field in schema.fields}
    if payload is not None and kinds.get(payload) not in ("binary", "string"):
        has = f"is of type {kinds[payload]}" if payload in kinds else "is not there"
        raise ConfigurationError(f"option payload: column {payload} {has}; name one of type binary or string")
    names = [name for name in kinds if name != payload]
    for name in names:
        if kinds[name] not in _ATTRIBUTES:
            raise ConfigurationError(
                f"column {name} is of type {kinds[name]}, and attributes are {', '.join(_ATTRIBUTES)}: cast it, drop "
                "it, or make it the payload with .option('payload', ...)"
            )
    return names
