"""The pipeline: a whole batch run against a bare Spark job over the same files.

The bare job reads the three large tables and aggregates count and mean per pair: hops per link, deliveries per
publisher and subscription, publications per publisher. The run checks, matches, joins, scores and profiles the same
rows, and writes its tables. Traces come from the simulator: 24 publishers on 12 brokers, 96 subscriptions. Sizes are
10^6 and 10^7 hops. The bare job has a process and a JVM of its own, with both of the JVM's compilers, as Spark is
started by everybody (our session does with the first of them); each session is warmed up by a small run first, and of
three bare jobs the cheapest counts.

Beside them the engine `arrow`: the command as people type it, in a process of its own that starts cold but for compiled
kernels, with its imports counted. Its ratio is to the run on Spark, whose session is warm.

The ratio is that of processor seconds of the driver, the JVM and the Python workers, which other users of the machine
change less than they change the time it takes. Memory is the most that the JVM had resident so far, and the most that
one Python process had.

Options: ``BENCH_SIZES=100000`` for other numbers of hops (all that follow each other in one session),
``BENCH_MASTER=local[2]``, ``BENCH_TRACES=DIR`` to keep the traces for the next time.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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


@dataclass(frozen=True)
class Process:
    """What the system says of a process: processor seconds with those of ended children, and the most it had resident.

    `is_java` tells the JVM from Python.
    """

    parent: int
    cpu_s: float
    peak_mb: float
    is_java: bool


def processes() -> list[Process]:
    """This process and all that come from it."""
    found: dict[int, Process] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
                fields = rest.split()
                status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
                ticks = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                peak_mb = int(status.get("VmHWM", "0").split()[0]) / 1024
                found[int(folder.name)] = Process(int(fields[1]), ticks, peak_mb, name == "java")
    mine, before = {os.getpid()}, 0
    while len(mine) > before:
        before = len(mine)
        mine |= {number for number, process in found.items() if process.parent in mine}
    return [found[number] for number in mine if number in found]


def cpu_s() -> float:
    return sum(process.cpu_s for process in processes())


class Stages:
    """Processor seconds of each stage: `begin` is the progress of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stage, self._since_s = "", 0.0

    def begin(self, stage: str) -> None:
        self.end()
        self._stage, self._since_s = stage, cpu_s()

    def end(self) -> None:
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + cpu_s() - self._since_s
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


def bare(spark: Any, trace: Path) -> None:
    from pyspark.sql import functions as fn

    for table, keys, value in (
        ("hops", ("source", "target"), fn.col("received_ns") - fn.col("enqueued_ns")),
        ("deliveries", ("publisher", "subscription"), fn.col("arrived_ns")),
        ("publications", ("publisher",), fn.col("departure_ns")),
    ):
        spark.read.parquet(str(trace / table)).groupBy(*keys).agg(fn.count("*"), fn.avg(value)).collect()


def bare_cpu_s(traces: Sequence[Path]) -> list[float]:
    """Of the bare job over each trace, by a process of its own."""
    command = [sys.executable, "-m", "benchmarks.pipeline", *map(str, traces)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [float(line) for line in done.stdout.split()]


def measure_bare(warm_up: Path, traces: Sequence[Path]) -> None:
    """What that process does: a line with the processor seconds of each."""
    with open_session(master=MASTER, extra={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}) as spark:
        bare(spark, warm_up)
        for trace in traces:
            print(min(measured(partial(bare, spark, trace))[1] for _ in range(3)), flush=True)


T = TypeVar("T")


def measured(call: Callable[[], T]) -> tuple[T, float, float]:
    """What a call returns, its processor seconds and its seconds."""
    began_cpu_s, began_s = cpu_s(), time.perf_counter()
    answer = call()
    return answer, cpu_s() - began_cpu_s, time.perf_counter() - began_s


def arrow_run(trace: Path, out: Path) -> float:
    """The command with the engine arrow; returns the most memory in MB that a process had that has ended so far."""
    command = [sys.executable, "-c", "from tidings.cli._app import app; app()", "pipeline", "run", str(trace)]
    options = ["--out", str(out), "--engine", "arrow", "--json"]
    subprocess.run([*command, *options], check=True, capture_output=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def measure_arrow(traces: dict[int, Path], place: Path) -> dict[int, tuple[float, float, float]]:
    """By size: processor seconds, seconds, and the most memory in MB; sizes ascend, so each is the greatest so far."""
    arrow_run(traces[WARM_UP_HOPS], place / "arrow-warm")
    found = {}
    for hops in sorted(SIZES):
        peak_mb, run_cpu_s, run_s = measured(partial(arrow_run, traces[hops], place / f"arrow-{hops}"))
        found[hops] = run_cpu_s, run_s, peak_mb
    return found


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tidings-pipeline-") as scratch:
        place = Path(os.environ.get("BENCH_TRACES", scratch))
        place.mkdir(parents=True, exist_ok=True)
        traces = {hops: make_trace(place, hops) for hops in (WARM_UP_HOPS, *SIZES)}
        table = Table(title="a whole run against a bare job", title_justify="left", box=None)
        for heading in ("hops", "rows", "bare cpu s", "run cpu s", "ratio", "run s", "rows/s", "nothing new s"):
            table.add_column(heading, justify="right")
        for heading in ("driver MB", "JVM MB", "worker MB"):
            table.add_column(heading, justify="right")
        broken: dict[int, dict[str, float]] = {}
        on_spark: dict[int, float] = {}
        in_process = measure_arrow(traces, Path(scratch))
        bare_s = dict(zip(SIZES, bare_cpu_s([*traces.values()]), strict=True))
        with open_session(master=MASTER) as spark:
            run_pipeline(spark, [traces[WARM_UP_HOPS]], Path(scratch) / "warm")
            for hops in SIZES:
                trace, out, stages = traces[hops], Path(scratch) / f"out-{hops}", Stages()
                counting = partial(run_pipeline, spark, [trace], out)
                result, run_cpu_s, run_s = measured(partial(counting, progress=stages.begin))
                stages.end()
                _, _, again_s = measured(counting)
                rows = sum(result.rows.values())
                broken[hops], on_spark[hops] = stages.seconds, run_cpu_s
                others = [process for process in processes() if not process.is_java]
                jvm_mb = sum(process.peak_mb for process in processes() if process.is_java)
                table.add_row(
                    f"{result.rows['hops']:,}",
                    f"{rows:,}",
                    f"{bare_s[hops]:.1f}",
                    f"{run_cpu_s:.1f}",
                    f"{run_cpu_s / bare_s[hops]:.1f}",
                    f"{run_s:.1f}",
                    f"{rows / run_s:,.0f}",
                    f"{again_s:.2f}",
                    f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f}",
                    f"{jvm_mb:,.0f}",
                    f"{max(process.peak_mb for process in others):,.0f}",
                )
        console.print(table)
        arrow_table = Table(title="the engine arrow, from start to end", title_justify="left", box=None)
        for heading in ("hops", "arrow cpu s", "of the run on Spark", "arrow s", "arrow MB"):
            arrow_table.add_column(heading, justify="right")
        for hops, (used_s, took_s, peak_mb) in in_process.items():
            share = f"{used_s / on_spark[hops]:.0%}"
            arrow_table.add_row(f"{hops:,}", f"{used_s:.1f}", share, f"{took_s:.1f}", f"{peak_mb:,.0f}")
        console.print(arrow_table)
        stages_table = Table(title="processor seconds by stage", title_justify="left", box=None)
        stages_table.add_column("stage")
        for hops in SIZES:
            stages_table.add_column(f"{hops:,}", justify="right")
        for stage in broken[SIZES[-1]]:
            stages_table.add_row(stage, *(f"{broken[hops].get(stage, 0.0):.2f}" for hops in SIZES))
        console.print(stages_table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure_bare(Path(sys.argv[1]), [Path(trace) for trace in sys.argv[2:]])
    else:
        main()
