"""Which strategy should be the default: what each earns on networks that none was tuned on, from idle to overloaded.

Networks: layered meshes as in paper C with deadlines of publishers (PSD) and of subscribers with prices (SSD), random
graphs, two real backbones, one link with lifetimes of .5 to 3 s and prices 1 to 3 as in the live overload benchmark,
and that link with bursts. Each is drawn anew for each seed. Its load is what the busiest link would be asked to carry,
found by a run with little traffic; every strategy sees the same network and the same events.

For each strategy: earnings and deliveries on time as a share of those of the best strategy in the same run, mean over
seeds, and the least of them. On an idle network (load .2) all must do what first in, first out does.

Options: ``BENCH_SEEDS`` (8), ``BENCH_LOADS`` (0.2,0.7,1.1,1.5,2.5), ``BENCH_EVENTS`` a run (20000), ``BENCH_FIRST`` the
first seed (1000).
"""

import os
from collections import defaultdict
from statistics import mean, stdev

import msgspec
from rich.console import Console
from rich.table import Table
from tests.scenarios import BACKBONE

from tidings.model import Network, Scenario
from tidings.model.distributions import PhaseType, scaled
from tidings.model.policies import strategies
from tidings.model.scenario import Scheduling
from tidings.simulation import Options, simulate

SEEDS = int(os.environ.get("BENCH_SEEDS", "8"))
FIRST = int(os.environ.get("BENCH_FIRST", "1000"))
LOADS = tuple(float(load) for load in os.environ.get("BENCH_LOADS", "0.2,0.7,1.1,1.5,2.5").split(","))
EVENTS = int(os.environ.get("BENCH_EVENTS", "20000"))
STRATEGIES = tuple(name for name in strategies("simulator") if name != "ebpc")

MESH = """
duration = "1 h"
topology = {{ kind = "layered-mesh", layers = [4, 4, 8, 16], fan_in = ["all", 2, 2], direction = "downstream" }}
[links]
slowness = {{ law = "normal", mean = {{ law = "uniform", low = "50 ms/kB", high = "100 ms/kB" }}, sd = "20 ms/kB" }}
[brokers]
processing = "2 ms"
[[publishers]]
name = "p"
at = "layer:1"
per_broker = 1
rate = "1 /min"
size = "50 kB"
{lifetime}
attributes = {{ A1 = {{ law = "uniform", low = 0, high = 10 }}, A2 = {{ law = "uniform", low = 0, high = 10 }} }}
[[subscribers]]
name = "s"
at = "layer:4"
per_broker = 10
filter = "A1 < {{x1}} AND A2 < {{x2}}"
{max_delay}
parameters = {{ x1 = {{ law = "uniform", low = 0, high = 10 }}, x2 = {{ law = "uniform", low = 0, high = 10 }} }}
"""
LINK = """
duration = "1 h"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
[links]
slowness = "10 ms/kB"
[[publishers]]
name = "p"
at = "a"
rate = "1 /s"
size = "1 kB"
lifetime = { law = "uniform", low = "500 ms", high = "3 s" }
attributes = { value = { range = [1, 3] } }
[[subscribers]]
name = "one"
at = "b"
filter = "value = 1"
[[subscribers]]
name = "two"
at = "b"
filter = "value = 2"
price = 2
[[subscribers]]
name = "three"
at = "b"
filter = "value = 3"
price = 3
"""
PSD = 'lifetime = { law = "uniform", low = "10 s", high = "30 s" }'
SSD = 'max_delay = [{ delay = "10 s", price = 3 }, { delay = "30 s", price = 2 }, { delay = "60 s", price = 1 }]'


def _backbone(topology: str) -> str:
    return BACKBONE.format(duration="1 h", rate="0.02 /s", topology=topology)


NETWORKS = {
    "mesh, PSD": MESH.format(lifetime=PSD, max_delay=""),
    "mesh, SSD": MESH.format(lifetime="", max_delay=SSD),
    "random graph": _backbone('{ kind = "random-graph", brokers = 16, mean_degree = 3 }'),
    "nobel-eu": _backbone('"topohub:sndlib/nobel-eu"'),
    "germany50": _backbone('"topohub:sndlib/germany50"'),
    "one link": LINK,
    "one link, bursts": LINK,
}
BURSTINESS = 40.0  # squared coefficient of variation of the intervals


def loaded(name: str, seed: int, load: float) -> Network:
    """The network of this seed, with rates at which its busiest link is asked for this load."""
    network = Scenario.parse(NETWORKS[name]).expand(seed)
    calm = msgspec.structs.replace(network.policies, expired="forward", scheduling=Scheduling(name="fifo"))
    trial = simulate(_faster(network, 1.0, duration_s=_duration_s(network, EVENTS / 4), policies=calm))
    network = _faster(network, load / max(trial.links.values()))
    if "bursts" in name:
        intervals = [PhaseType.from_moments(mean=each.interval.mean(), scv=BURSTINESS) for each in network.publishers]
        publishers = [
            msgspec.structs.replace(each, interval=interval)
            for each, interval in zip(network.publishers, intervals, strict=True)
        ]
        network = msgspec.structs.replace(network, publishers=tuple(publishers))
    return msgspec.structs.replace(network, duration_s=_duration_s(network, EVENTS))


def _duration_s(network: Network, events: float) -> float:
    return events / sum(publisher.rate_per_s for publisher in network.publishers)


def _faster(network: Network, factor: float, **changes: object) -> Network:
    publishers = [
        msgspec.structs.replace(each, interval=scaled(each.interval, 1.0 / factor)) for each in network.publishers
    ]
    return msgspec.structs.replace(network, publishers=tuple(publishers), **changes)


def outcomes(network: Network) -> dict[str, tuple[float, float]]:
    """Earnings and deliveries on time by strategy."""
    found: dict[str, tuple[float, float]] = {}
    for name in STRATEGIES:
        policies = msgspec.structs.replace(network.policies, scheduling=Scheduling(name=name))
        result = simulate(msgspec.structs.replace(network, policies=policies), Options(drain_s=120.0))
        found[name] = (result.earnings, float(result.on_time))
    return found


def main() -> None:
    console = Console(width=160)
    everywhere: dict[tuple[str, int], list[float]] = defaultdict(list)
    for which, heading in enumerate(("earnings", "on time")):
        table = Table(title=f"{heading}, % of the best strategy's (least of the seeds)", title_justify="left", box=None)
        table.add_column("network")
        table.add_column("load", justify="right")
        for strategy in STRATEGIES:
            table.add_column(strategy, justify="right")
        for network in NETWORKS:
            for load in LOADS:
                shares: dict[str, list[float]] = defaultdict(list)
                for seed in range(FIRST, FIRST + SEEDS):
                    found = cached(network, seed, load)
                    best = max(each[which] for each in found.values())
                    for strategy in STRATEGIES:
                        share = 100.0 * found[strategy][which] / best
                        shares[strategy].append(share)
                        if load > 0.5:
                            everywhere[strategy, which].append(share)
                cells = [f"{mean(shares[s]):.2f} ({min(shares[s]):.1f})" for s in STRATEGIES]
                table.add_row(network, f"{load:g}", *cells)
        means = [everywhere[s, which] for s in STRATEGIES]
        table.add_row(
            "all above .5", "", *(f"{mean(each):.2f} ± {2 * stdev(each) / len(each) ** 0.5:.2f}" for each in means)
        )
        console.print(table)


_FOUND: dict[tuple[str, int, float], dict[str, tuple[float, float]]] = {}


def cached(name: str, seed: int, load: float) -> dict[str, tuple[float, float]]:
    """The outcomes of one run, which both tables want."""
    key = (name, seed, load)
    if key not in _FOUND:
        _FOUND[key] = outcomes(loaded(name, seed, load))
    return _FOUND[key]


if __name__ == "__main__":
    main()
