"""From a network to the arrays of a run: links, brokers, subscriptions, distributions, and the routes through them.

Dense numbers follow the order of the network; names play no part, so renaming changes nothing. Seconds become whole
nanoseconds here, once. Where something fails, `_components` adds what is up and down, and `_rows` the tables.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tidings.errors import ConfigurationError
from tidings.model.distributions import DelayDistribution, Uniform
from tidings.model.policies import COPYING, DEFAULT_RELOCATION, DEFAULT_ROUTING
from tidings.model.scenario import Network
from tidings.scheduling import FIFO, Strategy, strategy
from tidings.simulation import _layout as at
from tidings.simulation._components import Components, plan_components
from tidings.simulation._draws import Distributions, encode_all
from tidings.simulation._layout import (
    BRANCH,
    BROKER,
    HEAP,
    LINK,
    NANOSECONDS,
    NEVER_NS,
    NOBODY,
    PLACE,
    PUBLISHER,
    ROW,
    SUBSCRIPTION,
    Array,
)
from tidings.simulation._options import Options
from tidings.simulation._routes import Routes, plan_routes
from tidings.simulation._rows import Lists, plan_rows
from tidings.statistics import BATCHES

__all__ = ["SimulationPlan", "plan"]

_LINK_LAWS, _BROKER_LAWS = 3, 2  # slowness, propagation, loss; service, processing
_DRAIN_MIN_S = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationPlan:
    """A run before it begins. The arrays of records hold its beginning; whoever runs it takes copies (`make_world`).

    `heap` holds what happens first, as a heap. `components` are those of a network in which something fails. `network`
    has the subscribers' access links as links (`Network.with_access_brokers`), `written` does not.
    """

    network: Network
    written: Network
    settings: Array
    links: Array
    brokers: Array
    subscriptions: Array
    publishers: Array
    distributions: Distributions
    routes: Routes
    places: Array
    branches: Array
    parent: Array
    lists: Array
    rows: Array
    heap: Array
    components: Components
    access_s: Array
    warmup_ns: int
    end_ns: int
    drained_ns: int

    @cached_property
    def batch_ends_ns(self) -> Array:
        """When the batches end into which the counted part of the run is cut (`statistics.shares_of_batches`)."""
        counted_ns = self.end_ns - self.warmup_ns
        return np.array([self.warmup_ns + counted_ns * number // BATCHES for number in range(1, BATCHES + 1)])

    def batch_numbers(self, published_ns: Array) -> Array:
        """In which batch events were published, those of the warm-up aside."""
        return np.searchsorted(self.batch_ends_ns[:-1], published_ns, side="right")

    @property
    def is_dropping(self) -> bool:
        return bool(self.settings[at.IS_DROPPING])


def plan(network: Network, options: Options) -> SimulationPlan:
    """Everything that a run needs to know; a ConfigurationError says what cannot be."""
    written, network = network, network.with_access_brokers
    if network is not written and options.trees is not None:
        raise ConfigurationError(
            "trees are given, but subscribers have access links, which they do not lead over: leave out Options.trees, "
            "or `access`"
        )
    _check(network)
    topology = network.topology
    homes = np.array([topology.index[network.homes[s.subscriber]] for s in network.subscriptions], np.int64)
    access = _access(network, options)
    routes = plan_routes(network, options, access, homes)
    distributions = _distributions(network, access)
    links = _links(network, options, access)
    components = plan_components(network, links, distributions)
    brokers = _brokers(network, routes, first_distribution=_LINK_LAWS * len(links))
    places, branches, parent = _trees(routes, len(brokers))
    lists = Lists()
    _list_links(links[: len(topology.links)], components.records, brokers, routes, lists)
    rows = np.zeros(0, ROW)
    if network.has_failures or network.policies.relocation.name != DEFAULT_RELOCATION:
        _require_ways_back(network, routes, links)
    if network.has_failures:
        rows = plan_rows(homes, links[: len(topology.links)], places, parent, brokers, lists)
        faults = network.policies.faults
        if faults.has_durable_tables:
            rows["until"] = NEVER_NS
            brokers["last_row"] = brokers["first_row"]  # a crash forgets nothing
        else:
            until = _capped_ns(faults.timeout_s) if faults.is_refreshing else NEVER_NS
            rows["until"] = np.where(components.records["up"][rows["broker"]] != 0, until, 0)
    end_ns = _ns(network.duration_s)
    return SimulationPlan(
        network=network,
        written=written,
        settings=_settings(network, links, brokers, rows),
        links=links,
        brokers=brokers,
        subscriptions=_subscriptions(network, homes),
        publishers=_publishers(network, routes),
        distributions=components.distributions,
        routes=routes,
        places=places,
        branches=branches,
        parent=parent,
        lists=lists.array(),
        rows=rows,
        heap=_heap([*components.starts, *components.first_refreshes(brokers)]),
        components=components,
        access_s=np.array(
            [
                0.0 if distribution is None else distribution.mean()
                for distribution in _access_propagation(network, len(access))
            ]
        ),
        warmup_ns=_ns(network.warmup_s),
        end_ns=end_ns,
        drained_ns=end_ns + _ns(_drain_s(network, options)),
    )


def _check(network: Network) -> None:
    routing = network.policies.routing
    if network.has_failures and routing in COPYING:
        raise ConfigurationError(
            f"brokers or links fail, but routing is {routing!r}: the schemes of paper D need one path for each "
            'event and subscriber; write routing = "single-path", "balanced" or "spread" in [policies]'
        )
    relocation = network.policies.relocation.name
    if relocation != DEFAULT_RELOCATION and routing != DEFAULT_ROUTING:
        raise ConfigurationError(
            f"publishers move by {relocation!r}, but {routing!r} routes are made for publishers where they are; write "
            f'routing = "{DEFAULT_ROUTING}", or relocation = "off", in [policies]'
        )


def _links(network: Network, options: Options, access: list[DelayDistribution | None]) -> Array:
    """The overlay's links and then the publishers' access links, which never fail."""
    topology, count = network.topology, len(network.topology.links)
    links = np.zeros(count + len(access), LINK)
    for name in ("head", "tail", "sending", "blocked_head", "blocked_tail", "reverse"):
        links[name] = NOBODY
    ends = [(topology.index[link.source], topology.index[link.target]) for link in topology.links]
    links["source"] = [source for source, _ in ends] + [NOBODY] * len(access)
    links["target"] = [target for _, target in ends] + _access_targets(network)
    numbers = {pair: number for number, pair in enumerate(ends)}
    links["reverse"][:count] = [numbers.get((target, source), NOBODY) for source, target in ends]
    links["control_ns"][:count] = [_capped_ns(link.propagation.mean()) for link in topology.links]
    slowness = [link.slowness for link in topology.links] + list(access)
    links["is_free"] = [distribution is None or distribution.mean() == 0.0 for distribution in slowness]
    _schedule(links, network, slowness)
    if options.access_scheduling == "fifo":
        links["strategy"][count:] = FIFO
    total = len(links)
    links["slowness"], links["propagation"] = np.arange(total), total + np.arange(total)
    links["loss"] = 2 * total + np.arange(total)
    links["loss_chance"][:count] = [link.loss for link in topology.links]
    if network.policies.relocation.name == DEFAULT_RELOCATION:
        links["loss_chance"][count:] = [0.0 if each.access is None else each.access.loss for each in network.publishers]
    return links


def _schedule(links: Array, network: Network, slowness: list[DelayDistribution | None]) -> None:
    """What every link sends next; one without a queue has nothing to choose."""
    wanted = network.policies.scheduling
    chosen: Strategy = strategy(wanted.name, r=wanted.r)
    size_kb = _mean_size_kb(network)
    links["strategy"] = np.where(links["is_free"] != 0, FIFO, chosen.code)
    links["weight"] = chosen.r
    links["quantile"] = chosen.quantile
    links["postponed_s"] = [
        0.0 if distribution is None else chosen.postponed_s(size_kb * distribution.mean()) for distribution in slowness
    ]


def _brokers(network: Network, routes: Routes, *, first_distribution: int) -> Array:
    written, count = network.topology.brokers, len(network.topology.brokers)
    brokers = np.zeros(count, BROKER)
    for name in ("head", "tail", "serving", "held_head", "held_tail", "root"):
        brokers[name] = NOBODY
    brokers["has_service"] = [broker.service is not None for broker in written]
    brokers["has_processing"] = [broker.processing is not None for broker in written]
    brokers["table"] = np.where([broker.service_per == "subscription" for broker in written], routes.table, 1.0)
    brokers["service"] = first_distribution + np.arange(count)
    brokers["processing"] = first_distribution + count + np.arange(count)
    brokers["is_dirty"] = 1
    return brokers


def _subscriptions(network: Network, homes: Array) -> Array:
    subscriptions = np.zeros(len(network.subscriptions), SUBSCRIPTION)
    subscriptions["home"] = homes
    subscriptions["price"] = [subscription.price for subscription in network.subscriptions]
    subscriptions["allowed"] = [_deadline_ns(subscription.max_delay_s) for subscription in network.subscriptions]
    return subscriptions


def _publishers(network: Network, routes: Routes) -> Array:
    publishers = np.zeros(len(network.publishers), PUBLISHER)
    publishers["tree"] = routes.tree_of
    publishers["link"] = len(network.topology.links) + np.arange(len(publishers))
    if network.policies.relocation.name != DEFAULT_RELOCATION:
        publishers["link"] = len(network.topology.links) + routes.tree_of
    return publishers


def _access_targets(network: Network) -> list[int]:
    """Where the access links lead: one for each publisher; where publishers move, one for each broker."""
    if network.policies.relocation.name != DEFAULT_RELOCATION:
        return list(range(len(network.topology.brokers)))
    return [network.topology.index[publisher.broker] for publisher in network.publishers]


def _trees(routes: Routes, brokers: int) -> tuple[Array, Array, Array]:
    """The trees: what the loop asks of a broker in a tree, the branches, and each broker's parent (-1: none)."""
    trees = len(routes.position)
    places, branches = np.zeros((trees, brokers), PLACE), np.zeros(routes.child.shape, BRANCH)
    parent = np.full((trees, brokers), NOBODY, np.int64)
    if trees == 0:
        return places, branches, parent
    places["position"], places["end"] = routes.position, routes.subtree_end
    places["first_child"] = routes.first_child[:, :brokers]
    branches["broker"], branches["link"] = routes.child, routes.child_link
    for tree in range(trees):
        counts = np.diff(routes.first_child[tree])
        parent[tree, routes.child[tree, : counts.sum()]] = np.repeat(np.arange(brokers), counts)
        for broker in np.argsort(routes.position[tree], kind="stable").tolist():  # parents before children
            if parent[tree, broker] >= 0:
                places["depth"][tree, broker] = places["depth"][tree, parent[tree, broker]] + 1
    return places, branches, parent


def _list_links(links: Array, components: Array, brokers: Array, routes: Routes, lists: Lists) -> None:
    """For each component the links that a change of it concerns, and for each broker those that it sends over."""
    touched: list[list[int]] = [[] for _ in components]
    leaving: list[list[int]] = [[] for _ in brokers]
    ends = (links[name].tolist() for name in ("source", "target", "component"))
    for link, (source, target, component) in enumerate(zip(*ends, strict=True)):
        for each in {source, target, component} if len(components) else ():
            touched[each].append(link)
        leaving[source].append(link)
    for number, numbers in enumerate(touched):
        components["first_link"][number], components["last_link"][number] = lists.add(numbers)
    for number, numbers in enumerate(leaving):
        if routes.is_multi:
            numbers = routes.out_links[routes.out_offsets[number] : routes.out_offsets[number + 1]].tolist()
        brokers["first_out"][number], brokers["last_out"][number] = lists.add(numbers)


def _require_ways_back(network: Network, routes: Routes, links: Array) -> None:
    for link in np.unique(routes.child_link[routes.child_link >= 0]).tolist():
        if links["reverse"][link] < 0:
            ends = network.topology.links[link]
            raise ConfigurationError(
                f"there is no link back from {ends.target!r} to {ends.source!r}: subscriptions, acknowledgements and "
                'publishers travel against events; write direction = "both" in [topology]'
            )


def _settings(network: Network, links: Array, brokers: Array, rows: Array) -> Array:
    faults, is_failing, count = network.policies.faults, network.has_failures, len(network.topology.links)
    is_multi = network.policies.routing in COPYING
    fan_out = int((brokers["last_out"] - brokers["first_out"]).max(initial=0)) + 1
    is_valued = bool((links["strategy"] != FIFO).any())
    values = {
        at.BROKERS: len(brokers),
        at.LINKS: count,
        at.WARMUP: _ns(network.warmup_s),
        at.END: _ns(network.duration_s),
        at.IS_DROPPING: network.policies.expired == "drop",
        at.IS_MULTI: is_multi,
        at.IS_FAILING: is_failing,
        at.HAS_OWN_ENTRIES: is_failing and is_valued,
        # A step makes a copy for each link that leaves a broker, or for each broker that a detour leads to. Where
        # things fail it may note something of every link (noticed at both ends, reported to all) and every row.
        at.COPIES_STEP: len(brokers) + 3 if is_failing else fan_out + 1,
        at.HEAP_STEP: 16 + 4 * count + (count + 1) * fan_out + len(rows) if is_failing else fan_out + 2,
        at.ENTRIES_STEP: 2 * (fan_out + 1) if is_multi else 8 if is_failing else 2,
        at.RETRY_NS: _capped_ns(faults.retry_s),
        at.REFRESH_NS: _capped_ns(faults.refresh_s),
        at.TIMEOUT_NS: NEVER_NS // 4 if faults.has_durable_tables else _capped_ns(faults.timeout_s),
        at.DETECTION_NS: round(faults.detection_s * NANOSECONDS),
        at.IS_BUFFERING: faults.is_buffering,
        at.IS_BYPASSING: faults.is_bypassing,
        at.IS_EARLY: faults.ack == "early",
        at.IS_VOLATILE: faults.queues == "volatile",
        at.IS_ORDERED: network.policies.ordering is not None,
    }
    return np.array([values[place] for place in range(at.SETTINGS)], np.int64)


def _access(network: Network, options: Options) -> list[DelayDistribution | None]:
    if network.policies.relocation.name != DEFAULT_RELOCATION:
        for name in ("access_slowness", "trees"):
            if getattr(options, name) is not None:
                raise ConfigurationError(
                    f'{name} is given for publishers where they are, but relocation is "'
                    f'{network.policies.relocation.name}": leave it out, or write relocation = "off"'
                )
        if any(publisher.access is not None for publisher in network.publishers):
            raise ConfigurationError(
                f'publishers have access links, but move by "{network.policies.relocation.name}": leave `access` out, '
                'or write relocation = "off"'
            )
        return [None] * len(network.topology.brokers)
    if options.access_slowness is None:
        return [None if each.access is None else each.access.slowness for each in network.publishers]
    if len(options.access_slowness) != len(network.publishers):
        raise ConfigurationError(
            f"access_slowness has {len(options.access_slowness)} distributions for {len(network.publishers)} "
            "publishers: give one for each, in their order"
        )
    return list(options.access_slowness)


def _distributions(network: Network, access: list[DelayDistribution | None]) -> Distributions:
    """All distributions in the order in which links and brokers number them; each has its own stream."""
    links, brokers = network.topology.links, network.topology.brokers
    propagation = _access_propagation(network, len(access))
    unit = Uniform(low=0.0, high=1.0)
    kinds: list[list[DelayDistribution | None]] = [
        [*(link.slowness for link in links), *access],
        [*(link.propagation for link in links), *propagation],
        [unit] * (len(links) + len(access)),
        [broker.service for broker in brokers],
        [broker.processing for broker in brokers],
    ]
    assert len(kinds) == _LINK_LAWS + _BROKER_LAWS
    return encode_all(kinds, network.seed)


def _access_propagation(network: Network, links: int) -> list[DelayDistribution | None]:
    """By access link; those of publishers that move are free."""
    if network.policies.relocation.name != DEFAULT_RELOCATION:
        return [None] * links
    return [None if each.access is None else each.access.propagation for each in network.publishers]


def _mean_size_kb(network: Network) -> float:
    """Of all events: what paper C's FT is made of."""
    rates = [publisher.rate_per_s for publisher in network.publishers]
    sizes = [publisher.rate_per_s * publisher.size_kb.mean() for publisher in network.publishers]
    return sum(sizes) / sum(rates) if rates else 0.0


def _drain_s(network: Network, options: Options) -> float:
    if options.drain_s is not None:
        return options.drain_s
    longest_s = max((s.max_delay_s for s in network.subscriptions if s.max_delay_s is not None), default=0.0)
    lifetimes = [p.lifetime.quantile(0.999999) for p in network.publishers if p.lifetime is not None]
    return max(network.duration_s, longest_s, _DRAIN_MIN_S, *lifetimes)


def _heap(happenings: list[tuple[int, int]]) -> Array:
    """What happens first, sorted: a sorted array is a heap."""
    heap = np.zeros(len(happenings), HEAP)
    for order, (time, what) in enumerate(sorted(happenings)):
        heap[order] = (time, order, what)
    return heap


def _ns(seconds: float) -> int:
    whole = round(seconds * NANOSECONDS)
    if whole >= NEVER_NS // 4:
        raise ConfigurationError(f"{seconds:g} s is longer than a run can be; write at most 30 years")
    return whole


def _capped_ns(seconds: float) -> int:
    return int(min(round(seconds * NANOSECONDS), NEVER_NS // 4))


def _deadline_ns(seconds: float | None) -> int:
    return NEVER_NS if seconds is None or seconds > 1e9 else max(1, round(seconds * NANOSECONDS))
