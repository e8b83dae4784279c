"""A trace that grows: the watch's answer against a run from scratch, after failures and kills at any moment."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tidings.errors import ConfigurationError, InputError
from tidings.model.scenario import Scenario
from tidings.simulation import simulate

pytest.importorskip("pyspark.sql")
from tidings import pipeline
from tidings.cli import _watch as command
from tidings.cli._app import app
from tidings.pipeline._storage import storage_of
from tidings.pipeline.streaming import End, Report, Stage, Update, WatchOptions, WindowScore, WindowTotal, watch_trace
from tidings.pipeline.streaming._discovery import missing
from tidings.pipeline.streaming._windows import Record, Windows, settled_windows

SECOND = 10**9
SCENARIO = """
seed = 5
duration = "20 s"
topology = { kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }
links = { bandwidth = "100 kbit/s", loss = 0.02 }
[[publishers]]
name = "p"
at = ["a", "c"]
count = 2
rate = "20 /s"
attributes = { x = { range = [1, 6] } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x <= {number}"
max_delay = "60 ms"
"""
GROWING = ("publications", "hops", "deliveries")
FIVE_SECONDS = pipeline.PipelineOptions(window_ns=5 * SECOND)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traces") / "whole"
    simulate(Scenario.parse(SCENARIO).expand(), out=out)
    return out


class Writer:
    """Writes a trace into a directory file by file, each complete when it gets its name."""

    def __init__(self, whole: Path, trace: Path, *, parts: int, seed: int | None = None) -> None:
        self._trace = trace
        self.pieces = [
            (name, number, piece)
            for number in range(parts)
            for name in GROWING
            if len(piece := _slice(pq.read_table(whole / name), number, parts))
        ]
        if seed is not None:
            random.Random(seed).shuffle(self.pieces)
        trace.mkdir(parents=True, exist_ok=True)
        for name in ("subscriptions", "topology", "transitions"):
            shutil.copytree(whole / name, trace / name)

    def write(self, count: int) -> None:
        for name, number, rows in self.pieces[:count]:
            folder = self._trace / name
            folder.mkdir(exist_ok=True)
            pq.write_table(rows, folder / f"_{number}.parquet")
            (folder / f"_{number}.parquet").rename(folder / f"{number}.parquet")
        del self.pieces[:count]


def _slice(rows: pa.Table, number: int, parts: int) -> pa.Table:
    edges = [len(rows) * edge // parts for edge in (number, number + 1)]
    return rows.slice(edges[0], edges[1] - edges[0])


def comparable(result: Any) -> tuple[Any, ...]:
    document = msgspec.to_builtins(result)
    return tuple(document[name] for name in ("subscribers", "quarantined", "bad", "rows", "matched", "earnings"))


def last_reports(reports: list[Report]) -> dict[tuple[int, str], WindowScore]:
    """Of every window and subscription the last score; the same report again must say the same."""
    latest: dict[tuple[int, str], WindowScore] = {}
    finals: dict[tuple[int, str, int], WindowScore] = {}
    for report in reports:
        if isinstance(report, WindowScore):
            latest[report.window_ns, report.subscription] = report
            if report.final:
                named = (report.window_ns, report.subscription, report.revision)
                assert finals.setdefault(named, report) == report
    return latest


def totals(scores: Any) -> dict[str, tuple[int, int, int]]:
    found: dict[str, tuple[int, int, int]] = {}
    for score in scores:
        before = found.get(score.subscription, (0, 0, 0))
        found[score.subscription] = (before[0] + score.matched, before[1] + score.on_time, before[2] + score.late)
    return found


def test_the_watermark_never_goes_back() -> None:
    record = Record(window_ns=10)
    assert record.advanced(None, 5) == record
    record = record.advanced(100, 5)
    assert (record.greatest_departure_ns, record.watermark_ns) == (100, 95)
    assert record.advanced(40, 5) == record
    assert record.advanced(102, 50).watermark_ns == 95
    assert record.advanced(102, 5).watermark_ns == 97


def test_options_that_cannot_work() -> None:
    for wrong in (
        {"every_s": 0.0},
        {"late_ns": -1},
        {"hold_ns": 1},
        {"keep_ns": 1},
        {"until_idle_s": 0.0},
        {"is_once": True, "until_idle_s": 1.0},
    ):
        with pytest.raises(ConfigurationError):
            WatchOptions(**wrong)


def test_what_a_directory_lacks(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert "no such directory" in (missing(str(trace), None) or "")
    (trace / "publications").mkdir(parents=True)
    (trace / "publications" / "_half.parquet").touch()
    assert "publications and subscriptions" in (missing(str(trace), None) or "")
    (trace / "publications" / "day").mkdir()
    (trace / "publications" / "day" / "a.parquet").touch()
    assert "no files of subscriptions yet" in (missing(str(trace), None) or "")
    (trace / "subscriptions").mkdir()
    (trace / "subscriptions" / "a.parquet").touch()
    assert missing(str(trace), None) is None


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    def windows(window_ns: int) -> Windows:
        no_session: Any = None  # nothing is computed
        return Windows(no_session, storage_of(str(tmp_path), None), str(tmp_path), window_ns=window_ns)

    record = tmp_path / "records" / "000000001.json"
    record.parent.mkdir()
    record.write_text("{")
    with pytest.raises(InputError, match="--from-scratch"):
        windows(10)
    record.write_bytes(msgspec.json.encode(Record(window_ns=7, number=3, watermark_ns=1)))
    assert windows(7).record.number == 3
    assert windows(10).record.watermark_ns is None


def counts(*rows: tuple[int, str, int]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "window_ns": [window for window, _, _ in rows],
        "subscription": [name for _, name, _ in rows],
        "subscriber": [name.upper() for _, name, _ in rows],
        "matched": [matched for _, _, matched in rows],
        "on_time": [matched for _, _, matched in rows],
        "late": [0] * len(rows),
        "duplicates": [0] * len(rows),
    }
    return pa.table(columns)


def news(table: pa.Table) -> set[tuple[int, str, int, int]]:
    names = ("window_ns", "subscription", "matched", "revision")
    return {tuple(row[name] for name in names) for row in table.to_pylist() if row["is_news"]}


def test_which_windows_are_reported() -> None:
    """Final once the watermark has come, again when they change, also by rows of a subscription that had none."""
    first = counts((0, "a", 5), (0, "b", 1), (10, "a", 4))
    table = settled_windows(first, None, window_ns=10, was_ns=None, is_ns=9)
    assert news(table) == set()
    assert {(row["window_ns"], row["subscription"], row["matched"]) for row in table.to_pylist()} == {
        (0, "a", 5),
        (0, "b", 1),
        (10, "a", 4),
    }
    table = settled_windows(first, table, window_ns=10, was_ns=9, is_ns=10)
    assert news(table) == {(0, "a", 5, 0), (0, "b", 1, 0)}
    # b is gone from the first window, c has come to it, a has not changed there; the second is still open.
    second = counts((0, "a", 5), (0, "c", 7), (10, "a", 6))
    table = settled_windows(second, table, window_ns=10, was_ns=10, is_ns=19)
    assert news(table) == {(0, "b", 0, 1), (0, "c", 7, 1)}
    table = settled_windows(second, table, window_ns=10, was_ns=19, is_ns=20)
    assert news(table) == {(10, "a", 6, 0)}
    assert {row["subscriber"] for row in table.to_pylist()} == {"A", "B", "C"}
    # Files are gone: a final window keeps what was counted, and an event that comes after all is still counted.
    third = counts((0, "c", 8), (10, "a", 1), (20, "a", 3))
    table = settled_windows(third, table, window_ns=10, was_ns=20, is_ns=30, has_gone=True)
    assert news(table) == {(0, "c", 8, 2), (20, "a", 3, 0)}
    rows = {(row["window_ns"], row["subscription"], row["matched"]) for row in table.to_pylist()}
    assert rows >= {(0, "a", 5), (10, "a", 6)}


def test_windows_that_are_over_are_put_aside_and_come_back_when_all_is_counted_anew(tmp_path: Path) -> None:
    no_session: Any = None  # nothing is computed by Spark on this machine
    windows = Windows(no_session, storage_of(str(tmp_path), None), str(tmp_path), window_ns=10)

    def settle(
        run: str, table: pa.Table, departure_ns: int, over_ns: int, *, is_anew: bool = False
    ) -> list[WindowScore]:
        record = windows.record.advanced(departure_ns, 0)
        windows.settle(run, table, record, over_ns=over_ns, keep_ns=100, is_anew=is_anew)
        told = list(windows.unreported())
        windows.reported()
        return told

    assert [score.matched for score in settle("1", counts((0, "a", 5), (10, "a", 4)), 10, -1)] == [5]
    assert [score.matched for score in settle("2", counts((10, "a", 4), (20, "a", 1)), 20, 10)] == [4]
    assert [total.window_ns for total in windows.latest()] == [10, 20]
    assert len(list((tmp_path / "over").iterdir())) == 1
    # The same run again, as after a kill: nothing new.
    assert settle("2", counts((10, "a", 4), (20, "a", 1)), 20, 10) == []
    told = settle("3", counts((0, "a", 6), (10, "a", 4), (20, "a", 2)), 30, -1, is_anew=True)
    assert {(score.window_ns, score.matched, score.revision) for score in told} == {(0, 6, 1), (20, 2, 0)}
    assert not (tmp_path / "over").exists()
    assert settle("4", counts((200, "a", 1)), 210, 200) != []
    settle("5", counts((400, "a", 1)), 410, 400)
    kept = [pq.read_table(folder)["window_ns"].to_pylist() for folder in (tmp_path / "over").iterdir()]
    assert kept == [[200]], "older ones are not kept"


class KilledError(Exception):
    """Stands for a kill: raised by a listener where the process would have ended."""


BEFORE_THE_COMMIT = (
    "looking for files",
    "reading subscriptions and topology",
    "computing units",
    "writing tables",
    "summing up",
)
AFTER_THE_COMMIT = ("looking at windows", "telling")
IN_A_LATER_RUN = ("going on where the last watch ended", "computing units")


@pytest.mark.full
@pytest.mark.spark
def test_failures_between_all_steps_change_nothing(spark: Any, whole: Path, tmp_path: Path) -> None:
    """Files out of order; the watch fails at every step, so also between the commit of a run and its windows'."""
    writer = Writer(whole, tmp_path / "trace", parts=3, seed=1)
    reports: list[Report] = []

    def watch(fails_at: str | None = None) -> Any:
        told: list[Report] = []

        def listen(report: Report) -> None:
            is_there = isinstance(report, Stage) and report.text == fails_at
            told.extend([report] if isinstance(report, WindowScore) and report.final else [])
            if is_there or (fails_at == "telling" and len(told) == 2):
                raise KilledError
            reports.append(report)

        how = WatchOptions(is_once=True, late_ns=SECOND)
        trace = tmp_path / "trace" / ".." / "trace"
        return watch_trace(spark, trace, tmp_path / "out", how, FIVE_SECONDS, listener=listen)

    while not (tmp_path / "trace" / "publications").exists():
        writer.write(1)
    writer.write(2)
    for step in BEFORE_THE_COMMIT:
        with pytest.raises(KilledError):
            watch(step)
        assert commits(tmp_path / "out") == set()
    for step in AFTER_THE_COMMIT:
        with pytest.raises(KilledError):
            watch(step)
        assert commits(tmp_path / "out")
    writer.write(len(writer.pieces))
    for step in IN_A_LATER_RUN:
        with pytest.raises(KilledError):
            watch(step)
    result = watch()
    steps = {report.text for report in reports if isinstance(report, Stage)}
    assert steps == {*BEFORE_THE_COMMIT, *AFTER_THE_COMMIT, *IN_A_LATER_RUN} - {"telling"}, "all of them have failed"
    scratch = pipeline.run_pipeline(spark, [tmp_path / "trace"], tmp_path / "scratch", FIVE_SECONDS)
    assert comparable(result) == comparable(scratch)
    assert result.quarantined == {}
    scores = last_reports(reports)
    assert totals(scores.values()) == {
        name: (score.matched, score.on_time, score.late) for name, score in scratch.subscribers.items()
    }
    assert any(score.final for score in scores.values())
    assert any(not score.final for score in scores.values())
    end = reports[-1]
    assert isinstance(end, End)
    assert end.reason == "once"
    updates = [report for report in reports if isinstance(report, Update)]
    assert updates[-1].windows[-1].final is False
    before = len(reports)
    assert comparable(watch()) == comparable(scratch)
    again = [report for report in reports[before:] if isinstance(report, WindowScore) and report.final]
    assert again == []  # nothing new has been said


@pytest.mark.full
@pytest.mark.spark
def test_files_that_go_texts_for_numbers_and_another_subscription(spark: Any, whole: Path, tmp_path: Path) -> None:
    """Counted files may be deleted; what only Spark converts, Spark reads; a changed setting counts all anew."""
    trace, kept = tmp_path / "trace", tmp_path / "kept"
    writer = Writer(whole, trace, parts=2)
    writer.write(len(GROWING))
    asked = pipeline.PipelineOptions(window_ns=5 * SECOND, max_bad=1.0)

    def watch() -> Any:
        return watch_trace(spark, trace, tmp_path / "out", WatchOptions(is_once=True), asked, listener=lambda _: None)

    watch()
    shutil.copytree(trace, kept)
    for name in GROWING:
        (trace / name / "0.parquet").unlink()
    writer.write(len(GROWING))
    for name in GROWING:
        rows = pq.read_table(trace / name / "1.parquet")
        at = rows.schema.get_field_index("sequence")
        pq.write_table(rows.set_column(at, "sequence", rows["sequence"].cast(pa.string())), trace / name / "1.parquet")
        shutil.copy(trace / name / "1.parquet", kept / name / "1.parquet")
    with pytest.raises(InputError, match="--engine spark"):
        pipeline.run_in_process([kept], tmp_path / "arrow", asked)
    whole_answer = pipeline.run_in_process([whole], tmp_path / "whole", asked)
    found = watch()
    assert comparable(found) == comparable(whole_answer)
    assert (found.recomputed, found.new_files, found.files) == (None, 3, len(list(kept.rglob("*.parquet"))))
    rows = pq.read_table(whole / "subscriptions")
    more = rows.slice(0, 1).set_column(rows.schema.get_field_index("subscription"), "subscription", pa.array(["more"]))
    pq.write_table(more.cast(rows.schema), trace / "subscriptions" / "more.parquet")
    found = watch()
    assert found.recomputed == "subscriptions or brokers have changed"
    assert "more" in found.subscribers
    assert found.rows["publications"] == pq.read_table(trace / "publications" / "1.parquet").num_rows


@pytest.fixture
def update() -> Update:
    score = pipeline.SubscriberScore(
        matched=4,
        on_time=3,
        late=1,
        lost=0,
        on_time_least=3,
        on_time_most=3,
        on_time_reliability=0.75,
        reliability_low=0.3,
        effective_events=2.0,
        is_rough=True,
        reliability_high=0.95,
        earnings=3.0,
        duplicates=0,
        fifo_violations=0,
    )
    idle = msgspec.structs.replace(score, matched=0, on_time=0, late=0, on_time_reliability=None)
    result = pipeline.PipelineResult(
        subscribers={"slow[0]": score, "idle": idle},
        matched=4,
        on_time=3,
        late=1,
        lost=0,
        delivery_rate=0.75,
        earnings=3.0,
        rows={"publications": 5},
        bad=1,
        quarantined={"wrong-type": 1},
        files=3,
        unread_files=0,
        new_files=2,
        recomputed="subscriptions or brokers have changed",
        tables={"rows": "out/rows"},
    )
    total = WindowTotal(window_ns=60 * SECOND, matched=4, on_time=3, late=1, lost=0, final=False)
    return Update(batch=7, seconds=0.5, rows_read=5, watermark_ns=61 * SECOND, windows=(total,), result=result)


def test_the_view_shows_what_matters(update: Update) -> None:
    view = command._View("trace")
    shown = io.StringIO()
    console = Console(file=shown, width=120)
    console.print(view)
    view.update, view.stage = update, "computing scores"
    console.print(view)
    text = shown.getvalue()
    for piece in (
        "75.0 %: 3 of 4",
        "slow[0]",
        "60 s",
        "open",
        "10 rows/s",
        "wrong-type 1",
        "computed again",
        "computing",
    ):
        assert piece in text, piece
    assert "idle" not in text


def test_an_update_is_a_short_line(update: Update, capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads(json.dumps(command._update_line(update)))
    assert line["kind"] == "update"
    assert [row["subscription"] for row in line["worst"]] == ["slow[0]"]
    assert line["intervals"] == {"level": 0.95, "by": "batches of time"}
    assert (line["rows_per_s"], line["matched"], line["quarantined"]) == (10.0, 4, {"wrong-type": 1})
    assert line["windows"][0] == {
        "window_ns": 60 * SECOND,
        "matched": 4,
        "on_time": 3,
        "late": 1,
        "lost": 0,
        "final": False,
    }
    assert "subscribers" not in line
    command._plain_line(update)
    assert "on time 75.0 %: 3 of 4" in capsys.readouterr().out


def test_once_needs_a_trace(tmp_path: Path) -> None:
    arguments = ["pipeline", "watch", str(tmp_path / "none"), "--out", str(tmp_path / "out"), "--once", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "no such directory" in json.loads(result.stdout)["error"]["message"]
    result = CliRunner().invoke(app, [*arguments, "--until-idle", "1s"])
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


WATCH = "from tidings.cli import main; main()"


def start(trace: Path, out: Path, *more: str, stdout: Any = subprocess.PIPE) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", WATCH, "pipeline", "watch", str(trace), "--out", str(out), "--json", *more]
    # In a group of its own, to be killed with Spark and its workers.
    return subprocess.Popen(arguments, stdout=stdout, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_ctrl_c_ends_the_wait_for_a_trace(tmp_path: Path) -> None:
    process = start(tmp_path / "none", tmp_path / "out")
    try:
        assert process.stderr is not None
        assert "waiting" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=600)
    finally:
        end_group(process)
    assert process.returncode == 0
    assert json.loads(out) == {"kind": "end", "reason": "stopped", "batches": 0, "result": None}


@pytest.fixture
def ended() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.mark.full
@pytest.mark.spark
def test_kill_9_at_random_moments_and_restart(whole: Path, tmp_path: Path, ended: contextlib.ExitStack) -> None:
    """A real process over a directory that grows, killed in the middle of runs, after a commit, and while it tells."""
    generator = random.Random(1)
    trace, out = tmp_path / "trace", tmp_path / "out"
    writer = Writer(whole, trace, parts=6, seed=1)
    while not (trace / "publications").exists():
        writer.write(1)
    arguments = ("--window", "5s", "--late", "1s", "--every", "0.5s", "--master", "local[1]")
    moments = ("run", "commit", "run", "line")
    lives = len(moments)
    killed_in_a_run = 0
    for life in range(lives):
        growing = threading.Thread(target=write_slowly, args=(writer, len(writer.pieces) // (lives - life), life))
        with (tmp_path / f"{life}.jsonl").open("w") as lines:
            process = start(trace, out, *arguments, stdout=lines)
        ended.callback(end_group, process)
        growing.start()
        try:
            wait_for_moment(moments[life], out, process, tmp_path / f"{life}.jsonl")
            time.sleep(generator.uniform(0.0, 0.05 if moments[life] == "run" else 0.4))
            killed_in_a_run += bool(begun(out) - committed(out))
        finally:
            # Sometimes Python alone, as a user would, and sometimes all, as a machine that goes down.
            process.kill() if life < 2 else end_group(process)
            growing.join()
        assert process.wait() == -signal.SIGKILL
    assert killed_in_a_run > 0
    assert writer.pieces == []
    with (tmp_path / "last.jsonl").open("w") as lines:
        process = start(trace, out, *arguments, "--until-idle", "1s", stdout=lines)
    ended.callback(end_group, process)
    _, errors = process.communicate(timeout=PROCESS_WAIT_S)
    assert process.returncode == 0, errors
    documents = [line for path in sorted(tmp_path.glob("*.jsonl")) for line in whole_lines(path)]
    result = documents[-1]["result"]
    scratch = run_from_scratch(trace, tmp_path / "scratch")
    assert result["subscribers"] == scratch["subscribers"]
    assert result["quarantined"] == scratch["quarantined"] == {}
    assert result["rows"] == scratch["rows"]
    scores = last_reports([msgspec.convert(each, WindowScore) for each in documents if each["kind"] == "window"])
    assert totals(scores.values()) == {
        name: (score["matched"], score["on_time"], score["late"]) for name, score in scratch["subscribers"].items()
    }


PROCESS_WAIT_S = 600


def write_slowly(writer: Writer, count: int, seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(count):
        time.sleep(generator.uniform(0.2, 2.0))
        writer.write(1)


def commits(out: Path) -> set[str]:
    return {path.name for path in (out / "commits").glob("[0-9]*.json")}


def committed(out: Path) -> set[str]:
    return {json.loads((out / "commits" / name).read_text())["run"] for name in commits(out)}


def begun(out: Path) -> set[str]:
    return {path.name for path in (out / "runs").glob("*")}


def wait_for_moment(moment: str, out: Path, process: "subprocess.Popen[str]", lines: Path) -> None:
    """Until a run is under way, until one is committed, or until the first line is told."""
    before, old = commits(out), begun(out)
    until_s = time.monotonic() + PROCESS_WAIT_S
    while time.monotonic() < until_s and process.poll() is None:
        is_there = {
            "run": bool(begun(out) - committed(out) - old),
            "commit": commits(out) != before,
            "line": lines.stat().st_size > 0,
        }
        if is_there[moment]:
            return
        time.sleep(0.01)
    end_group(process, is_closing=False)
    pytest.fail(f"the watch has ended: {process.communicate()[1]}")


def end_group(process: "subprocess.Popen[str]", *, is_closing: bool = True) -> None:
    """End what a process that the test started has left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stderr is not None and is_closing:
        process.stderr.close()


def whole_lines(path: Path) -> list[Any]:
    """The documents of a file; a kill may have cut the last."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def run_from_scratch(trace: Path, out: Path) -> Any:
    arguments = [sys.executable, "-c", WATCH, "pipeline", "run", str(trace), "--out", str(out), "--json"]
    more = ["--from-scratch", "--window", "5s", "--master", "local[1]"]
    done = subprocess.run([*arguments, *more], capture_output=True, text=True, timeout=PROCESS_WAIT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
