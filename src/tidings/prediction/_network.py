"""From a scenario's network to the knowledge of a prediction: trees, tables, content; no behaviour is sampled.

Trees follow the network's routing policy: shortest paths, or balanced ones. With several paths per publisher and
subscriber (multi-path, literal-table) the first copy counts, and with spread routing every event chooses its tree. No
sum of stages describes that, so such a network has to be sampled (`_sample`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network, Publisher
from tidings.prediction._content import ContentMatcher
from tidings.prediction._knowledge import (
    NO_CONTENT,
    BrokerKnowledge,
    FloatArray,
    IntArray,
    Knowledge,
    LinkKnowledge,
    LongArray,
    PublisherKnowledge,
)
from tidings.prediction._unmodelled import unmodelled
from tidings.routing import Demand, Overlay, Tree, balance_routes, shortest_path_trees

__all__ = ["BALANCE_SAMPLE", "Asked", "Samples", "deadlines_of", "from_network", "homes_of", "outline_of_network"]

BALANCE_SAMPLE = 400  # events of each publisher for computing balanced routes, as in a simulation
KEEP_BELOW = 0.5

Asked = NDArray[np.bool_]
Samples = Mapping[str, list[Any]]


def from_network(
    network: Network,
    *,
    alpha: float = 1.0,
    trees: Sequence[Tree] | None = None,
    stored: Literal["routed", "all"] = "routed",
    matcher: ContentMatcher | None = None,
) -> Knowledge:
    """The knowledge in a scenario's network.

    `alpha` blurs the content (1: exact). `trees` gives each publisher its own dissemination tree. `stored` is which
    subscriptions a broker's table holds where service is per subscription: those routed through it, or all. `matcher`
    holds this network's filters from another call, so that its content is not matched again.
    """
    homes = homes_of(network)
    known = ContentMatcher([s.filter for s in network.subscriptions], seed=network.seed) if matcher is None else matcher
    contents = [known.signatures(publisher.attributes, alpha=alpha) for publisher in network.publishers]

    def asked(samples: Sequence[Samples]) -> Iterable[Asked]:
        return (
            _homes_asked(*known.match(sample, BALANCE_SAMPLE), homes, len(network.topology.brokers))
            for sample in samples
        )

    outline = outline_of_network(network, homes, asked, trees=trees, stored=stored)
    return replace(
        outline,
        publishers=tuple(
            replace(publisher, content=content) for publisher, content in zip(outline.publishers, contents, strict=True)
        ),
        subscriptions=tuple(s.id for s in network.subscriptions),
        homes=homes,
        max_delays_s=deadlines_of(network),
    )


def homes_of(network: Network) -> IntArray:
    """The home broker of each subscription, by number."""
    return np.array([network.topology.index[network.homes[s.subscriber]] for s in network.subscriptions], np.int32)


def deadlines_of(network: Network) -> FloatArray:
    """The deadline of each subscription, infinite if it has none."""
    return np.array([np.inf if s.max_delay_s is None else s.max_delay_s for s in network.subscriptions])


def outline_of_network(
    network: Network,
    homes: IntArray,
    asked: Callable[[Sequence[Samples]], Iterable[Asked]],
    *,
    trees: Sequence[Tree] | None = None,
    stored: Literal["routed", "all"] = "routed",
) -> Knowledge:
    """Everything but subscriptions and content. Balanced routes are computed from samples of events, by attribute;
    `asked` gives, for each publisher's sample, the brokers with a matching subscription by event."""
    topology = network.topology
    chosen = _trees(network, Overlay.of(topology), asked) if trees is None else tuple(trees)
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
                content=NO_CONTENT,
                tree=tree,
            )
            for publisher, tree in zip(network.publishers, chosen, strict=True)
        ),
        subscriptions=(),
        homes=np.zeros(0, np.int32),
        max_delays_s=np.zeros(0),
        drops_expired=network.policies.expired == "drop",
        unmodelled=unmodelled(network),
    )


def _trees(
    network: Network, overlay: Overlay, asked: Callable[[Sequence[Samples]], Iterable[Asked]]
) -> tuple[Tree, ...]:
    routing = network.policies.routing
    roots = [network.topology.index[publisher.broker] for publisher in network.publishers]
    if routing == "single-path":
        return shortest_path_trees(overlay, roots, destinations=())
    if routing != "balanced":
        reason = "every event chooses its tree" if routing == "spread" else "with several paths the first copy counts"
        raise ConfigurationError(
            f'routing is "{routing}": {reason}, which formulas do not cover; they cover "single-path" and '
            '"balanced", and `tidings predict` without --model and --alpha takes a sample'
        )
    samples = [_sample(publisher, [network.seed, number]) for number, publisher in enumerate(network.publishers)]
    demands = [
        Demand.of_signatures(
            broker=root, rate_per_s=publisher.rate_per_s, size_kb=publisher.size_kb.mean(), signatures=signatures
        )
        for root, publisher, signatures in zip(roots, network.publishers, asked(samples), strict=True)
    ]
    return balance_routes(overlay, demands, keep_below_utilisation=KEEP_BELOW).trees


def _sample(publisher: Publisher, seed: list[int]) -> Samples:
    """The same sample of events as a simulation's, by attribute."""
    sampled = publisher.sample_attributes(np.random.default_rng(seed), BALANCE_SAMPLE)
    return {name: [row[name] for row in sampled] for name in publisher.attributes}


def _homes_asked(offsets: LongArray, matched: IntArray, homes: IntArray, brokers: int) -> Asked:
    """By [event, broker]: whether a subscription at the broker matches it."""
    asked = np.zeros((len(offsets) - 1, brokers), np.bool_)
    asked[np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), homes[matched]] = True
    return asked


def _table(brokers: int, trees: Sequence[Tree], homes: IntArray, stored: str) -> FloatArray:
    """The size of each broker's table: the subscriptions with events that may pass through it, or all."""
    if stored == "all":
        return np.full(brokers, float(len(homes)))
    passes = np.zeros((brokers, brokers), np.bool_)
    for tree in {id(tree): tree for tree in trees}.values():
        for broker in tree.order.tolist():
            start = tree.position[broker]
            passes[broker, tree.order[start : start + tree.size[broker]]] = True
    return np.asarray(passes @ np.bincount(homes, minlength=brokers), np.float64)
