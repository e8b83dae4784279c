"""The paths that events take, as arrays: one tree per publisher or several to choose from, or every downstream path.

Every pair of a link and a destination behind it has three figures for the scheduler: `fixed_s`, the expected
propagation, processing and service on the path (waiting excluded), and the mean and variance of the path's slowness.

- Single path: per tree, sums from the root; between a broker and one below it they are the differences. A tree has an
  edge before its root: the publisher's access link, with the root's own processing.
- Several paths: per link and destination, those of the best path (`routing.ReachabilityTable`), with rows for the
  access links after those of the overlay's links. A broker forwards over every link that leads to a match
  (multi-path), or to the best neighbour of each match (literal-table).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidings.errors import ConfigurationError
from tidings.matching import MatchingIndex
from tidings.model.distributions import DelayDistribution
from tidings.model.policies import COPYING, DEFAULT_RELOCATION
from tidings.model.scenario import Network, unserved
from tidings.model.topology import Broker
from tidings.routing import (
    Demand,
    Overlay,
    ReachabilityTable,
    Tree,
    TreeChoice,
    balance_routes,
    compile_forwarding,
    downstream_links,
    reachability_table,
    root_figures,
    shortest_path_tree,
    spread_routes,
)
from tidings.simulation._layout import Array
from tidings.simulation._options import Options

__all__ = ["Routes", "plan_routes"]


BALANCE_SAMPLE = 400  # events of each publisher that balanced and spread routes are made for
KEEP_BELOW = 0.5  # while no link is busier than this, shortest paths stay: detours would only cost time


class Routes(NamedTuple):
    """What the loop reads to forward an event; of the two halves one is empty, by `is_multi`."""

    is_multi: bool
    table: Array
    tree_of: Array
    position: Array
    subtree_end: Array
    first_child: Array
    child: Array
    child_link: Array
    fixed_s: Array
    mean: Array
    variance: Array
    out_offsets: Array
    out_links: Array
    reaches: Array
    shares: tuple[Array, ...] = ()  # of spread routes: by publisher and link (`routing.TreeChoice`)
    spread: tuple[tuple[Tree, ...], ...] = ()

    def choices(self, network: Network) -> list[TreeChoice]:
        """By publisher who chooses a tree for each event; empty where there is nothing to choose."""
        overlay = Overlay.of(network.topology)
        return [TreeChoice(overlay, trees, share) for trees, share in zip(self.spread, self.shares, strict=True)]


def plan_routes(network: Network, options: Options, access: Sequence[DelayDistribution | None], homes: Array) -> Routes:
    """The routes of this network; `homes` are the home brokers of the subscriptions."""
    overlay = Overlay.of(network.topology)
    roots = [network.topology.index[publisher.broker] for publisher in network.publishers]
    if options.trees is not None and len(options.trees) != len(roots):
        raise ConfigurationError(f"{len(options.trees)} trees are given for {len(roots)} publishers: give one for each")
    routing = network.policies.routing
    if routing in COPYING:
        if options.trees is not None:
            raise ConfigurationError(f"trees are given, but routing is {routing}: leave them out, or use single-path")
        problem = unserved(network)
        if problem is not None:
            raise ConfigurationError(problem)
        return _all_paths(network, overlay, roots, access, homes, options)
    given: Sequence[Sequence[Tree]] | None = None
    if options.trees is not None:
        given = [(tree,) for tree in options.trees]
    elif routing == "balanced":
        balanced = balance_routes(overlay, _demands(network, overlay, homes), keep_below_utilisation=KEEP_BELOW)
        given = [(tree,) for tree in balanced.trees]
    elif routing == "spread":
        spread = spread_routes(overlay, _demands(network, overlay, homes), keep_below_utilisation=KEEP_BELOW)
        found = _trees(network, overlay, spread.trees, access, homes, options)
        return found._replace(spread=spread.trees, shares=spread.shares)
    return _trees(network, overlay, given, access, homes, options)


def _demands(network: Network, overlay: Overlay, homes: Array) -> list[Demand]:
    """What a sample of each publisher's events asks for."""
    index = MatchingIndex((number, s.filter) for number, s in enumerate(network.subscriptions))
    demands = []
    for number, publisher in enumerate(network.publishers):
        generator = np.random.default_rng([network.seed, number])
        offsets, ids = _matched(index, publisher.sample_attributes(generator, BALANCE_SAMPLE))
        signatures = np.zeros((BALANCE_SAMPLE, overlay.broker_count), np.bool_)
        signatures[np.repeat(np.arange(BALANCE_SAMPLE), np.diff(offsets)), homes[ids]] = True
        demands.append(
            Demand.of_signatures(
                broker=network.topology.index[publisher.broker],
                rate_per_s=publisher.rate_per_s,
                size_kb=publisher.size_kb.mean(),
                signatures=signatures,
            )
        )
    return demands


def _matched(index: MatchingIndex, events: list[dict[str, Any]]) -> tuple[Array, Array]:
    """Which subscriptions each event matches, as `match_batch` has it."""
    try:
        if events[0]:
            return index.match_batch(pa.RecordBatch.from_pylist(events))
    except pa.ArrowException:
        pass  # values of several types in one attribute do not fit a column
    found = [index.match(event) for event in events]
    offsets = np.cumsum([0, *(len(numbers) for numbers in found)])
    return offsets, np.array([number for numbers in found for number in numbers], np.int64)


def _trees(
    network: Network,
    overlay: Overlay,
    given: Sequence[Sequence[Tree]] | None,
    access: Sequence[DelayDistribution | None],
    homes: Array,
    options: Options,
) -> Routes:
    """By publisher the trees that its events may take; publishers at one broker share one unless theirs are given."""
    roots = [network.topology.index[publisher.broker] for publisher in network.publishers]
    if given is None:
        is_moving = network.policies.relocation.name != DEFAULT_RELOCATION  # any broker may become a home
        distinct = list(range(overlay.broker_count)) if is_moving else sorted(set(roots)) or [0]
        trees: Sequence[Tree] = [shortest_path_tree(overlay, root, destinations=()) for root in distinct]
        tree_of = [distinct.index(root) for root in roots]
    else:
        tree_of = [sum(len(each) for each in given[:number]) for number in range(len(given))]
        trees = [tree for each in given for tree in each] or [shortest_path_tree(overlay, 0, destinations=())]
        for publisher, root, each in zip(network.publishers, roots, given, strict=True):
            if any(tree.root != root for tree in each):
                raise ConfigurationError(f"the tree of publisher {publisher.name!r} does not begin at its broker")
    used = [trees[number] for number in tree_of] if given is None else trees
    table = _stored(overlay, used, homes, options.stored)
    entering_s = _entering_s(network, table)
    fixed_s, mean, variance = (np.zeros((len(trees), overlay.broker_count)) for _ in range(3))
    for number, tree in enumerate(trees):
        figures = root_figures(overlay, tree)
        mean[number], variance[number] = figures.mean_s_per_kb, figures.variance_s2_per_kb2
        fixed_s[number] = figures.propagation_s
        for broker in tree.order.tolist():
            above = tree.parent[broker]
            passed = entering_s[broker] + (0.0 if above < 0 else fixed_s[number, above] - figures.propagation_s[above])
            fixed_s[number, broker] = figures.propagation_s[broker] + passed
    forwarding = compile_forwarding(trees, homes)
    return Routes(
        is_multi=False,
        table=table,
        tree_of=np.array(tree_of, np.int64),
        position=forwarding.position.astype(np.int64),
        subtree_end=forwarding.subtree_end.astype(np.int64),
        first_child=forwarding.first_child.astype(np.int64),
        child=forwarding.child.astype(np.int64),
        child_link=forwarding.child_link.astype(np.int64),
        fixed_s=fixed_s,
        mean=np.concatenate([mean, _access_moments(access, overlay.broker_count, "mean")]),
        variance=np.concatenate([variance, _access_moments(access, overlay.broker_count, "variance")]),
        out_offsets=np.zeros(0, np.int64),
        out_links=np.zeros(0, np.int64),
        reaches=np.zeros((0, 0), np.bool_),
    )


def _access_moments(access: Sequence[DelayDistribution | None], brokers: int, name: str) -> Array:
    """A row per publisher after those of the trees: the same figure of its access link for every destination."""
    figures = [0.0 if distribution is None else getattr(distribution, name)() for distribution in access]
    return np.repeat(np.array(figures).reshape(-1, 1), brokers, axis=1)


def _all_paths(
    network: Network,
    overlay: Overlay,
    roots: list[int],
    access: Sequence[DelayDistribution | None],
    homes: Array,
    options: Options,
) -> Routes:
    try:
        known = reachability_table(overlay)
    except ConfigurationError:  # the overlay has links in both directions: take the direction away from the publishers
        known = reachability_table(overlay, downstream_links(overlay, roots))
    n, m = overlay.broker_count, overlay.link_count
    below = np.eye(n, dtype=np.bool_)
    for broker in range(n):
        below[broker] |= known.reaches[known.out_links[known.out_offsets[broker] : known.out_offsets[broker + 1]]].any(
            0
        )
    per_home = np.bincount(homes, minlength=n)
    table = below @ per_home if options.stored == "routed" else np.full(n, len(homes))
    shape = (m + len(roots), n)
    reaches = np.zeros(shape, np.bool_)
    reaches[:m] = known.reaches if network.policies.routing == "multi-path" else _best_neighbours(known, n)
    mean, variance, fixed_s = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    mean[:m], variance[:m] = known.mean_s_per_kb, known.variance_s2_per_kb2
    entering_s = _entering_s(network, table)
    fixed_s[:m] = _fixed_s(overlay, known, entering_s)
    for number, (root, distribution) in enumerate(zip(roots, access, strict=True)):
        row = m + number
        reaches[row] = below[root]
        links = known.out_links[known.out_offsets[root] : known.out_offsets[root + 1]]
        for home in np.flatnonzero(below[root]).tolist():
            if home != root:
                best = min(links.tolist(), key=lambda link: (known.mean_s_per_kb[link, home], known.nodes[link, home]))
                mean[row, home], variance[row, home] = mean[best, home], variance[best, home]
                fixed_s[row, home] = fixed_s[best, home]
        fixed_s[row] += entering_s[root]
        if distribution is not None:
            mean[row] += distribution.mean()
            variance[row] += distribution.variance()
    empty = np.zeros((0, 0), np.int64)
    return Routes(
        is_multi=True,
        table=np.asarray(table, np.float64),
        tree_of=np.zeros(len(roots), np.int64),
        position=empty,
        subtree_end=empty,
        first_child=empty,
        child=empty,
        child_link=empty,
        fixed_s=np.where(reaches, fixed_s, 0.0),
        mean=np.where(reaches, mean, 0.0),
        variance=np.where(reaches, variance, 0.0),
        out_offsets=known.out_offsets.astype(np.int64),
        out_links=known.out_links.astype(np.int64),
        reaches=reaches,
    )


def _best_neighbours(known: ReachabilityTable, brokers: int) -> Array:
    """The literal subscription table: for each destination a broker has one entry, by its best neighbour."""
    best = np.zeros_like(known.reaches)
    for broker in range(brokers):
        links = known.out_links[known.out_offsets[broker] : known.out_offsets[broker + 1]]
        for home in np.flatnonzero(known.reaches[links].any(0)).tolist() if len(links) else ():
            usable = links[known.reaches[links, home]].tolist()
            best[min(usable, key=lambda k: (known.mean_s_per_kb[k, home], known.nodes[k, home], k)), home] = True
    return best


def _fixed_s(overlay: Overlay, known: ReachabilityTable, entering_s: Array) -> Array:
    """Per link and destination the expected delays beside transmission, along the table's best path."""
    fixed_s = np.zeros(known.nodes.shape)
    first_s = overlay.propagation_mean_s + entering_s[overlay.target]
    for nodes in range(1, int(known.nodes.max(initial=0)) + 1):
        for link, home in np.argwhere(known.nodes == nodes).tolist():
            fixed_s[link, home] = first_s[link]
            if nodes > 1:
                target = overlay.target[link]
                onward = known.out_links[known.out_offsets[target] : known.out_offsets[target + 1]]
                usable = onward[known.nodes[onward, home] == nodes - 1]
                best = usable[np.argmin(known.mean_s_per_kb[usable, home])]
                fixed_s[link, home] += fixed_s[best, home]
    return fixed_s


def _stored(overlay: Overlay, trees: Sequence[Tree], homes: Array, stored: str) -> Array:
    """How many subscriptions each broker's table holds: those whose events may pass through it, or all."""
    n = overlay.broker_count
    if stored == "all":
        return np.full(n, float(len(homes)))
    passes = np.zeros((n, n), np.bool_)
    for tree in {id(tree): tree for tree in trees}.values():
        for home in np.unique(homes).tolist():
            broker = home
            while broker >= 0 and broker in tree:
                passes[broker, home] = True
                broker = int(tree.parent[broker])
    return np.asarray(passes @ np.bincount(homes, minlength=n), np.float64)


def _entering_s(network: Network, table: Array) -> Array:
    """The expected time that an event spends in each broker, waiting excluded."""

    def spent_s(broker: Broker, stored: float) -> float:
        service_s = 0.0 if broker.service is None else broker.service.mean()
        processing_s = 0.0 if broker.processing is None else broker.processing.mean()
        return service_s * (stored if broker.service_per == "subscription" else 1.0) + processing_s

    return np.array([spent_s(broker, held) for broker, held in zip(network.topology.brokers, table, strict=True)])
