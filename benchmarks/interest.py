"""Interest: events matched per second inside Spark, against a cross join with broadcast ranges, and its upper limit.

The workload is W20 of the matching benchmark: 20 attributes, uniform on [0, 1), and subscriptions of 5 ranges of width
.2, stored 1,000, 10,000 and 100,000 at a time. All run in one session on the same cores, from the same Parquet file to
nowhere (Spark's `noop` sink):

- cross join: subscriptions as rows of five ranges (which attribute, both ends), broadcast; every event is compared with
  each of them until a range fails, which is three times as quick here as a pair of columns for each of the 20
  attributes. It yields pairs and is spared the grouping by event. It gets fewer events, so that it takes seconds; cost
  is proportional to the number of events, so its rate holds for more. Its pairs are checked to be the matches.
- identity: the same columns through `mapInArrow` and back unchanged: what passing through Python costs anyhow.

Options: ``BENCH_SIZES=1000,10000`` for other sizes, ``BENCH_EVENTS=100000``, ``BENCH_SEED=2``.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from rich.console import Console
from rich.table import Table

from benchmarks.matching import WORKLOADS, Array, filters, workload
from tidings.pipeline.interest import parse_filters, with_matches

SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "1000,10000,100000").split(","))
EVENTS = int(os.environ.get("BENCH_EVENTS", "400000"))
SEED = int(os.environ.get("BENCH_SEED", "1"))
JOIN_PAIRS = 60_000_000  # comparisons that the cross join is given: some seconds
RUNS = 3  # the best counts
ATTRIBUTES, RANGES, _ = WORKLOADS["W20"]
CHECKED = 200  # events on which both must agree


def started() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session: SparkSession = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.autoBroadcastJoinThreshold", "-1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def written_events(folder: Path, cores: int, rng: np.random.Generator) -> None:
    """As many files as cores, so that every method of matching has work for all of them."""
    for part, rows in enumerate(np.array_split(np.arange(EVENTS), cores)):
        names = [f"a{c}" for c in range(ATTRIBUTES)]
        values = rng.random((len(rows), ATTRIBUTES))
        attributes = pa.StructArray.from_arrays([pa.array(column) for column in values.T], names)
        table = pa.table({"sequence": rows, "departure_ns": rows, "attributes": attributes})
        pq.write_table(table, folder / f"{part}.parquet")


def ranges(session: SparkSession, low: Array, high: Array) -> DataFrame:
    """A row per subscription: of each of its ranges the attribute's position and both ends."""
    columns = {"number": pa.array(np.arange(len(low), dtype=np.int32))}
    chosen = np.argsort(~np.isfinite(low), axis=1, kind="stable")[:, :RANGES]
    for k, at in enumerate(chosen.T):
        rows = np.arange(len(low))
        columns[f"at{k}"] = pa.array(at.astype(np.int32))
        columns[f"low{k}"], columns[f"high{k}"] = pa.array(low[rows, at]), pa.array(high[rows, at])
    return session.createDataFrame(pa.table(columns))


def cross_join(events: DataFrame, subscriptions: DataFrame) -> DataFrame:
    values = fn.array(*[fn.col(f"attributes.a{c}") for c in range(ATTRIBUTES)])
    holds = [fn.get("value", fn.col(f"at{k}")).between(fn.col(f"low{k}"), fn.col(f"high{k}")) for k in range(RANGES)]
    pairs = events.select("sequence", values.alias("value")).join(
        fn.broadcast(subscriptions), reduce(lambda a, b: a & b, holds), "inner"
    )
    return pairs.select("sequence", "number")


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def rate(frame: DataFrame, events: int, *, runs: int = RUNS) -> float:
    """Events per second of the best run."""
    best = 0.0
    for _ in range(runs):
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        best = max(best, events / (time.perf_counter() - began))
    return best


def check(matched: DataFrame, joined: DataFrame) -> float:
    """Matches of an event, on average, after both methods have given the same."""
    few = fn.col("sequence") < CHECKED
    ours = {(row.sequence, n) for row in matched.where(few).select("sequence", "matches").collect() for n in row[1]}
    theirs = {tuple(row) for row in joined.where(few).collect()}
    assert ours == theirs, f"{len(ours ^ theirs)} pairs differ"
    return len(ours) / CHECKED


def measure(session: SparkSession, events: DataFrame, size: int, rng: np.random.Generator) -> dict[str, float]:
    low, high = workload("W20", size, rng)
    texts = [filter.text for filter in filters(low, high)]
    numbers = np.arange(size, dtype=np.int32)
    began = time.perf_counter()
    interests, faults = parse_filters(
        pa.table({"number": numbers, "filter": texts, "from_ns": numbers * 0, "until_ns": pa.nulls(size, pa.int64())})
    )
    assert not faults
    parsed = time.perf_counter()
    matched = with_matches(events, interests)
    built = time.perf_counter()
    matches = check(matched, cross_join(events, ranges(session, low, high)))
    count = min(EVENTS, max(200, JOIN_PAIRS // size))
    joined = cross_join(
        events.where(fn.col("sequence") < count).repartition(session.sparkContext.defaultParallelism).cache(),
        ranges(session, low, high).cache(),
    )
    rate(joined, count, runs=1)  # fills the caches
    return {
        "matches": matches,
        "parse_us": (parsed - began) / size * 1e6,
        "build_us": (built - parsed) / size * 1e6,
        "ours": rate(matched, EVENTS),
        "join": rate(joined, count),
        "joined": count,
    }


def main() -> None:
    rng = np.random.default_rng(SEED)
    session = started()
    console, progress = Console(width=130), Console(stderr=True)
    table = Table(title=f"events matched per second in Spark, {EVENTS:,} events, all exact")
    for column in ("stored", "matches an event", "cross join", "on events", "Tidings", "x cross join", "limit",
                   "parse µs each", "build and ship µs each"):  # fmt: skip
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        written_events(Path(folder), session.sparkContext.defaultParallelism, rng)
        events = session.read.parquet(folder)
        limit = rate(events.mapInArrow(unchanged, events.schema), EVENTS)
        for size in SIZES:
            r = measure(session, events, size, rng)
            progress.print(f"{size:,}: {r['ours']:,.0f} events/s, cross join {r['join']:,.0f}", style="dim")
            table.add_row(
                f"{size:,}", f"{r['matches']:.1f}", f"{r['join']:,.0f}", f"{r['joined']:,.0f}", f"{r['ours']:,.0f}",
                f"{r['ours'] / r['join']:.0f}", f"{limit:,.0f}", f"{r['parse_us']:.0f}", f"{r['build_us']:.0f}",
            )  # fmt: skip
    session.stop()
    console.print(table)


if __name__ == "__main__":
    main()
