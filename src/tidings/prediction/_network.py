"""From a scenario's network to the knowledge of a prediction: trees, tables, content; no behaviour is sampled.

Trees are those that the network's routing policy gives: shortest paths, or balanced ones. With several paths per
publisher and subscriber (multi-path, literal-table) the first copy counts, which no sum of stages describes: such a
network has to be simulated.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network, Publisher
from tidings.prediction._content import ContentMatcher
from tidings.prediction._knowledge import (
    BrokerKnowledge,
    FloatArray,
    IntArray,
    Knowledge,
    LinkKnowledge,
    PublisherKnowledge,
)
from tidings.routing import Demand, Overlay, Tree, balance_routes, shortest_path_trees

__all__ = ["from_network"]

BALANCE_SAMPLE = 400  # events of each publisher that balanced routes are made for, as in a simulation
KEEP_BELOW = 0.5

Asked = NDArray[np.bool_]


def from_network(
    network: Network,
    *,
    alpha: float = 1.0,
    trees: Sequence[Tree] | None = None,
    stored: Literal["routed", "all"] = "routed",
    matcher: ContentMatcher | None = None,
) -> Knowledge:
    """What a scenario says, before anything is run.

    `alpha` blurs the content (1: as it is). `trees` gives each publisher its own dissemination tree. `stored` says
    which subscriptions a broker's table holds where service is per subscription: those routed through it, or all.
    `matcher` holds this network's filters from another call, which saves matching its content again.
    """
    topology, overlay = network.topology, Overlay.of(network.topology)
    homes = np.array([topology.index[network.homes[s.subscriber]] for s in network.subscriptions], np.int32)
    known = ContentMatcher([s.filter for s in network.subscriptions], seed=network.seed) if matcher is None else matcher
    contents = [known.signatures(publisher.attributes, alpha=alpha) for publisher in network.publishers]
    chosen = _trees(network, overlay, homes, known) if trees is None else tuple(trees)
    if len(chosen) != len(network.publishers):
        raise ConfigurationError(
            f"{len(chosen)} trees are given for {len(network.publishers)} publishers: give one for each"
        )
    table = _table(len(topology.brokers), chosen, homes, stored)
    return Knowledge(
        brokers=tuple(
            BrokerKnowledge(
                name=broker.name,
                service=broker.service,
                service_factor=float(table[number]) if broker.service_per == "subscription" else 1.0,
                processing=broker.processing,
            )
            for number, broker in enumerate(topology.brokers)
        ),
        links=tuple(
            LinkKnowledge(
                source=topology.index[link.source],
                target=topology.index[link.target],
                propagation=link.propagation,
                slowness=link.slowness,
                loss=link.loss,
            )
            for link in topology.links
        ),
        publishers=tuple(
            PublisherKnowledge(
                name=publisher.name,
                interval=publisher.interval,
                lifetime=publisher.lifetime,
                size_kb=publisher.size_kb,
                content=content,
                tree=tree,
            )
            for publisher, content, tree in zip(network.publishers, contents, chosen, strict=True)
        ),
        subscriptions=tuple(s.id for s in network.subscriptions),
        homes=homes,
        max_delays_s=np.array([np.inf if s.max_delay_s is None else s.max_delay_s for s in network.subscriptions]),
        drops_expired=network.policies.expired == "drop",
    )


def _trees(network: Network, overlay: Overlay, homes: IntArray, matcher: ContentMatcher) -> tuple[Tree, ...]:
    routing = network.policies.routing
    roots = [network.topology.index[publisher.broker] for publisher in network.publishers]
    if routing == "single-path":
        return shortest_path_trees(overlay, roots, destinations=())
    if routing != "balanced":
        raise ConfigurationError(
            f'routing is "{routing}": with several paths the first copy counts, which has to be simulated '
            '(tidings simulate); predictions are for "single-path" and "balanced"'
        )
    demands = [
        Demand.of_signatures(
            broker=root,
            rate_per_s=publisher.rate_per_s,
            size_kb=publisher.size_kb.mean(),
            signatures=_homes_asked(publisher, matcher, homes, overlay.broker_count, [network.seed, number]),
        )
        for number, (root, publisher) in enumerate(zip(roots, network.publishers, strict=True))
    ]
    return balance_routes(overlay, demands, keep_below_utilisation=KEEP_BELOW).trees


def _homes_asked(
    publisher: Publisher, matcher: ContentMatcher, homes: IntArray, brokers: int, seed: list[int]
) -> Asked:
    """For the same sample of events as a simulation's: which brokers have somebody who wants it."""
    sampled = publisher.sample_attributes(np.random.default_rng(seed), BALANCE_SAMPLE)
    columns = {name: [row[name] for row in sampled] for name in publisher.attributes}
    offsets, matched = matcher.match(columns, BALANCE_SAMPLE)
    asked = np.zeros((BALANCE_SAMPLE, brokers), np.bool_)
    asked[np.repeat(np.arange(BALANCE_SAMPLE), np.diff(offsets)), homes[matched]] = True
    return asked


def _table(brokers: int, trees: Sequence[Tree], homes: IntArray, stored: str) -> FloatArray:
    """How many subscriptions each broker's table holds: those whose events may pass through it, or all."""
    if stored == "all":
        return np.full(brokers, float(len(homes)))
    passes = np.zeros((brokers, brokers), np.bool_)
    for tree in {id(tree): tree for tree in trees}.values():
        for broker in tree.order.tolist():
            start = tree.position[broker]
            passes[broker, tree.order[start : start + tree.size[broker]]] = True
    return np.asarray(passes @ np.bincount(homes, minlength=brokers), np.float64)
