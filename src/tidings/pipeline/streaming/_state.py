"""What a watch knows of a trace that grows: sums of what is closed, rows and partials of what is open.

Theory of operation. The rows of an event come within some time of each other, so most of a trace is over at any moment:

- A unit (_units.py) is *open* until its publisher has gone beyond it and has published for `hold_ns` since. The rows of
  open units are held here, and their partials. New rows make the partials of their own units be computed again, by the
  kernels of a run, so a batch costs what the units that it touches cost, whatever was before.
- A unit that is *closed* is in the sums (arrow/_sums.py), and its rows are forgotten. Sums do not grow with rows, but
  with pairs, links and signatures; windows of departure are in them for `keep_ns`. Units are closed together, when
  they have a share of the open rows worth the work.
- A row of a closed unit is too late: it is set aside in the quarantine with its own words, and counts as a row.
- The last unit of a publisher of which nothing has come for SILENT_NS, by the time that files were written, is closed
  as far as it goes; what comes later begins another part of it.

Time is each publisher's own (its departures), so one clock that is wrong closes nothing of others. Slices of time and
windows, in which all publishers meet, go by the median of the publishers that are not silent. Neither goes beyond the
latest hop and the latest delivery, whoever they are of: files of one table may be ahead of those of another, by days if
somebody copies a trace into place. A hop that is counted after its slice was closed is missing in the gaps of
`arrivals`, and nowhere else.

The bound: beyond OPEN_ROWS_MAX rows units are closed as soon as they are complete.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.pipeline._partials import FAULTY, KINDS, RECEIVED, computed_of
from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.arrow._batches import Batch, Kinds, shown_rows
from tidings.pipeline.arrow._job import ROWS_PER_PART, arrivals_by_slice, together
from tidings.pipeline.arrow._small_tables import Setting, small_partials, with_unit
from tidings.pipeline.arrow._source import LARGE, Source
from tidings.pipeline.arrow._sums import (
    DEPARTURES,
    Sums,
    added,
    batches_of,
    joined_slices,
    numbered,
    sums_of,
    with_violations,
)
from tidings.pipeline.arrow._tables import tables_of
from tidings.pipeline.arrow._totals import rows_by, summed
from tidings.pipeline.ingest import TraceFile, unreadable_files
from tidings.pipeline.ingest._reasons import TOO_LATE
from tidings.pipeline.measures import SLICE_NS
from tidings.pipeline.measures._sums import Total
from tidings.pipeline.rows import (
    GATHERED,
    QUARANTINED,
    ROWS,
    Counting,
    grouped,
    names_of,
    truncated_quotient,
    values_of,
)
from tidings.pipeline.rows import together as rows_together

__all__ = ["WINDOWS", "WINDOW_COUNTS", "Known", "Progress", "State", "Terms"]

Array = npt.NDArray[Any]
Unit = tuple[str | None, int]

SILENT_NS: Final = 86_400 * 10**9
OPEN_ROWS_MAX: Final = 10_000_000
CLOSED_TOGETHER: Final = 4
"""Units are closed when they have at least one in so many of the open rows."""
QUARANTINED_MAX: Final = 10_000
"""Rows of closed units that are shown in the quarantine; of older ones there are counts by reason."""
WINDOWS: Final = "windows"
WINDOW_COUNTS: Final = ("matched", "on_time", "late", "duplicates")
_WINDOW: Final = ("window_ns", "subscription", "subscriber")
_OPEN_KINDS: Final = tuple(kind for kind in KINDS if kind != FAULTY)
_NEVER: Final = -(1 << 63)
_TIME: Final = {"hops": "enqueued_ns", "deliveries": "arrived_ns"}
"""The time that tells how far a table is."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is asked for: the length of windows, what counts, and how long units stay open and windows are kept."""

    window_ns: int
    counting: Counting
    hold_ns: int
    keep_ns: int


class Progress(msgspec.Struct, kw_only=True):
    """How far a publisher is: its greatest sequence number and departure, when the last file with an event of its was
    written, and the sequence number below which it is closed."""

    sequence: int
    departure_ns: int
    written_ns: int
    closed: int = _NEVER


class Known(msgspec.Struct, kw_only=True):
    """The small part of a state, kept as JSON.

    `latest_ns` is by table the time of its latest row, of hops and deliveries. Slices below `closed_slice` are closed,
    windows before `over_ns` are over for everybody; `files` are those with open rows or a fault; `late` rows came too
    late.
    """

    publishers: dict[str, Progress] = {}
    latest_ns: dict[str, int] = {}
    closed_slice: int | None = None
    over_ns: int = _NEVER
    files: list[TraceFile] = []
    late: int = 0


class State:
    """The state of one watch. `again` gives a source of files that were counted, to show rows that are found bad."""

    def __init__(
        self,
        terms: Terms,
        setting: Setting,
        again: Callable[[Sequence[TraceFile], Setting], Source],
        *,
        known: Known | None = None,
        sums: Sums | None = None,
        carried: Mapping[str, pa.Table] | None = None,
        rows: pa.Table | None = None,
    ) -> None:
        self._terms, self.setting, self._again = terms, setting, again
        self.known = Known() if known is None else known
        self.sums, given = sums, carried or {}
        self._windows = given.get(WINDOWS, _no_windows())
        self._received = given.get(RECEIVED, together(RECEIVED, []))
        self.rows = _no_rows() if rows is None else rows
        self._partials = {kind: together(kind, []) for kind in _OPEN_KINDS}
        self._units: dict[str, set[Unit]] = {}
        if len(self.rows):
            self._show(self._compute(self.rows))

    @property
    def carried(self) -> dict[str, pa.Table]:
        """What closed units leave beside their sums: counts of windows that may still be reported, and receptions in
        slices that are not over."""
        return {WINDOWS: self._windows, RECEIVED: self._received}

    @property
    def faulty(self) -> list[TraceFile]:
        return [file for file in self.known.files if file.fault is not None]

    def count(self, source: Source, files: Sequence[TraceFile]) -> tuple[pa.Table, bool]:
        """Count the rows of these files: whether units were closed, and then all rows that are open, or else the new.

        Rows of units that can be closed at once are not held: a first batch may have far more of them than memory.
        """
        seen = _Seen(self.known, source.log.kinds)
        parts = max(1, ceil(source.log.rows(LARGE) / ROWS_PER_PART))
        before, new, closed = self.rows, list[pa.Table](), self._closed()
        new_paths = {file.path for file in files}
        self.known.files = [file for file in self.known.files if file.path not in new_paths] + list(files)
        faults, passed = list[pa.Table](), 0
        for gathered in source.gathered(parts=parts, seen=seen.look):
            self._units |= seen.units
            part = gathered.filter(pa.array(~_is_below(gathered, closed)))
            units = _units_of(part)
            touched = _are(before, units.__contains__)
            faults.append(self._compute(rows_together([before.filter(pa.array(touched)), part])))
            new.append(part if parts == 1 else part.filter(pa.array(~_is_below(part, self._ends()))))
            passed += len(part) - len(new[-1])
        self._show(together(FAULTY, faults))
        self.known.late += sum(seen.late_rows.values())
        found = rows_together(new)
        self.rows = rows_together([before, found]).unify_dictionaries().combine_chunks()
        has_closed = self._close(seen, passed=passed)
        return self.rows if has_closed else found, has_closed

    def tables(self) -> dict[str, pa.Table]:
        """Every table of a run, by name."""
        small = small_partials(self.setting)
        faulty = self.faulty
        counts = pa.table({"table": [file.table for file in faulty], "rows": [file.rows_or_one for file in faulty]})
        small["quarantine"].append(with_unit(unreadable_files(faulty), QUARANTINED))
        small["rows"].append(with_unit(counts, ROWS))
        partials = {kind: together(kind, [self._partials[kind], *small.get(kind, [])]) for kind in _OPEN_KINDS}
        whole = sums_of(partials, arrivals_by_slice(pa.concat_tables([self._received, self._partials[RECEIVED]])))
        return tables_of(self._without_old_windows(whole if self.sums is None else added(self.sums, whole)))

    def windows(self) -> pa.Table:
        """Counts by window and subscription, of windows that were not over when the last ones were reported."""
        return self._window_counts(self._windows, self._partials["pairs"])

    def reported(self) -> None:
        """Forget the windows that are over for everybody: what there was of them has been reported."""
        median_ns = self._median_ns()
        if median_ns is not None:
            over_ns = (median_ns - self._terms.hold_ns) // self._terms.window_ns * self._terms.window_ns
            self.known.over_ns = max(self.known.over_ns, over_ns)

    def _compute(self, rows: pa.Table) -> pa.Table:
        """Put the partials of these rows, which are all there is of their units, in the place of those before.

        Returns the FAULTS among them, for `_show`.
        """
        units = _units_of(rows)
        found: dict[str, list[pa.Table]] = {kind: [] for kind in KINDS}
        for part in _in_parts(rows):
            computed = computed_of(
                part, self.setting.audience, self._terms.counting, window_ns=self._terms.window_ns, by_unit=True
            )
            for kind, table in computed.items():
                found[kind].append(table)
        if self.known.closed_slice is not None:
            is_open = pc.greater_equal(pc.field("slice"), self.known.closed_slice)
            found[RECEIVED] = [table.filter(is_open) for table in found[RECEIVED]]
        for kind, partials in self._partials.items():
            others = partials.filter(pa.array(~_partials_are(partials, units.__contains__)))
            self._partials[kind] = together(kind, [others, *found[kind]])
        return together(FAULTY, found[FAULTY])

    def _show(self, faults: pa.Table) -> None:
        """Put rows that are found bad into the quarantine, as they stand in their files."""
        if not len(faults):
            return
        units = set(zip(faults["publisher"].to_pylist(), faults["chunk"].to_pylist(), strict=True))
        may_have = [
            file for file in self.known.files if file.fault is None and not units.isdisjoint(self._of(file, units))
        ]
        shown = self._again(may_have, self.setting).found_again(faults)
        self._partials["quarantine"] = together("quarantine", [self._partials["quarantine"], shown])

    def _of(self, file: TraceFile, units: set[Unit]) -> set[Unit]:
        """The units that a file has rows of; after a restart any."""
        return self._units.get(file.path, units)

    def _closed(self) -> dict[str, int]:
        return {name: each.closed for name, each in self.known.publishers.items() if each.closed != _NEVER}

    def _close(self, seen: "_Seen", *, passed: int) -> bool:
        """Put units that are over into the sums, if it is worth the work; `passed` rows of them are not held."""
        ends = self._ends()
        closing = _is_below(self.rows, ends) | (_chunks(self.rows)[0] < 0)
        is_worth_it = int(closing.sum()) * CLOSED_TOGETHER >= max(1, len(self.rows))
        if not (is_worth_it or passed or seen.late_rows):
            return False
        for name, end in ends.items():
            self.known.publishers[name].closed = end
        median_ns = self._median_ns()
        over_slice = None if median_ns is None else (median_ns - self._terms.hold_ns) // SLICE_NS

        def is_closed(unit: Unit) -> bool:
            name, chunk = unit
            return name is None or (name in ends and chunk * CHUNK_EVENTS < ends[name])

        partials = {**self._partials, "pairs": with_violations(self._partials["pairs"])}
        over: dict[str, pa.Table] = {}
        for kind, table in partials.items():
            is_over = _partials_are(table, is_closed)
            over[kind] = table.filter(pa.array(is_over))
            self._partials[kind] = table.filter(pa.array(~is_over)).select(self._partials[kind].column_names)
        self._received = pa.concat_tables([self._received, over.pop(RECEIVED)])
        over["quarantine"] = pa.concat_tables([over["quarantine"], seen.late_quarantine()])
        over["rows"] = pa.concat_tables([over["rows"], seen.late_counts()])
        self._windows = self._window_counts(self._windows, over["pairs"])
        sums = sums_of(over, self._over(over_slice))
        self.sums = self._bounded(sums if self.sums is None else added(self.sums, sums))
        self.rows = self.rows.filter(pa.array(~closing))
        self._forget_files()
        return True

    def _ends(self) -> dict[str, int]:
        """By publisher, the sequence number below which it can be closed; not those that have nothing to close."""
        is_bounded = len(self.rows) <= OPEN_ROWS_MAX
        if is_bounded and "deliveries" not in self.known.latest_ns:
            return {}
        latest_ns = min(self.known.latest_ns.values(), default=0)
        written_ns = max((each.written_ns for each in self.known.publishers.values()), default=0)
        units = self._partials["components"]
        last = dict(
            zip(
                zip(units["publisher"].to_pylist(), units["chunk"].to_pylist(), strict=True),
                units["last_ns"].to_pylist(),
                strict=True,
            )
        )
        ends: dict[str, int] = {}
        for name, chunk in {*last, *_units_of(self.rows)}:
            progress = None if name is None else self.known.publishers.get(name)
            if name is None or progress is None:
                continue
            last_ns = last.get((name, chunk))
            end = (chunk + 1) * CHUNK_EVENTS
            is_complete = progress.sequence >= end and (
                not is_bounded
                or last_ns is None
                or last_ns < min(progress.departure_ns, latest_ns) - self._terms.hold_ns
            )
            if progress.written_ns < written_ns - SILENT_NS:
                is_complete, end = True, min(end, progress.sequence + 1)
            if is_complete:
                ends[name] = max(ends.get(name, _NEVER), end)
        return ends

    def _over(self, over_slice: int | None) -> pa.Table:
        """The partials of slices that are over; of receptions only those of other slices stay."""
        closed, received = self._received, self._partials[RECEIVED]
        if over_slice is None or (self.known.closed_slice is not None and over_slice <= self.known.closed_slice):
            return arrivals_by_slice(received.slice(0, 0))
        self.known.closed_slice = over_slice
        is_open = pc.greater_equal(pc.field("slice"), over_slice)
        self._received, self._partials[RECEIVED] = closed.filter(is_open), received.filter(is_open)
        return arrivals_by_slice(pa.concat_tables([closed, received]).filter(~is_open))

    def _bounded(self, sums: Sums) -> Sums:
        """Slices in one, the quarantine with the latest rows, and no windows that are too old."""
        quarantine = sums["quarantine"]
        surplus = len(quarantine) - QUARANTINED_MAX
        if surplus > 0:
            older, latest = quarantine.slice(0, surplus), quarantine.slice(surplus)
            quarantine = pa.concat_tables([_by_reason(older), latest])
        sums = {**sums, "arrivals": joined_slices(sums["arrivals"]), "quarantine": quarantine}
        return self._without_old_windows(sums)

    def _without_old_windows(self, sums: Sums) -> Sums:
        """Windows that departed before those that are kept count for their topics only."""
        median_ns = self._median_ns()
        if median_ns is None:
            return sums
        departures = sums[DEPARTURES]
        oldest_ns = median_ns - self._terms.keep_ns
        is_old = pc.fill_null(pc.less(departures["window_ns"], oldest_ns), False)
        if not pc.any(is_old).as_py():
            return sums
        place = departures.column_names.index("window_ns")
        no_window = pc.if_else(is_old, pa.scalar(None, pa.int64()), departures["window_ns"])
        batches = sums[batches_of(("window_ns",))]
        is_kept = pc.fill_null(pc.greater_equal(batches["window_ns"], oldest_ns), True)
        return {
            **sums,
            DEPARTURES: departures.set_column(place, "window_ns", no_window),
            batches_of(("window_ns",)): batches.filter(is_kept),
        }

    def _forget_files(self) -> None:
        units = _units_of(self.rows)
        self.known.files = [
            file for file in self.known.files if file.fault is not None or not units.isdisjoint(self._of(file, units))
        ]
        kept = {file.path for file in self.known.files}
        self._units = {path: some for path, some in self._units.items() if path in kept}

    def _window_counts(self, *given: pa.Table) -> pa.Table:
        names = [*_WINDOW, *WINDOW_COUNTS]
        rows = pa.concat_tables([each.select(names) for each in given])
        rows = rows.filter(pc.fill_null(pc.greater_equal(rows["window_ns"], self.known.over_ns), False))
        return summed(rows, _WINDOW, [Total(name, "sum") for name in WINDOW_COUNTS])

    def _median_ns(self) -> int | None:
        """How far publishers are that are not silent, in the median, but no further than hops and deliveries."""
        publishers = self.known.publishers.values()
        written_ns = max((each.written_ns for each in publishers), default=0)
        times = sorted(each.departure_ns for each in publishers if each.written_ns >= written_ns - SILENT_NS)
        return min([times[(len(times) - 1) // 2], *self.known.latest_ns.values()]) if times else None


class _Seen:
    """What is to be known of new rows before anything is computed: how far publishers are, and what is too late."""

    def __init__(self, known: Known, kinds: Kinds) -> None:
        self._known, self._kinds = known, kinds
        self._closed = {name: each.closed for name, each in known.publishers.items() if each.closed != _NEVER}
        self.units: dict[str, set[Unit]] = {}
        self.late_rows: dict[str, int] = {}
        self._late: list[dict[str, Any]] = []

    def look(self, batch: Batch, rows: pa.Table) -> None:
        table = batch.file.table
        self.units.setdefault(batch.file.path, set()).update(_units_of(rows))
        good = rows.filter(pc.is_null(rows["bad"])) if "bad" in rows.column_names else rows
        if table == "publications":
            self._advance(batch, good)
        elif (latest_ns := pc.max(good[_TIME[table]]).as_py()) is not None:
            before_ns = self._known.latest_ns.get(table, latest_ns)
            self._known.latest_ns[table] = max(before_ns, latest_ns)
        places = np.flatnonzero(_is_below(rows, self._closed))
        if len(places):
            self.late_rows[table] = self.late_rows.get(table, 0) + len(places)
            for row in shown_rows(batch, places, self._kinds):
                self._late.append(
                    {"table": table, "file": batch.file.path, "reasons": [TOO_LATE], "row": row, "rows": 1}
                )

    def _advance(self, batch: Batch, good: pa.Table) -> None:
        written_ns = batch.file.modified_ns
        found = (
            good.select(["publisher", "sequence", "departure_ns"])
            .group_by("publisher")
            .aggregate([("sequence", "max"), ("departure_ns", "max")])
        )
        for name, greatest, latest_ns in zip(
            *(found[column].to_pylist() for column in found.column_names), strict=True
        ):
            before = self._known.publishers.setdefault(
                name, Progress(sequence=greatest, departure_ns=latest_ns, written_ns=written_ns)
            )
            before.sequence = max(before.sequence, greatest)
            before.departure_ns = max(before.departure_ns, latest_ns)
            before.written_ns = max(before.written_ns, written_ns)

    def late_quarantine(self) -> pa.Table:
        rows = {name: pa.array([row[name] for row in self._late], kind) for name, kind in _QUARANTINE_TYPES.items()}
        return with_unit(pa.table(rows), QUARANTINED)

    def late_counts(self) -> pa.Table:
        counts = {"table": pa.array(self.late_rows, pa.string()), "rows": pa.array(self.late_rows.values(), pa.int64())}
        return with_unit(pa.table(counts), ROWS)


_QUARANTINE_TYPES: Final = {
    "table": pa.string(),
    "file": pa.string(),
    "reasons": pa.list_(pa.string()),
    "row": pa.string(),
    "rows": pa.int64(),
}


def _no_rows() -> pa.Table:
    return GATHERED.empty_table()


def _no_windows() -> pa.Table:
    kinds = [pa.int64(), pa.string(), pa.string(), *(pa.int64() for _ in WINDOW_COUNTS)]
    return pa.schema(list(zip((*_WINDOW, *WINDOW_COUNTS), kinds, strict=True))).empty_table()


def _by_reason(quarantine: pa.Table) -> pa.Table:
    """Bad rows as counts by table and reasons."""
    reasons = [",".join(some) for some in quarantine["reasons"].to_pylist()]
    keyed = pa.table(
        {"table": quarantine["table"], "reasons": pa.array(reasons, pa.string()), "rows": quarantine["rows"]}
    )
    found = summed(keyed, ["table", "reasons"], [Total("rows", "sum")], rows_by(keyed, ["table", "reasons"]))
    columns = {
        "table": found["table"],
        "file": pa.nulls(len(found), pa.string()),
        "reasons": pa.array([each.split(",") for each in found["reasons"].to_pylist()], pa.list_(pa.string())),
        "row": pa.nulls(len(found), pa.string()),
        "rows": found["rows"],
    }
    return pa.table(columns)


def _is_below(rows: pa.Table, ends: Mapping[str, int]) -> Array:
    """Which rows (GATHERED) are of events below these sequence numbers of their publishers."""
    names, sequence = names_of(rows["publisher"]), values_of(rows["sequence"])
    below = np.array([*(ends.get(name, _NEVER) for name in names.names.to_pylist()), _NEVER], np.int64)
    found: Array = sequence.known & (sequence.values < below[names.codes])
    return found


def _chunks(rows: pa.Table) -> tuple[Array, Array, list[str | None]]:
    """The codes of publishers, the chunks, and the names; rows without an event are of no publisher."""
    names, sequence = names_of(rows["publisher"]), values_of(rows["sequence"])
    codes = np.where(sequence.known, names.codes, -1)
    chunk = np.where(codes >= 0, truncated_quotient(sequence.values, CHUNK_EVENTS), -1)
    return codes, chunk, names.names.to_pylist()


def _units_of(rows: pa.Table) -> set[Unit]:
    codes, chunk, names = _chunks(rows)
    return set(_named(codes, chunk, names, grouped(codes, chunk).firsts))


def _named(codes: Array, chunk: Array, names: Sequence[str | None], rows: Array) -> list[Unit]:
    """The units of these rows."""
    pairs = zip(codes[rows].tolist(), chunk[rows].tolist(), strict=True)
    return [(names[code] if code >= 0 else None, at) for code, at in pairs]


def _are(rows: pa.Table, is_wanted: Callable[[Unit], bool]) -> Array:
    """Which rows (GATHERED) are of units that are wanted."""
    codes, chunk, names = _chunks(rows)
    return _each(codes, chunk, names, is_wanted)


def _partials_are(partials: pa.Table, is_wanted: Callable[..., bool]) -> Array:
    """Which partials are of units that are wanted."""
    names, chunk = names_of(partials["publisher"]), values_of(partials["chunk"])
    return _each(names.codes, np.where(names.codes >= 0, chunk.values, -1), names.names.to_pylist(), is_wanted)


def _each(codes: Array, chunk: Array, names: Sequence[str | None], is_wanted: Callable[..., bool]) -> Array:
    """Asked once for each unit."""
    groups = grouped(codes, chunk)
    found = np.empty(len(codes), np.bool_)
    wanted = [is_wanted(unit) for unit in _named(codes, chunk, names, groups.firsts)]
    found[groups.order] = np.repeat(np.array(wanted, np.bool_), groups.counts())
    return found


def _in_parts(rows: pa.Table) -> Iterable[pa.Table]:
    """Whole units, some ROWS_PER_PART rows at a time."""
    if len(rows) <= ROWS_PER_PART:
        return [rows] if len(rows) else []
    codes, chunk, _ = _chunks(rows)
    number = numbered(codes, chunk)
    part = (np.cumsum(np.bincount(number)) // ROWS_PER_PART)[number]
    return (rows.filter(pa.array(part == each)) for each in np.unique(part).tolist())
