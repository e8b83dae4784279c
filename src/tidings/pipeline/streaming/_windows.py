"""Windows of departure by subscription: when they are final, and the record of what was reported of them.

Rules:

- The watermark is the greatest departure seen, less the time that rows may be late; it never goes back. A window is
  final when the watermark has reached its end.
- The watermark decides what is *reported*, not what is *counted*: a row that comes after its window was final counts
  like any other, and the window's score is reported again as its next revision. So nothing is ever dropped, and the
  sum of the last reports is the batch answer.
- The record names a table of all windows, in which the news are marked, and is followed by the next one at once or
  not at all (`Log`): first the table is recorded, then its news are told, then it is recorded that they are. A
  kill in between makes the next start tell the same news again before it counts anything, so a report may come twice
  but never in two versions.
- The table grows with windows and the subscriptions that matched in them, as the partials do; Spark brings it up to
  date and reads it, and what comes here is one partition of the news at a time, or the latest windows.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.errors import InputError
from tidings.pipeline._computing import read_partials
from tidings.pipeline._storage import Log, Storage, read_path, write_path
from tidings.pipeline._store import Run
from tidings.pipeline.streaming._reports import WindowScore, WindowTotal

__all__ = ["Record", "Windows", "settled_windows"]

WINDOWS_SHOWN: Final = 6

_KEYS: Final = ("window_ns", "subscription")
_COUNTS: Final = ("matched", "on_time", "late", "duplicates")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was reported: the table of windows by its number, the run that it is of, and how far event time had come."""

    window_ns: int
    number: int = 0
    run: str = ""
    is_told: bool = True
    greatest_departure_ns: int | None = None
    watermark_ns: int | None = None

    def advanced(self, departure_ns: int | None, late_ns: int) -> "Record":
        """The record after an event that departed at this time."""
        if departure_ns is None:
            return self
        known = [departure_ns, *([] if self.greatest_departure_ns is None else [self.greatest_departure_ns])]
        greatest = max(known)
        marks = [greatest - late_ns, *([] if self.watermark_ns is None else [self.watermark_ns])]
        return msgspec.structs.replace(self, greatest_departure_ns=greatest, watermark_ns=max(marks))


def settled_windows(
    partials: DataFrame, before: DataFrame | None, *, window_ns: int, was_ns: int | None, is_ns: int | None
) -> DataFrame:
    """All windows by subscription, from the partial scores and the table as last reported.

    `was_ns` and `is_ns` are the watermark then and now. `is_news` marks the scores to report: of windows that have
    become final, and of final windows those that changed.
    """
    counts = (
        partials.where("window_ns IS NOT NULL")
        .groupBy(*_KEYS)
        .agg(fn.min("subscriber").alias("subscriber"), *(fn.sum(name).alias(name) for name in _COUNTS))
    )
    names = ("subscriber", *_COUNTS, "revision")
    # A window that was final without a row had been reported with nothing matched.
    old = [fn.col(name).alias(f"old_{name}") for name in names]
    if before is None:
        kinds = ("string", *("bigint" for _ in _COUNTS), "int")
        nothing = [fn.lit(None).cast(kind).alias(f"old_{name}") for name, kind in zip(names, kinds, strict=True)]
        both = counts.select("*", *nothing)
    else:
        both = counts.join(before.select(*_KEYS, *old), [*_KEYS], "full")
    now = {name: fn.coalesce(name, fn.lit(0)) for name in _COUNTS}
    differs = [now[name] != fn.coalesce(f"old_{name}", fn.lit(0)) for name in _COUNTS]
    is_changed = differs[0] | differs[1] | differs[2] | differs[3]
    was_final, is_final = _is_over(window_ns, was_ns), _is_over(window_ns, is_ns)
    revision = fn.coalesce("old_revision", fn.lit(0)) + (was_final & is_changed).cast("int")
    return both.select(
        *_KEYS,
        fn.coalesce("subscriber", "old_subscriber").alias("subscriber"),
        *(now[name].cast("bigint").alias(name) for name in _COUNTS),
        is_final.alias("is_final"),
        revision.cast("int").alias("revision"),
        (is_final & (~was_final | is_changed)).alias("is_news"),
    ).where("is_final OR matched > 0")


def _is_over(window_ns: int, watermark_ns: int | None) -> Column:
    return fn.lit(False) if watermark_ns is None else fn.col("window_ns") <= fn.lit(watermark_ns - window_ns)


class Windows:
    """The record in a folder, and the steps from one to the next: `settle`, tell what is `untold`, `told`."""

    def __init__(self, spark: SparkSession, storage: Storage, folder: str, *, window_ns: int) -> None:
        self._spark, self._storage, self._folder, self._window_ns = spark, storage, folder, window_ns
        self._log = Log(storage, f"{folder}/records")
        self._number, self.record = self._read()

    def settle(self, run: Run, record: Record) -> None:
        """Write the table of this run and of this record's watermark, and record it, unless nothing has changed."""
        assert self.record.is_told, "what is untold would be lost"
        changes = {"run": run.name, "number": self.record.number + 1, "is_told": False}
        following = msgspec.structs.replace(record, **changes)
        if (following.run, following.watermark_ns) == (self.record.run, self.record.watermark_ns):
            return
        kept = self._table(self.record)
        for file in self._storage.list(f"{self._folder}/windows"):
            if not file.path.startswith(kept):
                self._storage.delete(f"{self._folder}/windows/{file.below.partition('/')[0]}")
        settled_windows(
            read_partials(self._spark, run, "pairs"),
            self._rows() if self._storage.exists(kept) else None,
            window_ns=self._window_ns,
            was_ns=self.record.watermark_ns,
            is_ns=record.watermark_ns,
        ).hint("rebalance").sortWithinPartitions(*_KEYS).write.mode("overwrite").parquet(
            write_path(self._table(following))
        )
        self._commit(following)

    def untold(self) -> Iterator[WindowScore]:
        """The scores that are new in the table of the record and have not been told, as far as is known."""
        return iter(()) if self.record.is_told else self._scores("is_news")

    def told(self) -> None:
        if not self.record.is_told:
            self._commit(msgspec.structs.replace(self.record, is_told=True))

    def open(self) -> Iterator[WindowScore]:
        """The scores so far of windows that are not final."""
        return self._scores("NOT is_final")

    def latest(self) -> tuple[WindowTotal, ...]:
        """The latest windows over all subscriptions, in order of time."""
        greatest_ns = self.record.greatest_departure_ns
        if greatest_ns is None or not self._storage.exists(self._table(self.record)):
            return ()
        first_ns = (greatest_ns // self._window_ns + 1 - WINDOWS_SHOWN) * self._window_ns
        sums = [fn.sum(name).alias(name) for name in ("matched", "on_time", "late")]
        latest = self._rows().where(fn.col("window_ns") >= first_ns).groupBy("window_ns", "is_final").agg(*sums)
        return tuple(_total(row) for row in sorted(latest.collect()))

    def _commit(self, record: Record) -> None:
        """Make this the record, unless somebody else has made one."""
        if not self._log.append(self._number + 1, msgspec.json.encode(record)):
            raise InputError(f"{self._folder}: another watch is at work here; end one of them, and start again")
        self._number, self.record = self._number + 1, record

    def _read(self) -> tuple[int, Record]:
        """The record there is; none, or one of windows of another length, is as good as nothing reported."""
        records = self._log.records()
        if not records:
            return 0, Record(window_ns=self._window_ns)
        try:
            found = msgspec.json.decode(records[0][1], type=Record)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{self._folder}/records: cannot be read ({error}); begin anew with --from-scratch, which reports "
                "every window again"
            ) from None
        if found.window_ns != self._window_ns:
            found = Record(window_ns=self._window_ns, greatest_departure_ns=found.greatest_departure_ns)
        return records[0][0], found

    def _table(self, record: Record) -> str:
        return f"{self._folder}/windows/{record.number:06}"

    def _rows(self) -> DataFrame:
        return self._spark.read.parquet(read_path(self._table(self.record)))

    def _scores(self, chosen: str) -> Iterator[WindowScore]:
        if self._storage.exists(self._table(self.record)):
            for row in self._rows().where(chosen).toLocalIterator():
                yield self._score(row)

    def _score(self, row: Any) -> WindowScore:
        return WindowScore(
            window_ns=row["window_ns"],
            window_end_ns=row["window_ns"] + self._window_ns,
            subscription=row["subscription"],
            subscriber=row["subscriber"],
            matched=row["matched"],
            on_time=row["on_time"],
            late=row["late"],
            lost=row["matched"] - row["on_time"] - row["late"],
            duplicates=row["duplicates"],
            final=row["is_final"],
            revised=row["revision"] > 0,
            revision=row["revision"],
        )


def _total(row: Any) -> WindowTotal:
    matched, on_time, late = (row[name] for name in ("matched", "on_time", "late"))
    return WindowTotal(
        window_ns=row["window_ns"],
        matched=matched,
        on_time=on_time,
        late=late,
        lost=matched - on_time - late,
        final=row["is_final"],
    )
