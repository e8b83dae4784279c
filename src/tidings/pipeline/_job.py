"""The batch run: files in, tables out, and of what is known already nothing again.

Stages: look for files; read the setting (small tables); find the units that new files touch; join their rows to facts;
compute the partials of every measure; merge them with those of the last run; write the tables; commit. What the driver
holds grows with subscriptions and brokers, not with rows.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.errors import ConfigurationError, InputError
from tidings.pipeline._joining import Joined, Sources, Terms, join_events
from tidings.pipeline._manifest import FORMAT, Manifest, Plan, plan_run
from tidings.pipeline._measures import Measure, all_measures
from tidings.pipeline._result import PipelineResult, check_bad, make_result
from tidings.pipeline._setting import SMALL, Setting, read_setting
from tidings.pipeline._store import Run, Store, open_store
from tidings.pipeline._touching import LARGE, Touched, restricted, touched_units
from tidings.pipeline.ingest import Mapping, TraceFile, check_rows, find_files, load_mapping, read_table
from tidings.pipeline.interest import with_matches

__all__ = ["PipelineOptions", "Progress", "run_pipeline"]

ROWS_PER_PARTITION: Final = 400_000
ROWS_PER_PARTITION_MIN: Final = 20_000
PARTITIONS_MAX: Final = 8192
TABLES_AT_A_TIME: Final = 4
BYTES_PER_ROW: Final = 25
"""Of a file that does not say how many rows it has; a guess that only decides the number of partitions."""
TOPIC: Final = "topic"
SETTINGS: Final = {
    # The facts are partitioned by publisher and chunk, which is a part of every key they are joined by.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins."""


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """What a run is asked for, beside the trace.

    `window_ns` is the length of the windows of `window_scores`; `topic` the attribute that topics are told by (unless
    given, `topic` where events have it); `warmup_ns` leaves out events that depart before (unless given, what the
    trace says); clocks may differ by `clock_tolerance_ns`; `mapping` is the file that says how to read a foreign
    trace. More than the share `max_bad` of bad rows is an error; `from_scratch` forgets earlier runs.
    """

    window_ns: int = 60_000_000_000
    topic: str | None = None
    warmup_ns: int | None = None
    clock_tolerance_ns: int = 0
    mapping: Path | None = None
    max_bad: float | None = None
    from_scratch: bool = False

    def __post_init__(self) -> None:
        if self.window_ns < 1:
            raise ConfigurationError(f"the window is {self.window_ns} ns, but must be 1 ns or more")
        if self.clock_tolerance_ns < 0:
            raise ConfigurationError(f"the clock tolerance is {self.clock_tolerance_ns} ns, but must not be negative")
        if self.max_bad is not None and not 0.0 <= self.max_bad <= 1.0:
            raise ConfigurationError(f"max_bad is {self.max_bad!r}, but must be a share from 0 to 1")


def run_pipeline(
    session: SparkSession | Callable[[], SparkSession],
    traces: Sequence[str | Path],
    out: str | Path,
    options: PipelineOptions | None = None,
    *,
    progress: Progress | None = None,
) -> PipelineResult:
    """Count what is new in these trace directories, and leave tables and the result in `out`.

    `session` may be a function: it is called only if there is something to compute.
    """
    chosen = PipelineOptions() if options is None else options
    report: Progress = _silence if progress is None else progress
    with open_store(Path(out)) as store:
        result = _run(session, traces, store, chosen, report)
    check_bad(result, chosen.max_bad)
    return result


def _silence(_stage: str) -> None:
    pass


def _run(
    session: SparkSession | Callable[[], SparkSession],
    traces: Sequence[str | Path],
    store: Store,
    options: PipelineOptions,
    report: Progress,
) -> PipelineResult:
    report("looking for files")
    mapping = None if options.mapping is None else load_mapping(options.mapping)
    last = None if options.from_scratch else store.last()
    files = find_files(traces, mapping=mapping, known=() if last is None else last[1].files)
    terms = _terms_text(options, mapping, files)
    before = None if last is None else last[1]
    is_whole = mapping is not None and mapping.numbers_events
    if before is not None and _small(files) == _small(before.files):
        planned = plan_run(before, files, options=terms, setting=before.setting, is_whole=is_whole)
        if planned.is_nothing:
            return msgspec.convert({**before.result, "new_files": 0, "recomputed": None}, PipelineResult)
    spark = session() if callable(session) else session  # one of Connect is of another class
    with _settings(spark, SETTINGS):
        run = store.begin()
        report("reading subscriptions and topology")
        setting = read_setting(spark, files, run, mapping=mapping, clock_tolerance_ns=options.clock_tolerance_ns)
        planned = plan_run(before, files, options=terms, setting=setting.fingerprint, is_whole=is_whole)
        previous = last[0] if last is not None and planned.reason is None else None
        job = _Job(spark, run, previous, setting, planned, options, mapping, int(terms["warmup_ns"]), report)
        return job.go(store, files, terms)


class _Job:
    """One run that has something to compute."""

    def __init__(
        self,
        spark: SparkSession,
        run: Run,
        previous: Run | None,
        setting: Setting,
        plan: Plan,
        options: PipelineOptions,
        mapping: Mapping | None,
        warmup_ns: int,
        report: Progress,
    ) -> None:
        self._spark, self._run, self._previous, self._setting, self._plan = spark, run, previous, setting, plan
        self._options, self._mapping, self._warmup_ns, self._report = options, mapping, warmup_ns, report

    def go(self, store: Store, files: Sequence[TraceFile], terms: dict[str, str]) -> PipelineResult:
        touched = self._touched()
        joined = self._joined(touched)
        measures = all_measures(window_ns=self._options.window_ns)
        for measure in measures:
            self._report(f"computing {measure.name}")
            self._write_partials(measure, joined, touched)
        self._report("writing tables")
        places = self._write_tables(measures)
        self._report("summing up")
        result = make_result(
            self._spark,
            places,
            shown={name: store.table(name) for name in places},
            files=len(files),
            new_files=len(self._plan.new),
            recomputed=self._plan.reason,
        )
        manifest = Manifest(
            format=FORMAT,
            files=list(files),
            options=terms,
            setting=self._setting.fingerprint,
            result=msgspec.to_builtins(result),
        )
        store.commit(self._run, manifest, places)
        return result

    def _write_tables(self, measures: Sequence[Measure]) -> dict[str, str]:
        """All tables, by name. They are small, so most of what one costs is waiting: some are written at a time."""
        merges = [(measure.name, name, merge) for measure in measures for name, merge in measure.tables.items()]
        places = {name: _local(self._run.table(name)) for _, name, _ in merges}

        def write(measure: str, name: str, merge: Callable[[DataFrame], DataFrame]) -> None:
            partials = self._spark.read.parquet(_local(self._run.partials(measure)))
            merge(partials).hint("rebalance").write.parquet(places[name])

        with ThreadPoolExecutor(TABLES_AT_A_TIME) as pool:
            list(pool.map(lambda each: write(*each), merges))
        return places

    def _touched(self) -> Touched | None:
        """None on a first run, or one that begins anew: then everything is."""
        if self._previous is None:
            return None
        self._report("finding what is touched")

        def lay_down(name: str, frame: DataFrame) -> DataFrame:
            place = _local(self._run.scratch(name))
            frame.write.parquet(place)
            return self._spark.read.parquet(place)

        return touched_units(self._plan.new, self._plan.old, self._raw, lay_down)

    def _joined(self, touched: Touched | None) -> Joined:
        sources = Sources(
            publications=self._with_interest(self._checked("publications", touched)),
            hops=self._checked("hops", touched),
            deliveries=self._checked("deliveries", touched),
        )
        setting = self._setting
        joined = join_events(
            sources,
            setting.subscriptions,
            setting.topology,
            setting.transitions,
            Terms(
                counted_from_ns=self._warmup_ns,
                clock_tolerance_ns=self._options.clock_tolerance_ns,
                partitions=self._partitions(),
            ),
            self._materialise,
        )
        return replace(
            joined,
            quarantined=joined.quarantined.unionAll(setting.quarantined),
            rows=joined.rows.unionAll(setting.rows),
        )

    def _raw(self, table: str, files: Sequence[TraceFile]) -> DataFrame:
        return read_table(self._spark, table, files, mapping=self._mapping)

    def _checked(self, table: str, touched: Touched | None) -> DataFrame:
        everything = [*self._plan.new, *self._plan.old]
        rows = self._raw(table, everything)
        return check_rows(
            table,
            rows if touched is None else restricted(rows, touched),
            clock_tolerance_ns=self._options.clock_tolerance_ns,
            brokers=self._setting.brokers,
            subscriptions=self._setting.subscriptions,
        )

    def _with_interest(self, publications: DataFrame) -> DataFrame:
        """`matches` and `topic`."""
        wanted, kind = self._options.topic or TOPIC, publications.schema["attributes"].dataType
        has_topic = wanted in getattr(kind, "names", ())
        if self._options.topic is not None and not has_topic:
            known = ", ".join(getattr(kind, "names", ())) or "none"
            raise InputError(f"--topic {wanted}: no event has such an attribute; there are: {known}")
        topic = fn.col("attributes").getField(wanted).cast("string") if has_topic else fn.lit(None).cast("string")
        return with_matches(publications.withColumn("topic", topic), self._setting.interests)

    def _materialise(self, name: str, frame: DataFrame) -> DataFrame:
        """The rows as they are, in memory and on the disk of the workers where they meet.

        Not `persist`, which turns rows into compressed columns: that took longer than all joins together. Without
        adaptive planning, because only then does Spark remember that the rows of a unit are in one place.
        """
        self._report(f"joining {name}")
        with _settings(self._spark, {"spark.sql.adaptive.enabled": "false"}):
            kept = frame.localCheckpoint(eager=True)
        # New names for the same columns: Spark would take those of the source they came from for the same ones.
        return kept.select(*(fn.col(name).alias(name) for name in kept.columns))

    def _partitions(self) -> int:
        files = [*self._plan.new, *self._plan.old]
        rows = sum(
            file.rows if file.rows is not None else file.size_bytes // BYTES_PER_ROW
            for file in files
            if file.table in LARGE
        )
        wide = min(int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1), ceil(rows / ROWS_PER_PARTITION_MIN))
        return min(PARTITIONS_MAX, max(1, wide, ceil(rows / ROWS_PER_PARTITION)))

    def _write_partials(self, measure: Measure, joined: Joined, touched: Touched | None) -> None:
        """The new partials, and of the last run's those that are not touched."""
        partials = measure.partial(joined)
        if touched is not None and self._previous is not None:
            before = self._spark.read.parquet(_local(self._previous.partials(measure.name)))
            if measure.by == "slice":
                partials = partials.join(fn.broadcast(touched.slices), "slice", "left_semi")
                before = before.join(fn.broadcast(touched.slices), "slice", "left_anti")
            else:
                belongs = before["publisher"].isNotNull()
                before = before.where(belongs).join(fn.broadcast(touched.units), [*measure.keys], "left_anti")
            partials = before.select(*partials.columns).unionByName(partials)
        partials.hint("rebalance").write.parquet(_local(self._run.partials(measure.name)))


def _small(files: Sequence[TraceFile]) -> list[TraceFile]:
    return [file for file in files if file.table in SMALL]


def _terms_text(options: PipelineOptions, mapping: Mapping | None, files: Sequence[TraceFile]) -> dict[str, str]:
    """The options that the answer depends on, as text to compare and to show."""
    warmup_ns = _warmup_ns(files) if options.warmup_ns is None else options.warmup_ns
    return {
        "window_ns": str(options.window_ns),
        "topic": options.topic or "",
        "warmup_ns": str(warmup_ns),
        "clock_tolerance_ns": str(options.clock_tolerance_ns),
        "mapping": "" if mapping is None else mapping.digest,
    }


def _warmup_ns(files: Sequence[TraceFile]) -> int:
    """What the files of the subscriptions say about the time before which events do not count."""
    said: dict[int, str] = {}
    for file in files:
        if file.table == "subscriptions" and file.format == "parquet" and file.fault is None:
            schema = pq.read_schema(file.path) if "://" not in file.path else _remote_schema(file.path)
            said.setdefault(int((schema.metadata or {}).get(b"tidings.warmup_ns", b"0")), file.path)
    if len(said) > 1:
        places = " and ".join(f"{ns / 1e9:g} s in {path}" for ns, path in sorted(said.items())[:2])
        raise InputError(f"the traces have different warm-ups: {places}; say which to leave out with --warmup")
    return next(iter(said), 0)


def _remote_schema(path: str) -> "pq.Schema":
    filesystem, place = pafs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return pq.read_schema(place, filesystem=filesystem)


def _local(path: str) -> str:
    return f"file:{path}"


@contextmanager
def _settings(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """Settings that the plans rely on, for as long as it takes."""
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
