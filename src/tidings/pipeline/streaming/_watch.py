"""The watch: a stream of new files, each batch of which brings the batch answer up to date.

Theory of operation. Structured Streaming finds new files, keeps in its checkpoint which of them a batch had, and calls
`_Watcher.count` for each batch. That makes an incremental run (_job.py) over the directory, whose state is the
partials of all units, committed at once or not at all. So:

- The state does not live in the stream: however late a row comes, its unit is computed again, and the answer after any
  batch is that of a run from scratch over the files it had.
- A kill at any moment is harmless. A batch that was not completed comes again; the run knows the files that it counted
  and counts the others, whichever of the two was ahead. A batch may be seen twice, a file never counts twice.
- The stream's files give the watermark, which decides when a window is reported as final (_windows.py).

A restart first makes a run of its own, without the stream: files or options may have changed in the meantime.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from tidings.errors import ConfigurationError, InputError
from tidings.pipeline._job import run_pipeline
from tidings.pipeline._options import PipelineOptions
from tidings.pipeline._result import PipelineResult, check_bad
from tidings.pipeline._session import once
from tidings.pipeline._storage import is_local, place_of, write_path
from tidings.pipeline._store import Store, open_store
from tidings.pipeline.ingest import Mapping, find_files, load_mapping, read_table
from tidings.pipeline.streaming._discovery import missing, new_files
from tidings.pipeline.streaming._reports import End, Report, Stage, Update
from tidings.pipeline.streaming._windows import Windows

__all__ = ["WatchOptions", "watch_trace"]

LOOK_EVERY_S: Final = 0.2
"""How often the watch looks whether it has to end, and whether there is a trace yet."""

FOLDER: Final = "watch"
"""Where, beside the runs, the checkpoint and the record of reported windows are."""

Listener = Callable[[Report], None]


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """How to watch: look for new files every `every_s`; rows may come `late_ns` after later ones before their windows
    are final; end when nothing has come for `until_idle_s` (None: never), or with what is there (`is_once`)."""

    every_s: float = 5.0
    late_ns: int = 30_000_000_000
    until_idle_s: float | None = None
    is_once: bool = False

    def __post_init__(self) -> None:
        if self.every_s <= 0:
            raise ConfigurationError(f"every {self.every_s:g} s: must be longer than 0")
        if self.late_ns < 0:
            raise ConfigurationError(f"late by {self.late_ns} ns: must not be negative")
        if self.until_idle_s is not None and self.until_idle_s <= 0:
            raise ConfigurationError(f"until idle for {self.until_idle_s:g} s: must be longer than 0")
        if self.is_once and self.until_idle_s is not None:
            raise ConfigurationError("--once and --until-idle exclude each other; give one of them")


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
    """Keep the answer in `out` that of `run_pipeline` over a directory that grows, and tell the listener.

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
    told: str | None = None
    until_s = time.monotonic() + (options.until_idle_s or 0.0)
    while (lacking := missing(trace, mapping)) is not None:
        if options.is_once or (options.until_idle_s is not None and time.monotonic() > until_s):
            find_files([trace], mapping=mapping)  # raises what a run says about it
        if lacking != told:
            listener(Stage(text=f"{lacking}; waiting", is_waiting=True))
            told = lacking
        if stopped.wait(LOOK_EVERY_S):
            return False
    return True


class _Ending(Exception):  # noqa: N818 - no error
    """Raised in a batch that begins when the watch is about to end: it is not completed, and comes again."""


class _Watcher:
    """One watch, from the first batch to the end."""

    def __init__(
        self,
        spark: SparkSession,
        trace: str,
        store: Store,
        options: WatchOptions,
        pipeline: PipelineOptions,
        mapping: Mapping | None,
        listener: Listener,
        stopped: threading.Event,
    ) -> None:
        self._spark, self._trace, self._store, self._options, self._pipeline = spark, trace, store, options, pipeline
        self._mapping, self._listener, self._stopped = mapping, listener, stopped
        folder = f"{store.out}/{FOLDER}"
        self._checkpoint = f"{folder}/checkpoint"
        if pipeline.from_scratch:
            store.storage.delete(folder)
        self._windows = Windows(spark, store.storage, folder, window_ns=pipeline.window_ns)
        last = None if pipeline.from_scratch else store.last()
        self._rows = 0 if last is None else sum(last[1].result["rows"].values())
        self._result: PipelineResult | None = None
        self._batches = 0
        self._error: BaseException | None = None
        self._busy = threading.Lock()
        self._active_s = time.monotonic()

    def go(self) -> PipelineResult | None:
        self._tell_windows()
        if self._store.storage.exists(self._checkpoint):
            self._listener(Stage(text="going on where the last watch ended"))
            self._bring_up_to_date(None, self._windows.record.greatest_departure_ns)
        query = self._start()
        try:
            reason = self._until_end(query)
        finally:
            self._stopped.set()
            with self._busy:  # the current batch; no other one begins
                pass
            query.stop()
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
            if self._stopped.is_set():
                raise _Ending
            try:
                self._bring_up_to_date(batch, None, [row["file"] for row in files.collect()])
                self._batches += 1
            except BaseException as error:
                self._error = error
                raise
            finally:
                self._active_s = time.monotonic()

    def _start(self) -> StreamingQuery:
        writer = new_files(self._spark, self._trace).writeStream.foreachBatch(self.count)
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
        failure = query.exception()
        if self._error is None and failure is not None:
            said = str(failure).splitlines()[0]
            self._error = InputError(
                f"{self._trace}: new files cannot be looked for any more: {said}; mend that and start again, the watch "
                "goes on where it was"
            )
        return "once" if self._options.is_once else "stopped"

    def _is_idle(self, query: StreamingQuery, for_s: float) -> bool:
        """Nothing is under way, nothing has come for this long, and the directory has nothing that is not counted."""
        if self._busy.locked() or time.monotonic() - self._active_s < for_s or not _has_looked(query):
            return False
        last = self._store.last()
        known = () if last is None else last[1].files
        if find_files([self._trace], session=self._spark, mapping=self._mapping, known=known) == [*known]:
            return True
        self._active_s = time.monotonic()
        return False

    def _bring_up_to_date(self, batch: int | None, departure_ns: int | None, files: list[str] | None = None) -> None:
        """Count what is new, and report what has become final."""
        began_s = time.monotonic()
        asked = replace(self._pipeline, max_bad=1.0)
        result = run_pipeline(self._spark, [self._trace], self._store.out, asked, progress=self._tell)
        self._pipeline = replace(self._pipeline, from_scratch=False)
        self._tell("looking at windows")
        seen = departure_ns if files is None else self._greatest_departure_ns(files)
        last = self._store.last()
        assert last is not None, "a run has just been completed"
        self._windows.settle(last[0], self._windows.record.advanced(seen, self._options.late_ns))
        self._tell_windows()
        rows = sum(result.rows.values())
        update = Update(
            batch=batch,
            seconds=time.monotonic() - began_s,
            rows_read=max(0, rows - self._rows),
            watermark_ns=self._windows.record.watermark_ns,
            windows=self._windows.latest(),
            result=result,
        )
        self._result, self._rows = result, rows
        self._listener(update)

    def _tell_windows(self) -> None:
        for score in self._windows.untold():
            self._listener(score)
        self._windows.told()

    def _greatest_departure_ns(self, paths: list[str]) -> int | None:
        """Of the events in those of these files that have been counted; None if there are none."""
        last = self._store.last()
        wanted = {_normal(path) for path in paths}
        files = [file for file in (last[1].files if last else ()) if _normal(file.path) in wanted]
        if not any(file.table == "publications" and file.fault is None for file in files):
            return None
        rows = read_table(self._spark, "publications", files, mapping=self._mapping).where(fn.size("_faults") == 0)
        found = rows.agg(fn.max("departure_ns")).head()
        return None if found is None or found[0] is None else int(found[0])

    def _tell(self, text: str) -> None:
        self._listener(Stage(text=text))


def _has_looked(query: StreamingQuery) -> bool:
    """Whether the stream has looked for files at least once: a batch of before the start may have to come again."""
    status = query.status
    is_beginning = status["isTriggerActive"] or status["message"].startswith("Initializing")
    return query.lastProgress is not None or not is_beginning


def _normal(path: str) -> str:
    """The path as Spark reports it, without the `..` that a user may have written."""
    return os.path.normpath(path) if is_local(path) else path
