"""The small tables that a replay and a watch need: which brokers there are, and subscriptions with numbers."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidings.pipeline.ingest import Mapping, TraceFile, check_rows, known_brokers, read_table, split

__all__ = ["known_broker_names", "numbered_subscriptions", "numbers"]


def known_broker_names(
    spark: SparkSession, files: Sequence[TraceFile], mapping: Mapping | None = None
) -> DataFrame | None:
    """Column `broker`; None if the trace does not say which there are."""
    topology = read_table(spark, "topology", files, mapping=mapping)
    names = sorted(known_brokers(topology).where("broker IS NOT NULL").toArrow()["broker"].to_pylist())
    return spark.createDataFrame([(name,) for name in names], "broker string") if names else None


def numbered_subscriptions(
    spark: SparkSession, files: Sequence[TraceFile], brokers: DataFrame | None, mapping: Mapping | None = None
) -> pa.Table:
    """The good ones, with a `number` in the order of their names; the driver holds them."""
    checked = check_rows("subscriptions", read_table(spark, "subscriptions", files, mapping=mapping), brokers=brokers)
    good, _ = split("subscriptions", checked)
    table = good.select("subscription", "filter", "from_ns", "until_ns").toArrow().sort_by("subscription")
    return table.append_column("number", pa.array(np.arange(len(table), dtype=np.int32)))


def numbers(spark: SparkSession, subscriptions: pa.Table) -> DataFrame:
    """Names and numbers, to join with."""
    return spark.createDataFrame(subscriptions.select(["subscription", "number"]))
