"""The kernels of the demonstration, compiled ahead of time in several processes at once.

Kernels are compiled at their first call and kept on disk (`tidings.compiled`), which takes a minute or more of one
processor on a new machine. The parts below need different kernels, so as many of them as there are processors are
compiled together. If everything is compiled already, they take seconds.
"""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from os import cpu_count
from typing import Final

__all__ = ["PARTS", "SIMULATIONS", "compile_part", "compiling"]

_SCENARIO: Final = """
duration = "20 s"
topology = { kind = "random-graph", brokers = 6, mean_degree = 3 }
[links]
bandwidth = "256 kbit/s"
loss = 0.01
propagation = "5 ms"
failures = { availability = 0.9, period = "5 s" }
[brokers]
service = { distribution = "exponential", mean = "2 ms" }
failures = { availability = 0.95, period = "10 s" }
[[publishers]]
name = "p"
at = "random"
count = 2
rate = "5 /s"
size = { distribution = "uniform", low = "300 B", high = "2 kB" }
lifetime = "10 s"
attributes = { s = { values = ["A", "B"] }, x = { distribution = "uniform", low = 0, high = 10, decimals = 2 } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 1
filter = "s = 'A' AND x > {least}"
max_delay = "200 ms"
parameters = { least = { distribution = "uniform", low = 0, high = 5 } }
[policies]
scheduling = "fifo"
faults = { scheme = "periodic", refresh = "5 s" }
"""


def _simulate_failing() -> None:
    from tidings.model.scenario import Scenario
    from tidings.simulation import simulate

    simulate(Scenario.parse(_SCENARIO, "kernels").expand())


def _simulate_changed() -> None:
    from tidings.model.policies import DEFAULT_SCHEME, DEFAULT_STRATEGY
    from tidings.model.scenario import Scenario
    from tidings.planning import Change, UseOrdering, UseScheme, UseStrategy, apply
    from tidings.simulation import simulate

    changes: list[Change] = [
        UseStrategy(strategy=DEFAULT_STRATEGY),
        UseScheme(scheme=DEFAULT_SCHEME),
        UseOrdering(policy="ours-record"),
    ]
    simulate(apply(Scenario.parse(_SCENARIO, "kernels").expand(), changes))


def _predict() -> None:
    from tidings.model.scenario import Scenario
    from tidings.planning import single_changes

    single_changes(Scenario.parse(_SCENARIO, "kernels").expand())


PARTS: Final[dict[str, Callable[[], None]]] = {
    "prediction": _predict,
    "simulation with failures": _simulate_failing,
    "simulation with all changes": _simulate_changed,
}


SIMULATIONS: Final = ("simulation with failures", "simulation with all changes")


def compile_part(name: str) -> None:
    """Call each kernel of a part once."""
    PARTS[name]()


@contextmanager
def compiling(parts: Collection[str] = tuple(PARTS)) -> Iterator[None]:
    """Compile these parts, all unless given, while the body runs, and wait for them at its end."""
    workers = min(len(parts), cpu_count() or 1)
    # Spawned: the compiler's threads do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(compile_part, name) for name in parts]
        yield
        for each in running:
            each.result()
