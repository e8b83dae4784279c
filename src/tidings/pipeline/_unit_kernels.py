"""The partials of every measure from the rows of whole units, all in one pass.

The rows of a partition go to Python once, in Arrow batches, and what comes back has one row per thing that is counted.

Why not as Spark's own joins, windows and aggregates: they took five times as long. A sketch makes an aggregate leave
the generated code, every join and window brings its own sort or hash table, and facts that several measures are made
of have to be kept somewhere in between; here they are arrays that are thrown away with their partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.pipeline._held import frame_of
from tidings.pipeline._partials import KINDS, PARTIALS, RECEIVED, UNITS, as_batch, computed_of, struct_of
from tidings.pipeline._portions import portions
from tidings.pipeline._run_store import Run
from tidings.pipeline._storage import read_path
from tidings.pipeline.arrow._small_tables import small_partials
from tidings.pipeline.gathering import Source
from tidings.pipeline.interest import Matcher, Shipped, ship
from tidings.pipeline.measures import PARTIAL_ARRIVALS
from tidings.pipeline.measures._brokers import arrivals_of
from tidings.pipeline.rows import Counting, over_partitions

__all__ = ["arrivals_in_slices", "as_partials", "of_kind", "partials_of_source", "read_partials"]


@dataclass(frozen=True, kw_only=True)
class Computing:
    """What the workers have to know; `matcher` is a Matcher, `audience` an Audience."""

    matcher: Shipped
    audience: Shipped
    counting: Counting
    window_ns: int


def partials_of_source(
    spark: SparkSession, source: Source, counting: Counting, *, window_ns: int, partitions: int
) -> DataFrame:
    """The PARTIALS of a source: those of its units, and the small tables' own."""
    setting = source.setting
    asked = Computing(
        matcher=ship(spark, Matcher(setting.interests)),
        audience=ship(spark, setting.audience),
        counting=counting,
        window_ns=window_ns,
    )
    partials = partials_of_units(source.gathered(partitions=partitions), asked)
    return partials.unionAll(frame_of(spark, partials_together(small_partials(setting.held))))


def partials_of_units(rows: DataFrame, asked: Computing) -> DataFrame:
    """The PARTIALS of rows of which those of a unit are in one partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        audience = asked.audience.value()
        for table in portions(pa.Table.from_batches(found), asked.matcher.value(), len(audience)):
            computed = computed_of(table, audience, asked.counting, window_ns=asked.window_ns)
            for kind, partials in computed.items():
                for batch in partials.combine_chunks().to_batches():
                    yield as_batch(kind, batch)

    return rows.mapInArrow(run, PARTIALS)


def as_partials(kind: str, rows: DataFrame) -> DataFrame:
    """Rows of one kind as PARTIALS."""
    structs = [
        (fn.struct(*rows.columns[2:]) if name == kind else fn.lit(None)).cast(struct_of(columns)).alias(name)
        for name, columns in KINDS.items()
    ]
    return rows.select(fn.lit(kind).alias("kind"), "publisher", "chunk", *structs)


def partials_together(tables: Mapping[str, Sequence[pa.Table]]) -> pa.Table:
    """Tables by kind as one of PARTIALS."""
    return pa.Table.from_batches(
        [
            as_batch(kind, batch)
            for kind, some in tables.items()
            for table in some
            for batch in table.combine_chunks().to_batches()
        ]
    )


def arrivals_in_slices(receptions: DataFrame, *, partitions: int) -> DataFrame:
    """The partials by slice: where the receptions (RECEPTIONS) of all publishers meet."""
    return over_partitions(receptions.repartition(partitions, "broker", "slice"), arrivals_of, PARTIAL_ARRIVALS)


def of_kind(kind: str, partials: DataFrame) -> DataFrame:
    """The rows of a kind among PARTIALS, in columns of their own."""
    chosen = partials.where(fn.col("kind") == kind)
    unit = () if kind == RECEIVED else ("publisher", "chunk")
    return chosen.select(*unit, f"{kind}.*")


def read_partials(spark: SparkSession, run: Run, kind: str | None = None) -> DataFrame:
    """The partials by unit of a run: PARTIALS, or those of one kind in columns of their own."""
    partials = spark.read.schema(PARTIALS).parquet(read_path(run.partials(UNITS)))
    return partials if kind is None else of_kind(kind, partials)
