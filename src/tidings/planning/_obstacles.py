"""Why an objective cannot be met: the named obstacles, and what each of them would need.

For subscriptions below the objective, in the network with every helpful change made, four causes are checked, each
without the others:

- the empty path: R without any waiting. If it is below the objective, the deadline is too short for the path however
  fast the queues are; a sufficient deadline is found by bisection;
- losses: the links of the path lose more than the objective allows;
- failures: components stay down longer than the scheme can compensate;
- overload and queues: the busiest station of the path, and the service time (or bandwidth) that suffices, by bisection
  over its speed alone; where no speed suffices, the speed at which it is no longer overloaded.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tidings.model.distributions import scaled
from tidings.model.scenario import Network
from tidings.model.units import format_quantity, percent
from tidings.planning._candidates import time_at_stations
from tidings.planning._changes import Change, SpeedUpBroker, SpeedUpLink, apply
from tidings.planning._estimator import Estimator, without_failures
from tidings.planning._objective import Objective
from tidings.prediction import Knowledge, Prediction, predict

__all__ = ["Obstacle", "obstacles"]

NAMED_MAX: Final = 20
FASTEST: Final = 1e4
LONGEST_S: Final = 1e5
BISECTIONS: Final = 24
CALM: Final = 0.8
"""The utilisation to aim for where a station is overloaded and its speed alone does not suffice."""

FloatArray = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """One cause: its place, the subscriptions below the objective because of it, and what is needed, as text and as a
    figure (`needed_s`: a deadline, a service time, or a transmission time per kB)."""

    kind: Literal["deadline", "loss", "failures", "broker", "link"]
    place: str
    subscribers: tuple[str, ...]
    needed_s: float | None
    words: str


def obstacles(network: Network, objective: Objective, needed: FloatArray, estimator: Estimator) -> tuple[Obstacle, ...]:
    """The causes that keep subscriptions below the objective; within each kind, those affecting most come first."""
    reliability = estimator.predicted(network)
    failing = reliability < needed
    prediction = estimator.prediction(network)
    found: list[Obstacle] = []
    late, late_found = _deadlines(network, prediction, objective, failing)
    found += late_found
    lossy = _losses(prediction, objective, failing & ~late)
    found += lossy
    explained = late | _named(network, lossy)
    if network.has_failures:
        calm = estimator.predicted(without_failures(network))
        by_failures = failing & ~explained & (calm >= objective.reliability)
        found += _failures(network, reliability, by_failures)
        explained |= by_failures
    found += _stations(network, prediction, needed, failing & ~explained, estimator)
    return tuple(found)


def _deadlines(
    network: Network, prediction: Prediction, objective: Objective, failing: Flags
) -> tuple[Flags, list[Obstacle]]:
    """Subscriptions with a deadline too short for the empty path, and the deadline that suffices."""
    empty = _empty(prediction.knowledge)
    lossless = replace(empty, links=tuple(replace(link, loss=0.0) for link in empty.links))
    best = predict(lossless).reliability
    late = failing & (best < objective.reliability)
    if not late.any():
        return late, []
    endless = replace(
        lossless, publishers=tuple(replace(publisher, lifetime=None) for publisher in lossless.publishers)
    )
    needed_s = _least_deadlines(endless, objective.reliability, late)
    path_s = _mean_path_times(predict(endless))
    found = []
    for number in np.flatnonzero(late).tolist():
        subscription = network.subscriptions[number]
        allowed_s = _allowed_s(prediction.knowledge, number)
        least = (
            "no deadline is long enough"
            if not math.isfinite(needed_s[number])
            else f"at least {_time(needed_s[number])} is needed"
        )
        words = (
            f"subscriber {subscription.id} has a deadline of {_time(allowed_s)}, but the path takes "
            f"{_time(path_s[number])} on average: {least}"
        )
        found.append(
            Obstacle(
                kind="deadline",
                place=subscription.id,
                subscribers=(subscription.id,),
                needed_s=float(needed_s[number]) if math.isfinite(needed_s[number]) else None,
                words=words,
            )
        )
    return late, found


def _empty(knowledge: Knowledge) -> Knowledge:
    """The same network with almost no traffic: no event waits."""
    rare = tuple(replace(publisher, interval=scaled(publisher.interval, 1e9)) for publisher in knowledge.publishers)
    return replace(knowledge, publishers=rare, drops_expired=False)


def _least_deadlines(knowledge: Knowledge, reliability: float, wanted: Flags) -> FloatArray:
    """For each wanted subscription, the shortest sufficient deadline; infinite if there is none."""
    low_s, high_s = np.zeros(len(wanted)), np.full(len(wanted), LONGEST_S)
    best = predict(replace(knowledge, max_delays_s=high_s)).reliability
    for _ in range(BISECTIONS):
        middle_s = np.where(low_s > 0.0, np.sqrt(np.maximum(low_s, 1e-12) * high_s), high_s / 1e3)
        good = predict(replace(knowledge, max_delays_s=middle_s)).reliability >= reliability
        low_s, high_s = np.where(good, low_s, middle_s), np.where(good, middle_s, high_s)
    return np.where(wanted & (best >= reliability), high_s, np.inf)


def _mean_path_times(prediction: Prediction) -> FloatArray:
    means = (each.mean_delay_s for each in prediction.subscribers.values())
    return np.array([np.nan if mean_s is None else mean_s for mean_s in means], np.float64)


def _allowed_s(knowledge: Knowledge, number: int) -> float:
    """The tighter of the deadline and the mean lifetime of its events, weighted by its publishers' rates."""
    allowed_s = float(knowledge.max_delays_s[number])
    lifetimes = []
    for publisher in knowledge.publishers:
        matched, _ = publisher.content.masses
        if publisher.lifetime is not None and number in matched:
            lifetimes.append(publisher.lifetime.mean())
    return min([allowed_s, *lifetimes])


def _losses(prediction: Prediction, objective: Objective, failing: Flags) -> list[Obstacle]:
    knowledge, layout = prediction.knowledge, prediction.layout
    count = len(knowledge.subscriptions)
    kept, rate = np.zeros(count), np.zeros(count)
    for p, publisher in enumerate(knowledge.publishers):
        matched, masses = publisher.content.masses
        kept[matched] += publisher.rate_per_s * masses * layout.kept[p][knowledge.homes[matched]]
        rate[matched] += publisher.rate_per_s * masses
    share = np.divide(kept, rate, out=np.ones(count), where=rate > 0.0)
    lossy = failing & (share < objective.reliability)
    return [
        Obstacle(
            kind="loss",
            place=knowledge.subscriptions[number],
            subscribers=(knowledge.subscriptions[number],),
            needed_s=None,
            words=(
                f"links lose {percent(1.0 - share[number], 2)} of the events for subscriber "
                f"{knowledge.subscriptions[number]}: at most "
                f"{percent(1.0 - objective.reliability, 2)} may be lost"
            ),
        )
        for number in np.flatnonzero(lossy).tolist()
    ]


def _failures(network: Network, reliability: FloatArray, wanted: Flags) -> list[Obstacle]:
    """By home broker: the largest on-time share of its subscribers under the present scheme."""
    homes: dict[str, list[int]] = {}
    for number in np.flatnonzero(wanted).tolist():
        homes.setdefault(network.homes[network.subscriptions[number].subscriber], []).append(number)
    found = []
    for broker, numbers in sorted(homes.items(), key=lambda item: -len(item[1])):
        failures = network.broker_failures[network.topology.index[broker]]
        up = "never fails" if failures is None else f"is up {percent(failures.availability, 2)} of the time"
        least = float(np.nanmin(reliability[numbers]))
        found.append(
            Obstacle(
                kind="failures",
                place=broker,
                subscribers=tuple(network.subscriptions[number].id for number in numbers),
                needed_s=None,
                words=(
                    f"broker {broker} {up}, and failures on the paths limit its subscribers to "
                    f'{percent(least, 2)} on time with "{network.policies.faults.scheme}": repairs must be '
                    "faster, or lifetimes longer"
                ),
            )
        )
    return found


def _stations(
    network: Network,
    prediction: Prediction,
    needed: FloatArray,
    failing: Flags,
    estimator: Estimator,
) -> list[Obstacle]:
    """The station where the remaining subscriptions lose most of their time, repeated until none remains."""
    found: list[Obstacle] = []
    left = failing.copy()
    spent_s = time_at_stations(prediction, left)
    ranked = sorted(np.flatnonzero(spent_s > 0.0).tolist(), key=lambda k: -spent_s[k])
    for station in ranked[:NAMED_MAX]:
        if not left.any():
            break
        behind = left & _behind(prediction, station)
        if not behind.any():
            continue
        found.append(_station(network, prediction, needed, behind, station, estimator))
        left &= ~behind
    return found


def _station(
    network: Network, prediction: Prediction, needed: FloatArray, behind: Flags, station: int, estimator: Estimator
) -> Obstacle:
    n = len(network.topology.brokers)
    name, busy = prediction.station_name(station), float(prediction.stations.utilisation[station])
    names = tuple(network.subscriptions[number].id for number in np.flatnonzero(behind).tolist())
    factor = _least_factor(network, station, needed, behind, estimator)
    alone = factor is not None
    factor = max(1.0, busy / CALM) if factor is None else factor
    if station < n:
        distribution = network.topology.brokers[station].service
        assert distribution is not None
        kind, what, now_s = (
            "broker",
            f"broker {name} is {percent(busy)} busy: its service time must fall",
            distribution.mean(),
        )
        figures = f"from {_time(now_s)} to {_time(now_s / factor)}"
    else:
        slowness = network.topology.links[station - n].slowness
        assert slowness is not None
        kind, what, now_s = "link", f"link {name} is {percent(busy)} busy: its bandwidth must rise", slowness.mean()
        figures = f"from {_bandwidth(now_s)} to {_bandwidth(now_s / factor)}"
    rest = "" if alone else ", which alone is not enough"
    return Obstacle(
        kind="broker" if kind == "broker" else "link",
        place=name,
        subscribers=names,
        needed_s=now_s / factor,
        words=f"{what} {figures}{rest} ({len(names):,} {'subscriber' if len(names) == 1 else 'subscribers'} behind it)",
    )


def _least_factor(
    network: Network, station: int, needed: FloatArray, behind: Flags, estimator: Estimator
) -> float | None:
    """The speed factor that the station needs for the subscriptions behind it; None if no factor suffices."""
    n = len(network.topology.brokers)

    def is_enough(factor: float) -> bool:
        change: Change
        if station < n:
            change = SpeedUpBroker(broker=network.topology.brokers[station].name, factor=factor)
        else:
            link = network.topology.links[station - n]
            change = SpeedUpLink(source=link.source, target=link.target, factor=factor)
        reliability = estimator.predicted(apply(network, [change]))
        return bool((reliability[behind] >= needed[behind]).all())

    if not is_enough(FASTEST):
        return None
    low, high = 1.0, FASTEST
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _behind(prediction: Prediction, station: int) -> Flags:
    """Subscriptions that receive events through the station."""
    knowledge, n = prediction.knowledge, len(prediction.knowledge.brokers)
    found = np.zeros(len(knowledge.subscriptions), np.bool_)
    for p, publisher in enumerate(knowledge.publishers):
        matched, _ = publisher.content.masses
        tree, passes = publisher.tree, np.zeros(n, np.bool_)
        for broker in tree.order.tolist():
            here = broker == station or (broker != tree.root and n + int(prediction.layout.link[p, broker]) == station)
            passes[broker] = here or (broker != tree.root and passes[tree.parent[broker]])
        found[matched] |= passes[knowledge.homes[matched]]
    return found


def _named(network: Network, found: list[Obstacle]) -> Flags:
    names = {name for obstacle in found for name in obstacle.subscribers}
    return np.array([subscription.id in names for subscription in network.subscriptions], np.bool_)


def _time(seconds: float) -> str:
    return format_quantity(seconds, "time")


def _bandwidth(slowness_s_per_kb: float) -> str:
    return format_quantity(1.0 / slowness_s_per_kb, "bandwidth")
