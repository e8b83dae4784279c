"""Paper E's network when it is too busy: places chosen one by one and together, and then simulated with queues.

The clustered workload on four brokers for each publisher, twelve quotes a second instead of one. Each publisher's best
place by itself loads the brokers in the middle beyond their capacity; placed together, publishers avoid each other. The
quotes are drawn here (a number between 0 and 1 stands for the day's range), with each reader's share.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from tidings.experiments._relocation_network import JITTER, MATCHING_MEDIAN_NS, MATCHING_SIGMA, Place, Publisher
from tidings.model import scenario
from tidings.model.distributions import Deterministic, Exponential, LogNormal, ShiftedGamma, Uniform
from tidings.model.filters import Filter
from tidings.model.subscription import Subscription
from tidings.model.topology import Broker, Link, Topology
from tidings.simulation import simulate

__all__ = ["RATE_PER_S", "Busy", "simulate_busy"]

RATE_PER_S: Final = 12.0
DURATION_S: Final = 60.0
WARMUP_S: Final = 10.0
SIZE_KB: Final = 0.2


class Busy(NamedTuple):
    utilisation_max: float
    delay_ms: float  # of the quotes that arrived


def simulate_busy(place: Place, publishers: Sequence[Publisher], homes: Sequence[int], seed: int) -> Busy:
    """What comes of these homes: the busiest broker's utilisation, and the mean delay with all waiting in it."""
    network = _network(place, publishers, homes, seed)
    with tempfile.TemporaryDirectory() as folder:
        result = simulate(network, out=Path(folder))
        sent = pq.read_table(Path(folder) / "publications", columns=["publisher", "sequence", "departure_ns"])
        got = pq.read_table(
            Path(folder) / "deliveries", columns=["publisher", "sequence", "subscription", "arrived_ns"]
        )
    joined = got.join(sent, ["publisher", "sequence"])
    travelled = joined["arrived_ns"].to_numpy() - joined["departure_ns"].to_numpy()
    return Busy(
        utilisation_max=max(result.brokers.values()),
        delay_ms=(float(travelled.mean()) + _access_ns(publishers, homes)) / 1e6,
    )


def _access_ns(publishers: Sequence[Publisher], homes: Sequence[int]) -> float:
    """Mean delay to and from the clients, which the simulation leaves out: it is the same for every event of a pair."""
    weights, access_ns = [], []
    for publisher, home in zip(publishers, homes, strict=True):
        readers = publisher.readers
        weights.append(readers.wants.mean(axis=1))
        access_ns.append(publisher.access_ns[home] + readers.own_access_ns)
    return float(np.average(np.concatenate(access_ns), weights=np.concatenate(weights)))


def _network(place: Place, publishers: Sequence[Publisher], homes: Sequence[int], seed: int) -> scenario.Network:
    names = [f"b{number}" for number in range(place.brokers)]
    matching = LogNormal(median=MATCHING_MEDIAN_NS / 1e9, sigma=MATCHING_SIGMA)
    links = tuple(
        Link(source=names[source], target=names[target], propagation=_on_link(link_ns / 1e9))
        for source, target, link_ns in zip(place.overlay.source, place.overlay.target, place.link_ns, strict=True)
    )
    readers = [
        (f"reader-{number}-{reader}", names[broker], number, float(share))
        for number, publisher in enumerate(publishers)
        for reader, (broker, share) in enumerate(
            zip(publisher.readers.broker, publisher.readers.wants.mean(axis=1), strict=True)
        )
    ]
    return scenario.Network(
        title="paper E, overloaded",
        seed=seed,
        duration_s=DURATION_S,
        warmup_s=WARMUP_S,
        topology=Topology(brokers=tuple(Broker(name=name, service=matching) for name in names), links=links),
        publishers=tuple(_publisher(number, names[home]) for number, home in enumerate(homes)),
        subscribers=tuple(
            scenario.Subscriber(name=name, group="reader", broker=broker) for name, broker, _, _ in readers
        ),
        subscriptions=tuple(
            Subscription(
                id=name, subscriber=name, filter=Filter.all_of([("stock", "=", number), ("range", ">=", 1.0 - share)])
            )
            for name, _, number, share in readers
        ),
        policies=scenario.Policies(scheduling=scenario.Scheduling(name="fifo"), expired="forward"),
    )


def _on_link(mean_s: float) -> ShiftedGamma:
    return ShiftedGamma(shift=mean_s * (1 - JITTER), shape=1.0, scale=mean_s * JITTER)


def _publisher(number: int, broker: str) -> scenario.Publisher:
    return scenario.Publisher(
        name=f"stock-{number}",
        group="stock",
        broker=broker,
        interval=Exponential(scale=1.0 / RATE_PER_S),
        lifetime=None,
        size_kb=Deterministic(value=SIZE_KB),
        advertisement=None,
        attributes={
            "stock": scenario.Constant(value=number),
            "range": scenario.Numeric(distribution=Uniform(low=0.0, high=1.0)),
        },
    )
