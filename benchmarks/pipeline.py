"""The pipeline: a whole batch run against a bare Spark job over the same files, in the same session.

The bare job reads the three large tables and aggregates count and mean per pair: hops per link, deliveries per
publisher and subscription, publications per publisher. The run checks, matches, joins, scores and profiles the same
rows, and writes its tables. Traces come from the simulator: 24 publishers on 12 brokers, 96 subscriptions. Sizes are
10^6 and 10^7 hops; the session is warmed up by a small run first.

Options: ``BENCH_SIZES=100000`` for other numbers of hops (all that follow each other in one session),
``BENCH_MASTER=local[2]``, ``BENCH_TRACES=DIR`` to keep the traces for the next time.
"""

import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tidings.model import Scenario
from tidings.pipeline import open_session, run_pipeline
from tidings.simulation import simulate

SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "1000000,10000000").split(","))
MASTER = os.environ.get("BENCH_MASTER")
WARM_UP_HOPS = 20_000
HOPS_PER_S = 16_140.0  # of the scenario below
SCENARIO = """
seed = 5
duration = "{duration} s"
topology = "topohub:sndlib/polska"
[links]
bandwidth = "100 Mbit/s"
loss = 0.001
[brokers]
service = {{ law = "exponential", mean = "20 us" }}
[[publishers]]
name = "exchange"
at = "all"
per_broker = 2
rate = "80 /s"
size = {{ law = "uniform", low = "200 B", high = "800 B" }}
lifetime = "2 s"
[publishers.attributes]
symbol = {{ values = ["YHOO", "MSFT", "IBM", "ORCL", "AAPL", "INTC", "CSCO", "DELL"], zipf = 1.0 }}
price = {{ law = "log-normal", median = 40, sigma = 0.6, decimals = 2 }}
[[subscribers]]
name = "trader"
at = "all"
per_broker = 8
filter = "symbol = {{symbol}} AND price > {{floor}}"
max_delay = [{{ delay = "15 ms", price = 3 }}, {{ delay = "40 ms", price = 2 }}, {{ delay = "250 ms", price = 1 }}]
[subscribers.parameters]
symbol = {{ values = ["YHOO", "MSFT", "IBM", "ORCL", "AAPL", "INTC", "CSCO", "DELL"], zipf = 0.8 }}
floor = {{ law = "uniform", low = 5, high = 60, decimals = 1 }}
[policies]
scheduling = "fifo"
expired = "forward"
"""


class Stages:
    """How long each stage took: `begin` is the progress of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stage, self._since_s = "", 0.0

    def begin(self, stage: str) -> None:
        self.end()
        self._stage, self._since_s = stage, time.perf_counter()

    def end(self) -> None:
        if self._stage:
            took_s = time.perf_counter() - self._since_s
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + took_s
        self._stage = ""


def make_trace(place: Path, hops: int) -> Path:
    trace = place / f"hops-{hops}"
    if not trace.exists():
        temporary = place / f"_hops-{hops}"
        shutil.rmtree(temporary, ignore_errors=True)
        network = Scenario.parse(SCENARIO.format(duration=max(1.0, hops / HOPS_PER_S))).expand()
        simulate(network, out=temporary)
        temporary.rename(trace)
    return trace


def bare(spark: Any, trace: Path) -> float:
    """Seconds of the bare job."""
    from pyspark.sql import functions as fn

    began_s = time.perf_counter()
    for table, keys, value in (
        ("hops", ("source", "target"), fn.col("received_ns") - fn.col("enqueued_ns")),
        ("deliveries", ("publisher", "subscription"), fn.col("arrived_ns")),
        ("publications", ("publisher",), fn.col("departure_ns")),
    ):
        spark.read.parquet(str(trace / table)).groupBy(*keys).agg(fn.count("*"), fn.avg(value)).collect()
    return time.perf_counter() - began_s


def driver_peak_mb() -> float:
    """Of this process: the driver's Python side, which holds what is collected."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tidings-pipeline-") as scratch:
        place = Path(os.environ.get("BENCH_TRACES", scratch))
        place.mkdir(parents=True, exist_ok=True)
        traces = {hops: make_trace(place, hops) for hops in (WARM_UP_HOPS, *SIZES)}
        table = Table(title="a whole run against a bare job", title_justify="left", box=None)
        for heading in ("hops", "rows", "bare s", "run s", "ratio", "rows/s", "nothing new s", "driver MB"):
            table.add_column(heading, justify="right")
        broken: dict[int, dict[str, float]] = {}
        with open_session(master=MASTER) as spark:
            run_pipeline(spark, [traces[WARM_UP_HOPS]], Path(scratch) / "warm")
            for hops in SIZES:
                out, stages = Path(scratch) / f"out-{hops}", Stages()
                bare_s = min(bare(spark, traces[hops]) for _ in range(2))
                began_s = time.perf_counter()
                result = run_pipeline(spark, [traces[hops]], out, progress=stages.begin)
                run_s = time.perf_counter() - began_s
                stages.end()
                began_s = time.perf_counter()
                run_pipeline(spark, [traces[hops]], out)
                again_s = time.perf_counter() - began_s
                rows = sum(result.rows.values())
                broken[hops] = stages.seconds
                figures = (
                    f"{run_s / bare_s:.1f}",
                    f"{rows / run_s:,.0f}",
                    f"{again_s:.2f}",
                    f"{driver_peak_mb():,.0f}",
                )
                table.add_row(f"{result.rows['hops']:,}", f"{rows:,}", f"{bare_s:.2f}", f"{run_s:.2f}", *figures)
        console.print(table)
        stages_table = Table(title="seconds by stage", title_justify="left", box=None)
        stages_table.add_column("stage")
        for hops in SIZES:
            stages_table.add_column(f"{hops:,}", justify="right")
        for stage in broken[SIZES[-1]]:
            stages_table.add_row(stage, *(f"{broken[hops].get(stage, 0.0):.2f}" for hops in SIZES))
        console.print(stages_table)


if __name__ == "__main__":
    main()
