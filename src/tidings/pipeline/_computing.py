"""What is computed of units, all in one pass: the rows of whole units in, the partials of every measure out.

The rows of a partition go to Python once, in Arrow batches, and what comes back has one row per thing that is counted.
Partials of all kinds are rows of one table (PARTIALS): `kind` says which, and the column of that name holds it.

Why not as Spark's own joins, windows and aggregates: they took five times as long. A sketch makes an aggregate leave
the generated code, every join and window brings its own sort or hash table, and facts that several measures are made
of have to be kept somewhere in between; here they are arrays that are thrown away with their partition.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.pipeline._storage import read_path
from tidings.pipeline._store import Run
from tidings.pipeline.gathering import unpack
from tidings.pipeline.interest import Shipped
from tidings.pipeline.profiles import (
    PARTIAL_COMPONENTS,
    PARTIAL_CONTENT,
    PARTIAL_PAIRS,
    PARTIAL_PUBLISHERS,
    PARTIAL_TRANSMISSIONS,
    RECEPTIONS,
    content_of,
    pairs_of,
    publishers_of,
    receptions_of,
    spans_of,
    transmissions_of,
)
from tidings.pipeline.rows import FAULTS, QUARANTINED, ROWS, Audience, Counting, arrow_schema, join_rows

__all__ = [
    "FAULTY",
    "PARTIALS",
    "PASSING",
    "RECEIVED",
    "UNITS",
    "as_partials",
    "of_kind",
    "partials_of_units",
    "read_partials",
]

UNITS: Final = "units"
"""The name of the partials by unit in a run's folder."""
RECEIVED: Final = "receptions"
FAULTY: Final = "faults"
PASSING: Final = (RECEIVED, FAULTY)
"""Kinds that a run needs on the way and does not keep."""

_UNIT: Final = "publisher string, chunk bigint, "
_KINDS: Final[dict[str, str]] = {
    "pairs": PARTIAL_PAIRS,
    "transmissions": PARTIAL_TRANSMISSIONS,
    "publishers": PARTIAL_PUBLISHERS,
    "content": PARTIAL_CONTENT,
    "components": PARTIAL_COMPONENTS,
    "quarantine": QUARANTINED,
    "rows": ROWS,
    RECEIVED: _UNIT + RECEPTIONS,
    FAULTY: FAULTS,
}


def _struct(columns: str) -> str:
    own = (column.split(" ", 1) for column in columns.removeprefix(_UNIT).split(", "))
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in own)}>"


PARTIALS: Final = f"kind string, {_UNIT}" + ", ".join(f"{kind} {_struct(columns)}" for kind, columns in _KINDS.items())


@dataclass(frozen=True, kw_only=True)
class Computing:
    """What the workers have to know; `audience` is an Audience."""

    audience: Shipped
    counting: Counting
    window_ns: int


def partials_of_units(rows: DataFrame, audience: Shipped, counting: Counting, *, window_ns: int) -> DataFrame:
    """The PARTIALS of rows (PACKED) of which those of a unit are in one partition."""
    asked = Computing(audience=audience, counting=counting, window_ns=window_ns)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = unpack(batches)
        if table.num_rows:
            yield from _computed(table, asked)

    return rows.mapInArrow(run, PARTIALS)


def _computed(table: pa.Table, asked: Computing) -> Iterator[pa.RecordBatch]:
    audience: Audience = asked.audience.value()
    joined = join_rows(table, audience, asked.counting)
    tables = {
        "pairs": pairs_of(joined.fates, audience, window_ns=asked.window_ns),
        "transmissions": transmissions_of(joined.hops),
        "publishers": publishers_of(joined.events),
        "content": content_of(joined.events, audience),
        "components": spans_of(joined.events),
        "quarantine": joined.quarantined,
        "rows": joined.rows,
        RECEIVED: receptions_of(joined.hops),
        FAULTY: joined.faults,
    }
    for kind, partials in tables.items():
        for batch in partials.combine_chunks().to_batches():
            yield _as_batch(kind, batch)


def _as_batch(kind: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of one kind as rows of PARTIALS; columns that the batch lacks are NULL."""
    length = batch.num_rows

    def column(field: pa.Field) -> pa.Array:
        has = field.name in batch.schema.names
        return batch.column(field.name) if has else pa.nulls(length, field.type)

    arrays = [pa.array([kind] * length, pa.string())]
    arrays += [column(field) for field in arrow_schema(_UNIT.removesuffix(", "))]
    for name, columns in _KINDS.items():
        fields = list(arrow_schema(columns.removeprefix(_UNIT)))
        if name == kind:
            arrays.append(pa.StructArray.from_arrays([column(field) for field in fields], fields=fields))
        else:
            arrays.append(pa.nulls(length, pa.struct(fields)))
    return pa.RecordBatch.from_arrays(arrays, names=["kind", "publisher", "chunk", *_KINDS])


def as_partials(kind: str, rows: DataFrame) -> DataFrame:
    """Rows of one kind as PARTIALS; what they do not have is NULL."""
    own = [column.split(" ", 1) for column in _KINDS[kind].removeprefix(_UNIT).split(", ")]
    values = [(fn.col(name) if name in rows.columns else fn.lit(None)).cast(wanted).alias(name) for name, wanted in own]
    structs = [
        (fn.struct(*values) if name == kind else fn.lit(None)).cast(_struct(columns)).alias(name)
        for name, columns in _KINDS.items()
    ]
    return rows.select(fn.lit(kind).alias("kind"), "publisher", "chunk", *structs)


def of_kind(kind: str, partials: DataFrame) -> DataFrame:
    """The rows of a kind among PARTIALS, in columns of their own."""
    chosen = partials.where(fn.col("kind") == kind)
    unit = () if kind == RECEIVED else ("publisher", "chunk")
    return chosen.select(*unit, f"{kind}.*")


def read_partials(spark: SparkSession, run: Run, kind: str | None = None) -> DataFrame:
    """The partials by unit of a run: PARTIALS, or those of one kind in columns of their own."""
    partials = spark.read.schema(PARTIALS).parquet(read_path(run.partials(UNITS)))
    return partials if kind is None else of_kind(kind, partials)
