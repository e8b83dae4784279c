"""A plan for a whole network from its traces, on Spark: `tidings place`.

Stages: the small tables; the publishers' spans; the traced events and what became of them (kept by Spark); the times of
the network, from sums by link and broker; one row for each publisher, and a decision for each, in Arrow batches; the
loads of all brokers, added up by Spark; and once more each publisher at its target, under those loads. Publishers that
are placed together, and subscribers that move, are decided on the driver, which holds what the network and the traced
sessions decide and nothing that grows with the trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.errors import ConfigurationError, InputError
from tidings.pipeline._session import once
from tidings.pipeline._storage import naming_damaged_files
from tidings.pipeline.ingest import (
    Mapping,
    TraceFile,
    check_rows,
    find_files,
    load_mapping,
    read_table,
    require_readable,
    warmup_of,
    with_clocks,
)
from tidings.pipeline.interest import ship
from tidings.pipeline.placement._move_plan import Planning
from tidings.pipeline.placement._network import NetworkTables, read_network
from tidings.pipeline.placement._publishers import DECIDED, JUDGED, Deciding, Judging, Known, sessions_of, traced_in
from tidings.pipeline.placement._sessions import (
    SESSION_EVENTS,
    Events,
    legs_of,
    spans_of,
    traced_events,
)
from tidings.pipeline.placement._subscribers import ReaderMoves, move_readers
from tidings.pipeline.placement._times import measured_times
from tidings.placement import Aim, Client, MadeFrom, PlacementPlan, PlanAim, Times, Traced, place_jointly
from tidings.routing import Overlay

__all__ = ["PlaceOptions", "Placement", "place_on_spark"]

NEEDED: Final = ("publications", "hops", "deliveries", "subscriptions", "topology")
TRACED_MAX: Final = 1 << 16

Progress = Callable[[str], None]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """What a plan is asked for: its aim, whether publishers are placed together (`is_joint`), whether subscribers may
    move, and how many events of each publisher are traced; the rest as for the pipeline."""

    aim: Aim = field(default_factory=Aim)
    is_joint: bool = False
    moves_subscribers: bool = False
    traced: int = 1024
    warmup_ns: int | None = None
    clock_tolerance_ns: int = 0
    mapping: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.traced <= TRACED_MAX:
            raise ConfigurationError(f"{self.traced} traced events of each publisher: must be from 1 to {TRACED_MAX}")
        if self.clock_tolerance_ns < 0:
            raise ConfigurationError(f"the clock tolerance is {self.clock_tolerance_ns} ns, but must not be negative")
        if self.is_joint and (self.aim.objective != "delay" or self.aim.weight != 100.0):
            raise ConfigurationError(
                "publishers are placed together so that deliveries wait least for each other: "
                "joint placement needs objective delay and weight 100"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """The plan, and the overlay before and after, for a picture: utilisations by broker, and how many publishers there
    are by present broker and target."""

    plan: PlacementPlan
    overlay: Overlay
    positions: dict[str, tuple[float, float]]
    utilisation_now: Floats
    utilisation_then: Floats
    publishers: dict[tuple[int, int], int]


def place_on_spark(
    session: SparkSession | Callable[[], SparkSession],
    traces: Sequence[str | Path],
    options: PlaceOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Placement:
    """Where the clients of a network should be, from its trace.

    `session` may be a function: it is called when the trace has been found.
    """
    chosen = PlaceOptions() if options is None else options
    report: Progress = (lambda _stage: None) if progress is None else progress
    report("looking for files")
    mapping = None if chosen.mapping is None else load_mapping(chosen.mapping)
    start = once(session)
    files = find_files(traces, session=start, mapping=mapping, needed=NEEDED)
    require_readable(files, NEEDED)
    warmup_ns = warmup_of(files) if chosen.warmup_ns is None else chosen.warmup_ns
    spark = start()
    with naming_damaged_files():
        report("reading subscriptions and topology")
        mapping = with_clocks(spark, files, mapping)
        tables = read_network(spark, files, mapping)
        job = _Job(spark, files, mapping, tables, chosen, warmup_ns, report)
        try:
            return job.plan(job.read(), [str(trace) for trace in traces])
        finally:
            job.release()


@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """What was found in a trace: `sessions` has a row for each publisher; `events` and `deliveries` were traced."""

    spans: DataFrame
    traced: Events
    legs: DataFrame
    times: Times
    sessions: DataFrame
    publishers: int
    events: int
    deliveries: int
    from_ns: int
    until_ns: int


class _Job:
    """One placement, whose small tables have been read."""

    def __init__(
        self,
        spark: SparkSession,
        files: Sequence[TraceFile],
        mapping: Mapping | None,
        tables: NetworkTables,
        options: PlaceOptions,
        warmup_ns: int,
        report: Progress,
    ) -> None:
        self._spark, self._files, self._mapping, self._tables = spark, files, mapping, tables
        self._options, self._warmup_ns, self._report = options, warmup_ns, report
        self._kept: list[DataFrame | Events] = []

    def release(self) -> None:
        """Let go of what Spark keeps."""
        for each in self._kept:
            each.release() if isinstance(each, Events) else each.unpersist()

    def read(self) -> Read:
        """Look at the trace; all that follows does not grow with it."""
        self._report("finding publishers")
        spans = self._keep(spans_of(self._good("publications"), words=-(-self._options.traced // SESSION_EVENTS)))
        from_ns, until_ns = self._covered(spans)
        self._report("tracing events")
        events = self._events(spans)
        legs = self._keep(legs_of(events.hops))
        lasted_s = (until_ns - from_ns) / 1e9
        sessions = self._keep(sessions_of(self._tables, spans, events, legs, lasted_s=lasted_s))
        counted = self._counted(sessions)
        return Read(
            spans=spans,
            traced=events,
            legs=legs,
            times=measured_times(self._tables, events, legs, needs_links=self._options.aim.objective == "on-time"),
            sessions=sessions,
            publishers=counted["publishers"],
            events=counted["events"],
            deliveries=counted["deliveries"],
            from_ns=from_ns,
            until_ns=until_ns,
        )

    def plan(self, read: Read, traces: list[str]) -> Placement:
        """Decide, and add up what comes of it."""
        self._report("placing publishers")
        aim, times = self._options.aim, read.times
        known = ship(self._spark, Known(overlay=self._tables.overlay, times=times))
        asked = read.sessions
        if self._options.is_joint:
            asked = asked.join(self._joint(asked, times), "publisher", "inner")
        decided = self._keep(asked.mapInArrow(Deciding(known=known, aim=aim), DECIDED))
        targets = decided.select("publisher", "target")
        after = read.sessions.join(targets, "publisher", "inner")
        planning = Planning(overlay=self._tables.overlay, service_s=times.service.mean_s, aim=aim)
        now, moved = planning.loads(decided, "loads_now", "loads_then")
        readers, then = ReaderMoves(moves=[], stay=0, moved=None), moved
        if self._options.moves_subscribers:
            self._report("placing subscribers")
            placed = [each for _, each in self._collected(after, from_target=True)]
            readers = move_readers(self._spark, self._tables, read.traced, placed, times, moved)
        if readers.moved is not None:
            after = self._elsewhere(read, readers.moved).join(targets, "publisher", "inner")
            (then,) = planning.loads(after.mapInArrow(Judging(known=known), JUDGED), "loads")
        self._report("adding up")
        loaded = ship(self._spark, Known(overlay=self._tables.overlay, times=times.under(now, then)))
        total = planning.total(decided, after.mapInArrow(Judging(known=loaded), JUDGED), now, then)
        moves = planning.publisher_moves(decided, now)
        stay: dict[Client, int] = {"publisher": read.publishers - len(moves)}
        if self._options.moves_subscribers:
            stay["subscriber"] = readers.stay
            moves += planning.reader_moves(readers.moves, moved)
        plan = PlacementPlan(
            made_from=MadeFrom(
                traces=traces,
                from_ns=read.from_ns,
                until_ns=read.until_ns,
                events=read.events,
                deliveries=read.deliveries,
            ),
            aim=PlanAim(
                objective=aim.objective, weight=aim.weight, hysteresis=aim.hysteresis, joint=self._options.is_joint
            ),
            moves=sorted(moves, key=lambda move: (-move.benefit, move.client, move.name)),
            stay=stay,
            expected=total,
        )
        return Placement(
            plan=plan,
            overlay=self._tables.overlay,
            positions=self._tables.positions,
            utilisation_now=now * times.service.mean_s,
            utilisation_then=then * times.service.mean_s,
            publishers={
                (row["home"], row["target"]): row["count"]
                for row in decided.groupBy("home", "target").count().toArrow().to_pylist()
            },
        )

    def _elsewhere(self, read: Read, moved: DataFrame) -> DataFrame:
        """The sessions as they would be with subscriptions at other brokers."""
        lasted_s = (read.until_ns - read.from_ns) / 1e9
        return sessions_of(self._tables, read.spans, read.traced, read.legs, lasted_s=lasted_s, moved=moved)

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def _good(self, table: str) -> DataFrame:
        rows = check_rows(
            table,
            read_table(self._spark, table, self._files, mapping=self._mapping),
            clock_tolerance_ns=self._options.clock_tolerance_ns,
            brokers=self._tables.brokers,
            subscriptions=self._tables.subscribed.select("subscription", "number") if table == "deliveries" else None,
        )
        good = rows.where(fn.size("reasons") == 0)
        return good.where(fn.col("departure_ns") >= self._warmup_ns) if table == "publications" else good

    def _covered(self, spans: DataFrame) -> tuple[int, int]:
        """From when to when events departed."""
        row = spans.agg(fn.min("from_ns").alias("from_ns"), fn.max("until_ns").alias("until_ns")).collect()[0]
        if row["from_ns"] is None:
            after = f" after its warm-up of {self._warmup_ns / 1e9:g} s" if self._warmup_ns else ""
            raise InputError(
                f"{self._files[0].path}: the trace has no good publication{after}, so nobody can be placed"
            )
        if row["from_ns"] == row["until_ns"]:
            raise InputError(
                f"{self._files[0].path}: all events departed at the same time, so nothing is known of rates"
            )
        return row["from_ns"], row["until_ns"]

    def _events(self, spans: DataFrame) -> Events:
        events = traced_events(
            self._good("publications"),
            self._good("deliveries"),
            self._good("hops"),
            spans,
            self._tables.interests,
            clock_tolerance_ns=self._options.clock_tolerance_ns,
        )
        self._kept.append(events)
        return events

    def _counted(self, before: DataFrame) -> dict[str, int]:
        """How much was looked at; an error if there is nothing to decide by."""
        delivered = fn.aggregate("bits", fn.lit(0).cast("bigint"), lambda total, each: total + each["deliveries"])
        has_deadline = fn.exists("wanted", lambda each: each["deadline_ns"].isNotNull())
        row = before.agg(
            fn.count("*").alias("publishers"),
            fn.sum("traced").alias("events"),
            fn.coalesce(fn.sum(delivered), fn.lit(0)).alias("deliveries"),
            fn.count_if(has_deadline).alias("promised"),
        ).collect()[0]
        if not row["deliveries"]:
            raise InputError(
                f"{self._files[0].path}: none of the traced events was delivered to anybody, so nobody can be placed; "
                "`tidings pipeline run` says what became of them"
            )
        if self._options.aim.objective == "on-time" and not row["promised"]:
            raise InputError(
                f"{self._files[0].path}: no event has a lifetime and no subscription a max_delay, so nothing can be on "
                "time or late: choose objective load or delay"
            )
        counted: dict[str, int] = row.asDict()
        return counted

    def _collected(self, sessions: DataFrame, *, from_target: bool = False) -> list[tuple[dict[str, Any], Traced]]:
        """All publishers, on the driver, in the order of their names."""
        table = sessions.toArrow().sort_by("publisher").combine_chunks()
        return list(traced_in(table, self._tables.overlay, from_target=from_target)) if len(table) else []

    def _joint(self, before: DataFrame, times: Times) -> DataFrame:
        """Targets of publishers that are placed together."""
        publishers = [each for _, each in self._collected(before)]
        streams = [each.stream(self._tables.overlay, times) for each in publishers]
        plan = place_jointly(streams, times.service, hysteresis=self._options.aim.hysteresis)
        table = {
            "publisher": pa.array([each.name for each in publishers], pa.string()),
            "target": pa.array(plan.targets, pa.int32()),
        }
        return fn.broadcast(self._spark.createDataFrame(pa.table(table)))
