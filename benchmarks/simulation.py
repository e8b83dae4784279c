"""Simulation: steps per second of the compiled event loop against SimPy on the same model, in the same run.

The model: a chain of brokers with exponential service, joined by links that send one event at a time; Poisson
publishing at the first broker, a subscriber at every broker, first in, first out. Sizes are 4, 16 and 64 brokers.
SimPy runs the same model as processes and stores, as it is usually written; both count one step for the end of each
service and each transmission and for each publication, so the rates compare like with like. Rates of the compiled loop
include planning, publications and matching. Runs of both alternate, the clock is the processor time of this process,
and medians are shown, so that a busy machine slows both alike.

Then the event loop of networks that fail (scheme bypass+buffer on random graphs of 10, 30 and 100 brokers) against its
plain twin, which does the same step by step; the twin gets a fiftieth of the time.

Then the memory of runs of three lengths with receivers that put events in order (`ours-record`, 450 deliveries a
second), each in a process of its own: its peak should not grow with the length.

At last every strategy under every scheme: ten brokers and 500 subscribers for 14 days, with links that are busy about
half of the time so that strategies have something to choose; for each scheme the slowest, against the limit of 2 s.

Before that, how long the first run after an installation takes (with an empty cache of kernels) and the first run of a
later process: in processes of their own, by their processor time.

Options: ``BENCH_SIZES=4,16`` and ``BENCH_FAILING_SIZES=10`` for other sizes, ``BENCH_SEED`` for another seed,
``BENCH_ROUNDS`` for more rounds.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from itertools import pairwise
from statistics import median
from typing import Any, get_args

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table
from tests.simulation.failing_twin import simulate_failing_plainly

from tidings.model import Network, Scenario
from tidings.model.policies import Scheme, strategies
from tidings.model.scenario import Scheduling
from tidings.simulation import Result, simulate

SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "4,16,64").split(","))
SEED = int(os.environ.get("BENCH_SEED", "1"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
STEPS = 2_000_000  # of the compiled loop; SimPy gets a twentieth
RATE_PER_S, SERVICE_S, SLOWNESS_S_PER_KB = 50.0, 0.01, 0.01
SCENARIO = """
seed = {seed}
duration = "{duration} s"
topology = {{ kind = "explicit", direction = "forward", brokers = {brokers}, links = {links} }}
[links]
slowness = {{ distribution = "exponential", mean = "10 ms/kB" }}
[brokers]
service = {{ distribution = "exponential", mean = "10 ms" }}
[[publishers]]
name = "p"
at = "b1"
rate = "50 /s"
attributes = {{ x = 1 }}
[[subscribers]]
name = "s"
at = "all"
per_broker = 1
filter = "x = 1"
max_delay = "1 s"
[policies]
scheduling = "fifo"
expired = "forward"
"""


def chain(brokers: int, duration_s: float) -> str:
    names = [f"b{number}" for number in range(1, brokers + 1)]
    links = [list(pair) for pair in pairwise(names)]
    return SCENARIO.format(seed=SEED, duration=duration_s, brokers=names, links=links)


def compiled_rate(brokers: int, duration_s: float) -> tuple[float, float]:
    """Steps per second, publications and matching included, and the share of deliveries on time."""
    network = Scenario.parse(chain(brokers, duration_s)).expand()
    began_s = time.process_time()
    result = simulate(network)
    return result.steps / (time.process_time() - began_s), result.delivery_rate or 0.0


class Chain:
    """The same chain in SimPy."""

    def __init__(self, brokers: int, duration_s: float) -> None:
        import simpy

        self.random = random.Random(SEED)
        self.environment = simpy.Environment()
        self.inputs = [simpy.Store(self.environment) for _ in range(brokers)]
        self.outputs = [simpy.Store(self.environment) for _ in range(brokers - 1)]
        self.duration_s, self.steps, self.matched, self.on_time = duration_s, 0, 0, 0
        self.environment.process(self.publish())
        for number in range(brokers):
            self.environment.process(self.serve(number))
        for number in range(brokers - 1):
            self.environment.process(self.send(number))

    def publish(self) -> Generator[Any, Any, None]:
        while True:
            yield self.environment.timeout(self.random.expovariate(RATE_PER_S))
            if self.environment.now >= self.duration_s:
                return
            self.steps += 1
            self.matched += len(self.inputs)
            self.inputs[0].put(self.environment.now)

    def serve(self, number: int) -> Generator[Any, Any, None]:
        while True:
            published_s = yield self.inputs[number].get()
            yield self.environment.timeout(self.random.expovariate(1.0 / SERVICE_S))
            self.steps += 1
            self.on_time += self.environment.now - published_s < 1.0
            if number < len(self.outputs):
                self.outputs[number].put(published_s)

    def send(self, number: int) -> Generator[Any, Any, None]:
        while True:
            published_s = yield self.outputs[number].get()
            yield self.environment.timeout(self.random.expovariate(1.0 / SLOWNESS_S_PER_KB))
            self.steps += 1
            self.inputs[number + 1].put(published_s)

    def run(self) -> tuple[float, float]:
        began_s = time.process_time()
        self.environment.run()
        return self.steps / (time.process_time() - began_s), self.on_time / self.matched


FIRST_RUN = """
import time
from benchmarks.simulation import FAILING, chain
from tidings.model import Scenario
from tidings.simulation import _run, simulate

spent_s = []

def timed(*arguments, advance=_run.advance):
    began_s = time.process_time()
    reason = advance(*arguments)
    spent_s.append(time.process_time() - began_s)
    return reason

_run.advance = timed
network = Scenario.parse(chain(2, 1.0)).expand()
began_s = time.process_time()
simulate(network)
plain_s = time.process_time() - began_s
network = Scenario.parse(FAILING.format(seed=1, duration=1000.0, brokers=5, degree=4)).expand()
began_s = time.process_time()
simulate(network)
print(spent_s[0], plain_s, time.process_time() - began_s)
"""


def first_runs_s(cache: str) -> list[float]:
    """Seconds that the first call of the loop takes in a new process, the whole first run, and after it the first run
    of a network that fails."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", FIRST_RUN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [float(part) for part in done.stdout.split()]


def show_first_runs(console: Console) -> None:
    table = Table(title="first run of a process, seconds", title_justify="left", box=None)
    for heading in ("kernels", "loop", "all", "then with failures"):
        table.add_column(heading, justify="left" if heading == "kernels" else "right")
    with tempfile.TemporaryDirectory() as cache:
        for state in ("compiled", "cached"):
            table.add_row(state, *(f"{spent_s:.2f}" for spent_s in first_runs_s(cache)))
    console.print(table)


FAILING_SIZES = tuple(int(size) for size in os.environ.get("BENCH_FAILING_SIZES", "10,30,100").split(","))
MEAN_DEGREE = 4  # a graph of that degree has at least one broker more
FAILING = """
seed = {seed}
duration = "{duration} s"
topology = {{ kind = "random-graph", brokers = {brokers}, mean_degree = {degree} }}
[links]
failures = {{ availability = 0.99, period = "60000 s" }}
[brokers]
failures = {{ availability = 0.92, period = "60000 s" }}
[[publishers]]
name = "p"
at = "random"
count = 10
interval = "60 s"
lifetime = "3600 s"
attributes = {{ topic = {{ parameter = "number" }} }}
[[subscribers]]
name = "s"
at = "random"
count = 500
filter = "topic = {{topic}}"
parameters = {{ topic = {{ range = [1, 10], zipf = 1.0 }} }}
"""
FAILING_DURATION_S = 14 * 86_400.0


def failing_rate(brokers: int, duration_s: float, run: Callable[[Network], Result]) -> tuple[float, float]:
    """Steps per second of one engine on a network that fails, and the seconds of processor time."""
    text = FAILING.format(seed=SEED, duration=duration_s, brokers=brokers, degree=MEAN_DEGREE)
    network = Scenario.parse(text).expand()
    began_s = time.process_time()
    result = run(network)
    spent_s = time.process_time() - began_s
    return result.steps / spent_s, spent_s


def show_failing(console: Console) -> None:
    table = Table(title="networks that fail, 14 days, steps per second", title_justify="left", box=None)
    for heading in ("brokers", "compiled", "seconds", "plain twin", "ratio"):
        table.add_column(heading, justify="right")
    failing_rate(MEAN_DEGREE + 1, 1000.0, simulate)  # compile before the clock runs
    for brokers in FAILING_SIZES:
        rounds = [
            (
                failing_rate(brokers, FAILING_DURATION_S, simulate),
                failing_rate(brokers, FAILING_DURATION_S / 50, simulate_failing_plainly),
            )
            for _ in range(ROUNDS)
        ]
        rate, plain_rate = (median(each[side][0] for each in rounds) for side in range(2))
        spent_s = median(each[0][1] for each in rounds)
        table.add_row(f"{brokers}", f"{rate:,.0f}", f"{spent_s:.2f}", f"{plain_rate:,.0f}", f"{rate / plain_rate:.1f}")
    console.print(table)


LENGTHS_S = (1_000, 4_000, 16_000)
ORDERED_RUN = """
import resource, sys, time
from tidings.model import Scenario
from tidings.simulation import simulate

TEXT = '''
duration = "{seconds} s"
topology = {{ kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }}
[links]
propagation = {{ distribution = "exponential", mean = "50 ms" }}
[[publishers]]
name = "p"
at = "a"
count = 5
rate = "10 /s"
[[subscribers]]
name = "s"
at = ["b", "c"]
count = 9
filter = "TRUE"
max_delay = "1 s"
[policies]
ordering = "ours-record"
'''

def run(seconds):
    began_s = time.process_time()
    return simulate(Scenario.parse(TEXT.format(seconds=seconds)).expand()), time.process_time() - began_s

run(10)
result, spent_s = run(int(sys.argv[1]))
print(result.ordering.received, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, spent_s)
"""


def show_ordering(console: Console) -> None:
    table = Table(title="order at receivers, peak memory of the process", title_justify="left", box=None)
    for heading in ("simulated s", "deliveries", "MB", "seconds"):
        table.add_column(heading, justify="right")
    for seconds in LENGTHS_S:
        command = [sys.executable, "-c", ORDERED_RUN, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        received, peak_mb, spent_s = done.stdout.split()
        table.add_row(f"{seconds:,}", f"{int(received):,}", f"{float(peak_mb):.0f}", f"{float(spent_s):.2f}")
    console.print(table)


SLOW_LINKS = 'slowness = { distribution = "normal", mean = "3 s/kB", sd = "1 s/kB" }'
LIMIT_S = 2.0


def show_policies(console: Console) -> None:
    title = f"14 days, 10 brokers, 500 subscribers, seconds (limit {LIMIT_S:g})"
    table = Table(title=title, title_justify="left", box=None)
    for heading in ("scheme", "strategies", "slowest", "its seconds", "of the limit"):
        table.add_column(heading, justify="left" if heading in ("scheme", "slowest") else "right")
    text = FAILING.format(seed=SEED, duration=FAILING_DURATION_S, brokers=10, degree=MEAN_DEGREE)
    network = Scenario.parse(text.replace("[links]", f"[links]\n{SLOW_LINKS}")).expand()
    for scheme in get_args(Scheme):
        spent_s: dict[str, float] = {}
        for name in strategies("simulator"):
            scheduling = Scheduling(name=name, r=0.5 if name == "ebpc" else None)
            faults = replace(network.policies.faults, scheme=scheme)
            chosen = replace(network, policies=replace(network.policies, faults=faults, scheduling=scheduling))
            began_s = time.process_time()
            simulate(chosen)
            spent_s[name] = time.process_time() - began_s
        slowest = max(spent_s, key=spent_s.__getitem__)
        share = f"{100.0 * spent_s[slowest] / LIMIT_S:.0f} %"
        table.add_row(scheme, f"{len(spent_s)}", slowest, f"{spent_s[slowest]:.2f}", share)
    console.print(table)


def main() -> None:
    console = Console()
    show_first_runs(console)
    table = Table(title=f"steps per second, seed {SEED}", title_justify="left", box=None)
    for heading in ("brokers", "compiled", "on time", "SimPy", "on time", "ratio"):
        table.add_column(heading, justify="right")
    compiled_rate(2, 1.0)  # compile before the clock runs
    for brokers in SIZES:
        duration_s = STEPS / (RATE_PER_S * 2 * brokers)
        rounds = [(compiled_rate(brokers, duration_s), Chain(brokers, duration_s / 20).run()) for _ in range(ROUNDS)]
        rate, plain_rate = (median(each[side][0] for each in rounds) for side in range(2))
        on_time, plain_on_time = rounds[0][0][1], rounds[0][1][1]
        row = (f"{brokers}", f"{rate:,.0f}", f"{on_time:.4f}", f"{plain_rate:,.0f}", f"{plain_on_time:.4f}")
        table.add_row(*row, f"{rate / plain_rate:.1f}")
    console.print(table)
    show_failing(console)
    show_ordering(console)
    show_policies(console)


if __name__ == "__main__":
    main()
