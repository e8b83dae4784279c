"""Clocks on Spark: the lower envelope of delays between hosts, and rows whose times are corrected.

Both by Spark's own aggregates and expressions. What comes to the driver is one row per pair of hosts (BUCKETS of them
if clocks may drift), however long the log is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tidings.errors import InputError
from tidings.pipeline.ingest._clocks import (
    BUCKETS,
    HOSTS_MAX,
    LEAST_DELAYS,
    SPAN_NS,
    STEPS_NS,
    Corrections,
    find_clocks,
)
from tidings.pipeline.ingest._mapping import HOSTED, SOURCE_TIMES, TARGET_TIMES, Mapping
from tidings.pipeline.ingest._rules import DURATIONS

__all__ = ["CLOCK", "HOST", "corrected_mapping", "least_delays", "on_one_clock"]

HOST = "_host"
CLOCK = "clock"
"""The number of the host whose clock a row's times are of, among those of the corrections."""


def corrected_mapping(mapping: Mapping | None, read: Callable[[str], DataFrame]) -> Mapping | None:
    """The mapping with the corrections that it asks for, if any; `read` gives the rows of a table, not corrected."""
    if mapping is None or mapping.clocks is None:
        return mapping
    asked = mapping.clocks
    # Also where all clocks are declared: only the log shows which hosts there are, and how coarse their times.
    found = least_delays(read, drift=asked.drift)
    rows = HOSTS_MAX * HOSTS_MAX * (BUCKETS if asked.drift else 1)
    seen = found.limit(rows + 1).toArrow().cast(LEAST_DELAYS)
    if len(seen) > rows:
        raise InputError(f"[clocks]: more than {HOSTS_MAX:,} hosts; name fewer in `host`, such as the machine")
    return replace(mapping, corrections=find_clocks(asked, seen))


def least_delays(read: Callable[[str], DataFrame], *, drift: bool) -> DataFrame:
    """LEAST_DELAYS of events from departure to arrival, and of hops from sending to receiving."""
    sends = read("publications").where(f.size("_faults") == 0)
    # A key that two events share would make delays of one to the other: nothing follows from it.
    keyed = sends.groupBy("publisher", "sequence").agg(
        f.min("departure_ns").alias("sent"), f.min(HOST).alias("source"), f.count("*").alias("copies")
    )
    arrivals = read("deliveries").where(f.size("_faults") == 0)
    delivered = arrivals.select(
        "publisher", "sequence", f.col("arrived_ns").alias("received"), f.col(HOST).alias("target")
    )
    direct = delivered.join(keyed.where("copies = 1"), ["publisher", "sequence"], "inner")
    hops = read("hops").where(f.size("_faults") == 0).where("sent_ns IS NOT NULL AND received_ns IS NOT NULL")
    names = ("source", "target", "sent", "received")
    legs = hops.select(
        f.coalesce("source", "publisher").alias("source"),
        "target",
        f.col("sent_ns").alias("sent"),
        f.col("received_ns").alias("received"),
    )
    rows = direct.select(*names).unionAll(legs.select(*names)).dropna()
    near = rows.where(f.col("sent").between(-SPAN_NS, SPAN_NS) & f.col("received").between(-SPAN_NS, SPAN_NS))
    near = near.where("source != target")
    if not drift:
        return _least(near, ["source", "target"])
    # First by the minute, so that the rows of a pair are few before its span is known.
    by_minute = _least(near.withColumn("part", f.expr("sent div 60000000000L")), ["source", "target", "part"])
    span = by_minute.agg(f.min("at_ns").alias("first_ns"), f.max("at_ns").alias("last_ns"))
    part = f.expr(f"(at_ns - first_ns) div ((last_ns - first_ns) div {BUCKETS} + 1)")
    parts = by_minute.crossJoin(f.broadcast(span)).withColumn("part", part)
    merged = parts.groupBy("source", "target", "part").agg(
        f.min(f.struct("least_ns", "at_ns")).alias("least"),
        *(f.min(f"{end}_step_ns").alias(f"{end}_step_ns") for end in ("source", "target")),
    )
    steps = ("source_step_ns", "target_step_ns")
    return merged.select("source", "target", "least.at_ns", "least.least_ns", *steps)


def _least(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    least = f.min(f.struct((f.col("received") - f.col("sent")).alias("least_ns"), f.col("sent").alias("at_ns")))
    found = rows.groupBy(*keys).agg(
        least.alias("least"), _step("sent").alias("source_step_ns"), _step("received").alias("target_step_ns")
    )
    return found.select(*keys, "least.at_ns", "least.least_ns", "source_step_ns", "target_step_ns")


def _step(time: str) -> Column:
    """The coarsest of STEPS_NS that all times are whole multiples of."""
    steps = [f.when(f.min(f.col(time) % step == 0), step) for step in STEPS_NS[:-1]]
    return f.coalesce(*steps, f.lit(1)).cast("bigint")


def on_one_clock(spark: SparkSession, table: str, rows: DataFrame, mapping: Mapping) -> DataFrame:
    """Rows (with the host of those that a log names one for) as their clocks have to be read.

    Where the mapping has corrections, times are brought to one clock, and rows of HOSTED tables get the number of their
    host (CLOCK). Where it only asks for them, rows keep the name of their host (HOST). Otherwise they are as they were.
    """
    if mapping.clocks is None or table not in (*HOSTED, "hops"):
        return rows.drop(HOST)
    if table in HOSTED:
        rows = rows.withColumn(HOST, f.coalesce(HOST, HOSTED[table]))
    if mapping.corrections is None:
        return rows
    found = mapping.corrections
    clocks = spark.createDataFrame(
        pa.table(
            {
                "_known": pa.array(found.hosts, pa.string()),
                CLOCK: pa.array(range(len(found.hosts)), pa.int64()),
                "_ahead": pa.array(found.ahead_ns, pa.int64()),
                "_rate": pa.array(found.rate, pa.float64()),
            }
        )
    )
    if table in HOSTED:
        times = [name for name in rows.columns if name.endswith("_ns") and name not in DURATIONS]
        return _brought(rows, clocks, HOST, times, found).drop(HOST)
    by_source = rows.withColumn(HOST, f.coalesce("source", "publisher"))
    half = _brought(by_source, clocks, HOST, SOURCE_TIMES, found).drop(HOST, CLOCK)
    return _brought(half, clocks, "target", TARGET_TIMES, found).drop(CLOCK)


def _brought(
    rows: DataFrame, clocks: DataFrame, host: str, times: Sequence[str], corrections: Corrections
) -> DataFrame:
    """The rows with these times as the reference's clock would have shown them; as they are if the host is unknown."""
    joined = rows.join(f.broadcast(clocks), f.col(host) == f.col("_known"), "left")
    for name in times:
        drifted = f.round((f.col(name) - corrections.origin_ns) * f.col("_rate")).cast("bigint")
        ahead = f.col("_ahead") + drifted if corrections.rate.any() else f.col("_ahead")
        joined = joined.withColumn(name, f.coalesce(f.try_subtract(f.col(name), ahead), f.col(name)))
    return joined.drop("_known", "_ahead", "_rate")
