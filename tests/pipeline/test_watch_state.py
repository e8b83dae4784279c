"""The state of a watch, without Spark: a trace piece by piece against a run over all of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidings.model.scenario import Scenario
from tidings.model.tables import table_place
from tidings.pipeline import PipelineOptions, run_in_process
from tidings.pipeline._options import SMALL
from tidings.pipeline.arrow._log import open_log
from tidings.pipeline.arrow._small_tables import Setting, read_setting
from tidings.pipeline.arrow._source import Source
from tidings.pipeline.ingest import TraceFile, find_files
from tidings.pipeline.rows import Counting, together
from tidings.pipeline.streaming import _state
from tidings.pipeline.streaming._state import Known, State, Terms
from tidings.simulation import simulate

SECOND = 10**9
SCENARIO = """
seed = 5
duration = "24 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { bandwidth = "3 Mbit/s", loss = 0.02 }
[[publishers]]
name = "p"
at = ["a", "b"]
count = 2
rate = "300 /s"
attributes = { x = { range = [1, 6] } }
[[publishers]]
name = "slow"
at = "a"
rate = "2 /s"
attributes = { x = { range = [1, 6] } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x <= {number}"
max_delay = "20 ms"
"""
TIMES = {"publications": "departure_ns", "hops": "enqueued_ns", "deliveries": "arrived_ns"}
TERMS = Terms(window_ns=5 * SECOND, counting=Counting(), hold_ns=2 * SECOND, keep_ns=1000 * SECOND)
SKETCHED = ("sketch", "quantiles", "_p50", "_p90", "_p99", "distance", "rates_per_s", "shift")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traces") / "whole"
    simulate(Scenario.parse(SCENARIO).expand(), out=out)
    return out


@pytest.fixture(scope="module")
def answer(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    out = tmp_path_factory.mktemp("answer")
    result = run_in_process([whole], out, PipelineOptions(window_ns=TERMS.window_ns))
    return {name: pq.read_table(table_place(out, name)) for name in result.tables}


def pieces(whole: Path, place: Path, *, parts: int) -> list[list[TraceFile]]:
    """The files of the large tables by spans of time, and with the first those of the small ones."""
    for name, time_ns in TIMES.items():
        rows = pq.read_table(whole / name)
        part = np.minimum(np.asarray(rows[time_ns]) * parts // (24 * SECOND), parts - 1)
        (place / name).mkdir(parents=True)
        for number in range(parts):
            pq.write_table(rows.filter(pa.array(part == number)), place / name / f"{number}.parquet")
    files = find_files([place], needed=())
    return [[file for file in files if Path(file.path).stem == str(number)] for number in range(parts)]


class Watch:
    """A state, and what a watch does with it."""

    def __init__(self, whole: Path, place: Path, terms: Terms = TERMS) -> None:
        small = [file for file in find_files([whole]) if file.table in SMALL]
        log = open_log(small, None, place)
        self.setting = read_setting({name: list(log.batches(name)) for name in SMALL}, [], clock_tolerance_ns=0)
        self.place, self.terms = place, terms
        self.state = State(terms, self.setting, self.source)
        self.opened: list[pa.Table] = []
        self.closings = 0

    def source(self, files: Sequence[TraceFile], setting: Setting) -> Source:
        present = [file for file in files if Path(file.path).exists()]
        return Source(log=open_log(present, None, self.place), setting=setting, topic=None, clock_tolerance_ns=0)

    def count(self, files: Sequence[TraceFile]) -> None:
        new, has_closed = self.state.count(self.source(files, self.setting), files)
        self.opened = [self.state.rows] if has_closed else [*self.opened, new]
        self.closings += has_closed

    def restart(self) -> None:
        """From what a watch keeps."""
        known = Known(publishers=self.state.known.publishers, closed_slice=self.state.known.closed_slice)
        known.files, known.late = list(self.state.known.files), self.state.known.late
        rows = together(self.opened)
        kept = {"known": known, "sums": self.state.sums, "carried": self.state.carried, "rows": rows}
        self.state = State(self.terms, self.setting, self.source, **kept)


def differences(found: dict[str, pa.Table], wanted: dict[str, pa.Table]) -> list[str]:
    """Columns that differ, but for those that come of sketches."""
    wrong = []
    for name, table in wanted.items():
        keys = [field.name for field in table.schema if field.type in (pa.string(), pa.int64())]
        own, other = (each.sort_by([(key, "ascending") for key in keys]) for each in (found[name], table))
        for column in table.column_names:
            is_sketched = any(part in column for part in SKETCHED)
            if len(own) != len(other) or (not is_sketched and not same(own[column], other[column])):
                wrong.append(f"{name}.{column}")
    return wrong


def same(own: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(own.type):
        return bool(np.array_equal(np.asarray(own), np.asarray(other), equal_nan=True))
    return bool(own.to_pylist() == other.to_pylist())


def small_rows(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Without the counts of small tables, whose files the state of these tests does not count."""
    return {**tables, "rows": tables["rows"].filter(pa.compute.is_in(tables["rows"]["table"], pa.array(list(TIMES))))}


def test_pieces_make_the_answer_of_a_run(whole: Path, answer: dict[str, pa.Table], tmp_path: Path) -> None:
    """Units are closed on the way; restarts in between change nothing."""
    watch = Watch(whole, tmp_path)
    for number, files in enumerate(pieces(whole, tmp_path / "trace", parts=12)):
        watch.count(files)
        if number % 5 == 4:
            watch.restart()
    assert watch.closings >= 2
    assert len(watch.state.rows) < sum(answer["rows"]["rows"].to_pylist()) / 2
    assert differences(small_rows(watch.state.tables()), small_rows(answer)) == []
    assert watch.state.known.late == 0


def test_rows_of_closed_units_are_too_late(whole: Path, answer: dict[str, pa.Table], tmp_path: Path) -> None:
    """They are in the quarantine with their own words and count as rows; everything else is as if they had not come."""
    parts = pieces(whole, tmp_path / "trace", parts=12)
    (first,) = [file for file in parts[0] if file.table == "deliveries"]
    of_slow, held_back = (
        of_publishers(first, tmp_path / name, is_slow=is_slow, written_ns=1)
        for name, is_slow in (("slow", True), ("others", False))
    )
    watch = Watch(whole, tmp_path)
    for files in parts:
        watch.count([of_slow if file == first else file for file in files])
    before = watch.state.tables()
    watch.count([held_back])
    watch.restart()
    after = watch.state.tables()
    late = after["quarantine"].filter(pa.compute.equal(after["quarantine"]["file"], held_back.path))
    assert late["reasons"].to_pylist() == [["too-late"]] * len(late)
    assert len(late) == held_back.rows == watch.state.known.late
    assert '"subscription":"s-' in late["row"][0].as_py()
    assert rows_of(after) == rows_of(answer)
    others = [name for name in before if name not in ("rows", "quarantine")]
    assert differences({name: after[name] for name in others}, {name: before[name] for name in others}) == []


def rows_of(tables: dict[str, pa.Table]) -> dict[str, int]:
    rows = small_rows(tables)["rows"]
    return dict(zip(rows["table"].to_pylist(), rows["rows"].to_pylist(), strict=True))


def test_a_fault_whose_file_is_gone_is_shown_by_what_is_known(whole: Path, tmp_path: Path) -> None:
    """A delivery whose publication has not come yet stays in the quarantine when its file is deleted."""
    parts = pieces(whole, tmp_path / "trace", parts=12)
    watch = Watch(whole, tmp_path)
    watch.count([file for file in parts[0] if file.table != "publications"])
    shown = watch.state.tables()["quarantine"]
    assert shown.num_rows == sum(file.rows or 0 for file in parts[0] if file.table != "publications")
    assert {tuple(some) for some in shown["reasons"].to_pylist()} == {("unknown-publication",)}
    assert shown["file"].null_count == 0
    for file in parts[0]:
        if file.table != "publications":
            Path(file.path).unlink()
    watch.restart()
    again = watch.state.tables()["quarantine"]
    assert len(again) == len(shown)
    assert again["file"].null_count == len(again)
    assert '"sequence":' in again["row"][0].as_py()
    watch.count([file for file in parts[0] if file.table == "publications"])
    assert len(watch.state.tables()["quarantine"]) == 0, "the rows themselves are kept"


def test_a_silent_publisher_is_closed_and_goes_on(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it publishes after that is counted; nothing twice."""
    monkeypatch.setattr(_state, "SILENT_NS", 100)
    monkeypatch.setattr(_state, "CLOSED_TOGETHER", 10**6)
    first, second = pieces(whole, tmp_path / "trace", parts=2)
    of_slow, of_others = (
        [of_publishers(file, tmp_path / name, is_slow=is_slow, written_ns=written_ns) for file in first]
        for name, is_slow, written_ns in (("slow", True, 1), ("others", False, 1_000))
    )
    watch = Watch(whole, tmp_path, replace(TERMS, hold_ns=10**15, keep_ns=10**15))
    watch.count(of_slow)
    assert watch.closings == 0
    watch.count(of_others)
    progress = watch.state.known.publishers
    (slow,) = [name for name in progress if name.startswith("slow")]
    assert watch.closings == 1
    assert progress[slow].closed == progress[slow].sequence + 1, "nothing of it came while others were written"
    watch.count(second)
    watch.restart()
    found, counted = watch.state.tables(), {}
    for row in found["publishers"].to_pylist():
        counted[row["publisher"]] = row["events"]
    assert counted[slow] == pq.read_table(whole / "publications").filter(pa.compute.field("publisher") == slow).num_rows
    late = watch.state.known.late
    assert late == found["quarantine"].num_rows < 10, "only of events that were under way"


def of_publishers(file: TraceFile, place: Path, *, is_slow: bool, written_ns: int) -> TraceFile:
    """The rows of one file that are of the slow publisher, or of the others, as a file of its own."""
    rows = pq.read_table(file.path)
    is_of = pa.compute.starts_with(rows["publisher"], "slow")
    path = place / file.table / Path(file.path).name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.filter(is_of if is_slow else pa.compute.invert(is_of)), path)
    (found,) = [each for each in find_files([place], needed=()) if each.path == str(path)]
    return msgspec.structs.replace(found, modified_ns=written_ns)


def test_a_table_that_is_ahead_closes_nothing(whole: Path, answer: dict[str, pa.Table], tmp_path: Path) -> None:
    """All publications first, then all hops, then all deliveries, as somebody copies a trace into place."""
    parts = [file for files in pieces(whole, tmp_path / "trace", parts=3) for file in files]
    watch = Watch(whole, tmp_path)
    for table in TIMES:
        watch.count([file for file in parts if file.table == table])
    assert watch.closings == 1
    assert watch.state.known.late == 0
    assert differences(small_rows(watch.state.tables()), small_rows(answer)) == []


def test_what_is_kept_is_bounded(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old windows count for the other tables only; of many bad rows the latest are shown, and all counted."""
    monkeypatch.setattr(_state, "QUARANTINED_MAX", 5)
    parts = pieces(whole, tmp_path / "trace", parts=12)
    (first,) = [file for file in parts[0] if file.table == "publications"]
    watch = Watch(whole, tmp_path, replace(TERMS, hold_ns=SECOND, keep_ns=6 * SECOND))
    for files in parts:
        watch.count([file for file in files if file != first])
    tables = watch.state.tables()
    windows = tables["window_scores"]["window_ns"].to_pylist()
    assert min(windows) >= 10 * SECOND
    assert max(windows) == 20 * SECOND
    scores = tables["subscriber_scores"]
    assert sum(scores["matched"].to_pylist()) > 2 * sum(tables["window_scores"]["matched"].to_pylist())
    bad = tables["quarantine"]
    assert len(bad) < 50
    assert sum(bad["rows"].to_pylist()) > (first.rows or 0), "hops and deliveries without their publications"
