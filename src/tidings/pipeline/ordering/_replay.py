"""The replay of a whole trace on Spark, under any number of policies, in one pass.

Deliveries and publications are read and checked as the pipeline does (`tidings.pipeline.ingest`), put into cells
(`_cells`) by one shuffle, and replayed by the compiled receiver, all policies one after the other over the same rows.
Matching is only computed if a policy reads a record: what a record says of an event is whether its summary matches.
The driver holds the subscriptions and a row for each policy, nothing that grows with the trace.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from tidings.errors import ConfigurationError, InputError
from tidings.ordering import FALSE_MATCHES, Policy
from tidings.pipeline._places import require_writable, spark_place
from tidings.pipeline._session import once
from tidings.pipeline.ingest import (
    NEGATIVE_DELAY,
    REASONS,
    UNKNOWN_PUBLICATION,
    Mapping,
    TraceFile,
    check_rows,
    find_files,
    load_mapping,
    read_table,
    require_attributes,
    require_readable,
    with_clocks,
)
from tidings.pipeline.interest import parse_filters, with_matches
from tidings.pipeline.ordering._cells import FOUND, PAIR, PUBLICATION, CellReplay
from tidings.pipeline.ordering._small_tables import known_broker_names, numbered_subscriptions, numbers
from tidings.pipeline.ordering._sums import PolicyReplay, sum_up

__all__ = ["OrderReplay", "ReplayOptions", "replay_orders"]

NEEDED: Final = ("publications", "deliveries", "subscriptions")
ROWS_PER_CELL: Final = 250_000
ROWS_PER_PARTITION: Final = 400_000
BYTES_PER_ROW: Final = 25
"""Of a file that does not say how many rows it has; a guess that only decides the number of partitions."""

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """What a replay is asked for beside policies: how a foreign trace is read, how far clocks may differ, and the share
    of other events that a record's summaries wrongly match."""

    mapping: Path | None = None
    clock_tolerance_ns: int = 0
    false_matches: float = FALSE_MATCHES

    def __post_init__(self) -> None:
        if self.clock_tolerance_ns < 0:
            raise ConfigurationError(f"the clock tolerance is {self.clock_tolerance_ns} ns, but must not be negative")
        if not 0.0 <= self.false_matches < 1.0:
            raise ConfigurationError(
                f"the share of false matches is {self.false_matches!r}, but must be at least 0 and below 1"
            )


class OrderReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What policies would have made of a trace. `bad` counts deliveries that were left out, by reason."""

    files: int
    pairs: int
    received: int
    out_of_order: int
    bad: dict[str, int]
    policies: list[PolicyReplay]
    table: str | None


def replay_orders(
    session: SparkSession | Callable[[], SparkSession],
    traces: Sequence[str | Path],
    policies: Sequence[Policy],
    out: str | Path | None = None,
    options: ReplayOptions | None = None,
    *,
    progress: Progress | None = None,
) -> OrderReplay:
    """Replay the deliveries of a trace under every policy; with `out`, a row for each pair and policy goes there.

    `session` may be a function: it is called when the trace and the policies have been found good.
    """
    chosen = ReplayOptions() if options is None else options
    report: Progress = (lambda _stage: None) if progress is None else progress
    _check_policies(policies)
    place = None if out is None else _place(out)
    report("looking for files")
    mapping = None if chosen.mapping is None else load_mapping(chosen.mapping)
    start = once(session)
    files = find_files(traces, session=start, mapping=mapping, needed=NEEDED)
    require_readable(files, (*NEEDED, "topology"))
    _refuse_samples(files)
    spark = start()
    if place is not None:
        require_writable(spark, place)
    mapping = with_clocks(spark, files, mapping)
    replay = _Replay(spark, files, mapping, tuple(policies), chosen, report)
    return replay.go(place)


def _check_policies(policies: Sequence[Policy]) -> None:
    if not policies:
        raise ConfigurationError("no policy to replay; give at least one, such as P-0.05-25 or CST-30")
    names = [policy.name for policy in policies]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"policy {twice} is given twice; give each once")


def _place(out: str | Path) -> str:
    """Where the table goes, as Spark takes it; it must not be there yet."""
    place = f"{spark_place(out)}/pairs"
    if place.startswith("file:") and Path(place.removeprefix("file:")).exists():
        raise InputError(
            f"{place.removeprefix('file:')}: there is a replay already; remove it, or give another directory"
        )
    return place


def _refuse_samples(files: Sequence[TraceFile]) -> None:
    for file in files:
        if file.table in ("publications", "deliveries") and file.sample < 1.0:
            raise InputError(
                f"{file.path}: holds {file.sample:.4g} of the events; order shows in complete traces only: write one "
                "with --sample 1"
            )


class _Replay:
    """One replay, whose input has been found."""

    def __init__(
        self,
        spark: SparkSession,
        files: Sequence[TraceFile],
        mapping: Mapping | None,
        policies: tuple[Policy, ...],
        options: ReplayOptions,
        report: Progress,
    ) -> None:
        self._spark, self._files, self._mapping = spark, files, mapping
        self._policies, self._options, self._report = policies, options, report

    def go(self, place: str | None) -> OrderReplay:
        self._report("reading subscriptions and topology")
        brokers = known_broker_names(self._spark, self._files, self._mapping)
        subscriptions = numbered_subscriptions(self._spark, self._files, brokers, self._mapping)
        checked = self._checked("deliveries", brokers, subscriptions)
        seen = Observation("deliveries")
        good = checked.observe(seen, *_reason_counts()).where(fn.size("reasons") == 0)
        cells = self._cells(self._published(brokers, subscriptions), good)
        found = cells.mapInArrow(
            CellReplay(
                policies=self._policies,
                clock_tolerance_ns=self._options.clock_tolerance_ns,
                false_matches=self._options.false_matches,
                unknown=UNKNOWN_PUBLICATION,
                early=NEGATIVE_DELAY,
            ),
            FOUND,
        )
        self._report(f"replaying {len(self._policies)} policies")
        if place is None:
            summed = sum_up(found, self._policies)
        else:
            found = found.persist()
            summed = sum_up(found, self._policies)
            self._report("writing pairs")
            self._pairs(found, subscriptions).write.parquet(place)
            found.unpersist()
        bad = +(Counter(seen.get) + Counter(summed.left_out))  # without those that did not happen
        if not summed.policies:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(bad.items()))
            raise InputError(
                f"{self._files[0].path}: the trace has no deliveries to replay"
                + (f"; all were bad ({reasons})" if reasons else "")
            )
        return OrderReplay(
            files=len(self._files),
            pairs=summed.pairs,
            received=summed.policies[0].received,
            out_of_order=summed.policies[0].out_of_order,
            bad=dict(sorted(bad.items())),
            policies=summed.policies,
            table=None if place is None else place.removeprefix("file:"),
        )

    def _read(self, table: str) -> DataFrame:
        return read_table(self._spark, table, self._files, mapping=self._mapping)

    def _checked(self, table: str, brokers: DataFrame | None, subscriptions: pa.Table) -> DataFrame:
        return check_rows(
            table,
            self._read(table),
            clock_tolerance_ns=self._options.clock_tolerance_ns,
            brokers=brokers,
            subscriptions=numbers(self._spark, subscriptions) if table == "deliveries" else None,
        )

    def _published(self, brokers: DataFrame | None, subscriptions: pa.Table) -> DataFrame:
        """Publications, with `matches` if a policy reads records."""
        good = self._checked("publications", brokers, subscriptions).where(fn.size("reasons") == 0)
        if not any(policy.record for policy in self._policies):
            return good.select("publisher", "sequence", "departure_ns", fn.array().cast("array<int>").alias("matches"))
        interests, unread = parse_filters(subscriptions)
        require_attributes(self._files, interests.attributes)
        assert not unread, "subscriptions whose filter does not parse are bad rows"
        return with_matches(good, interests).select("publisher", "sequence", "departure_ns", "matches")

    def _cells(self, published: DataFrame, deliveries: DataFrame) -> DataFrame:
        """CELLS, the rows of a cell one after the other in one partition."""
        shares = fn.broadcast(self._shares())
        bucket, width = fn.col("bucket"), fn.coalesce("buckets", fn.lit(1))
        spread = published.join(shares, "publisher", "left").select(
            "*", fn.explode(fn.sequence(fn.lit(0), width - 1)).alias("bucket")
        )
        own = fn.filter("matches", lambda number: number % width == bucket)
        tables = spread.select(
            _cell(bucket).alias("cell"),
            fn.lit(PUBLICATION).alias("subscription"),
            "sequence",
            fn.col("departure_ns").alias("time_ns"),
            "publisher",
            fn.when(width == 1, fn.col("matches")).otherwise(own).alias("matches"),
        )
        arrivals = deliveries.join(shares, "publisher", "left").select(
            _cell(fn.col("number") % width).alias("cell"),
            fn.col("number").alias("subscription"),
            "sequence",
            fn.col("arrived_ns").alias("time_ns"),
            fn.lit(None).cast("string").alias("publisher"),
            fn.array().cast("array<int>").alias("matches"),
        )
        return tables.unionAll(arrivals).repartition(self._partitions(), "cell").sortWithinPartitions("cell")

    def _shares(self) -> DataFrame:
        """`buckets` of the publishers that need more than one cell (see _cells.py)."""
        counts = [self._read(table).groupBy("publisher").agg(fn.count("*").alias(table)) for table in NEEDED[:2]]
        both = counts[0].join(counts[1], "publisher", "inner")
        wanted = fn.least(fn.expr("deliveries div publications"), fn.ceil(fn.col("deliveries") / ROWS_PER_CELL))
        return both.select("publisher", wanted.cast("int").alias("buckets")).where("buckets > 1")

    def _partitions(self) -> int:
        rows = sum(
            file.rows if file.rows is not None else file.size_bytes // BYTES_PER_ROW
            for file in self._files
            if file.table in NEEDED[:2]
        )
        wide = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)
        return max(1, min(wide, ceil(rows / ROWS_PER_CELL)), ceil(rows / ROWS_PER_PARTITION))

    def _pairs(self, found: DataFrame, subscriptions: pa.Table) -> DataFrame:
        """A row for each publisher, subscription and policy."""
        names = self._spark.createDataFrame(
            [(number, policy.name) for number, policy in enumerate(self._policies)], "policy int, name string"
        )
        named = numbers(self._spark, subscriptions).toDF("named", "subscription")
        pairs = found.where(fn.col("fact") == PAIR).drop("fact", "place")
        rows = pairs.join(fn.broadcast(named), "subscription", "inner").join(fn.broadcast(names), "policy", "inner")
        counts = [
            name for name in found.columns if name not in ("fact", "place", "publisher", "subscription", "policy")
        ]
        return rows.select(
            "publisher", fn.col("named").alias("subscription"), fn.col("name").alias("policy"), *counts
        ).hint("rebalance")


def _cell(bucket: Column) -> Column:
    return fn.xxhash64("publisher", bucket.cast("int"))


def _reason_counts() -> list[Column]:
    """How many rows are bad for each reason; of a good row only its size is looked at."""
    is_bad = fn.size("reasons") > 0
    return [fn.count_if(is_bad & fn.array_contains("reasons", reason)).alias(reason) for reason in REASONS]
