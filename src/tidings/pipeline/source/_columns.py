"""Events as rows, and rows as events: which columns there are, and of which types.

Rules:

- Without a schema, the columns are the attributes that the filter names, in its order: a number becomes a `double`, a
  string a `string`, a boolean a `boolean`. An attribute that the filter compares with nothing, or with two kinds, has
  no type, and a schema must be given.
- Columns of METADATA are about the event itself; they come when they are asked for, or stand in the given schema.
- An attribute that an event lacks is NULL. So is one whose value is not of the column's type (a whole number is, in a
  column of doubles), unless the job is to fail at it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from tidings.errors import ConfigurationError, InputError
from tidings.live import Delivery
from tidings.model.filters import Filter, implied_kinds

__all__ = ["METADATA", "Record", "attribute_columns", "batches", "checked_schema", "record_of", "schema_of_filter"]

METADATA: Final = {
    "_publisher": "string",
    "_epoch": "bigint",
    "_sequence": "bigint",
    "_published": "timestamp",
    "_age_ns": "bigint",
    "_late": "boolean",
    "_payload": "binary",
}
"""Columns about an event, and their types; publisher, epoch and sequence together identify an event."""
ROWS_PER_BATCH: Final = 10_000

_OF_KIND: Final = {"number": "double", "string": "string", "boolean": "boolean"}
_ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_ATTRIBUTES: Final = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double")
_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


class Record(msgspec.Struct, frozen=True, array_like=True):
    """An event as it was taken: `published_us` by this machine's clock, its age then, and whether it was late."""

    publisher: str
    epoch: int
    sequence: int
    published_us: int
    age_ns: int
    late: bool
    attributes: dict[str, int | float | str | bool]
    payload: bytes


def schema_of_filter(text: str, metadata: Sequence[str]) -> StructType:
    """The columns that a filter implies, and those about the event that were asked for."""
    schema = StructType()
    for name, kinds in implied_kinds(Filter.parse(text)).items():
        if len(kinds) != 1:
            why = "with numbers, strings or booleans at once" if kinds else "with no number, string or boolean"
            raise ConfigurationError(
                f"option filter compares {name} {why}, so its type is not known; give the columns: "
                f".schema('{name} string, ...')"
            )
        (kind,) = kinds
        schema = schema.add(name, _OF_KIND[kind])
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


def batches(records: Iterator[Record], schema: StructType, *, fails_fast: bool) -> Iterator[pa.RecordBatch]:
    """Events as rows of the schema, some thousands at a time."""
    fields = [pa.field(each.name, _ARROW[each.dataType.simpleString()], each.nullable) for each in schema.fields]
    columns = [_column(field, fails_fast=fails_fast) for field in schema.fields]
    while some := [record for _, record in zip(range(ROWS_PER_BATCH), records, strict=False)]:
        arrays = [
            pa.array([value(record) for record in some], field.type)
            for field, value in zip(fields, columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _column(field: StructField, *, fails_fast: bool) -> Callable[[Record], Any]:
    """What a record has in a column."""
    name = field.name
    if name in METADATA:
        source = {"_published": "published_us"}.get(name, name[1:])
        return lambda record: getattr(record, source)
    fits = _fits(field.dataType)

    def value(record: Record) -> Any:
        found = record.attributes.get(name)
        if found is None:
            return None
        fitting = fits(found)
        if fitting is None and fails_fast:
            raise InputError(
                f"attribute {name} of event {record.sequence} of {record.publisher!r} is {found!r}, which is no "
                f"{field.dataType.simpleString()}; give another type with .schema(...), or .option('mode', "
                "'permissive'), which makes it NULL"
            )
        return fitting

    return value


def _fits(kind: DataType) -> Callable[[int | float | str | bool], Any]:
    """The value for a column of this type; None if it is of another."""
    name = kind.simpleString()
    if name in ("string", "boolean"):
        wanted = str if name == "string" else bool
        return lambda value: value if isinstance(value, wanted) else None
    if name in ("float", "double"):
        return lambda value: None if isinstance(value, bool | str) else float(value)
    most = 1 << (_BITS[name] - 1)

    def whole(value: int | float | str | bool) -> int | None:
        if isinstance(value, bool | str) or (isinstance(value, float) and not value.is_integer()):
            return None
        return int(value) if -most <= value < most else None

    return whole


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


def record_of(each: Delivery, now_us: int) -> Record:
    """An event that was taken now; when it was published follows from its age."""
    age_ns = round(each.age_s * 1e9)
    published_us = now_us - age_ns // 1000
    return Record(
        each.publisher,
        each.epoch,
        each.sequence,
        published_us,
        age_ns,
        each.late,
        dict(each.attributes),
        each.payload,
    )
