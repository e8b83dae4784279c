"""Rows as Parquet files of a trace: under an unfinished name first, renamed when complete."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidings.model.trace import TABLES, AttributeKind, as_stored, publications

__all__ = ["attribute_kinds", "fitting", "write_rows", "write_table"]


def write_rows(
    directory: Path, table: str, name: str, rows: list[dict[str, Any]], sample: float, *, replace: bool = False
) -> None:
    """Write the rows of one table as one file; with `replace`, in place of the one before, unless it is the same."""
    schema = TABLES[table]
    if table == "publications":
        kinds = attribute_kinds(rows)
        schema = publications(kinds)
        rows = [{**row, "attributes": fitting(row["attributes"], kinds)} for row in rows]
    write_table(directory, table, name, pa.Table.from_pylist(rows, schema=schema), sample, replace=replace)


def write_table(
    directory: Path, table: str, name: str, content: pa.Table, sample: float, *, replace: bool = False
) -> None:
    """The same for rows that are an Arrow table."""
    if sample < 1.0:
        noted = {**(content.schema.metadata or {}), b"tidings.sample": repr(sample).encode()}
        content = content.replace_schema_metadata(noted)
    schema = content.schema
    stored = as_stored(schema)
    if stored is not schema:
        content = content.select(stored.names)
    folder = directory / table
    folder.mkdir(parents=True, exist_ok=True)
    finished, unfinished = folder / f"{name}.parquet", folder / f"_{name}-{os.getpid()}.parquet"
    if replace and finished.exists() and pq.read_table(finished).equals(content):
        return
    pq.write_table(content, unfinished, compression="zstd")
    unfinished.rename(finished)


def attribute_kinds(rows: list[dict[str, Any]]) -> dict[str, AttributeKind]:
    """The kind of each attribute over all rows: whole and other numbers are numbers, other mixtures text."""
    kinds: dict[str, AttributeKind] = {}
    for row in rows:
        for name, value in row["attributes"].items():
            kind = _kind(value)
            known = kinds.setdefault(name, kind)
            if kind != known:
                kinds[name] = "number" if {kind, known} <= {"number", "whole"} else "string"
    return kinds


def _kind(value: object) -> AttributeKind:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "whole" if isinstance(value, int) else "number"


def fitting(attributes: dict[str, Any], kinds: dict[str, AttributeKind]) -> dict[str, Any]:
    """The attributes as values of these kinds."""
    convert = {"number": float, "string": str}
    return {name: convert.get(kinds[name], lambda same: same)(value) for name, value in attributes.items()}
