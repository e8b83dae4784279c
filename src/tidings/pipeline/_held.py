"""Tables that the driver holds, in a place of any kind.

On this machine neither writing nor reading one is a job of Spark's; elsewhere Spark does both.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidings.pipeline._storage import is_local, read_path, storage_of
from tidings.pipeline.ingest._columns import spark_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["frame_of", "read_held", "write_held"]


def frame_of(spark: "SparkSession", table: pa.Table) -> "DataFrame":
    """The rows that the driver holds. Of a table without rows Connect would not see the columns."""
    if len(table):
        return spark.createDataFrame(table)
    columns, fault = spark_columns(table.schema)
    assert columns is not None, fault
    return spark.createDataFrame([], columns)


def write_held(spark: "SparkSession | None", place: str, table: pa.Table) -> None:
    """Write a table into a folder of its own; what a run that did not end had left there is replaced."""
    if is_local(place):
        Path(place).mkdir(parents=True, exist_ok=True)
        pq.write_table(table, f"{place}/part-00000.parquet")
    else:
        assert spark is not None
        frame_of(spark, table).coalesce(1).write.mode("overwrite").parquet(place)


def read_held(spark: "SparkSession | None", place: str, schema: pa.Schema | None = None) -> pa.Table:
    """The columns of this schema, or all; without a folder a table without rows."""
    if schema is not None and not storage_of(place, spark).exists(place):
        return schema.empty_table()
    names = None if schema is None else schema.names
    if is_local(place):
        found = pq.read_table(place, columns=names, partitioning=None)
    else:
        assert spark is not None
        frame = spark.read.parquet(read_path(place))
        found = (frame if names is None else frame.select(*names)).toArrow()
    return found if schema is None else found.cast(schema)
