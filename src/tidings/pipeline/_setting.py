"""The setting of a trace: its small tables (subscriptions, topology, transitions), checked, numbered and laid down.

Subscriptions are numbered in the order of their names, so their numbers do not depend on files; the driver holds them
(some hundred bytes each) to build the matching index. The fingerprint is that of their content and of the brokers':
files that say the same again change nothing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.model.trace import TABLES
from tidings.pipeline._facts import WITHOUT_EVENT
from tidings.pipeline._joining import quarantine_columns
from tidings.pipeline._store import Run
from tidings.pipeline.ingest import (
    QUARANTINE,
    Mapping,
    TraceFile,
    check_rows,
    read_table,
    unreadable_files,
)
from tidings.pipeline.interest import Interests, parse_filters

__all__ = ["SMALL", "Setting", "fingerprint", "read_setting"]

SMALL = ("subscriptions", "topology", "transitions")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The small tables. `brokers` is None if the trace does not say which there are.

    `quarantined` has the columns of QUARANTINED, `rows` those of `Joined.rows`.
    """

    subscriptions: DataFrame
    topology: DataFrame
    transitions: DataFrame
    brokers: DataFrame | None
    interests: Interests
    fingerprint: str
    quarantined: DataFrame
    rows: DataFrame


def read_setting(
    spark: SparkSession, files: Sequence[TraceFile], run: Run, *, mapping: Mapping | None, clock_tolerance_ns: int
) -> Setting:
    """Read the small tables and write them, clean, into the run's folder. Each is read by one job and held here."""
    topology = read_table(spark, "topology", files, mapping=mapping).where("kind = 'broker'").select("source")
    names = sorted({name for name in topology.toArrow()["source"].to_pylist() if name is not None}) or None
    brokers = None if names is None else spark.createDataFrame([(name,) for name in names], "broker string")
    faults = [file for file in files if file.fault is not None]
    counts: list[tuple[None, int, str, int]] = [(None, WITHOUT_EVENT, file.table, 1) for file in faults]
    good: dict[str, pa.Table] = {}
    bad: list[dict[str, Any]] = []
    for table in SMALL:
        rows = read_table(spark, table, files, mapping=mapping)
        checked = check_rows(table, rows, clock_tolerance_ns=clock_tolerance_ns, brokers=brokers)
        marked = checked.select(*TABLES[table].names, *quarantine_columns(table)).toArrow()
        is_bad = pc.greater(pc.list_value_length(marked["reasons"]), 0)
        good[table] = marked.filter(pc.invert(is_bad)).select(TABLES[table].names)
        bad += marked.filter(is_bad).select(["table", "file", "reasons", "row"]).to_pylist()
        counts.append((None, WITHOUT_EVENT, table, len(marked)))
    subscriptions = good["subscriptions"].sort_by("subscription")
    numbered = subscriptions.append_column("number", pa.array(np.arange(len(subscriptions), dtype=np.int32)))
    frames = {
        name: _laid_down(spark, run.setting(name), table) for name, table in {**good, "subscriptions": numbered}.items()
    }
    interests, unread = parse_filters(numbered)
    assert not unread, "subscriptions whose filter does not parse are in the quarantine"
    quarantined = spark.createDataFrame(
        [(row["table"], row["file"], row["reasons"], row["row"]) for row in bad], QUARANTINE
    ).unionAll(unreadable_files(spark, faults))
    unit = [fn.lit(None).cast("string").alias("publisher"), fn.lit(WITHOUT_EVENT).cast("bigint").alias("chunk")]
    return Setting(
        subscriptions=frames["subscriptions"],
        topology=frames["topology"],
        transitions=frames["transitions"],
        brokers=brokers,
        interests=interests,
        fingerprint=fingerprint(numbered, names),
        quarantined=quarantined.select(*unit, "table", "file", "reasons", "row"),
        rows=spark.createDataFrame(counts, "publisher string, chunk bigint, table string, rows bigint"),
    )


def fingerprint(subscriptions: pa.Table, brokers: Sequence[str] | None) -> str:
    """Of the subscriptions in order of their numbers, and of the brokers in order of their names."""
    digest = hashlib.sha256()
    for row in subscriptions.to_pylist():
        digest.update(repr(sorted(row.items())).encode())
    digest.update(repr(brokers).encode())
    return digest.hexdigest()


def _laid_down(spark: SparkSession, place: str, table: pa.Table) -> DataFrame:
    """As a file of the run, so that no plan has to carry the rows."""
    Path(place).mkdir(parents=True)
    pq.write_table(table, f"{place}/part-0.parquet")
    return spark.read.parquet(f"file:{place}")
