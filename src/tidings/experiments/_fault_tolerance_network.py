"""The networks of paper D, section 5: 10 brokers, 10 publishers with topics of their own, 500 subscribers.

Links have an availability of .99, all components a period of 60,000 s, events a lifetime of 3,600 s. Brokers are `low`
end (availability .9 to .95) or `high` end (.99 to .999). The topology is a random tree or a random graph of average
degree 4; the popularity of topics follows a power law.

The paper takes a tree for each topic that is "arbitrarily but consistently formed". Two readings: `arbitrary`, the tree
of fewest hops from a random broker, and `publisher`, that from the publisher's own. In both, events enter it at the
publisher's broker. On a topology that is a tree there is no choice.
"""

from typing import Final, Literal

import numpy as np
from msgspec.structs import replace

from tidings.faults import FaultGraph, FaultModel, Route, Scheme, SchemePredictor
from tidings.model.scenario import Network, Scenario
from tidings.routing import Overlay, Tree, shortest_path_tree, tree_of_parents

__all__ = ["CLASSES", "SCHEMES", "TOPOLOGIES", "TREES", "make_network", "predict", "topic_trees", "with_scheme"]

Topology = Literal["tree", "graph"]
Quality = Literal["low", "high"]
TopicTree = Literal["arbitrary", "publisher"]

TOPOLOGIES: Final[tuple[Topology, ...]] = ("tree", "graph")
CLASSES: Final[tuple[Quality, ...]] = ("low", "high")
SCHEMES: Final[tuple[Scheme, ...]] = ("periodic", "buffer", "bypass", "bypass+buffer")
TREES: Final[tuple[TopicTree, ...]] = ("arbitrary", "publisher")
LIFETIME_S: Final = 3600.0

_SHAPES: Final = {
    "tree": '{ kind = "random-tree", brokers = 10 }',
    "graph": '{ kind = "random-graph", brokers = 10, mean_degree = 4 }',
}
_AVAILABILITY: Final = {"low": (0.9, 0.95), "high": (0.99, 0.999)}
_TOML: Final = """
title = "fault tolerance: {quality}-end brokers on a {topology}"
duration = "{days} d"
topology = {shape}
[links]
failures = {{ availability = 0.99, period = "60000 s" }}
[brokers]
failures = {{ availability = {{ distribution = "uniform", low = {low}, high = {high} }}, period = "60000 s" }}
[[publishers]]
name = "publisher"
at = "random"
count = 10
interval = "{interval_s} s"
lifetime = "3600 s"
attributes = {{ topic = {{ parameter = "number" }} }}
[[subscribers]]
name = "subscriber"
at = "random"
count = 500
filter = "topic = {{topic}}"
parameters = {{ topic = {{ range = [1, 10], zipf = 1.0 }} }}
"""


def make_network(topology: Topology, quality: Quality, seed: int, *, days: float, interval_s: float) -> Network:
    """One network; run it under different seeds (`structs.replace(network, seed=...)`) for independent failures."""
    low, high = _AVAILABILITY[quality]
    text = _TOML.format(
        quality=quality,
        topology=topology,
        shape=_SHAPES[topology],
        low=low,
        high=high,
        days=days,
        interval_s=interval_s,
    )
    return Scenario.parse(text, "fault tolerance").expand(seed)


def with_scheme(network: Network, scheme: Scheme, refresh_s: float) -> Network:
    faults = replace(network.policies.faults, scheme=scheme, refresh_s=refresh_s, tables="volatile")
    return replace(network, policies=replace(network.policies, faults=faults))


def topic_trees(network: Network, kind: TopicTree) -> list[Tree]:
    """The tree of each publisher's topic, seen from its own broker."""
    overlay = Overlay.of(network.topology)
    generator = np.random.default_rng([network.seed, 7])
    trees = []
    for publisher in network.publishers:
        home = network.topology.index[publisher.broker]
        middle = home if kind == "publisher" else int(generator.integers(overlay.broker_count))
        trees.append(_seen_from(overlay, shortest_path_tree(overlay, middle), home))
    return trees


def _seen_from(overlay: Overlay, tree: Tree, root: int) -> Tree:
    """The same connections, with every path leading away from this root."""
    parent = tree.parent.tolist()
    broker, above = root, -1
    while broker >= 0:
        parent[broker], above, broker = above, broker, parent[broker]
    return tree_of_parents(overlay, root, parent)


def predict(
    network: Network, trees: list[Tree], scheme: Scheme, model: FaultModel, *, refresh_s: float
) -> "np.typing.NDArray[np.float64]":
    """The predicted reliability of each subscription, in their order: every one wants one publisher's topic."""
    topology = network.topology
    components = {}
    for link, component, failures in zip(topology.links, network.link_components, network.link_failures, strict=True):
        components[component] = ((topology.index[link.source], topology.index[link.target]), failures)
    graph = FaultGraph(
        brokers=network.broker_failures,
        links=tuple(failures for _, failures in components.values()),
        ends=np.array([ends for ends, _ in components.values()], np.int64),
    )
    predictor = SchemePredictor(graph=graph, model=model, refresh_s=refresh_s if model == "ours" else 0.0)
    chances = [
        predictor.on_time(scheme, Route.of(graph, tree.root, tree.parent.tolist()), np.array([LIFETIME_S]))[0]
        for tree in trees
    ]
    topics = [publisher.sample_attributes(np.random.default_rng(0), 1)[0] for publisher in network.publishers]
    wanted = [
        next(number for number, event in enumerate(topics) if subscription.filter.matches(event))
        for subscription in network.subscriptions
    ]
    homes = [topology.index[network.homes[subscription.subscriber]] for subscription in network.subscriptions]
    return np.array([chances[number][home] for number, home in zip(wanted, homes, strict=True)])
