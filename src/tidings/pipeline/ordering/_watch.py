"""The watch: receivers of all policies fed by a trace that grows, with Structured Streaming.

Publications and deliveries are two streams of files, united and given to `OrderProcessor`, whose state Spark keeps in
RocksDB and in the checkpoint. After each batch the pairs that it touched are written (`pairs/batch=N`), and the sums by
policy are brought up to date in `totals.json`, which names the last batch in it: a batch that comes again after a kill
writes the same rows and is not added twice. So a watch that is restarted goes on where it was.

Subscriptions are those that the trace has when the watch begins.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from tidings.errors import ConfigurationError, InputError
from tidings.model.trace import TABLES
from tidings.ordering import Policy
from tidings.pipeline._places import local_path
from tidings.pipeline.ingest import TraceFile, check_rows, find_files, require_attributes, require_readable
from tidings.pipeline.interest import parse_filters, with_matches
from tidings.pipeline.ordering._monitor import FIGURES
from tidings.pipeline.ordering._processor import COUNTED, PUBLICATION, OrderProcessor
from tidings.pipeline.ordering._small_tables import known_broker_names, numbered_subscriptions, numbers

__all__ = ["OrderTotals", "PolicyTotals", "WatchOrders", "watch_orders"]

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class WatchOrders:
    """How to watch: look for new files every `every_s`, or end with what is there (`is_once`).

    `buckets` are the places that one publisher's subscriptions are spread over.
    """

    every_s: float = 5.0
    is_once: bool = False
    buckets: int = 1

    def __post_init__(self) -> None:
        if self.every_s <= 0:
            raise ConfigurationError(f"every {self.every_s:g} s: must be longer than 0")
        if self.buckets < 1:
            raise ConfigurationError(f"{self.buckets} buckets: there must be at least 1")


class PolicyTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy has done so far; events that are still held are received and not yet delivered."""

    policy: str
    received: int = 0
    out_of_order: int = 0
    violations: int = 0
    duplicates: int = 0
    forgotten: int = 0
    delivered: int = 0
    hold_ns: int = 0
    assessed_ns: int = 0

    @property
    def repaired(self) -> float | None:
        """The share of out-of-order receptions that were put right; None if there was none."""
        return 1.0 - self.violations / self.out_of_order if self.out_of_order else None

    @property
    def mean_hold_ms(self) -> float:
        """Delivery less arrival."""
        return self.hold_ns / max(self.delivered, 1) / 1e6


class OrderTotals(msgspec.Struct, frozen=True, kw_only=True):
    """After a batch: sums over all pairs, and deliveries whose publication never came."""

    batch: int
    touched_pairs: int
    unknown: int
    policies: list[PolicyTotals]


Listener = Callable[[OrderTotals], None]


def watch_orders(
    spark: SparkSession,
    trace: str | Path,
    out: str | Path,
    policies: Sequence[Policy],
    options: WatchOrders | None = None,
    *,
    listener: Listener,
    stop: threading.Event | None = None,
) -> OrderTotals | None:
    """Keep the counts in `out` up to date with a trace that grows; the listener gets a report after each batch."""
    if not policies:
        raise ConfigurationError("no policy to watch; give at least one, such as P-0.05-25 or ours-quantile")
    files = find_files([trace])
    require_readable(files, ("publications", "deliveries", "subscriptions", "topology"))
    watch = _Watch(
        spark, Path(trace).absolute(), local_path(out).absolute(), tuple(policies), options or WatchOrders(), listener
    )
    return watch.go(files, threading.Event() if stop is None else stop)


class _Watch:
    def __init__(
        self,
        spark: SparkSession,
        trace: Path,
        out: Path,
        policies: tuple[Policy, ...],
        options: WatchOrders,
        listener: Listener,
    ) -> None:
        self._spark, self._trace, self._out = spark, trace, out
        self._policies, self._options, self._listener = policies, options, listener
        out.mkdir(parents=True, exist_ok=True)
        self._totals = self._last_totals()
        self._error: BaseException | None = None

    def go(self, files: Sequence[TraceFile], stop: threading.Event) -> OrderTotals | None:
        self._spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        brokers = known_broker_names(self._spark, files)
        subscriptions = numbered_subscriptions(self._spark, files, brokers)
        self._names = numbers(self._spark, subscriptions)
        interests, _ = parse_filters(subscriptions)
        require_attributes(files, interests.attributes)
        published = with_matches(self._stream("publications", files, brokers), interests)
        rows = self._rows(published, self._stream("deliveries", files, brokers))
        counted = rows.groupBy("publisher", "bucket").transformWithState(
            OrderProcessor(self._policies), COUNTED, "Update", "None"
        )
        writer = counted.writeStream.outputMode("update").foreachBatch(self._count)
        writer = writer.option("checkpointLocation", f"file:{self._out / 'checkpoint'}")
        if self._options.is_once:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime=f"{round(self._options.every_s * 1000)} milliseconds").start()
        self._until_end(query, stop)
        return self._totals

    def _until_end(self, query: StreamingQuery, stop: threading.Event) -> None:
        try:
            while query.isActive and not stop.wait(LOOK_EVERY_S):
                pass
        finally:
            failure = query.exception()
            query.stop()
        if self._error is not None:
            raise self._error
        if failure is not None:
            raise InputError(f"{self._trace}: the watch cannot go on: {str(failure).splitlines()[0]}")

    def _stream(self, table: str, files: Sequence[TraceFile], brokers: DataFrame | None) -> DataFrame:
        """The good rows of a table, as they come; files are complete when they are seen, and never change."""
        first = next((f for f in files if f.table == table and f.fault is None), None)
        columns = TABLES[table].names
        if first is None:
            raise InputError(f"{self._trace}: no files of table {table!r} yet; begin the watch when there are some")
        if first.units_ns:
            raise InputError(
                f"{first.path}: column {next(iter(first.units_ns))!r} holds timestamps, which a watch does not "
                "convert; write times as whole nanoseconds, or use `tidings order replay`"
            )
        place, schema = self._trace / table, str(first.columns)
        found = self._spark.readStream.schema(schema).option("recursiveFileLookup", "true").parquet(f"file:{place}")
        has_attributes = "attributes" in found.columns
        present = [name for name in columns if name != "attributes"]
        attributes = (
            []
            if "attributes" not in columns
            else ["attributes"]
            if has_attributes
            else [fn.struct().alias("attributes")]
        )
        rows = found.select(
            *present,
            *attributes,
            fn.lit(None).cast("string").alias("_file"),
            fn.array().cast("array<string>").alias("_faults"),
            fn.lit(None).cast("string").alias("_raw"),
        )
        known = self._names if table == "deliveries" else None
        return check_rows(table, rows, brokers=brokers, subscriptions=known).where(fn.size("reasons") == 0)

    def _rows(self, published: DataFrame, deliveries: DataFrame) -> DataFrame:
        """ROWS of both tables; an event goes to the buckets of those who want it, and as a neighbour to all others."""
        buckets = self._options.buckets
        everywhere = fn.explode(fn.sequence(fn.lit(0), fn.lit(buckets - 1)))
        events = published.select(
            "publisher",
            everywhere.alias("bucket"),
            fn.lit(PUBLICATION).alias("subscription"),
            "sequence",
            fn.col("departure_ns").alias("time_ns"),
            "matches",
        )
        arrivals = deliveries.select(
            "publisher",
            (fn.col("number") % buckets).cast("int").alias("bucket"),
            fn.col("number").alias("subscription"),
            "sequence",
            fn.col("arrived_ns").alias("time_ns"),
            fn.array().cast("array<int>").alias("matches"),
        )
        return events.unionAll(arrivals)

    def _count(self, counted: DataFrame, batch: int) -> None:
        """One batch of the stream."""
        try:
            place = f"file:{self._out / 'pairs' / f'batch={batch}'}"
            counted.join(fn.broadcast(self._names.toDF("name", "subscription")), "subscription", "left").select(
                "publisher",
                fn.col("name").alias("subscription"),
                fn.element_at(
                    fn.array(*(fn.lit(policy.name) for policy in self._policies)), fn.col("policy") + 1
                ).alias("policy"),
                *(name for name in counted.columns if name not in ("publisher", "subscription", "policy")),
            ).write.mode("overwrite").parquet(place)
            if self._totals is None or batch > self._totals.batch:
                self._totals = self._added(self._spark.read.parquet(place), batch)
                self._write_totals(self._totals)
            self._listener(self._totals)
        except BaseException as error:
            self._error = error
            raise

    def _added(self, rows: DataFrame, batch: int) -> OrderTotals:
        """The totals with what is new in a batch."""
        news = [fn.sum(f"new_{name}").alias(name) for name in FIGURES]
        found = {row["policy"]: row for row in rows.groupBy("policy").agg(fn.count("*").alias("rows"), *news).collect()}
        before = self._totals.policies if self._totals else [PolicyTotals(policy=p.name) for p in self._policies]
        policies = [
            msgspec.structs.replace(
                total, **{name: getattr(total, name) + (found[total.policy][name] or 0) for name in FIGURES}
            )
            if total.policy in found
            else total
            for total in before
        ]
        given_up = found[None]["received"] if None in found else 0
        return OrderTotals(
            batch=batch,
            touched_pairs=max((row["rows"] for name, row in found.items() if name is not None), default=0),
            unknown=(self._totals.unknown if self._totals else 0) + given_up,
            policies=policies,
        )

    def _last_totals(self) -> OrderTotals | None:
        place = self._out / "totals.json"
        if not place.exists():
            return None
        totals = msgspec.json.decode(place.read_bytes(), type=OrderTotals)
        if [each.policy for each in totals.policies] != [each.name for each in self._policies]:
            had = ", ".join(each.policy for each in totals.policies)
            raise ConfigurationError(
                f"{self._out}: was begun with the policies {had}; give the same, or another directory"
            )
        return totals

    def _write_totals(self, totals: OrderTotals) -> None:
        temporary = self._out / "_totals.json"
        temporary.write_bytes(msgspec.json.encode(totals))
        temporary.replace(self._out / "totals.json")
