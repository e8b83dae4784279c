"""Path figures as the subscription table of paper C (section 4.2) holds them: nb, NN_p, mu_p and sigma_p^2.

NN_p counts the brokers still to be entered, the subscriber's home included: 0 at home. Means and variances of slowness
add up along a path, since links are independent (section 3.2). Rows are brokers, columns destination brokers; the
figures of a subscription are those of its home. Where a broker has no path, next hop, next link and nodes are -1 and
mean and variance infinite.
"""

from dataclasses import dataclass

import numpy as np

from tidings.compiled import compiled
from tidings.routing._arrays import FloatArray, IntArray, LongArray, frozen
from tidings.routing._overlay import NO_BROKER, NO_LINK, Overlay, Weight
from tidings.routing._trees import Tree, shortest_parents, whole_weights


@dataclass(frozen=True, kw_only=True, eq=False)
class PathFigures:
    """For [broker, destination]: the next link, the brokers still to be entered, and the path's slowness."""

    next_hop: IntArray
    next_link: IntArray
    nodes: IntArray
    mean_s_per_kb: FloatArray
    variance_s2_per_kb2: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class RootFigures:
    """For [destination]: the same figures from the root of a tree; NN_p is the tree's depth.

    Compact enough for many trees: between an ancestor and a broker below it the figures are the differences.
    """

    mean_s_per_kb: FloatArray
    variance_s2_per_kb2: FloatArray
    propagation_s: FloatArray


def tree_figures(overlay: Overlay, tree: Tree) -> PathFigures:
    """The figures along a tree: broker b has a path to its own subtree and to nothing else."""
    n = overlay.broker_count
    next_hop = np.full((n, n), NO_BROKER, np.int32)
    nodes = np.full((n, n), -1, np.int32)
    mean = np.full((n, n), np.inf)
    variance = np.full((n, n), np.inf)
    for broker in tree.order.tolist():
        if broker != tree.root:
            above, link = tree.parent[broker], tree.parent_link[broker]
            ancestors = np.flatnonzero(nodes[:, above] >= 0)
            next_hop[ancestors, broker] = next_hop[ancestors, above]
            next_hop[above, broker] = broker
            nodes[ancestors, broker] = nodes[ancestors, above] + 1
            mean[ancestors, broker] = mean[ancestors, above] + overlay.slowness_mean_s_per_kb[link]
            variance[ancestors, broker] = variance[ancestors, above] + overlay.slowness_variance_s2_per_kb2[link]
        nodes[broker, broker] = 0
        mean[broker, broker] = variance[broker, broker] = 0.0
    return _figures(overlay, next_hop, nodes, mean, variance)


def root_figures(overlay: Overlay, tree: Tree) -> RootFigures:
    """The figures from the root of the tree to each of its brokers."""
    n = overlay.broker_count
    sums = np.full((3, n), np.inf)
    sums[:, tree.root] = 0.0
    links = (overlay.slowness_mean_s_per_kb, overlay.slowness_variance_s2_per_kb2, overlay.propagation_mean_s)
    per_link = np.stack(links)
    for broker in tree.order[1:].tolist():
        sums[:, broker] = sums[:, tree.parent[broker]] + per_link[:, tree.parent_link[broker]]
    mean, variance, propagation = (frozen(row, np.float64) for row in sums)
    return RootFigures(mean_s_per_kb=mean, variance_s2_per_kb2=variance, propagation_s=propagation)


def shortest_path_figures(overlay: Overlay, *, weight: Weight = "slowness") -> PathFigures:
    """The figures of the best path between any two brokers, for tables without a publisher column.

    Paths are grown back from each destination and ties go to the lowest-numbered next hop, so what is left of a path
    after one step is the path of the next broker: hop-by-hop forwarding follows the figures exactly.
    """
    tails = frozen(overlay.source[overlay.in_links], np.int32)
    quanta = frozen(whole_weights(overlay.weights(weight))[overlay.in_links], np.int64)
    means = frozen(overlay.slowness_mean_s_per_kb[overlay.in_links], np.float64)
    variances = frozen(overlay.slowness_variance_s2_per_kb2[overlay.in_links], np.float64)
    return _figures(overlay, *_all_pairs(overlay.in_offsets, tails, quanta, means, variances))


def _figures(
    overlay: Overlay, next_hop: IntArray, nodes: IntArray, mean: FloatArray, variance: FloatArray
) -> PathFigures:
    link = np.full(next_hop.shape, NO_LINK, np.int32)
    row, column = np.nonzero(next_hop != NO_BROKER)
    link[row, column] = overlay.links_between(row.astype(np.int32), next_hop[row, column])
    return PathFigures(
        next_hop=frozen(next_hop, np.int32),
        next_link=frozen(link, np.int32),
        nodes=frozen(nodes, np.int32),
        mean_s_per_kb=frozen(mean, np.float64),
        variance_s2_per_kb2=frozen(variance, np.float64),
    )


def _all_pairs(
    offsets: IntArray, tails: IntArray, weights: LongArray, means: FloatArray, variances: FloatArray
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    n = len(offsets) - 1
    next_hop = np.full((n, n), NO_BROKER, np.int32)
    nodes = np.full((n, n), -1, np.int32)
    mean, variance = np.full((n, n), np.inf), np.full((n, n), np.inf)
    for destination in range(n):
        _, hops, onward = shortest_parents(destination, offsets, tails, weights)
        columns = _sums_towards(destination, offsets, tails, hops, onward, means, variances)
        next_hop[:, destination] = onward
        nodes[:, destination], mean[:, destination], variance[:, destination] = columns
    return next_hop, nodes, mean, variance


@compiled
def _sums_towards(
    destination: int,
    offsets: IntArray,
    tails: IntArray,
    hops: LongArray,
    onward: IntArray,
    means: FloatArray,
    variances: FloatArray,
) -> tuple[IntArray, FloatArray, FloatArray]:
    n = len(onward)
    nodes = np.full(n, -1, np.int32)
    mean = np.full(n, np.inf)
    variance = np.full(n, np.inf)
    nodes[destination] = 0
    mean[destination] = 0.0
    variance[destination] = 0.0
    # By ascending hops a broker's next hop is settled before the broker; those without a path sort last.
    for broker in np.argsort(hops, kind="mergesort"):
        after = onward[broker]
        if after < 0:
            continue
        for slot in range(offsets[after], offsets[after + 1]):
            if tails[slot] == broker:
                nodes[broker] = nodes[after] + 1
                mean[broker] = mean[after] + means[slot]
                variance[broker] = variance[after] + variances[slot]
    return nodes, mean, variance
