"""What could be changed to help those who fall short: the slots of a search, each with its options.

Only what can matter is looked at: strategies where links have queues, schemes where something fails, moves of
publishers that failing subscribers hear from or share a way with, stations on the ways to failing subscribers, and, if
users may be asked for it, their deadlines and the lifetimes that bind them. Stations and moves are ranked by what they
gain by themselves, and the first few are kept.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.faults import SCHEMES
from tidings.model.policies import DEFAULT_STRATEGY, strategies
from tidings.model.scenario import Network
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
)
from tidings.planning._estimating import has_queues
from tidings.prediction import Prediction

__all__ = ["FACTORS", "Candidates", "Options", "candidates", "milder_steps", "time_at_stations"]

FACTORS: Final = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""The steps in which capacities and deadlines are raised."""

STATIONS_MAX: Final = 24
PUBLISHERS_MAX: Final = 24
DEADLINES_MAX: Final = 200

Options = tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Slots, each with its options, the mildest first. `choices` are either-or (a strategy, a scheme, a place);
    `levels` are the same thing in steps, of which more never harms."""

    choices: tuple[Options, ...]
    levels: tuple[Options, ...]

    @property
    def slots(self) -> tuple[Options, ...]:
        return (*self.choices, *self.levels)


def milder_steps(change: Change) -> Options:
    """The smaller steps of the same change, the smallest first; none for what has no steps."""
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
    """What may be changed for the subscriptions in `failing`; `places` are brokers to move each publisher to."""
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
    """Events a second that failing subscriptions want of each publisher."""
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
    """By station: seconds that events for failing subscriptions wait and are served there, per second."""
    knowledge, layout, n = prediction.knowledge, prediction.layout, len(prediction.knowledge.brokers)
    mean_s = np.array([stage.mean_s for stage in layout.stages])
    spent_s = np.zeros(layout.service.shape[1])
    for p, publisher in enumerate(knowledge.publishers):
        matched, masses = publisher.content.masses
        wanted = failing[matched]
        rate = np.bincount(knowledge.homes[matched[wanted]], publisher.rate_per_s * masses[wanted], minlength=n)
        tree = publisher.tree
        for broker in tree.order[::-1].tolist():  # from the leaves on: what passes a broker passes its parent
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
    """Deadlines of failing subscriptions, and lifetimes of publishers where those are what binds."""
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
