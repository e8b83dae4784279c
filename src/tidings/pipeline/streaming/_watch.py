"""The watch: a stream of new files, each batch of which brings the batch answer up to date.

Theory of operation. Structured Streaming finds new files, keeps in its checkpoint which of them a batch had, and calls
`_Watcher.count` for each batch. That counts the files' rows into a state (_state.py), writes the tables of a run, and
commits both at once or not at all (_store.py). So:

- A batch costs what its rows and the units that they touch cost, however much was counted before.
- A kill at any moment is harmless. The commit says which batch it is of: a batch that was not committed comes again and
  is counted, one that was committed comes again at most once and is passed over.
- The state is complete in itself: sums of what is closed, rows of what is open. Files that are counted may be deleted.
- A change of what everything depends on (subscriptions, brokers, options, the version) begins another *era*: a stream
  from the beginning, with a checkpoint of its own, over the files that are there. The answer of the era before stands
  until the first batch of the new one is committed.
- The greatest departure gives the watermark, which decides when a window is reported as final (_windows.py).

    out/watch/checkpoint-000000/    the stream's, one for each era
              rows/RUN/             rows of open units, as batches brought them
              sums/RUN/NAME/        sums of closed units
              records/, windows/, over/    see _windows.py
"""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidings.errors import ConfigurationError, InputError
from tidings.pipeline._catalog import publish_tables
from tidings.pipeline._held import read_held, write_held
from tidings.pipeline._manifest import FORMAT, Manifest
from tidings.pipeline._options import SMALL, PipelineOptions, terms_of
from tidings.pipeline._result import PipelineResult, check_bad, count_bad, make_result
from tidings.pipeline._run_store import Run, RunStore, open_store
from tidings.pipeline._session import once
from tidings.pipeline._storage import Listed, is_local, naming_damaged_files, place_of, storage_of, write_path
from tidings.pipeline.arrow._small_tables import Setting, read_setting
from tidings.pipeline.arrow._source import LARGE, Source
from tidings.pipeline.ingest import NEEDED, Mapping, TraceFile, find_files, load_mapping, require_attributes
from tidings.pipeline.ingest._clocks import Corrections
from tidings.pipeline.ingest._files import listed_files, require_tables
from tidings.pipeline.ingest._topics import is_topics
from tidings.pipeline.rows import GATHERED, Counting
from tidings.pipeline.rows import together as rows_together
from tidings.pipeline.streaming._discovery import listed, missing, new_files
from tidings.pipeline.streaming._reports import End, Report, Stage, Update
from tidings.pipeline.streaming._spark_log import open_files
from tidings.pipeline.streaming._state import Known, State, Terms
from tidings.pipeline.streaming._windows import Windows

__all__ = ["WatchOptions", "watch_trace"]

LOOK_EVERY_S: Final = 0.2
"""How often the watch looks whether it has to end, and whether there is a trace yet."""

FOLDER: Final = "watch"
"""Where, beside the runs, the checkpoint, the state and the record of reported windows are."""

ROW_FOLDERS_MAX: Final = 64
"""Batches of open rows that lie beside each other; then all open rows are written as one."""

Listener = Callable[[Report], None]
_CARRIED: Final = "carried-"
_LOOKS_AT_ALL: Final = "the mapping numbers events, or compares clocks, over all files together"


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """How to watch: look for new files every `every_s`; rows may come `late_ns` after later ones before their windows
    are final, and `hold_ns` before they are too late to be counted; `window_scores` has the windows of the last
    `keep_ns`; end when nothing has come for `until_idle_s` (None: never), or with what is there (`is_once`)."""

    every_s: float = 5.0
    late_ns: int = 30_000_000_000
    hold_ns: int = 600_000_000_000
    keep_ns: int = 86_400_000_000_000
    until_idle_s: float | None = None
    is_once: bool = False

    def __post_init__(self) -> None:
        if self.every_s <= 0:
            raise ConfigurationError(f"every {self.every_s:g} s: must be longer than 0")
        if self.late_ns < 0:
            raise ConfigurationError(f"late by {self.late_ns} ns: must not be negative")
        if self.hold_ns < self.late_ns:
            raise ConfigurationError(
                f"hold of {self.hold_ns} ns: must not be shorter than late ({self.late_ns} ns), or rows would be too "
                "late while their windows still wait for them"
            )
        if self.keep_ns < self.hold_ns:
            raise ConfigurationError(f"keep of {self.keep_ns} ns: must not be shorter than hold ({self.hold_ns} ns)")
        if self.until_idle_s is not None and self.until_idle_s <= 0:
            raise ConfigurationError(f"until idle for {self.until_idle_s:g} s: must be longer than 0")
        if self.is_once and self.until_idle_s is not None:
            raise ConfigurationError("--once and --until-idle exclude each other; give one of them")


class Kept(msgspec.Struct, kw_only=True):
    """The state as a commit has it: `batch` is the last one of its `era`, `files` how many its stream has brought.

    `sums` is the run that wrote the sums ("" if nothing is closed), `rows` those that wrote the open rows; `small` are
    the files of small tables. `has_gone`: fewer files than the era before had.
    """

    era: int = 0
    batch: int = -1
    files: int = 0
    sums: str = ""
    rows: list[str] = []
    small: list[TraceFile] = []
    known: Known = msgspec.field(default_factory=Known)
    has_gone: bool = False


def watch_trace(
    session: SparkSession | Callable[[], SparkSession],
    trace: str | PathLike[str],
    out: str | PathLike[str],
    options: WatchOptions | None = None,
    pipeline: PipelineOptions | None = None,
    *,
    listener: Listener,
    stop: threading.Event | None = None,
) -> PipelineResult | None:
    """Keep `out` equal to the result of `run_pipeline` over a growing directory, and report to the listener.

    `session` may be a function: it is called when there is a trace, or where that or `out` is not on this machine.
    `stop` ends the watch after the current batch. The result is the last one; None if there was nothing before it
    ended. Rows may be bad only until others come, so too many of them are an error (TooManyBadRows) when the watch
    ends by itself, not before.
    """
    chosen = WatchOptions() if options is None else options
    stopped = threading.Event() if stop is None else stop
    asked = PipelineOptions() if pipeline is None else pipeline
    mapping = None if asked.mapping is None else load_mapping(asked.mapping)
    start = once(session)
    watched = fspath(trace)
    if is_local(place_of(watched)) and not _wait_for_trace(watched, mapping, chosen, listener, stopped):
        listener(End(reason="stopped", batches=0, result=None))
        return None
    store = open_store(out, start)
    return _Watcher(start(), watched, store, chosen, asked, mapping, listener, stopped).go()


def _wait_for_trace(
    trace: str, mapping: Mapping | None, options: WatchOptions, listener: Listener, stopped: threading.Event
) -> bool:
    """Whether there is a trace, rather than an end. Without one `--once`, or a wait that is too long, is an error."""
    reported: str | None = None
    until_s = time.monotonic() + (options.until_idle_s or 0.0)
    while (lacking := missing(trace, mapping)) is not None:
        if options.is_once or (options.until_idle_s is not None and time.monotonic() > until_s):
            find_files([trace], mapping=mapping)  # raises what a run says about it
        if lacking != reported:
            listener(Stage(text=f"{lacking}; waiting", is_waiting=True))
            reported = lacking
        if stopped.wait(LOOK_EVERY_S):
            return False
    return True


class _Ending(Exception):  # noqa: N818 - no error
    """Raised in a batch that is not to be completed: the watch is about to end, or begins another era."""


class _Watcher:
    """One watch, from the first batch to the end."""

    def __init__(
        self,
        spark: SparkSession,
        trace: str,
        store: RunStore,
        options: WatchOptions,
        pipeline: PipelineOptions,
        mapping: Mapping | None,
        listener: Listener,
        stopped: threading.Event,
    ) -> None:
        self._spark, self._trace, self._store, self._options, self._pipeline = spark, trace, store, options, pipeline
        self._mapping, self._listener, self._stopped = mapping, listener, stopped
        self._folder, self._place = f"{store.out}/{FOLDER}", place_of(trace)
        self._storage = store.storage if is_topics(self._place) else storage_of(self._place, spark)
        if pipeline.from_scratch:
            store.storage.delete(self._folder)
        self._windows = Windows(spark, store.storage, self._folder, window_ns=pipeline.window_ns)
        self._state: State | None = None
        self._kept, self._run, self._scratch = Kept(), "", Path()
        self._reason: str | None = None
        self._before: Kept | None = None
        self._anew: str | None = None
        self._result: PipelineResult | None = None
        self._batches = 0
        self._error: BaseException | None = None
        self._busy = threading.Lock()
        self._active_s = time.monotonic()

    def go(self) -> PipelineResult | None:
        self._tell_windows()
        with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
            self._scratch = Path(folder)
            if not self._pipeline.from_scratch:
                self._resume()
            reason = "anew"
            while reason == "anew":
                reason = self._watch()
        if self._error is not None:
            raise self._error
        for score in self._windows.open():
            self._listener(score)
        self._listener(End(reason=reason, batches=self._batches, result=self._result))
        if self._result is not None and reason != "stopped":
            check_bad(self._result, self._pipeline.max_bad)
        return self._result

    def count(self, files: DataFrame, batch: int) -> None:
        """One batch of the stream."""
        with self._busy:
            if self._stopped.is_set() or self._anew is not None:
                raise _Ending
            try:
                self._bring_up_to_date(batch, listed(self._trace, files))
                self._batches += 1
            except _Ending:
                raise
            except BaseException as error:
                self._error = error
                raise
            finally:
                self._active_s = time.monotonic()

    def _resume(self) -> None:
        """Take up the state of the last watch, or see that it is of another version, or of other options."""
        last = self._store.last()
        if last is None or last[1].watch is None:
            return
        run, manifest = last
        self._listener(Stage(text="going on where the last watch ended"))
        if manifest.format != FORMAT:
            self._begin_era("the last watch was made by another version", manifest)
            return
        kept = msgspec.convert(manifest.watch, Kept)
        terms = self._terms(kept.small)
        for name, value in terms.items():
            if value != manifest.options.get(name):
                self._begin_era(f"the option {name} was {manifest.options.get(name)} and is {value}", manifest)
                return
        if not all(self._is_there(file) for file in kept.small):
            self._begin_era("files of subscriptions or topology are gone", manifest)
            return
        if self._looks_at_all:
            self._begin_era(_LOOKS_AT_ALL, manifest)
            return
        self._kept, self._run = kept, run.name
        sums = {path.partition("/")[0] for path in self._below(f"sums/{kept.sums}")} if kept.sums else set()
        tables = {name: read_held(self._spark, f"{self._folder}/sums/{kept.sums}/{name}") for name in sums}
        carried = {name.removeprefix(_CARRIED): tables.pop(name) for name in sums if name.startswith(_CARRIED)}
        rows = [read_held(self._spark, f"{self._folder}/rows/{name}", GATHERED) for name in kept.rows]
        self._state = State(
            self._state_terms(terms, None),
            self._read_setting(kept.small),
            self._again,
            known=kept.known,
            sums=tables or None,
            carried=carried,
            rows=rows_together(rows),
        )
        self._result = msgspec.convert({**manifest.result, "new_files": 0, "recomputed": None}, PipelineResult)
        self._report(None, time.monotonic(), 0)

    def _begin_era(self, reason: str, manifest: Manifest) -> None:
        self._before = Kept() if manifest.format != FORMAT else msgspec.convert(manifest.watch, Kept)
        era = (manifest.watch or {}).get("era", -1)
        self._kept, self._state, self._anew = Kept(era=era + 1), None, reason

    def _watch(self) -> str:
        """Watch until the end, or until another era has to begin (`anew`)."""
        if self._state is None:
            self._store.storage.delete(self._checkpoint)
        self._reason, self._anew = self._anew, None
        query = self._start()
        reason = ""
        try:
            reason = self._until_end(query)
        finally:
            if reason != "anew":
                self._stopped.set()
            with self._busy:  # the current batch; no other one begins
                pass
            query.stop()
        return reason

    @property
    def _checkpoint(self) -> str:
        return f"{self._folder}/checkpoint-{self._kept.era:06}"

    def _start(self) -> StreamingQuery:
        writer = new_files(self._spark, self._trace, self._mapping).writeStream.foreachBatch(self.count)
        writer = writer.option("checkpointLocation", write_path(self._checkpoint))
        if self._options.is_once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(self._options.every_s * 1000)} milliseconds").start()

    def _until_end(self, query: StreamingQuery) -> str:
        """Why the watch ends. A batch that fails ends it too, by its error."""
        while query.isActive:
            if self._stopped.wait(LOOK_EVERY_S):
                return "stopped"
            if self._options.until_idle_s is not None and self._is_idle(query, self._options.until_idle_s):
                return "idle"
        if self._anew is not None:
            return "anew"
        failure = query.exception()
        if self._error is None and failure is not None:
            cause = str(failure).splitlines()[0]
            self._error = InputError(
                f"{self._trace}: the search for new files failed: {cause}; fix that and start again, the watch goes on "
                "where it was"
            )
        return "once" if self._options.is_once else "stopped"

    def _is_idle(self, query: StreamingQuery, for_s: float) -> bool:
        """No batch runs, nothing has come for this long, and the directory has no more files than were counted."""
        if self._busy.locked() or time.monotonic() - self._active_s < for_s or not _has_looked(query):
            return False
        if query.status["isTriggerActive"] or query.status["isDataAvailable"]:
            return False
        if is_topics(self._place) or len(self._storage.list(self._place)) <= self._kept.files:
            return True
        self._active_s = time.monotonic()
        return False

    def _bring_up_to_date(self, batch: int, found: list[Listed]) -> None:
        """Count what is new, and report what has become final."""
        began_s = time.monotonic()
        rows = 0 if self._result is None or self._state is None else sum(self._result.rows.values())
        if batch > self._kept.batch:
            with naming_damaged_files():
                self._count(batch, found)
        assert self._result is not None
        self._report(batch, began_s, max(0, sum(self._result.rows.values()) - rows))

    def _count(self, batch: int, found: list[Listed]) -> None:
        self._tell("looking for files")
        files = listed_files(self._trace, found, session=self._spark, mapping=self._mapping)
        if self._state is not None:
            files += self._mended({file.path for file in files})
        if self._state is not None and self._looks_at_all:
            self._require_new_era(_LOOKS_AT_ALL)
        small = [*self._kept.small, *(file for file in files if file.table in SMALL and file.fault is None)]
        terms = self._terms(small)
        self._tell("reading subscriptions and topology")
        if self._state is None:
            require_tables(NEEDED, [self._trace], files, self._mapping)
        is_same = self._state is not None and len(small) == len(self._kept.small)
        setting = self._state.setting if self._state is not None and is_same else self._read_setting(small)
        if self._state is not None and setting.fingerprint != self._state.setting.fingerprint:
            self._require_new_era("subscriptions or brokers have changed")
        wanted = setting.interests.attributes | ({self._pipeline.topic} if self._pipeline.topic else set())
        require_attributes(files, wanted)
        self._tell("computing units")
        counted = [file for file in files if file.table in LARGE or file.fault is not None]
        source = self._source([file for file in counted if file.fault is None], setting)
        self._check_topic(source)
        clocks = source.log.corrections
        state = self._state or State(self._state_terms(terms, clocks), setting, self._again)
        state.setting = setting
        new, has_closed = state.count(source, counted)
        self._tell("writing tables")
        run = self._store.begin()
        tables = state.tables()
        self._write_tables(run, state.setting, tables)
        kept = Kept(
            era=self._kept.era,
            batch=batch,
            files=self._kept.files + len(found),
            sums=run.name if has_closed else self._kept.sums,
            rows=[run.name] if has_closed else [*self._kept.rows, *([run.name] if len(new) else [])],
            small=small,
            known=state.known,
            has_gone=self._kept.has_gone or (self._before is not None and len(found) < self._before.files),
        )
        if has_closed or len(kept.rows) > ROW_FOLDERS_MAX:
            new, kept.rows = state.rows, [run.name]
        if len(new):
            write_held(self._spark, f"{self._folder}/rows/{run.name}", new.cast(GATHERED))
        if has_closed and state.sums is not None:
            carried = {f"{_CARRIED}{name}": table for name, table in state.carried.items()}
            for name, table in {**state.sums, **carried}.items():
                write_held(self._spark, f"{self._folder}/sums/{run.name}/{name}", table)
        self._tell("summing up")
        self._commit(run, tables, state, kept, terms, clocks, new_files=len(found))
        self._state, self._kept, self._run, self._before, self._reason = state, kept, run.name, None, None
        self._clean()

    def _commit(
        self,
        run: Run,
        tables: dict[str, pa.Table],
        state: State,
        kept: Kept,
        terms: dict[str, str],
        clocks: Corrections | None,
        *,
        new_files: int,
    ) -> None:
        places = {name: run.table(name) for name in tables}
        counts = zip(tables["rows"]["table"].to_pylist(), tables["rows"]["rows"].to_pylist(), strict=True)
        self._result = make_result(
            tables["subscriber_scores"],
            dict(counts),
            *count_bad(tables["quarantine"].to_batches()),
            places=places,
            files=kept.files,
            unread_files=sum(file.rows is None for file in state.faulty),
            new_files=new_files,
            recomputed=self._reason,
            clocks=None if clocks is None else clocks.summary(),
        )
        manifest = Manifest(
            format=FORMAT,
            files=[],
            options=terms,
            setting=state.setting.fingerprint,
            result=msgspec.to_builtins(self._result),
            watch=msgspec.to_builtins(kept),
        )
        self._store.commit(run, manifest, places)
        if self._pipeline.catalog is not None:
            publish_tables(
                self._spark,
                self._pipeline.catalog,
                self._store.tables(),
                table_format=self._pipeline.table_format,
                report=self._tell,
            )

    def _write_tables(self, run: Run, setting: Setting, tables: dict[str, pa.Table]) -> None:
        for name in SMALL:
            write_held(self._spark, run.setting(name), getattr(setting, name))
        for name, table in tables.items():
            write_held(self._spark, run.table(name), table)

    def _report(self, batch: int | None, began_s: float, rows_read: int) -> None:
        """Settle the windows of the last commit, and tell what is new in them and the answer."""
        assert self._state is not None
        assert self._result is not None, "a commit has been made"
        self._tell("looking at windows")
        departures = [each.departure_ns for each in self._state.known.publishers.values()]
        record = self._windows.record.advanced(max(departures, default=None), self._options.late_ns)
        has_gone = record.has_gone or self._kept.has_gone
        self._windows.settle(
            self._run,
            self._state.windows(),
            msgspec.structs.replace(record, has_gone=has_gone),
            over_ns=self._state.known.over_ns,
            keep_ns=self._options.keep_ns,
            is_anew=self._kept.batch == 0 and record.number > 0,
        )
        self._tell_windows()
        self._state.reported()
        update = Update(
            batch=batch,
            seconds=time.monotonic() - began_s,
            rows_read=rows_read,
            watermark_ns=self._windows.record.watermark_ns,
            windows=self._windows.latest(),
            result=self._result,
        )
        self._listener(update)

    def _require_new_era(self, reason: str) -> None:
        last = self._store.last()
        assert last is not None, "something was committed before"
        self._begin_era(reason, last[1])
        raise _Ending

    def _mended(self, new: set[str]) -> list[TraceFile]:
        """Files that could not be read, and now can."""
        assert self._state is not None
        faulty = {file.path: file for file in self._state.faulty if file.path not in new}
        if not faulty:
            return []
        again = [file for file in self._storage.list(self._place) if file.path in faulty]
        found = listed_files(self._trace, again, session=self._spark, mapping=self._mapping)
        return [file for file in found if file.fault is None]

    def _read_setting(self, small: Sequence[TraceFile]) -> Setting:
        log = open_files(self._spark, small, self._mapping, self._scratch)
        return read_setting(
            {table: list(log.batches(table)) for table in SMALL},
            [],
            clock_tolerance_ns=self._pipeline.clock_tolerance_ns,
        )

    def _again(self, files: Sequence[TraceFile], setting: Setting) -> Source:
        return self._source([file for file in files if self._is_there(file)], setting)

    def _is_there(self, file: TraceFile) -> bool:
        return is_topics(file.path) or self._storage.exists(file.path)

    def _source(self, files: Sequence[TraceFile], setting: Setting) -> Source:
        return Source(
            log=open_files(self._spark, files, self._mapping, self._scratch),
            setting=setting,
            topic=self._pipeline.topic,
            clock_tolerance_ns=self._pipeline.clock_tolerance_ns,
        )

    def _check_topic(self, source: Source) -> None:
        wanted = self._pipeline.topic
        if wanted is not None and self._kept.batch < 0 and wanted not in source.log.kinds:
            known = ", ".join(source.log.kinds) or "none"
            raise InputError(f"--topic {wanted}: no event has such an attribute; there are: {known}")

    @property
    def _looks_at_all(self) -> bool:
        return self._mapping is not None and (self._mapping.is_whole or self._mapping.clocks is not None)

    def _terms(self, small: Sequence[TraceFile]) -> dict[str, str]:
        return terms_of(self._pipeline, self._mapping, small, engine="watch")

    def _state_terms(self, terms: dict[str, str], clocks: Corrections | None) -> Terms:
        return Terms(
            window_ns=self._pipeline.window_ns,
            counting=Counting(
                counted_from_ns=int(terms["warmup_ns"]),
                clock_tolerance_ns=self._pipeline.clock_tolerance_ns,
                clock_low_ns=None if clocks is None else clocks.low_ns,
                clock_high_ns=None if clocks is None else clocks.high_ns,
            ),
            hold_ns=self._options.hold_ns,
            keep_ns=self._options.keep_ns,
        )

    def _clean(self) -> None:
        """Remove what the last commit does not need any more."""
        kept = {f"rows/{name}" for name in self._kept.rows} | {f"sums/{self._kept.sums}"}
        found = {f"{part}/{below.partition('/')[0]}" for part in ("rows", "sums") for below in self._below(part)}
        eras = {below.partition("/")[0] for below in self._below("") if below.startswith("checkpoint")}
        for name in (found - kept) | (eras - {self._checkpoint.rpartition("/")[2]}):
            self._store.storage.delete(f"{self._folder}/{name}")

    def _below(self, part: str) -> list[str]:
        return [file.below for file in self._store.storage.list(f"{self._folder}/{part}".rstrip("/"))]

    def _tell_windows(self) -> None:
        for score in self._windows.unreported():
            self._listener(score)
        self._windows.reported()

    def _tell(self, text: str) -> None:
        self._listener(Stage(text=text))


def _has_looked(query: StreamingQuery) -> bool:
    """Whether the stream has looked for files at least once: a batch of before the start may have to come again."""
    status = query.status
    is_beginning = status["isTriggerActive"] or status["message"].startswith("Initializing")
    return query.lastProgress is not None or not is_beginning
