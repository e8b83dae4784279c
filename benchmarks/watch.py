"""The watch: what a batch of new rows costs after a day, a week and a month of operation.

A small network (3 brokers, 4 publishers with an event every 10 s each, 12 subscriptions) writes its trace; the watch
runs in a session of its own. Each length of history is counted first, in large files; then come equal batches of 2,400
rows, one at a time, and for each the table has the processor seconds of the driver, the JVM and the Python workers from
the moment its files appear to its update, the jobs of Spark, the bytes that Spark shuffled, and what lies in the place
of the answer. The first batch of a length has what the length itself left to be compiled, so the medians tell.

Options: ``BENCH_DAYS=1,7,30`` for other lengths, ``BENCH_MASTER=local[2]``, ``BENCH_BATCHES=4``.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.pipeline import cpu_s
from tidings.model import Scenario
from tidings.pipeline import PipelineOptions, open_session
from tidings.pipeline.streaming import Report, Update, WatchOptions, watch_trace
from tidings.simulation import simulate

DAYS = tuple(float(days) for days in os.environ.get("BENCH_DAYS", "1,7,30").split(","))
BATCHES = int(os.environ.get("BENCH_BATCHES", "4"))
MASTER = os.environ.get("BENCH_MASTER", "local[2]")
BATCH_ROWS = 2_400
FILE_ROWS = 200_000
DAY_S = 86_400
WAIT_S = 3_600.0
TIMES = {"publications": "departure_ns", "hops": "enqueued_ns", "deliveries": "arrived_ns"}
SCENARIO = """
seed = 5
duration = "{duration} s"
topology = {{ kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }}
links = {{ bandwidth = "100 kbit/s", loss = 0.001 }}
[[publishers]]
name = "p"
at = ["a", "c"]
count = 4
rate = "0.1 /s"
attributes = {{ x = {{ range = [1, 6] }} }}
[[subscribers]]
name = "s"
at = "all"
per_broker = 4
filter = "x <= {{number}}"
max_delay = "200 ms"
"""


class Trace:
    """A trace that appears in a directory from its beginning on, its rows in order of time."""

    def __init__(self, whole: Path, place: Path) -> None:
        self._place, self._files = place, 0
        self._rows = {name: pq.read_table(whole / name).sort_by(time_ns) for name, time_ns in TIMES.items()}
        self._at_ns = {name: np.asarray(self._rows[name][time_ns]) for name, time_ns in TIMES.items()}
        self._all_ns = np.sort(np.concatenate(list(self._at_ns.values())))
        self._done_ns = -1
        for name in ("subscriptions", "topology", "transitions"):
            if (whole / name).exists():
                self._write(name, pq.read_table(whole / name))

    def write_until(self, end_ns: int) -> int:
        """The rows up to this time; returns how many."""
        count = 0
        for name, at_ns in self._at_ns.items():
            begin, end = np.searchsorted(at_ns, [self._done_ns, end_ns], side="right")
            for start in range(begin, end, FILE_ROWS):
                count += self._write(name, self._rows[name].slice(start, min(FILE_ROWS, end - start)))
        self._done_ns = end_ns
        return count

    def write_rows(self, count: int) -> int:
        """About so many rows."""
        begin = int(np.searchsorted(self._all_ns, self._done_ns, side="right"))
        return self.write_until(int(self._all_ns[min(begin + count, len(self._all_ns)) - 1]))

    def _write(self, name: str, rows: pa.Table) -> int:
        folder = self._place / name
        folder.mkdir(parents=True, exist_ok=True)
        self._files += 1
        pq.write_table(rows, folder / f"_{self._files}.parquet")
        (folder / f"_{self._files}.parquet").rename(folder / f"{self._files:06}.parquet")
        return len(rows)


def jobs_and_shuffle(spark: Any) -> tuple[int, int]:
    """So far: jobs, and bytes written to shuffles."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    shuffled = sum(
        store.executorList(False).apply(place).totalShuffleWrite() for place in range(store.executorList(False).size())
    )
    return max((jobs.apply(place).jobId() + 1 for place in range(jobs.size())), default=0), int(shuffled)


def left(out: Path) -> tuple[int, int]:
    """Files and bytes in a folder."""
    sizes = []
    for path in out.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)


class Updates:
    """The watch's reports; `until` waits for an update with all rows."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._rows = 0
        self.error: BaseException | None = None

    def tell(self, report: Report) -> None:
        if isinstance(report, Update):
            with self._news:
                self._rows = sum(report.result.rows[name] for name in TIMES)
                self._news.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._news:
            self.error = error
            self._news.notify_all()

    def until(self, rows: int) -> None:
        with self._news:
            if not self._news.wait_for(lambda: self.error is not None or self._rows >= rows, WAIT_S) or self.error:
                raise RuntimeError(f"the watch has not counted {rows:,} rows") from self.error


def measured(spark: Any, trace: Trace, out: Path, updates: Updates, total: int) -> Iterator[tuple[Any, ...]]:
    for days in DAYS:
        began_s = cpu_s()
        total += trace.write_until(round(days * DAY_S * 1e9))
        updates.until(total)
        history, history_s = total, cpu_s() - began_s
        for _ in range(BATCHES):
            time.sleep(1.0)
            (jobs, shuffled), used_s, began = jobs_and_shuffle(spark), cpu_s(), time.monotonic()
            rows = trace.write_rows(BATCH_ROWS)
            total += rows
            updates.until(total)
            took_s, used_s = time.monotonic() - began, cpu_s() - used_s
            after = jobs_and_shuffle(spark)
            yield days, history, history_s, rows, used_s, took_s, after[0] - jobs, after[1] - shuffled, *left(out)


def main() -> None:
    console = Console(width=140)
    with tempfile.TemporaryDirectory(prefix="tidings-watch-") as scratch:
        place = Path(scratch)
        spare_s = 10 * BATCHES * BATCH_ROWS
        network = Scenario.parse(SCENARIO.format(duration=max(DAYS) * DAY_S + spare_s)).expand()
        simulate(network, out=place / "whole")
        trace, updates, stop = Trace(place / "whole", place / "trace"), Updates(), threading.Event()
        table = Table(title="batches of the watch by days of history", title_justify="left", box=None)
        for heading in ("days", "rows so far", "their cpu s", "new rows", "cpu s", "s", "jobs", "shuffle kB"):
            table.add_column(heading, justify="right")
        for heading in ("files", "MB"):
            table.add_column(heading, justify="right")
        by_days: dict[float, list[float]] = {}
        with open_session(master=MASTER) as spark:

            def run() -> None:
                try:
                    how = WatchOptions(every_s=0.5)
                    watch_trace(
                        spark, place / "trace", place / "out", how, PipelineOptions(), listener=updates.tell, stop=stop
                    )
                except BaseException as error:
                    updates.fail(error)

            total = trace.write_rows(BATCH_ROWS)
            watching = threading.Thread(target=run)
            watching.start()
            try:
                for days, history, history_s, rows, used_s, took_s, jobs, shuffled, files, size in measured(
                    spark, trace, place / "out", updates, total
                ):
                    by_days.setdefault(days, []).append(used_s)
                    console.print(f"{days:g} days: {rows:,} rows in {used_s:.2f} cpu s, {jobs} jobs", style="dim")
                    table.add_row(
                        f"{days:g}",
                        f"{history:,}",
                        f"{history_s:.1f}",
                        f"{rows:,}",
                        f"{used_s:.2f}",
                        f"{took_s:.1f}",
                        f"{jobs}",
                        f"{shuffled / 1e3:,.0f}",
                        f"{files:,}",
                        f"{size / 1e6:.1f}",
                    )
            finally:
                stop.set()
                watching.join()
        console.print(table)
        for days, used in by_days.items():
            console.print(f"median after {days:g} days: {median(used):.2f} cpu s")


if __name__ == "__main__":
    main()
