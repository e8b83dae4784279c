"""From a network that fails to the arrays of a run.

Components start in the long run: each began an up time some twenty cycles before the run, at a random place in a cycle,
so that at time 0 it is up or down, and for how long still, as if one looked at any time. That holds for any two laws.
The tables of the brokers that are up are then complete, and everybody knows who is up.

Two streams of random numbers for each component, of its up and of its down times, apart from those of everything else:
all schemes under one seed see the same failures and the same publications.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidings.errors import ConfigurationError
from tidings.model.distributions import DelayDistribution, Uniform
from tidings.model.failures import Failures
from tidings.model.scenario import Network
from tidings.simulation._laws import draw, encode_all, uniform, whole_ns
from tidings.simulation._layout import HEAP, NANOSECONDS, NEVER_NS, NOBODY, Array
from tidings.simulation._options import Options
from tidings.simulation._plan import Plan, plan
from tidings.simulation.failing import _layout as at
from tidings.simulation.failing._layout import BRANCH, CHANNEL, COMPONENT, KIND_BITS, PLACE, PUBLISHER, STATION
from tidings.simulation.failing._rows import Lists, plan_rows

__all__ = ["FailingPlan", "plan_failing"]

CYCLES_BEFORE = 20.0
_FIRST_PART = 10  # apart from the laws of links and brokers (0 to 4) and from the publishers (100)


@dataclass(frozen=True, kw_only=True, eq=False)
class FailingPlan:
    """A run before it begins; whoever runs it takes copies of the records that change (`make_world`).

    `first` holds what happens first, as a heap; `answering` says link by link whether its ends find each other.
    """

    base: Plan
    settings: Array
    components: Array
    channels: Array
    stations: Array
    laws: Array
    law_rows: Array
    rows: Array
    lists: Array
    places: Array
    branches: Array
    parent: Array
    publishers: Array
    answering: Array
    first: Array


def plan_failing(network: Network, options: Options) -> FailingPlan:
    """Everything that a run needs to know; a ConfigurationError says what does not go together with failures."""
    _check(network, options)
    base = plan(network, options)
    brokers, faults = len(network.topology.brokers), network.policies.faults
    failures = [*network.broker_failures, *_by_component(network)]
    laws, law_rows = _laws(base, failures)
    components, starts = _components(failures, laws, law_rows, first_law=len(base.laws))
    channels = _channels(base, np.array(network.link_components, np.int64) + brokers, len(components) - 1)
    _require_ways_back(network, base, channels)
    lists, stations = Lists(), _stations(base)
    _list_links(channels[: len(network.topology.links)], components, stations, lists)
    places, branches, parent = _trees(base)
    rows = plan_rows(base, channels, places, parent, stations, lists)
    until = _ns(faults.timeout_s) if faults.is_refreshing else NEVER_NS
    rows["until"] = np.where(components["up"][rows["broker"]] != 0, until, 0)
    publishers = np.zeros(len(base.access_link), PUBLISHER)
    publishers["tree"], publishers["link"] = base.routes.tree_of, base.access_link
    return FailingPlan(
        base=base,
        settings=_settings(network, base),
        components=components,
        channels=channels,
        stations=stations,
        rows=rows,
        lists=lists.array(),
        places=places,
        branches=branches,
        parent=parent,
        publishers=publishers,
        answering=_answering(channels[: len(network.topology.links)], components),
        first=_heap([*starts, *_ticks(network, stations, laws)]),
        laws=laws,
        law_rows=law_rows,
    )


def _check(network: Network, options: Options) -> None:
    policies = network.policies
    if policies.routing not in ("single-path", "balanced"):
        raise ConfigurationError(
            f"brokers or links fail, but routing is {policies.routing!r}: the schemes of paper D need one path for "
            'each publisher and subscriber; write routing = "single-path" or "balanced" in [policies]'
        )
    if options.access_slowness is not None:
        raise ConfigurationError("brokers or links fail, but access_slowness is given: leave it out")
    has_queues = any(link.slowness is not None and link.slowness.mean() > 0 for link in network.topology.links)
    if has_queues and policies.scheduling.name != "fifo":
        raise ConfigurationError(
            f"brokers or links fail, and links have queues with scheduling {policies.scheduling.name!r}: with failures "
            'queues are first in, first out; write scheduling = "fifo" in [policies], or leave the slowness out'
        )


def _by_component(network: Network) -> list[Failures | None]:
    found = dict(zip(network.link_components, network.link_failures, strict=True))
    count = max(found, default=-1) + 1
    return [found.get(component) for component in range(count)]


def _laws(base: Plan, failures: Sequence[Failures | None]) -> tuple[Array, Array]:
    """The laws of every run, then up times, down times and starts of all components, and the phases of refreshes."""
    unit = Uniform(low=0.0, high=1.0)
    kinds: list[list[DelayDistribution | None]] = [
        [None if each is None else each.up for each in failures],
        [None if each is None else each.down for each in failures],
        [unit] * len(failures),
        [unit] * len(base.brokers),
    ]
    laws, rows = encode_all(kinds, base.network.seed, first_part=_FIRST_PART)
    laws["first"] += len(base.law_rows)
    return np.concatenate([base.laws, laws]), np.concatenate([base.law_rows, rows])


def _ticks(network: Network, stations: Array, laws: Array) -> list[tuple[int, int]]:
    """The first refresh of each home broker, at a random place in the interval."""
    faults = network.policies.faults
    if not faults.is_refreshing:
        return []
    first_law = len(laws) - len(stations)
    return [
        (int(_ns(faults.refresh_s) * uniform(laws, first_law + home)), home << KIND_BITS | at.REFRESH)
        for home in np.flatnonzero(stations["root"] >= 0).tolist()
    ]


def _components(
    failures: Sequence[Failures | None], laws: Array, law_rows: Array, *, first_law: int
) -> tuple[Array, list[tuple[int, int]]]:
    """The components at time 0 with their first transitions; one more at the end stands for what never fails."""
    count = len(failures)
    components = np.zeros(count + 1, COMPONENT)
    components["up"] = 1
    components["up_law"] = components["down_law"] = NOBODY
    starts = []
    for number, each in enumerate(failures):
        if each is None:
            continue
        up_law, down_law, start = (first_law + kind * count + number for kind in range(3))
        # Half of the longest time that is ever drawn: what hardly ever fails is then up at the start.
        now = -min(whole_ns((CYCLES_BEFORE + uniform(laws, start)) * each.period_s), NEVER_NS // 8)
        is_up = False
        while now <= 0:
            is_up = not is_up
            now += max(1, whole_ns(draw(laws, up_law if is_up else down_law, law_rows)))
        for name, value in (("up", int(is_up)), ("up_law", up_law), ("down_law", down_law)):
            components[name][number] = value
        starts.append((int(now), number << KIND_BITS | at.TRANSITION))
    return components, starts


def _channels(base: Plan, component_of: Array, never: int) -> Array:
    """The overlay's links and then the publishers' access links, which never fail."""
    links = len(component_of)
    channels = np.zeros(len(base.links), CHANNEL)
    for name in ("source", "target", "is_free", "slowness", "propagation", "loss", "loss_chance"):
        channels[name] = base.links[name]
    for name in ("head", "tail", "sending", "blocked_head", "blocked_tail", "reverse"):
        channels[name] = NOBODY
    channels["component"] = never
    channels["component"][:links] = component_of
    ends = list(zip(base.links["source"][:links].tolist(), base.links["target"][:links].tolist(), strict=True))
    numbers = {pair: number for number, pair in enumerate(ends)}
    channels["reverse"][:links] = [numbers.get(pair[::-1], NOBODY) for pair in ends]
    delays_s = [link.propagation.mean() for link in base.network.topology.links]
    channels["control_ns"][:links] = [_ns(delay_s) for delay_s in delays_s]
    return channels


def _require_ways_back(network: Network, base: Plan, channels: Array) -> None:
    used = np.unique(base.routes.child_link[base.routes.child_link >= 0])
    for link in used.tolist():
        if channels["reverse"][link] < 0:
            ends = network.topology.links[link]
            raise ConfigurationError(
                f"there is no link back from {ends.target!r} to {ends.source!r}: subscriptions and acknowledgements "
                'travel against events; write direction = "both" in [topology]'
            )


def _list_links(channels: Array, components: Array, stations: Array, lists: Lists) -> None:
    """For each component the links that a change of it concerns, and for each broker those that leave it."""
    ends = list(
        zip(channels["source"].tolist(), channels["target"].tolist(), channels["component"].tolist(), strict=True)
    )
    for component in range(len(components)):
        touched = [link for link, numbers in enumerate(ends) if component in numbers]
        components["first_link"][component], components["last_link"][component] = lists.add(touched)
    for broker in range(len(stations)):
        leaving = [link for link, (source, _, _) in enumerate(ends) if source == broker]
        stations["first_out"][broker], stations["last_out"][broker] = lists.add(leaving)


def _trees(base: Plan) -> tuple[Array, Array, Array]:
    """The trees: what the loop asks of a broker in a tree, the branches, and each broker's parent (-1: none)."""
    routes = base.routes
    trees, brokers = routes.position.shape
    places = np.zeros((trees, brokers), PLACE)
    places["position"], places["end"] = routes.position, routes.subtree_end
    places["first_child"] = routes.first_child[:, :brokers]
    branches = np.zeros(routes.child.shape, BRANCH)
    branches["broker"], branches["link"] = routes.child, routes.child_link
    parent = np.full((trees, brokers), NOBODY, np.int64)
    for tree in range(trees):
        counts = np.diff(routes.first_child[tree])
        parent[tree, routes.child[tree, : counts.sum()]] = np.repeat(np.arange(brokers), counts)
        for broker in np.argsort(routes.position[tree], kind="stable").tolist():  # parents before children
            if parent[tree, broker] >= 0:
                places["depth"][tree, broker] = places["depth"][tree, parent[tree, broker]] + 1
    return places, branches, parent


def _stations(base: Plan) -> Array:
    stations = np.zeros(len(base.brokers), STATION)
    for name in ("has_service", "has_processing", "service", "processing", "table"):
        stations[name] = base.brokers[name]
    for name in ("head", "tail", "serving", "held_head", "held_tail"):
        stations[name] = NOBODY
    stations["is_dirty"] = 1
    return stations


def _answering(channels: Array, components: Array) -> Array:
    """Link by link whether both ends find each other at first: a conversation needs both directions."""
    back = channels["reverse"]
    up = components["up"]
    both = up[channels["component"]] * np.where(back >= 0, up[channels["component"][back]], 0)
    return np.asarray(both * up[channels["source"]] * up[channels["target"]], np.int64)


def _settings(network: Network, base: Plan) -> Array:
    faults = network.policies.faults
    values = {
        at.BROKERS: len(network.topology.brokers),
        at.LINKS: len(network.topology.links),
        at.WARMUP: base.warmup_ns,
        at.END: base.end_ns,
        at.RETRY_NS: _ns(faults.retry_s),
        at.REFRESH_NS: _ns(faults.refresh_s),
        at.TIMEOUT_NS: _ns(faults.timeout_s),
        at.DETECTION_NS: round(faults.detection_s * NANOSECONDS),
        at.IS_BUFFERING: faults.is_buffering,
        at.IS_BYPASSING: faults.is_bypassing,
        at.IS_EARLY: faults.ack == "early",
        at.IS_VOLATILE: faults.queues == "volatile",
        at.IS_DROPPING: base.is_dropping,
    }
    return np.array([values[place] for place in range(at.SETTINGS)], np.int64)


def _heap(happenings: Sequence[tuple[int, int]]) -> Array:
    """What happens first, sorted: a sorted array is a heap."""
    heap = np.zeros(len(happenings), HEAP)
    for order, (time, what) in enumerate(sorted(happenings)):
        heap[order] = (time, order, what)
    return heap


def _ns(seconds: float) -> int:
    return int(min(round(seconds * NANOSECONDS), NEVER_NS // 4))
