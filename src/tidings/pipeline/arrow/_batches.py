"""Batches of the contract's columns, and Parquet files of a trace read as such, without Spark.

Names are dictionaries. What is converted, and to what, is as in Spark (ingest/_columns.py, ingest/_casts.py); a
conversion that is made only there is refused with an error that names the column, never made differently.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.model.trace import TABLES
from tidings.pipeline.ingest import TraceFile
from tidings.pipeline.ingest._columns import names_in
from tidings.pipeline.ingest._json import json_text
from tidings.pipeline.ingest._reasons import WRONG_TYPE

__all__ = ["KIND_TYPES", "NAME", "Batch", "Kinds", "OnlyOnSpark", "read_batches", "shown_rows", "united_kinds"]

Array = npt.NDArray[Any]
Kinds = dict[str, tuple[str, ...]]
"""Attributes by name with their kinds: one as a rule, several where files disagree."""

ROWS_PER_BATCH: Final = 1 << 18
NAME: Final = pa.dictionary(pa.int32(), pa.string())
_KIND_ORDER: Final = ("number", "whole", "string", "boolean")
KIND_TYPES: Final = {"number": pa.float64(), "whole": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}


class OnlyOnSpark(InputError):  # noqa: N818 - named by what is refused
    """Raised when a column has to be converted in a way that only Spark does."""


class Batch(NamedTuple):
    """Rows of one file in the contract's columns.

    `faults` are the reasons found while reading, NULL for most rows; None if there are none. `raw` is a row with a
    fault as the file has it: as columns, or as JSON. `hosts` are those that a log names, whose clocks the times are of.
    """

    file: TraceFile
    rows: pa.Table
    attributes: dict[str, pa.Array]
    faults: pa.Array | None
    raw: pa.Table | pa.Array | None
    hosts: pa.Array | None = None


def united_kinds(files: Sequence[TraceFile]) -> Kinds:
    """The attributes of all publications, in the order of the files' columns, as Spark unites them."""
    found: dict[str, set[str]] = {}
    seen: set[str] = set()
    for file in sorted(files, key=lambda each: (str(each.columns), sorted(each.units_ns.items()))):
        if file.table != "publications" or file.fault is not None or str(file.columns) in seen:
            continue
        seen.add(str(file.columns))
        for name, kind in _kinds_of(file).items():
            found.setdefault(name, set()).add(kind)
    return {name: tuple(kind for kind in _KIND_ORDER if kind in kinds) for name, kinds in found.items()}


def _kinds_of(file: TraceFile) -> dict[str, str]:
    schema = pq.read_schema(file.path)
    called = names_in(file.table, schema.names).get("attributes")
    if called is None or pa.types.is_null(schema.field(called).type):
        return {}
    return {inner.name: _kind(file, inner) for inner in schema.field(called).type if inner.name not in file.left_out}


def _kind(file: TraceFile, field: pa.Field) -> str:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return "whole"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind) or kind == pa.uint64():
        return "number"
    if kind in (pa.string(), pa.large_string(), pa.string_view()):
        return "string"
    raise _refusal(file, f"attribute {field.name!r}", kind, "a string")


def read_batches(file: TraceFile) -> Iterator[Batch]:
    """The rows of a file, some at a time; an InputError if its data is damaged."""
    try:
        schema = pq.read_schema(file.path)
        names = {
            wanted: name
            for wanted, name in names_in(file.table, schema.names).items()
            if not pa.types.is_null(schema.field(name).type)
        }
        kinds = _kinds_of(file) if file.table == "publications" else {}
        columns = [name for wanted, name in names.items() if wanted != "attributes"]
        columns += [f"{names['attributes']}.{each}" for each in kinds]
        texts = [name for name in columns if "." not in name and _is_text(schema.field(name).type)]
        opened = pq.ParquetFile(file.path, read_dictionary=texts, coerce_int96_timestamp_unit="us", memory_map=True)
        for batch in opened.iter_batches(ROWS_PER_BATCH, columns=columns):
            yield _batch(file, pa.Table.from_batches([batch]), names, kinds)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{file.path}: its footer can be read, but its data is damaged; bring a whole copy, or put a _ in front of "
            "its name to leave it out"
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _batch(file: TraceFile, raw: pa.Table, names: Mapping[str, str], kinds: Mapping[str, str]) -> Batch:
    length, wrong = raw.num_rows, None
    columns: dict[str, pa.Array] = {}
    for field in TABLES[file.table]:
        if field.name == "attributes":
            continue
        wanted = NAME if field.type == pa.string() else field.type
        if field.name not in names:
            columns[field.name] = pa.nulls(length, wanted)
            continue
        value, is_wrong = _converted(file, field, _one(raw[names[field.name]]), file.units_ns.get(field.name))
        columns[field.name] = value
        if is_wrong is not None and is_wrong.any():
            wrong = is_wrong if wrong is None else wrong | is_wrong
    attributes: dict[str, pa.Array] = {}
    held = _one(raw[names["attributes"]]) if kinds else None
    if held is not None:
        attributes = {
            name: pc.struct_field(held, [name]).cast(KIND_TYPES[kind], safe=False) for name, kind in kinds.items()
        }
    rows = pa.table(columns)
    if file.table == "publications":
        rows = rows.append_column(
            "attributes", _struct(held, attributes) if held is not None else pa.array(np.ones(length, np.bool_))
        )
    faults = None
    if wrong is not None:
        faults = pa.array([None, WRONG_TYPE], pa.string()).take(pa.array(wrong.astype(np.int8)))
    return Batch(file=file, rows=rows, attributes=attributes, faults=faults, raw=raw)


def _struct(held: pa.Array, attributes: Mapping[str, pa.Array]) -> pa.Array:
    """The attributes in their kinds; NULL where the file has NULL in place of all of them."""
    return pa.StructArray.from_arrays(list(attributes.values()), names=list(attributes), mask=pc.is_null(held))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _refusal(file: TraceFile, what: str, kind: pa.DataType, wanted: str) -> OnlyOnSpark:
    return OnlyOnSpark(
        f"{file.path}: {what} is of type {kind}, which the engine arrow does not convert to {wanted}; run with "
        "--engine spark"
    )


def _converted(file: TraceFile, field: pa.Field, value: pa.Array, unit_ns: int | None) -> tuple[pa.Array, Array | None]:
    """A column in its field's type, and where it is wrong (None: nowhere)."""
    kind = value.type
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    refusal = _refusal(file, f"column {field.name!r}", inner, str(field.type))
    if field.type == pa.string():
        if inner in (pa.string(), pa.large_string(), pa.string_view()):
            return (value if kind == NAME else value.cast(pa.string()).dictionary_encode()), None
        if pa.types.is_integer(inner) or pa.types.is_boolean(inner):
            return value.cast(pa.string()).dictionary_encode(), None
        raise refusal
    if unit_ns is not None:
        return _scaled(value.cast(pa.int64()), unit_ns)
    if kind == field.type:
        return value, None
    if inner in (pa.string(), pa.large_string(), pa.string_view()) or pa.types.is_temporal(inner):
        raise refusal
    plain = value.dictionary_decode() if inner is not kind else value
    if field.type == pa.int64() and pa.types.is_integer(inner):
        if inner != pa.uint64():
            return plain.cast(pa.int64()), None
        is_wrong = np.asarray(plain.fill_null(0)) > np.uint64((1 << 63) - 1)
        return plain.cast(pa.int64(), safe=False).filter(pa.array(np.ones(len(plain), np.bool_))), is_wrong
    if field.type == pa.float64() and (pa.types.is_integer(inner) or pa.types.is_floating(inner)):
        return plain.cast(pa.float64(), safe=False), None
    if field.type == pa.int64() and pa.types.is_floating(inner):
        return _whole(np.asarray(plain.cast(pa.float64()).fill_null(0.0)), np.asarray(plain.is_valid()))
    raise refusal


def _scaled(counts: pa.Array, unit_ns: int) -> tuple[pa.Array, Array | None]:
    """Counts of a unit in nanoseconds; beyond 64 bits they are wrong."""
    if unit_ns == 1:
        return counts, None
    values, known = np.asarray(counts.fill_null(0)), np.asarray(counts.is_valid())
    most = ((1 << 63) - 1) // unit_ns
    is_wrong = (values > most) | (values < -most)
    return pa.array(np.where(is_wrong, 0, values) * unit_ns, mask=~known | is_wrong), is_wrong


def _whole(values: Array, known: Array) -> tuple[pa.Array, Array]:
    nearest = np.rint(values)
    with np.errstate(invalid="ignore"):
        is_wrong = known & ~((np.abs(values - nearest) < 5e-10) & (np.abs(values) < 2.0**63))
    kept = np.where(known & ~is_wrong, nearest, 0.0).astype(np.int64)
    return pa.array(kept, mask=~known | is_wrong), is_wrong


def shown_rows(batch: Batch, places: Array, kinds: Kinds) -> list[str]:
    """Rows as the quarantine shows them: in the contract's columns, or as the file has them where they have a fault."""
    taken = pa.array(places)
    rows: list[dict[str, Any]] = batch.rows.select(TABLES[batch.file.table].names).take(taken).to_pylist()
    if batch.file.table == "publications":
        for row in rows:
            if row["attributes"] is not None:
                row["attributes"] = _laid_out(row["attributes"] if batch.attributes else {}, batch.attributes, kinds)
    shown = [json_text(row) for row in rows]
    if batch.faults is not None:
        assert batch.raw is not None, "a row with a fault is shown as the file has it"
        has_fault = batch.faults.take(taken).is_valid().to_pylist()
        raw = batch.raw.take(taken).to_pylist()
        shown = [
            text if not is_faulty else given if isinstance(given, str) else json_text(given)
            for text, given, is_faulty in zip(shown, raw, has_fault, strict=True)
        ]
    return shown


def _laid_out(given: Mapping[str, Any], columns: Mapping[str, pa.Array], kinds: Kinds) -> dict[str, Any]:
    """The attributes of a row in the layout of all files."""
    laid: dict[str, Any] = {}
    for name, some in kinds.items():
        if len(some) == 1:
            laid[name] = given.get(name)
        else:
            here = next((kind for kind in some if name in columns and columns[name].type == KIND_TYPES[kind]), None)
            laid[name] = {kind: given.get(name) if kind == here else None for kind in some}
    return laid
