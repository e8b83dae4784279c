"""How far predictions are off, regime by regime, on networks of the Internet Topology Zoo that nothing was tuned on.

Each network (topohub, 13 to 22 brokers) has 6 publishers of 3 topics, and 4 subscribers at each broker: a topic, a
threshold that a tenth to all of its events pass, and a deadline. Links are the queues, so slow that the busiest one
has the load of the row, and deadlines are such that R is neither 0 nor 1. What differs between the rows is how
publishers publish, how variable transmissions are, and what links do with what waits.

R' is what `tidings predict` says (`predict_network`: by formulas, or by a sample). The truth is the mean of RUNS runs
of EVENTS events each. `noise` is the standard error of the truth, on average over the subscribers; `beyond` is what is
left of the mean |R' - R| without it. With constant intervals a run is one draw of phases, so single runs are off from
the mean of others by a bound that no prediction can beat; `beyond` is then how much more than that R' is off from
single runs. `ratio` is `beyond` to what was asked for.
"""

import os
import time
from typing import NamedTuple

import msgspec
import numpy as np

from tidings.model.distributions import DelayDistribution, Deterministic, Exponential, ShiftedGamma
from tidings.model.filters import Filter
from tidings.model.generators import topohub_network
from tidings.model.policies import StrategyName
from tidings.model.scenario import Constant, Network, Numeric, Policies, Publisher, Scheduling, Subscriber
from tidings.model.subscription import Subscription
from tidings.model.topology import Link
from tidings.prediction import from_network, predict, predict_network
from tidings.simulation import Options, simulate

NETWORKS = tuple(os.environ.get("TIDINGS_ZOO", "Abvt,Claranet,Garr199901,Navigata,Restena").split(","))
EVENTS = int(os.environ.get("TIDINGS_EVENTS", "60000"))
RUNS = 6
PUBLISHERS, TOPICS, PER_BROKER = 6, 3, 4
DEADLINES = (0.3, 1.0, 3.0)  # of the mean transmission on the busiest link, over 1 - load; beside the propagation


class Regime(NamedTuple):
    """One row: intervals and transmissions by their squared coefficients of variation."""

    name: str
    load: float
    interval_scv: float = 1.0
    service_scv: float = 1.0
    strategy: StrategyName = "fifo"
    drops: bool = False
    limit: float = 0.01


REGIMES = (
    Regime("Poisson, service scv 1", 0.90),
    Regime("Poisson, service scv 4", 0.85, service_scv=4.0),
    Regime("Poisson, service scv 10", 0.90, service_scv=10.0),
    Regime("uniform-like, scv 1/3", 0.85, interval_scv=1.0 / 3.0),
    Regime("periodic", 0.85, interval_scv=0.0, limit=0.005),
    Regime("bursts, scv 8", 0.85, interval_scv=8.0),
    Regime("dropping, load .9", 0.90, drops=True),
    Regime("dropping, load 1.3", 1.30, drops=True, limit=0.02),
    Regime("lookahead, load .9", 0.90, strategy="lookahead", drops=True),
    Regime("eb, load 1.1", 1.10, strategy="eb", drops=True, limit=0.02),
    Regime("triage, load 1.5", 1.50, strategy="triage", drops=True, limit=0.02),
)


def distribution(mean: float, scv: float) -> DelayDistribution:
    if scv == 0.0:
        return Deterministic(value=mean)
    return Exponential(scale=mean) if scv == 1.0 else ShiftedGamma(shift=0.0, shape=1.0 / scv, scale=mean * scv)


def make_network(name: str, regime: Regime) -> Network:
    """The busiest link gets the load, those that carry less are as slow."""
    generator = np.random.default_rng([7, len(name), sum(map(ord, name))])
    topology = topohub_network(f"topozoo/{name}")
    names = [broker.name for broker in topology.brokers]
    publishers = tuple(
        Publisher(
            name=f"p{number}",
            group="p",
            broker=names[int(generator.integers(len(names)))],
            interval=distribution(1.0, regime.interval_scv),
            lifetime=None,
            size_kb=Deterministic(value=1.0),
            advertisement=None,
            attributes={
                "topic": Constant(value=number % TOPICS),
                "x": Numeric(distribution=distribution(1.0, 1.0)),
            },
        )
        for number in range(PUBLISHERS)
    )
    homes = [home for home in names for _ in range(PER_BROKER)]
    filters = [
        Filter.parse(f"topic = {generator.integers(TOPICS)} AND x > {-np.log(generator.uniform(0.1, 1.0)):.3f}")
        for _ in homes
    ]
    shares = generator.choice(DEADLINES, size=len(homes))

    def made(slowness_s: float, deadlines_s: np.ndarray | None) -> Network:
        shaped = topology.map(
            links=lambda link: Link(
                source=link.source,
                target=link.target,
                propagation=link.propagation,
                slowness=distribution(slowness_s, regime.service_scv),
            )
        )
        return Network(
            title=f"{name}, {regime.name}",
            seed=3,
            duration_s=1.0,
            warmup_s=0.0,
            topology=shaped,
            publishers=publishers,
            subscribers=tuple(Subscriber(name=f"s{n}", group="s", broker=home) for n, home in enumerate(homes)),
            subscriptions=tuple(
                Subscription(
                    id=f"s{n}",
                    subscriber=f"s{n}",
                    filter=each,
                    max_delay_s=None if deadlines_s is None else float(deadlines_s[n]),
                )
                for n, each in enumerate(filters)
            ),
            policies=Policies(
                scheduling=Scheduling(name=regime.strategy),
                routing="single-path",
                expired="drop" if regime.drops else "forward",
            ),
        )

    # So quick that nothing is overloaded.
    busiest = float(predict(from_network(made(1e-6, None)), model="mm1").stations.total_per_s[len(names) :].max())
    slowness_s = regime.load / busiest
    spread = (1.0 + regime.service_scv) / 2.0 * slowness_s / (1.0 - min(regime.load, 0.9))
    return made(slowness_s, shares * spread)


def runs_of(network: Network) -> np.ndarray:
    """R of each subscriber in each of some runs along the trees of the prediction."""
    options = Options(trees=[publisher.tree for publisher in from_network(network).publishers])
    rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
    warmup_s = 0.05 * EVENTS / rate_per_s
    found = []
    for seed in range(8_000, 8_000 + RUNS):
        run = msgspec.structs.replace(network, seed=seed, warmup_s=warmup_s, duration_s=warmup_s + EVENTS / rate_per_s)
        shares = [row.on_time_reliability for row in simulate(run, options).subscribers.values()]
        found.append([np.nan if share is None else share for share in shares])
    return np.array(found)


def measure(regime: Regime) -> None:
    errors, noises, bounds, means, worst, taken_s, sampled, count = [], [], [], [], 0.0, 0.0, 0, 0
    predict_network(make_network(NETWORKS[0], regime))  # compiles
    for name in NETWORKS:
        network = make_network(name, regime)
        runs = runs_of(network)
        began_s = time.process_time()
        answer = predict_network(network)
        taken_s += time.process_time() - began_s
        sampled += answer.sample is not None
        mean = runs.mean(axis=0)
        off = answer.reliability - mean
        known = ~np.isnan(off)
        deviation = runs.std(axis=0, ddof=1)[known]
        if regime.interval_scv == 0.0:
            # One run against R', and against the mean over the phases of the others.
            errors.append(np.abs(answer.reliability - runs)[:, known].mean(axis=0))
            bounds.append(np.abs(runs - (runs.sum(axis=0) - runs) / (RUNS - 1))[:, known].mean(axis=0))
        else:
            errors.append(np.abs(off[known]))
        means.append(mean[known])
        noises.append(deviation / np.sqrt(RUNS))
        worst = max(worst, float(np.abs(off[known]).max()))
        count += int(known.sum())
    error, noise = float(np.concatenate(errors).mean()), float(np.concatenate(noises).mean())
    if bounds:
        beyond = error - float(np.concatenate(bounds).mean())
    else:
        # Mean absolute errors of normal deviations add up like their squares.
        beyond = max(0.0, error**2 - 2.0 / np.pi * noise**2) ** 0.5
    print(
        f"{regime.name:26}{count:12,}{'sample' if sampled else 'formulas':>10}"
        f"{np.concatenate(means).mean():8.3f}{error:8.4f}{noise:8.4f}{beyond:8.4f}"
        f"{regime.limit:8.3f}{beyond / regime.limit:7.2f}{worst:8.3f}{taken_s / len(NETWORKS):8.2f}",
        flush=True,
    )


def main() -> None:
    print(f"prediction by regime: {', '.join(NETWORKS)}; truth {RUNS} runs of {EVENTS:,} events")
    print(
        f"{'regime':26}{'subscribers':>12}{'by':>10}{'mean R':>8}{'error':>8}{'noise':>8}{'beyond':>8}{'asked':>8}"
        f"{'ratio':>7}{'worst':>8}{'CPU s':>8}"
    )
    for regime in REGIMES:
        measure(regime)


if __name__ == "__main__":
    main()
