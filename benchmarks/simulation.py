"""Simulation: steps per second of the compiled event loop against SimPy on the same model, in the same run.

The model: a chain of brokers with exponential service, joined by links that send one event at a time; Poisson
publishing at the first broker, a subscriber at every broker, first in, first out. Sizes are 4, 16 and 64 brokers.
SimPy runs the same model as processes and stores, the usual way to write it; both count one step for the end of each
service and each transmission and for each publication, so the rates compare like with like.

Options: ``BENCH_SIZES=4,16`` for other sizes, ``BENCH_SEED`` for another seed.
"""

import os
import random
import time
from collections.abc import Generator
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.table import Table

from tidings.model import Scenario
from tidings.simulation import simulate

SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "4,16,64").split(","))
SEED = int(os.environ.get("BENCH_SEED", "1"))
STEPS = 2_000_000  # of the compiled loop; SimPy gets a twentieth
RATE_PER_S, SERVICE_S, SLOWNESS_S_PER_KB = 50.0, 0.01, 0.01
SCENARIO = """
seed = {seed}
duration = "{duration} s"
topology = {{ kind = "explicit", direction = "forward", brokers = {brokers}, links = {links} }}
[links]
slowness = {{ law = "exponential", mean = "10 ms/kB" }}
[brokers]
service = {{ law = "exponential", mean = "10 ms" }}
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
    result = simulate(network)
    return result.steps / result.wall_s, result.delivery_rate or 0.0


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
        began_s = time.perf_counter()
        self.environment.run()
        return self.steps / (time.perf_counter() - began_s), self.on_time / self.matched


def main() -> None:
    table = Table(title=f"steps per second, seed {SEED}", title_justify="left", box=None)
    for heading in ("brokers", "compiled", "on time", "SimPy", "on time", "ratio"):
        table.add_column(heading, justify="right")
    compiled_rate(2, 1.0)  # compile before the clock runs
    for brokers in SIZES:
        duration_s = STEPS / (RATE_PER_S * 2 * brokers)
        rate, on_time = compiled_rate(brokers, duration_s)
        plain_rate, plain_on_time = Chain(brokers, duration_s / 20).run()
        row = (f"{brokers}", f"{rate:,.0f}", f"{on_time:.4f}", f"{plain_rate:,.0f}", f"{plain_on_time:.4f}")
        table.add_row(*row, f"{rate / plain_rate:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
