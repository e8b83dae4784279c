"""The partials of every measure from the rows of whole units, all in one pass.

The rows of a partition go to Python once, in Arrow batches, and what comes back has one row per thing that is counted.

Why not as Spark's own joins, windows and aggregates: they took five times as long. A sketch makes an aggregate leave
the generated code, every join and window brings its own sort or hash table, and facts that several measures are made
of have to be kept somewhere in between; here they are arrays that are thrown away with their partition.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.pipeline._partials import KINDS, PARTIALS, RECEIVED, UNIT_COLUMNS, UNITS, as_batch, computed_of, struct_of
from tidings.pipeline._run_store import Run
from tidings.pipeline._storage import read_path
from tidings.pipeline.gathering import Source
from tidings.pipeline.interest import Shipped, ship
from tidings.pipeline.measures import small_components, unmatched
from tidings.pipeline.rows import Counting, unpack

__all__ = ["as_partials", "of_kind", "partials_of_source", "read_partials"]


@dataclass(frozen=True, kw_only=True)
class Computing:
    """What the workers have to know; `audience` is an Audience."""

    audience: Shipped
    counting: Counting
    window_ns: int


def partials_of_source(
    spark: SparkSession, source: Source, counting: Counting, *, window_ns: int, partitions: int
) -> DataFrame:
    """The PARTIALS of a source: those of its units, and the small tables' own."""
    setting = source.setting
    partials = partials_of_units(
        source.gathered(partitions=partitions), ship(spark, setting.audience), counting, window_ns=window_ns
    )
    small = {
        "pairs": unmatched(setting.subscriptions),
        "components": small_components(setting.topology, setting.transitions),
        "quarantine": setting.quarantined,
        "rows": setting.rows,
    }
    for kind, rows in small.items():
        partials = partials.unionAll(as_partials(kind, rows))
    return partials


def partials_of_units(rows: DataFrame, audience: Shipped, counting: Counting, *, window_ns: int) -> DataFrame:
    """The PARTIALS of rows (PACKED) of which those of a unit are in one partition."""
    asked = Computing(audience=audience, counting=counting, window_ns=window_ns)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = unpack(batches)
        if table.num_rows:
            computed = computed_of(table, asked.audience.value(), asked.counting, window_ns=asked.window_ns)
            for kind, partials in computed.items():
                for batch in partials.combine_chunks().to_batches():
                    yield as_batch(kind, batch)

    return rows.mapInArrow(run, PARTIALS)


def as_partials(kind: str, rows: DataFrame) -> DataFrame:
    """Rows of one kind as PARTIALS; what they do not have is NULL."""
    own = [column.split(" ", 1) for column in KINDS[kind].removeprefix(UNIT_COLUMNS).split(", ")]
    values = [(fn.col(name) if name in rows.columns else fn.lit(None)).cast(wanted).alias(name) for name, wanted in own]
    structs = [
        (fn.struct(*values) if name == kind else fn.lit(None)).cast(struct_of(columns)).alias(name)
        for name, columns in KINDS.items()
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
