"""The setting of a trace: its small tables (subscriptions, topology, transitions), checked, numbered and laid down.

Subscriptions are numbered in the order of their names, so their numbers do not depend on files; the driver holds them
(some hundred bytes each) to build the matching index. The fingerprint is that of their content and of the brokers':
files that say the same again change nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.model.trace import TABLES
from tidings.pipeline._facts import WITHOUT_EVENT
from tidings.pipeline._options import SMALL
from tidings.pipeline._storage import read_path, write_path
from tidings.pipeline._store import Run
from tidings.pipeline.gathering import quarantine_columns
from tidings.pipeline.ingest import (
    QUARANTINE_SCHEMA,
    Mapping,
    TraceFile,
    check_rows,
    read_table,
    unreadable_files,
)
from tidings.pipeline.ingest._columns import spark_columns
from tidings.pipeline.interest import Interests, are_no_filters, fingerprint, parse_filters
from tidings.pipeline.rows import Audience, audience_of

__all__ = ["Setting", "read_setting"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The small tables. `brokers` is None if the trace does not say which there are.

    `quarantined` has the columns of QUARANTINED, `rows` those of `Joined.rows`.
    """

    subscriptions: DataFrame
    topology: DataFrame
    transitions: DataFrame
    brokers: DataFrame | None
    broker_names: frozenset[str] | None
    interests: Interests
    audience: Audience
    fingerprint: str
    quarantined: DataFrame
    rows: DataFrame


def read_setting(
    spark: SparkSession, files: Sequence[TraceFile], run: Run, *, mapping: Mapping | None, clock_tolerance_ns: int
) -> Setting:
    """Read the small tables and write them, clean, into the run's folder. Each is read once and held here."""
    raw = {table: read_table(spark, table, files, mapping=mapping).toArrow() for table in SMALL}
    is_broker = pc.equal(raw["topology"]["kind"], "broker")
    names = sorted({*raw["topology"].filter(is_broker)["source"].drop_null().to_pylist()}) or None
    brokers = None if names is None else spark.createDataFrame(pa.table({"broker": names}))
    raw["subscriptions"] = raw["subscriptions"].append_column(
        "_bad_filter", are_no_filters(raw["subscriptions"]["filter"])
    )
    faults = [file for file in files if file.fault is not None]
    counts = [(file.table, file.rows_or_one) for file in faults]
    good: dict[str, pa.Table] = {}
    bad = [unreadable_files(faults)]
    for table in SMALL:
        rows = _held(spark, raw[table])
        checked = check_rows(table, rows, clock_tolerance_ns=clock_tolerance_ns, brokers=brokers)
        marked = checked.select(*TABLES[table].names, *quarantine_columns(table)).toArrow()
        is_bad = pc.greater(pc.list_value_length(marked["reasons"]), 0)
        good[table] = marked.filter(pc.invert(is_bad)).select(TABLES[table].names)
        bad.append(marked.filter(is_bad).select(QUARANTINE_SCHEMA.names).cast(QUARANTINE_SCHEMA))
        counts.append((table, len(marked)))
    subscriptions = good["subscriptions"].sort_by("subscription")
    numbered = subscriptions.append_column("number", pa.array(np.arange(len(subscriptions), dtype=np.int32)))
    frames = {
        name: _laid_down(spark, run.setting(name), table) for name, table in {**good, "subscriptions": numbered}.items()
    }
    interests, unread = parse_filters(numbered)
    assert not unread, "subscriptions whose filter does not parse are in the quarantine"
    quarantined = _held(spark, pa.concat_tables(bad))
    counted = pa.table({"table": [table for table, _ in counts], "rows": [rows for _, rows in counts]})
    unit = [fn.lit(None).cast("string").alias("publisher"), fn.lit(WITHOUT_EVENT).cast("bigint").alias("chunk")]
    return Setting(
        subscriptions=frames["subscriptions"],
        topology=frames["topology"],
        transitions=frames["transitions"],
        brokers=brokers,
        broker_names=None if names is None else frozenset(names),
        interests=interests,
        audience=audience_of(numbered),
        fingerprint=fingerprint(numbered, names),
        quarantined=quarantined.select(*unit, *QUARANTINE_SCHEMA.names),
        rows=spark.createDataFrame(counted).select(*unit, "table", "rows"),
    )


def _held(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows that the driver holds. Of a table without rows Connect would not see the columns."""
    if len(table):
        return spark.createDataFrame(table)
    columns, fault = spark_columns(table.schema)
    assert columns is not None, fault
    return spark.createDataFrame([], columns)


def _laid_down(spark: SparkSession, place: str, table: pa.Table) -> DataFrame:
    """As a file of the run, so that no plan has to carry the rows."""
    rows = _held(spark, table).coalesce(1)
    rows.write.parquet(write_path(place))
    return spark.read.schema(rows.schema).parquet(read_path(place))
