"""Columns of files as Spark reads them, and as the contract wants them.

A Parquet file is read with the types in its footer (so nothing is inferred), and then brought to the
contract's: a wider or narrower number, a date in place of a string. What does not convert is NULL and a fault of its
row. Names are found in any case. Timestamps and durations are read as the whole numbers that the file has, with what
one of them is in nanoseconds: Spark's own timestamps hold microseconds.

Attributes are of four kinds (number, whole, string, boolean); what is none of these becomes a string. Columns that the
contract does not have are not read, so their types do not matter; an attribute of a type that Spark does not read
matters only to those who ask for it (`require_attributes`).
"""

from collections.abc import Collection
from typing import Final, NamedTuple

import pyarrow as pa

from tidings.model.trace import TABLES
from tidings.pipeline.ingest._rules import DURATIONS

__all__ = ["KIND_TYPES", "TYPES", "Held", "contract_columns", "names_in", "quoted", "spark_columns"]

KIND_TYPES: Final[dict[str, str]] = {
    "number": "double",
    "whole": "bigint",
    "string": "string",
    "boolean": "boolean",
}
"""Spark's type of an attribute of each kind."""

_LEAVES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}

TYPES: Final[dict[str, dict[str, str]]] = {
    table: {field.name: _LEAVES[field.type] for field in schema if field.name != "attributes"}
    for table, schema in TABLES.items()
}
"""Spark's type of every field of every table, but for the attributes."""


def quoted(name: str) -> str:
    """A column's name as SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


class Held(NamedTuple):
    """What a file holds of the contract: its columns as Spark DDL, or else the `fault`, a column that cannot be read.

    `units_ns` is by column of the contract what one of its timestamps or durations is in nanoseconds; `left_out` are
    attributes that cannot be read, with their types.
    """

    columns: str | None
    units_ns: dict[str, int]
    left_out: dict[str, str]
    fault: str | None = None


_UNITS_NS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def names_in(table: str, columns: Collection[str]) -> dict[str, str]:
    """The columns that the contract has, and what they are called here: in its case if there is one, or else in any.

    A ValueError if two names differ from the contract's in case only.
    """
    found: dict[str, str] = {}
    for wanted in TABLES[table].names:
        alike = [name for name in columns if name.lower() == wanted]
        if wanted in alike:
            found[wanted] = wanted
        elif len(alike) == 1:
            found[wanted] = alike[0]
        elif alike:
            raise ValueError(f"columns {' and '.join(map(repr, alike))} may both be {wanted!r}")
    return found


def contract_columns(table: str, schema: pa.Schema, legacy_times: Collection[str] = ()) -> Held:
    """What a file with this schema holds; `legacy_times` are timestamps in Parquet's old form of 96 bits."""
    fields, units_ns, left_out = [], dict[str, int](), dict[str, str]()
    try:
        names = names_in(table, schema.names)
    except ValueError as error:
        return Held(None, {}, {}, str(error))
    for wanted, name in names.items():
        field = schema.field(name)
        if pa.types.is_null(field.type):
            continue  # as good as absent
        if wanted == "attributes":
            if not pa.types.is_struct(field.type):
                return Held(
                    None, {}, {}, f"column {name!r} is of type {field.type}, and must be a struct with a field for each"
                )
            left_out = {inner.name: str(inner.type) for inner in field.type if _spark_type(inner.type) is None}
            kept = [inner for inner in field.type if inner.name not in left_out]
            # Spark reads no struct without fields; a file without attributes is as good.
            fields += [pa.field(name, pa.struct(kept))] if kept else []
            continue
        is_moment = pa.types.is_timestamp(field.type) and wanted.endswith("_ns") and wanted not in DURATIONS
        if is_moment and name in legacy_times:
            units_ns[wanted], field = _UNITS_NS["us"], field.with_type(pa.timestamp("us", "UTC"))
        elif is_moment or (pa.types.is_duration(field.type) and wanted.endswith("_ns")):
            units_ns[wanted], field = _UNITS_NS[field.type.unit], field.with_type(pa.int64())
        fields.append(field)
    columns, fault = spark_columns(pa.schema(fields))
    return Held(columns, units_ns, left_out, fault)


def spark_columns(schema: pa.Schema) -> tuple[str | None, str | None]:
    """Columns as Spark DDL, or else the fault: a column that Spark cannot read."""
    columns = []
    for field in schema:
        kind = _spark_type(field.type)
        if kind is None:
            return None, f"column {field.name!r} is of type {field.type}, which Spark does not read"
        columns.append(f"{quoted(field.name)} {kind}")
    return ", ".join(columns), None


def _spark_type(kind: pa.DataType) -> str | None:
    if kind in _LEAVES:
        return _LEAVES[kind]
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_struct(kind):
        inner = [(field.name, _spark_type(field.type)) for field in kind]
        if any(inner_kind is None for _, inner_kind in inner):
            return None
        return f"struct<{', '.join(f'{quoted(name)}: {inner_kind}' for name, inner_kind in inner)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _spark_type(kind.value_type)
        return element and f"array<{element}>"
    return None
