"""What the demonstration needs compiled, ahead of time, in several processes at once.

Kernels are compiled at their first call and kept on disk (`tidings.compiled`). On a machine where nothing was run yet
that takes some minutes of one processor. The parts below need different kernels, so that as many of them as there are
processors can be compiled together. Where everything is there already, they are done in seconds.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from os import cpu_count
from typing import Final

__all__ = ["PARTS", "compile_part", "compiling"]

_SCENARIO: Final = """
duration = "20 s"
topology = { kind = "random-graph", brokers = 6, mean_degree = 3 }
[links]
bandwidth = "256 kbit/s"
loss = 0.01
propagation = "5 ms"
failures = { availability = 0.9, period = "5 s" }
[brokers]
service = { law = "exponential", mean = "2 ms" }
failures = { availability = 0.95, period = "10 s" }
[[publishers]]
name = "p"
at = "random"
count = 2
rate = "5 /s"
size = { law = "uniform", low = "300 B", high = "2 kB" }
lifetime = "10 s"
attributes = { s = { values = ["A", "B"] }, x = { law = "uniform", low = 0, high = 10, decimals = 2 } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 1
filter = "s = 'A' AND x > {least}"
max_delay = "200 ms"
parameters = { least = { law = "uniform", low = 0, high = 5 } }
[policies]
scheduling = "fifo"
faults = { scheme = "periodic", refresh = "5 s" }
"""


def _simulate_failing() -> None:
    from tidings.model.scenario import Scenario
    from tidings.simulation import simulate

    simulate(Scenario.parse(_SCENARIO, "kernels").expand())


def _simulate_by_deadlines() -> None:
    from tidings.demo._run import by_deadlines_in_order
    from tidings.model.scenario import Scenario
    from tidings.simulation import simulate

    simulate(by_deadlines_in_order(Scenario.parse(_SCENARIO, "kernels").expand()))


def _predict() -> None:
    from tidings.model.scenario import Scenario
    from tidings.planning import single_changes

    single_changes(Scenario.parse(_SCENARIO, "kernels").expand())


PARTS: Final[dict[str, Callable[[], None]]] = {
    "prediction": _predict,
    "simulation with failures": _simulate_failing,
    "simulation by deadlines": _simulate_by_deadlines,
}


def compile_part(name: str) -> None:
    """Call everything once that a part needs."""
    PARTS[name]()


@contextmanager
def compiling() -> Iterator[None]:
    """Compile all parts while the body runs; at its end they are done."""
    workers = min(len(PARTS), cpu_count() or 1)
    # Spawned: the compiler's threads do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(compile_part, name) for name in PARTS]
        yield
        for each in running:
            each.result()
