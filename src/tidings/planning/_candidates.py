"""The changes that could help subscribers below the objective: the slots of a search, each with its options.

Only changes that can matter are considered: strategies where links have queues, schemes where something fails, moves of
publishers that failing subscribers receive from or share a path with, stations on the paths to failing subscribers,
and, if the plan may ask users, their deadlines and the lifetimes that bind them. Stations and moves are ranked by their
gain when made alone, and the first few are kept.

**Moves.** A publisher may move to a broker that is near enough to its subscribers, by the same rule as `tidings place`.
For each broker, the publisher's tree from there is walked with the predicted times of brokers and links
(`tidings.placement.reach`), and its on-time deliveries are added up (`chance_on_time`). This ignores the effect of the
move on the load, so it only makes a shortlist. The value of a move comes from a prediction of the changed network.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.faults import SCHEMES
from tidings.model.distributions import DelayDistribution, Deterministic
from tidings.model.policies import DEFAULT_STRATEGY, strategies
from tidings.model.scenario import Network
from tidings.placement import Scatter, Service, Times, chance_on_time, reach
from tidings.planning._changes import (
    AllowLonger,
    Change,
    Kind,
    LiveLonger,
    MovePublisher,
    SpeedUpBroker,
    SpeedUpLink,
    UseScheme,
    UseStrategy,
    apply,
)
from tidings.planning._estimator import has_queues
from tidings.prediction import Prediction
from tidings.routing import Overlay, shortest_path_trees

__all__ = [
    "FACTORS",
    "Candidates",
    "Options",
    "best_moves",
    "candidates",
    "milder_steps",
    "shortlist",
    "time_at_stations",
]


FACTORS: Final = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""The factors by which capacities and deadlines are raised."""

STATIONS_MAX: Final = 24
PUBLISHERS_MAX: Final = 24
DEADLINES_MAX: Final = 200

ENDLESS_S: Final = 1e3
"""The wait assumed at an overloaded station."""

PLACES_MAX: Final = 4
ROUNDS_MAX: Final = 2
TRIES_MAX: Final = 160
LEAST_GAIN: Final = 1e-4
"""Least gain in the mean on-time share that justifies a move."""

_NS: Final = 1e9
FloatArray = NDArray[np.float64]

Options = tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Slots, each with its options, the mildest first. `choices` exclude each other (a strategy, a scheme, a place);
    `levels` are steps of one change, where a larger step never harms."""

    choices: tuple[Options, ...]
    levels: tuple[Options, ...]

    @property
    def slots(self) -> tuple[Options, ...]:
        return (*self.choices, *self.levels)


def milder_steps(change: Change) -> Options:
    """The smaller steps of the same change, smallest first; empty for a change without steps."""
    if isinstance(change, SpeedUpBroker | SpeedUpLink | AllowLonger | LiveLonger):
        return tuple(msgspec.structs.replace(change, factor=factor) for factor in FACTORS if factor < change.factor)
    return ()


def candidates(
    network: Network,
    prediction: Prediction,
    failing: NDArray[np.bool_],
    places: Mapping[str, Sequence[str]],
    allowed: Collection[Kind],
) -> Candidates:
    """The candidate changes for the subscriptions in `failing`; `places` are the brokers each publisher may move to."""
    choices: list[Options] = []
    levels: list[Options] = []
    policies = network.policies
    if "scheduling" in allowed and has_queues(network):
        others = [name for name in reversed(strategies("planner")) if name != DEFAULT_STRATEGY]
        names = [name for name in (DEFAULT_STRATEGY, *others) if name != policies.scheduling.name]
        choices.append(tuple(UseStrategy(strategy=name) for name in names))
    if "scheme" in allowed and network.has_failures:
        schemes = [scheme for scheme in SCHEMES if scheme != policies.faults.scheme]
        choices.append(tuple(UseScheme(scheme=scheme) for scheme in schemes))
    if "move" in allowed:
        choices += _moves(prediction, failing, places)
    if "capacity" in allowed:
        levels += _capacities(network, prediction, failing)
    if "lifetime" in allowed:
        levels += _deadlines(network, prediction, failing)
    return Candidates(choices=tuple(choices), levels=tuple(levels))


def _moves(prediction: Prediction, failing: NDArray[np.bool_], places: Mapping[str, Sequence[str]]) -> list[Options]:
    heard = _heard(prediction, failing)
    names = sorted((name for name in places if places[name]), key=lambda name: -heard.get(name, 0.0))[:PUBLISHERS_MAX]
    return [tuple(MovePublisher(publisher=name, broker=broker) for broker in places[name]) for name in names]


def _heard(prediction: Prediction, failing: NDArray[np.bool_]) -> dict[str, float]:
    """Events per second from each publisher that match failing subscriptions."""
    found = {}
    for publisher in prediction.knowledge.publishers:
        matched, masses = publisher.content.masses
        found[publisher.name] = publisher.rate_per_s * float(masses[failing[matched]].sum())
    return found


def _capacities(network: Network, prediction: Prediction, failing: NDArray[np.bool_]) -> list[Options]:
    topology, n = network.topology, len(network.topology.brokers)
    spent_s = time_at_stations(prediction, failing)
    found: list[Options] = []
    seen: set[tuple[str, ...]] = set()
    for station in np.argsort(-spent_s, kind="stable").tolist():
        if spent_s[station] <= 0.0 or len(found) == STATIONS_MAX:
            break
        options: Options
        if station < n:
            name = topology.brokers[station].name
            options = tuple(SpeedUpBroker(broker=name, factor=factor) for factor in FACTORS)
        else:
            link = topology.links[station - n]
            options = tuple(SpeedUpLink(source=link.source, target=link.target, factor=factor) for factor in FACTORS)
        if options[0].slot not in seen:
            seen.add(options[0].slot)
            found.append(options)
    return found


def time_at_stations(prediction: Prediction, failing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """By station: seconds per second that events for failing subscriptions spend waiting and in service there."""
    knowledge, layout, n = prediction.knowledge, prediction.layout, len(prediction.knowledge.brokers)
    mean_s = np.array([stage.mean_s for stage in layout.stages])
    spent_s = np.zeros(layout.service.shape[1])
    for p, publisher in enumerate(knowledge.publishers):
        matched, masses = publisher.content.masses
        wanted = failing[matched]
        rate = np.bincount(knowledge.homes[matched[wanted]], publisher.rate_per_s * masses[wanted], minlength=n)
        tree = publisher.tree
        for broker in tree.order[::-1].tolist():  # leaves first: events that pass a broker also pass its parent
            if rate[broker] > 0.0 and broker != tree.root:
                rate[tree.parent[broker]] += rate[broker]
        turn_s = np.where(prediction.waits.is_stuck, 1e3, np.nan_to_num(prediction.wait_s[p], posinf=1e3))
        turn_s = np.where(layout.service[p] > 0, turn_s + mean_s[layout.service[p]], 0.0)
        for broker in tree.order.tolist():
            stations = [broker] if broker == tree.root else [broker, n + int(layout.link[p, broker])]
            for station in stations:
                spent_s[station] += rate[broker] * turn_s[station]
    return spent_s


def _deadlines(network: Network, prediction: Prediction, failing: NDArray[np.bool_]) -> list[Options]:
    """Deadlines of failing subscriptions, and lifetimes of publishers where these are tighter."""
    found: list[Options] = []
    for number in np.flatnonzero(failing)[:DEADLINES_MAX].tolist():
        subscription = network.subscriptions[number]
        if subscription.max_delay_s is not None:
            found.append(tuple(AllowLonger(subscription=subscription.id, factor=factor) for factor in FACTORS))
    heard = _heard(prediction, failing)
    found += [
        tuple(LiveLonger(publisher=publisher.name, factor=factor) for factor in FACTORS)
        for publisher in network.publishers
        if publisher.lifetime is not None and heard.get(publisher.name, 0.0) > 0.0
    ]
    return found


def shortlist(network: Network, prediction: Prediction, *, places: int = PLACES_MAX) -> dict[str, list[str]]:
    """For each publisher, the brokers other than its own from which most of its deliveries would be on time."""
    knowledge, overlay = prediction.knowledge, Overlay.of(network.topology)
    times = _times(prediction)
    paths = [
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
        worth = [_worth(path, homes, allowed_s, masses) for path in paths]
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
    """Moves that raise `worth` one publisher at a time: each takes its best place, the largest flow first, until no
    move gains anything."""
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


def _worth(path: Scatter, homes: NDArray[np.int32], allowed_s: FloatArray, masses: FloatArray) -> tuple[float, float]:
    """For one event of the publisher: its on-time deliveries, and their mean delay."""
    on_time = 0.0
    for home in np.unique(homes).tolist():
        here = homes == home
        on_time += float(masses[here] @ chance_on_time(path, home, allowed_s[here] * _NS))
    return on_time, float(masses @ path.mean_ns[homes])


def _times(prediction: Prediction) -> Times:
    """The predicted times of brokers and links, in the form that placement takes."""
    knowledge, stations = prediction.knowledge, prediction.stations
    n = len(knowledge.brokers)
    wait_s = np.minimum(np.nan_to_num(prediction.station_wait_s, nan=0.0, posinf=ENDLESS_S), ENDLESS_S)
    mean_s, scv = _services(prediction)
    spread_s2 = wait_s**2 + scv * mean_s**2
    ways: list[DelayDistribution] = [link.propagation for link in knowledge.links]
    propagation_s = np.array([distribution.mean() for distribution in ways])
    least_s = np.array(
        [distribution.value if isinstance(distribution, Deterministic) else 0.0 for distribution in ways]
    )
    extra_s = np.array([0.0 if one.processing is None else one.processing.mean() for one in knowledge.brokers])
    at_broker = wait_s[:n] + mean_s[:n] + extra_s
    residence = Scatter(at_broker * _NS, np.zeros(n), spread_s2[:n] * _NS**2)
    transfer = Scatter(
        (wait_s[n:] + mean_s[n:] + propagation_s) * _NS,
        least_s * _NS,
        (spread_s2[n:] + np.array([distribution.variance() for distribution in ways])) * _NS**2,
    )
    service = Service(mean_s=stations.mean_s[:n], scv=scv[:n])
    return Times(residence=residence, wait_ns=wait_s[:n] * _NS, service=service, transfer=transfer, to_client=residence)


def _services(prediction: Prediction) -> tuple[FloatArray, FloatArray]:
    """Mean and squared coefficient of variation of every station's service, including stations without events now."""
    knowledge, layout = prediction.knowledge, prediction.layout
    shares = layout.rate_per_s / max(float(layout.rate_per_s.sum()), 1e-300)
    means = np.array([stage.mean_s for stage in layout.stages])[layout.service]
    mean_s = np.asarray(shares @ means, np.float64)
    scv = np.where(prediction.stations.mean_s > 0.0, prediction.stations.scv, 1.0)
    assert len(mean_s) == len(knowledge.brokers) + len(knowledge.links)
    return mean_s, scv
