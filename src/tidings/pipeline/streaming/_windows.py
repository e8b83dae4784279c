"""Windows of departure by subscription: when they are final, and the record of what was reported of them.

Rules:

- The watermark is the greatest departure seen, less the time that rows may be late; it never goes back. A window is
  final when the watermark has reached its end.
- The watermark decides what is *reported*, not what is *counted*: a row that comes after its window was final counts
  like any other, and the window's score is reported again as its next revision, until the window is over for everybody
  (_state.py). So the sum of the last reports is the batch answer, but for rows that come later than that.
- If everything is counted anew and counted files are gone (retention), a final window keeps its score if fewer events
  match now: they were deleted, not withdrawn.
- The record names a table of the windows that are not over, in which the news are marked, and is followed by the next
  one at once or not at all (`Log`): first the table is recorded, then its news are reported, then it is recorded that
  they are. A kill in between makes the next start report the same news again before it counts anything, so a report may
  come twice but never in two versions.
- Windows that are over go to tables of their own, which are read only when everything is counted anew, and removed when
  their windows are older than those that are kept.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tidings.errors import InputError
from tidings.pipeline._held import read_held, write_held
from tidings.pipeline._storage import Log, Storage
from tidings.pipeline.streaming._reports import WindowScore, WindowTotal
from tidings.pipeline.streaming._state import WINDOW_COUNTS

__all__ = ["Record", "Windows", "settled_windows"]

WINDOWS_SHOWN: Final = 6

_KEYS: Final = ("window_ns", "subscription")
_SETTLED: Final = pa.schema(
    [
        ("window_ns", pa.int64()),
        ("subscription", pa.string()),
        ("subscriber", pa.string()),
        *((name, pa.int64()) for name in WINDOW_COUNTS),
        ("is_final", pa.bool_()),
        ("revision", pa.int32()),
        ("is_news", pa.bool_()),
    ]
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was reported: the table of windows by its number, the run that it is of, and how far event time had come."""

    window_ns: int
    number: int = 0
    run: str = ""
    is_reported: bool = msgspec.field(default=True, name="is_told")  # the key in existing files
    greatest_departure_ns: int | None = None
    watermark_ns: int | None = None
    has_gone: bool = False

    def advanced(self, departure_ns: int | None, late_ns: int) -> "Record":
        """The record after an event that departed at this time."""
        if departure_ns is None:
            return self
        known = [departure_ns, *([] if self.greatest_departure_ns is None else [self.greatest_departure_ns])]
        greatest = max(known)
        marks = [greatest - late_ns, *([] if self.watermark_ns is None else [self.watermark_ns])]
        return msgspec.structs.replace(self, greatest_departure_ns=greatest, watermark_ns=max(marks))


def settled_windows(
    counts: pa.Table,
    before: pa.Table | None,
    *,
    window_ns: int,
    was_ns: int | None,
    is_ns: int | None,
    has_gone: bool = False,
) -> pa.Table:
    """All windows by subscription, from their counts and the table as last reported.

    `was_ns` and `is_ns` are the watermark then and now. `is_news` marks the scores to report: of windows that have
    become final, and of final windows those that changed. `has_gone`: counted files were deleted.
    """
    names = ("subscriber", *WINDOW_COUNTS, "revision")
    old = _SETTLED.empty_table() if before is None else before
    old = old.select([*_KEYS, *names]).rename_columns([*_KEYS, *(f"old_{name}" for name in names)])
    both = counts.join(old, [*_KEYS], join_type="full outer").combine_chunks()
    # A window that was final without a row had been reported with nothing matched.
    now = {name: np.asarray(both[name].fill_null(0)) for name in WINDOW_COUNTS}
    was = {name: np.asarray(both[f"old_{name}"].fill_null(0)) for name in WINDOW_COUNTS}
    window = np.asarray(both["window_ns"])
    was_final, is_final = (_is_over(window, window_ns, mark_ns) for mark_ns in (was_ns, is_ns))
    if has_gone:
        is_kept = was_final & (now["matched"] < was["matched"])
        now = {name: np.where(is_kept, was[name], now[name]) for name in WINDOW_COUNTS}
    is_changed = np.logical_or.reduce([now[name] != was[name] for name in WINDOW_COUNTS])
    revision = np.asarray(both["old_revision"].fill_null(0)) + (was_final & is_changed)
    columns = {
        **{name: both[name] for name in _KEYS},
        "subscriber": pc.coalesce(both["subscriber"], both["old_subscriber"]),
        **{name: pa.array(now[name], pa.int64()) for name in WINDOW_COUNTS},
        "is_final": pa.array(is_final),
        "revision": pa.array(revision, pa.int32()),
        "is_news": pa.array(is_final & (~was_final | is_changed)),
    }
    found = pa.table(columns).select(_SETTLED.names).cast(_SETTLED)
    return found.filter(pa.array(is_final | (now["matched"] > 0))).sort_by([(name, "ascending") for name in _KEYS])


def _is_over(window: Any, window_ns: int, watermark_ns: int | None) -> Any:
    return np.zeros(len(window), np.bool_) if watermark_ns is None else window <= watermark_ns - window_ns


class Windows:
    """The record in a folder, and the steps from one to the next: `settle`, report the `unreported`, `reported`."""

    def __init__(self, spark: SparkSession, storage: Storage, folder: str, *, window_ns: int) -> None:
        self._spark, self._storage, self._folder, self._window_ns = spark, storage, folder, window_ns
        self._log = Log(storage, f"{folder}/records")
        self._number, self.record = self._read()
        self._held: tuple[int, pa.Table] | None = None

    def settle(
        self, run: str, counts: pa.Table, record: Record, *, over_ns: int, keep_ns: int, is_anew: bool = False
    ) -> None:
        """Write and record the table of this run's counts and of this record's watermark, unless nothing has changed.

        Windows before `over_ns` do not change any more; `is_anew` says that all of them were counted anew.
        """
        assert self.record.is_reported, "what is not reported yet would be lost"
        changes = {"run": run, "number": self.record.number + 1, "is_reported": False}
        following = msgspec.structs.replace(record, **changes)
        if (following.run, following.watermark_ns) == (self.record.run, self.record.watermark_ns):
            return
        before = self._rows()
        if is_anew:
            before = self._with_those_over(before)
        else:
            self._put_aside(before.filter(pc.less(before["window_ns"], over_ns)), keep_ns)
            before = before.filter(pc.greater_equal(before["window_ns"], over_ns))
        table = settled_windows(
            counts,
            before,
            window_ns=self._window_ns,
            was_ns=self.record.watermark_ns,
            is_ns=record.watermark_ns,
            has_gone=record.has_gone,
        )
        kept = {self._table(self.record), self._table(following)}
        write_held(self._spark, self._table(following), table)
        self._commit(following)
        self._held = following.number, table
        for place in {f"{self._folder}/windows/{name}" for name in self._names("windows")} - kept:
            self._storage.delete(place)
        if is_anew:
            self._storage.delete(f"{self._folder}/over")

    def _with_those_over(self, rows: pa.Table) -> pa.Table:
        tables = [read_held(self._spark, f"{self._folder}/over/{name}", _SETTLED) for name in self._names("over")]
        both = pa.concat_tables([rows, *tables])
        seen: set[tuple[int, str]] = set()
        is_first = []
        for key in zip(both["window_ns"].to_pylist(), both["subscription"].to_pylist(), strict=True):
            is_first.append(key not in seen)
            seen.add(key)
        return both.filter(pa.array(is_first, pa.bool_()))

    def _put_aside(self, over: pa.Table, keep_ns: int) -> None:
        if not len(over):
            return
        greatest_ns = pc.max(over["window_ns"]).as_py()
        write_held(self._spark, f"{self._folder}/over/{greatest_ns:020}-{self.record.number:06}", over)
        for name in self._names("over"):
            if int(name.partition("-")[0]) < greatest_ns - keep_ns:
                self._storage.delete(f"{self._folder}/over/{name}")

    def _names(self, folder: str) -> set[str]:
        return {file.below.partition("/")[0] for file in self._storage.list(f"{self._folder}/{folder}")}

    def unreported(self) -> Iterator[WindowScore]:
        """The scores that are new in the table of the record and have not been reported, as far as is known."""
        return iter(()) if self.record.is_reported else self._scores("is_news")

    def reported(self) -> None:
        if not self.record.is_reported:
            self._commit(msgspec.structs.replace(self.record, is_reported=True))

    def open(self) -> Iterator[WindowScore]:
        """The scores so far of windows that are not final."""
        return self._scores("is_final", wanted=False)

    def latest(self) -> tuple[WindowTotal, ...]:
        """The latest windows over all subscriptions, in order of time."""
        greatest_ns = self.record.greatest_departure_ns
        if greatest_ns is None:
            return ()
        rows = self._rows()
        first_ns = (greatest_ns // self._window_ns + 1 - WINDOWS_SHOWN) * self._window_ns
        latest = rows.filter(pc.greater_equal(rows["window_ns"], first_ns)).group_by(["window_ns", "is_final"])
        sums = latest.aggregate([(name, "sum") for name in ("matched", "on_time", "late")]).sort_by("window_ns")
        return tuple(_total(row) for row in sums.to_pylist())

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
                f"{self._folder}/records: cannot be read ({error}); start over with --from-scratch, which reports "
                "every window again"
            ) from None
        if found.window_ns != self._window_ns:
            found = Record(window_ns=self._window_ns, greatest_departure_ns=found.greatest_departure_ns)
        return records[0][0], found

    def _table(self, record: Record) -> str:
        return f"{self._folder}/windows/{record.number:06}"

    def _rows(self) -> pa.Table:
        if self._held is None or self._held[0] != self.record.number:
            self._held = self.record.number, read_held(self._spark, self._table(self.record), _SETTLED)
        return self._held[1]

    def _scores(self, chosen: str, *, wanted: bool = True) -> Iterator[WindowScore]:
        rows = self._rows()
        for row in rows.filter(pc.equal(rows[chosen], wanted)).to_pylist():
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
    matched, on_time, late = (row[f"{name}_sum"] for name in ("matched", "on_time", "late"))
    return WindowTotal(
        window_ns=row["window_ns"],
        matched=matched,
        on_time=on_time,
        late=late,
        lost=matched - on_time - late,
        final=row["is_final"],
    )
