"""Where publishers could move: brokers that its readers are near enough to, by the same rule as `tidings place`.

For each broker the publisher's tree from there is walked with the times that the prediction has for brokers and links
(`tidings.placement.reach`), and the share of its deliveries on time is added up (`chance_on_time`). That leaves out
what the move does to the load, so it makes a shortlist; what a move is worth, the prediction of the moved network says.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidings.model.distributions import DelayDistribution, Deterministic
from tidings.model.scenario import Network
from tidings.placement import Scatter, Service, Times, chance_on_time, reach
from tidings.planning._changes import MovePublisher, apply
from tidings.prediction import Prediction
from tidings.routing import Overlay, shortest_path_trees

__all__ = ["best_moves", "shortlist"]

ENDLESS_S: Final = 1e3
"""Stands for the wait at a station that cannot keep up."""

PLACES_MAX: Final = 4
ROUNDS_MAX: Final = 2
TRIES_MAX: Final = 160
LEAST_GAIN: Final = 1e-4
"""Of the mean R: a move that gains less is not worth a move."""

_NS: Final = 1e9
FloatArray = NDArray[np.float64]


def shortlist(network: Network, prediction: Prediction, *, places: int = PLACES_MAX) -> dict[str, list[str]]:
    """For each publisher the brokers, other than its own, from where most of its deliveries would be on time."""
    knowledge, overlay = prediction.knowledge, Overlay.of(network.topology)
    times = _times(prediction)
    ways = [
        reach(overlay, times, tree)
        for tree in shortest_path_trees(overlay, range(overlay.broker_count), destinations=())
    ]
    found: dict[str, list[str]] = {}
    for publisher, known in zip(network.publishers, knowledge.publishers, strict=True):
        matched, masses = known.content.masses
        if not len(matched):
            continue
        homes, allowed_s = knowledge.homes[matched], knowledge.max_delays_s[matched]
        if known.lifetime is not None:
            allowed_s = np.minimum(allowed_s, known.lifetime.mean())
        worth = [_worth(way, homes, allowed_s, masses) for way in ways]
        own = network.topology.index[publisher.broker]
        others = [number for number in range(overlay.broker_count) if number != own]
        others.sort(key=lambda number: (-round(worth[number][0], 9), worth[number][1], number))
        found[publisher.name] = [network.topology.brokers[number].name for number in others[:places]]
    return found


def best_moves(
    network: Network,
    places: dict[str, list[str]],
    worth: Callable[[Network], float],
    *,
    tries_max: int = TRIES_MAX,
) -> tuple[MovePublisher, ...]:
    """Moves that together raise `worth` as far as one publisher at a time can: each takes the best of its places, the
    largest flow first, until nobody gains."""
    turns = sorted(network.publishers, key=lambda one: -one.rate_per_s)
    chosen: dict[str, MovePublisher] = {}
    best, tries = worth(network), 0
    for _ in range(ROUNDS_MAX):
        before = dict(chosen)
        for publisher in turns:
            for broker in places.get(publisher.name, ()):
                move = MovePublisher(publisher=publisher.name, broker=broker)
                if tries == tries_max or chosen.get(publisher.name) == move:
                    continue
                tries += 1
                candidate = chosen | {publisher.name: move}
                value = worth(apply(network, candidate.values()))
                if value > best + LEAST_GAIN:
                    best, chosen = value, candidate
        if chosen == before:
            break
    return tuple(chosen.values())


def _worth(way: Scatter, homes: NDArray[np.int32], allowed_s: FloatArray, masses: FloatArray) -> tuple[float, float]:
    """Of an event of the publisher: its deliveries on time, and their mean delay."""
    on_time = 0.0
    for home in np.unique(homes).tolist():
        here = homes == home
        on_time += float(masses[here] @ chance_on_time(way, home, allowed_s[here] * _NS))
    return on_time, float(masses @ way.mean_ns[homes])


def _times(prediction: Prediction) -> Times:
    """What the prediction has for brokers and links, as placement takes it."""
    knowledge, stations = prediction.knowledge, prediction.stations
    n = len(knowledge.brokers)
    wait_s = np.minimum(np.nan_to_num(prediction.station_wait_s, nan=0.0, posinf=ENDLESS_S), ENDLESS_S)
    mean_s, scv = _services(prediction)
    spread_s2 = wait_s**2 + scv * mean_s**2
    ways: list[DelayDistribution] = [link.propagation for link in knowledge.links]
    way_s = np.array([law.mean() for law in ways])
    least_s = np.array([law.value if isinstance(law, Deterministic) else 0.0 for law in ways])
    extra_s = np.array([0.0 if one.processing is None else one.processing.mean() for one in knowledge.brokers])
    at_broker = wait_s[:n] + mean_s[:n] + extra_s
    residence = Scatter(at_broker * _NS, np.zeros(n), spread_s2[:n] * _NS**2)
    transfer = Scatter(
        (wait_s[n:] + mean_s[n:] + way_s) * _NS,
        least_s * _NS,
        (spread_s2[n:] + np.array([law.variance() for law in ways])) * _NS**2,
    )
    service = Service(mean_s=stations.mean_s[:n], scv=scv[:n])
    return Times(residence=residence, wait_ns=wait_s[:n] * _NS, service=service, transfer=transfer, to_client=residence)


def _services(prediction: Prediction) -> tuple[FloatArray, FloatArray]:
    """Mean and squared variation of every station's service, also where no event comes now."""
    knowledge, layout = prediction.knowledge, prediction.layout
    shares = layout.rate_per_s / max(float(layout.rate_per_s.sum()), 1e-300)
    means = np.array([stage.mean_s for stage in layout.stages])[layout.service]
    mean_s = np.asarray(shares @ means, np.float64)
    scv = np.where(prediction.stations.mean_s > 0.0, prediction.stations.scv, 1.0)
    assert len(mean_s) == len(knowledge.brokers) + len(knowledge.links)
    return mean_s, scv
