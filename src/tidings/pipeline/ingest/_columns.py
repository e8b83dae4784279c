"""Columns of files as Spark reads them, and as the contract wants them.

A Parquet file is read with the types that it has (said by its footer, so nothing is inferred), and then brought to the
contract's: a wider or narrower number, a date in place of a string. What does not convert is NULL and a fault of its
row. Attributes are of four kinds (number, whole, string, boolean); what is none of these becomes a string. Columns that
the contract does not have are not read, so their types do not matter; an attribute of a type that Spark does not read
matters only to those who ask for it (`require_attributes`).
"""

from typing import Final

import pyarrow as pa

from tidings.model.trace import TABLES

__all__ = ["KIND_TYPES", "TYPES", "contract_columns", "quoted", "spark_columns"]

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


def contract_columns(table: str, schema: pa.Schema) -> tuple[str | None, str | None, dict[str, str]]:
    """Those of a file's columns that the contract has, as Spark DDL, or else the fault: one that Spark cannot read.

    Attributes that it cannot read are left out, and returned with their types.
    """
    fields, left_out = [], dict[str, str]()
    for field in schema:
        if field.name not in TABLES[table].names:
            continue
        if field.name != "attributes":
            fields.append(field)
        elif not pa.types.is_struct(field.type):
            return None, f"column 'attributes' is of type {field.type}, and must be a struct with a field for each", {}
        else:
            left_out = {inner.name: str(inner.type) for inner in field.type if _spark_type(inner.type) is None}
            kept = [inner for inner in field.type if inner.name not in left_out]
            # Spark reads no struct without fields; a file without attributes is as good.
            fields += [pa.field(field.name, pa.struct(kept))] if kept else []
    columns, fault = spark_columns(pa.schema(fields))
    return columns, fault, left_out


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
    if pa.types.is_decimal(kind):
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
