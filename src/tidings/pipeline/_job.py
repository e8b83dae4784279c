"""The batch run: files in, tables out, and of what is known already nothing again.

Stages: look for files; read the setting (small tables); find the units that new files touch; bring their rows together
and compute the partials of every measure, in one pass; put them beside those of the last run; write the tables; commit.
What the driver holds grows with subscriptions and brokers, not with rows; what a worker holds is one partition.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from math import ceil
from os import PathLike
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.pipeline._catalog import check_schema_name, publish_tables
from tidings.pipeline._held import read_held, write_held
from tidings.pipeline._manifest import FORMAT, Manifest, Workload, workload_of
from tidings.pipeline._merges import ARRIVALS, merged_tables
from tidings.pipeline._options import PipelineOptions, Progress, silence, small_files, terms_of
from tidings.pipeline._partials import FAULTY, KINDS, PASSING, RECEIVED, UNIT_COLUMNS, UNITS
from tidings.pipeline._result import PipelineResult, SubscriberScore, check_bad, make_result
from tidings.pipeline._run_store import Run, RunStore, open_store
from tidings.pipeline._session import once
from tidings.pipeline._small_tables import Setting, read_setting
from tidings.pipeline._storage import naming_damaged_files, read_path, write_path
from tidings.pipeline._unit_kernels import arrivals_in_slices, as_partials, partials_of_source, read_partials
from tidings.pipeline.arrow._sums import sums_of
from tidings.pipeline.arrow._tables import MADE, tables_of
from tidings.pipeline.gathering import LARGE, UNIT, Source, Touched, touched_units
from tidings.pipeline.ingest import Mapping as FileMapping
from tidings.pipeline.ingest import (
    TraceFile,
    find_files,
    load_mapping,
    read_table,
    require_attributes,
    with_clocks,
)
from tidings.pipeline.ingest._columns import spark_columns
from tidings.pipeline.measures import PARTIAL_ARRIVALS
from tidings.pipeline.rows import Counting, arrow_schema

__all__ = ["run_pipeline"]

ROWS_PER_PARTITION: Final = 400_000
ROWS_PER_PARTITION_MIN: Final = 20_000
PARTITIONS_MAX: Final = 8192
TABLES_AT_A_TIME: Final = 4
MERGED_HERE_BYTES_MAX: Final = 32 << 20
"""Partials up to this size are merged by NumPy in the driver (arrow/_tables.py): 14 tables by many small jobs cost
Spark more than ten processor seconds, whatever the size (docs/decisions/0048-small-work-in-the-driver.md)."""
BYTES_PER_ROW: Final = 25
"""Of a file that does not say how many rows it has; a guess that only decides the number of partitions."""
INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For tables of a few rows: Spark takes longer to generate and compile code for them than to go without."""
SETTINGS: Final = {
    # Partials of several kinds are written side by side: open files cost less than sorting rows with sketches.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}


def run_pipeline(
    session: SparkSession | Callable[[], SparkSession],
    traces: Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    options: PipelineOptions | None = None,
    *,
    progress: Progress | None = None,
) -> PipelineResult:
    """Count what is new in these trace directories, and leave tables and the result in `out`.

    Traces and `out` are paths on this machine, or addresses in any file system that Spark can name. `session` may be a
    function: it is called only if there is something to compute, or an address to look at. TooManyBadRows is raised
    when the tables have been written, and has the result.
    """
    chosen = PipelineOptions() if options is None else options
    report: Progress = silence if progress is None else progress
    start = once(session)
    store = open_store(out, start)
    if chosen.catalog is not None:
        check_schema_name(chosen.catalog)
    result = _run(start, traces, store, chosen, report)
    if chosen.catalog is not None:
        report("writing to the catalog")
        publish_tables(start(), chosen.catalog, store.tables(), table_format=chosen.table_format, report=report)
    check_bad(result, chosen.max_bad)
    return result


def _run(
    session: Callable[[], SparkSession],
    traces: Sequence[str | PathLike[str]],
    store: RunStore,
    options: PipelineOptions,
    report: Progress,
) -> PipelineResult:
    report("looking for files")
    mapping = None if options.mapping is None else load_mapping(options.mapping)
    last = None if options.from_scratch else store.last()
    before = None if last is None or last[1].format != FORMAT else last[1]
    files = find_files(traces, session=session, mapping=mapping, known=() if before is None else before.files)
    terms = terms_of(options, mapping, files)
    is_whole = mapping is not None and mapping.is_whole
    if before is not None and small_files(files) == small_files(before.files):
        # Whoever made it, an answer with nothing new stands.
        same = {**terms, "engine": before.options["engine"]}
        planned = workload_of(before, files, options=same, setting=before.setting, is_whole=is_whole)
        if planned.is_nothing:
            return msgspec.convert({**before.result, "new_files": 0, "recomputed": None}, PipelineResult)
    spark = session()
    with _settings(spark, SETTINGS), naming_damaged_files():
        if mapping is not None and mapping.clocks is not None:
            report("comparing clocks")
        mapping = with_clocks(spark, files, mapping)
        run = store.begin()
        report("reading subscriptions and topology")
        with _settings(spark, INTERPRETED):
            setting = read_setting(
                spark,
                lambda table: read_table(spark, table, files, mapping=mapping),
                lambda name, rows: _held(spark, run.setting(name), rows),
                faults=[file for file in files if file.fault is not None],
                clock_tolerance_ns=options.clock_tolerance_ns,
            )
        require_attributes(files, setting.interests.attributes | ({options.topic} if options.topic else set()))
        manifest = None if last is None else last[1]
        planned = workload_of(manifest, files, options=terms, setting=setting.fingerprint, is_whole=is_whole)
        previous = last[0] if last is not None and planned.reason is None else None
        job = _Job(spark, store, run, previous, setting, planned, options, mapping, int(terms["warmup_ns"]), report)
        return job.go(files, terms)


class _Job:
    """One run that has something to compute."""

    def __init__(
        self,
        spark: SparkSession,
        store: RunStore,
        run: Run,
        previous: Run | None,
        setting: Setting,
        work: Workload,
        options: PipelineOptions,
        mapping: FileMapping | None,
        warmup_ns: int,
        report: Progress,
    ) -> None:
        self._spark, self._run, self._previous, self._setting, self._work = spark, run, previous, setting, work
        self._store = store
        self._options, self._mapping, self._warmup_ns, self._report = options, mapping, warmup_ns, report
        self._clocks = None if mapping is None else mapping.corrections

    def go(self, files: Sequence[TraceFile], terms: dict[str, str]) -> PipelineResult:
        touched = self._touched()
        source = self._source(touched)
        source.check_topic()
        self._report("computing units")
        self._write_units(source)
        self._report("computing arrivals")
        self._write_arrivals(touched)
        self._report("writing tables")
        places = self._write_tables()
        self._report("summing up")
        tables = {name: self._spark.read.parquet(read_path(place)) for name, place in places.items()}
        bad, by_reason = _bad_rows(tables["quarantine"])
        result = make_result(
            tables["subscriber_scores"].select("subscription", *SubscriberScore.__struct_fields__).toArrow(),
            {row["table"]: int(row["rows"]) for row in tables["rows"].collect()},
            bad,
            by_reason,
            places=places,
            files=len(files),
            unread_files=sum(file.fault is not None and file.rows is None for file in files),
            new_files=len(self._work.new),
            recomputed=self._work.reason,
            clocks=None if self._clocks is None else self._clocks.summary(),
        )
        manifest = Manifest(
            format=FORMAT,
            files=list(files),
            options=terms,
            setting=self._setting.fingerprint,
            result=msgspec.to_builtins(result),
        )
        self._store.commit(self._run, manifest, places)
        return result

    def _write_units(self, source: Source) -> None:
        """The partials by unit: those of touched units, the small tables' own, and the last run's of other units."""
        partials = partials_of_source(
            self._spark,
            source,
            Counting(
                counted_from_ns=self._warmup_ns,
                clock_tolerance_ns=self._options.clock_tolerance_ns,
                clock_low_ns=None if self._clocks is None else self._clocks.low_ns,
                clock_high_ns=None if self._clocks is None else self._clocks.high_ns,
            ),
            window_ns=self._options.window_ns,
            partitions=self._partitions(),
        )
        if source.touched is not None and self._previous is not None:
            before = read_partials(self._spark, self._previous)
            kept = before.where(fn.col("publisher").isNotNull() & ~fn.col("kind").isin(*PASSING))
            kept = kept.join(fn.broadcast(source.touched.units), [*UNIT], "left_anti")
            partials = partials.unionAll(kept.select(*partials.columns))
        self._append(partials)
        if self._store.storage.exists(self._place(FAULTY)):
            faults = read_partials(self._spark, self._run, FAULTY)
            self._append(as_partials("quarantine", source.found_again(faults)))

    def _append(self, partials: DataFrame) -> None:
        place = write_path(self._run.partials(UNITS))
        partials.hint("rebalance", "kind").write.mode("append").partitionBy("kind").parquet(place)

    def _place(self, kind: str) -> str:
        return f"{self._run.partials(UNITS)}/kind={kind}"

    def _write_arrivals(self, touched: Touched | None) -> None:
        """The partials by slice of time: those of touched slices, and the last run's of others."""
        received = read_partials(self._spark, self._run, RECEIVED)
        partials = arrivals_in_slices(received, partitions=self._partitions())
        if touched is not None and self._previous is not None:
            before = self._spark.read.schema(PARTIAL_ARRIVALS).parquet(read_path(self._previous.partials(ARRIVALS)))
            partials = partials.join(fn.broadcast(touched.slices), "slice", "left_semi")
            before = before.join(fn.broadcast(touched.slices), "slice", "left_anti")
            partials = before.select(*partials.columns).unionByName(partials)
        partials.write.parquet(write_path(self._run.partials(ARRIVALS)))
        for kind in PASSING:
            self._store.storage.delete(self._place(kind))

    def _write_tables(self) -> dict[str, str]:
        """All tables, by name: made here of partials that are few, or else by Spark."""
        places = {name: self._run.table(name) for name in ("quarantine", *(made.name for made in MADE))}
        partials = self._store.storage.list(self._run.partials(""))
        if sum(file.size_bytes for file in partials) <= MERGED_HERE_BYTES_MAX:
            self._merge_here(places)
        else:
            self._merge_by_spark(places)
        return places

    def _merge_here(self, places: Mapping[str, str]) -> None:
        """On this machine without a single job of Spark's."""
        arrivals = read_held(self._spark, self._run.partials(ARRIVALS), arrow_schema(PARTIAL_ARRIVALS))
        tables = tables_of(
            sums_of({kind: self._partials_here(kind) for kind in KINDS if kind not in PASSING}, arrivals)
        )
        for name, place in places.items():
            write_held(self._spark, place, tables[name])

    def _partials_here(self, kind: str) -> pa.Table:
        """The partials of a kind, in columns of their own."""
        schema, held = arrow_schema(KINDS[kind]), arrow_schema(UNIT_COLUMNS.removesuffix(", "))
        own = pa.struct([field for field in schema if field.name not in held.names])
        found = read_held(self._spark, self._place(kind), held.append(pa.field(kind, own)))
        columns = dict(zip(own.names, found[kind].combine_chunks().flatten(), strict=True))
        return pa.table({name: columns.get(name, found[name] if name in held.names else None) for name in schema.names})

    def _merge_by_spark(self, places: Mapping[str, str]) -> None:
        """Most of what a small table costs is waiting, so some are written at a time."""
        partials = read_partials(self._spark, self._run)
        arrivals = self._spark.read.schema(PARTIAL_ARRIVALS).parquet(read_path(self._run.partials(ARRIVALS)))
        tables = merged_tables(partials, arrivals, lambda rows: self._laid_down("firsts", rows))
        with _settings(self._spark, INTERPRETED), _threads(self._spark) as pool:
            list(pool.map(lambda name: tables[name].write.parquet(write_path(places[name])), places))

    def _laid_down(self, name: str, frame: DataFrame) -> DataFrame:
        return _written(self._spark, self._run.scratch(name), frame)

    def _touched(self) -> Touched | None:
        """None on a first run, or one that starts over: then everything is."""
        if self._previous is None:
            return None
        self._report("finding what is touched")
        return touched_units(self._work.new, self._work.old, self._raw, self._laid_down)

    def _raw(self, table: str, files: Sequence[TraceFile]) -> DataFrame:
        return read_table(self._spark, table, files, mapping=self._mapping)

    def _source(self, touched: Touched | None) -> Source:
        files = [*self._work.new, *self._work.old]
        return Source(
            read=lambda table: self._raw(table, files),
            setting=self._setting,
            topic=self._options.topic,
            clock_tolerance_ns=self._options.clock_tolerance_ns,
            touched=touched,
        )

    def _partitions(self) -> int:
        files = [*self._work.new, *self._work.old]
        rows = sum(
            file.rows if file.rows is not None else file.size_bytes // BYTES_PER_ROW
            for file in files
            if file.table in LARGE
        )
        wide = min(int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1), ceil(rows / ROWS_PER_PARTITION_MIN))
        return min(PARTITIONS_MAX, max(1, wide, ceil(rows / ROWS_PER_PARTITION)))


def _bad_rows(quarantine: DataFrame) -> tuple[int, dict[str, int]]:
    """How many rows are bad, and how many for each reason: the same sets of reasons come again and again."""
    bad, by_reason = 0, Counter[str]()
    for row in quarantine.groupBy("reasons").agg({"rows": "sum"}).collect():
        bad += row["sum(rows)"]
        by_reason.update(dict.fromkeys(row["reasons"], row["sum(rows)"]))
    return bad, by_reason


def _written(spark: SparkSession, place: str, rows: DataFrame) -> DataFrame:
    """The rows, written and read from there."""
    rows.write.parquet(write_path(place))
    return spark.read.schema(rows.schema).parquet(read_path(place))


def _held(spark: SparkSession, place: str, rows: pa.Table) -> DataFrame:
    """Rows that the driver holds, written and read from there."""
    write_held(spark, place, rows)
    columns, fault = spark_columns(rows.schema)
    assert columns is not None, fault
    return spark.read.schema(columns).parquet(read_path(place))


@contextmanager
def _settings(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """Settings that the plans rely on, for as long as it takes.

    They stay after Ctrl-C: it ends the JVM as well, and whoever asks that for anything gets another error instead.
    """
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    is_interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        is_interrupted = True
        raise
    finally:
        if not is_interrupted:
            for name, value in before.items():
                spark.conf.set(name, value)


@contextmanager
def _threads(spark: SparkSession) -> Iterator[ThreadPoolExecutor]:
    """Threads for TABLES_AT_A_TIME jobs; if this fails, their jobs end, and who interrupts does not wait for that."""
    pool = ThreadPoolExecutor(TABLES_AT_A_TIME)
    try:
        yield pool
    except BaseException as error:
        with suppress(Exception) if isinstance(error, KeyboardInterrupt) else nullcontext():
            spark.interruptAll()
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise
    pool.shutdown()
