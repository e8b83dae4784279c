"""Files of a trace as DataFrames with the contract's columns.

Theory of operation. Files that hold the same columns are read together by Spark's own readers, with the types that
their footers (or the mapping) give, so no data is looked at to find them. Each such group is brought to the contract's
columns by expressions, and the groups are united. In the usual case there is one group that fits already, and reading
it costs nothing on top of the scan.

Attributes are united by name; a missing one is NULL. An attribute whose files disagree about its kind (a string here, a
number there) becomes a struct with a field per kind, one of which has the value: nothing is converted, so nothing is
lost, and a filter sees each value as what it was (interest/_matcher.py).
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from tidings.errors import InputError
from tidings.model.trace import TABLES
from tidings.pipeline._storage import read_path
from tidings.pipeline.ingest._casts import as_kind, as_nanoseconds, converted
from tidings.pipeline.ingest._columns import KIND_TYPES, TYPES, names_in, quoted
from tidings.pipeline.ingest._envelope import HOST, corrected_mapping, on_one_clock
from tidings.pipeline.ingest._files import TraceFile
from tidings.pipeline.ingest._foreign import fallback_columns, given_rows, read_foreign, read_topics
from tidings.pipeline.ingest._mapping import FALLBACKS
from tidings.pipeline.ingest._reasons import JSON_OPTIONS, WRONG_TYPE
from tidings.pipeline.ingest._rules import DURATIONS

if TYPE_CHECKING:
    from tidings.pipeline.ingest._mapping import Mapping

__all__ = ["frame_rows", "no_rows", "read_table", "with_clocks"]

Kinds = dict[str, tuple[str, ...]]
"""Attributes by name with their kinds: one as a rule, several where files disagree."""


def read_table(
    spark: SparkSession, table: str, files: Sequence[TraceFile], *, mapping: "Mapping | None" = None
) -> DataFrame:
    """The rows of a table, as they are: the contract's columns, `_file`, `_faults` and `_raw`.

    `files` may be those of all tables. `_faults array<string>` are the reasons found while reading, `_raw` is the row
    as it stood in the file, as JSON, where it has faults. Files with a `fault` are left out: see `unreadable_files`.
    A table without files has no rows.
    """
    assert table in TABLES, table
    own = [file for file in files if file.table == table and file.fault is None]
    by_columns: dict[tuple[str, tuple[tuple[str, int], ...]], list[TraceFile]] = {}
    for file in own:
        if file.format == "parquet":
            assert isinstance(file.columns, str)
            by_columns.setdefault((file.columns, tuple(sorted(file.units_ns.items()))), []).append(file)
    groups = [_read_parquet(spark, table, alike) for _, alike in sorted(by_columns.items())]
    topics = [file for file in own if file.format == "topic"]
    if topics:
        groups.append(read_topics(spark, table, topics))
    if any(file.format not in ("parquet", "topic") for file in own):
        assert mapping is not None, "files that are not Parquet come from a mapping"
        groups.append(read_foreign(spark, table, files, mapping))
    if mapping is not None and table in mapping.given_tables:
        groups.append((given_rows(spark, mapping), {}))
    kinds = _united(kinds for _, kinds in groups)
    parts = [_aligned(table, rows, found, kinds) for rows, found in groups]
    rows = reduce(DataFrame.unionAll, parts) if parts else no_rows(spark, table)
    return rows.drop(HOST) if mapping is None else on_one_clock(spark, table, rows, mapping)


def with_clocks(spark: SparkSession, files: Sequence[TraceFile], mapping: "Mapping | None") -> "Mapping | None":
    """The mapping with the corrections of clocks that it asks for, found in these files; any other as it is."""
    return corrected_mapping(mapping, lambda table: read_table(spark, table, files, mapping=mapping))


def _read_parquet(spark: SparkSession, table: str, files: Sequence[TraceFile]) -> tuple[DataFrame, Kinds]:
    """Files with the same columns."""
    rows = spark.read.schema(str(files[0].columns)).parquet(*(read_path(file.path) for file in files))
    return _in_contract(table, rows, files[0].units_ns, f.col("_metadata.file_path"))


def frame_rows(table: str, rows: DataFrame) -> DataFrame:
    """The rows of a DataFrame as `read_table` gives those of files: for tables that a session holds already.

    A column that is absent is taken as in a mapping (FALLBACKS); an InputError names one that is needed. Columns of
    moments may be timestamps.
    """
    names = names_in(table, rows.columns)
    for field in TABLES[table]:
        if not field.nullable and field.name not in (*names, *FALLBACKS[table], "attributes"):
            meaning = field.metadata[b"meaning"].decode()
            raise InputError(
                f"the DataFrame of {table} has no column `{field.name}` ({meaning}); it has {', '.join(rows.columns)}: "
                "rename one, or add it"
            )
    moments = {
        name: 1000
        for name, given in names.items()
        if name.endswith("_ns") and name not in DURATIONS and rows.schema[given].dataType.simpleString() == "timestamp"
    }
    found, kinds = _in_contract(table, rows, moments, f.lit(None).cast("string"))
    for name, fallback in FALLBACKS[table].items():
        if name not in names:
            found = found.withColumn(name, f.coalesce(f.col(name), *fallback_columns(fallback, TYPES[table][name])))
    return _aligned(table, found, kinds, kinds).drop(HOST)


def _in_contract(table: str, rows: DataFrame, units_ns: dict[str, int], file: Column) -> tuple[DataFrame, Kinds]:
    """Rows of one schema in the contract's columns; `file` is where each is from."""
    schema = rows.schema
    found = {field.name: field.dataType.simpleString() for field in schema}
    names = names_in(table, found)
    values: list[Column] = []
    wrong: list[Column] = []
    for name, wanted in TYPES[table].items():
        if name not in names:
            values.append(f.lit(None).cast(wanted).alias(name))
            continue
        given, kind = rows[quoted(names[name])], found[names[name]]
        value, is_wrong = (
            as_nanoseconds(given, kind, units_ns[name]) if name in units_ns else converted(given, kind, wanted)
        )
        values.append(value.alias(name))
        wrong += [] if is_wrong is None else [is_wrong]
    kinds: Kinds = {}
    if table == "publications":
        attributes, kinds = _attributes(rows, schema, names.get("attributes", ""))
        values.append(attributes.alias("attributes"))
    faults, raw = f.array().cast("array<string>"), f.lit(None).cast("string")
    if wrong:
        is_faulty = reduce(Column.__or__, wrong)
        faults = f.when(is_faulty, f.array(f.lit(WRONG_TYPE))).otherwise(faults)
        raw = f.when(is_faulty, f.to_json(f.struct(*(rows[quoted(name)] for name in found)), JSON_OPTIONS))
    return rows.select(*values, file.alias("_file"), faults.alias("_faults"), raw.alias("_raw")), kinds


def _attributes(rows: DataFrame, schema: StructType, called: str) -> tuple[Column, Kinds]:
    """The attributes of a Parquet file, each as one of the four kinds."""
    field = next((field for field in schema if field.name == called), None)
    if field is None or not isinstance(field.dataType, StructType):
        return f.struct(), {}
    kinds: Kinds = {}
    values = []
    fits = True
    for inner in field.dataType:
        found = inner.dataType.simpleString()
        kind, value = as_kind(rows[quoted(called)][inner.name], found)
        kinds[inner.name] = (kind,)
        fits &= found == KIND_TYPES[kind]
        values.append(value.alias(inner.name))
    return rows[quoted(called)] if fits else f.struct(*values), kinds


def _united(groups: Iterable[Kinds]) -> Kinds:
    """Attributes of all groups, by name; kinds in a fixed order, so that the order of files does not matter."""
    found: dict[str, set[str]] = {}
    for kinds in groups:
        for name, some in kinds.items():
            found.setdefault(name, set()).update(some)
    return {name: tuple(kind for kind in KIND_TYPES if kind in found[name]) for name in found}


def _aligned(table: str, rows: DataFrame, found: Kinds, wanted: Kinds) -> DataFrame:
    """The group's columns in the order of the contract, its attributes in the layout of all groups."""
    attributes: list[Column] = []
    if table == "publications":
        layout = rows["attributes"] if list(found.items()) == list(wanted.items()) else _laid_out(rows, found, wanted)
        attributes = [layout.alias("attributes")]
    host = rows[HOST] if HOST in rows.columns else f.lit(None).cast("string")
    return rows.select(*TYPES[table], *attributes, "_file", "_faults", "_raw", host.alias(HOST))


def _laid_out(rows: DataFrame, found: Kinds, wanted: Kinds) -> Column:
    def value(name: str, kind: str) -> Column:
        have = found.get(name) == (kind,)
        return rows["attributes"][name] if have else f.lit(None).cast(KIND_TYPES[kind])

    return f.struct(
        *(
            (
                value(name, kinds[0])
                if len(kinds) == 1
                else f.struct(*(value(name, kind).alias(kind) for kind in kinds))
            ).alias(name)
            for name, kinds in wanted.items()
        )
    )


def no_rows(spark: SparkSession, table: str) -> DataFrame:
    columns = [f"{name} {kind}" for name, kind in TYPES[table].items()]
    if table == "publications":
        columns.append("attributes struct<>")
    return spark.createDataFrame(
        [], ", ".join([*columns, "_file string", "_faults array<string>", "_raw string", "_host string"])
    )
