"""Multi-path forwarding: the literal reading of paper C's subscription table.

The table has no publisher column: a broker keeps a subscription once for each downstream neighbour that leads to it,
and forwards one copy of an event to every downstream neighbour through which at least one matching subscriber can be
reached. Where paths meet again an event arrives more than once (the first arrival counts).

That ends only if downstream links form no cycle. A mesh that runs downstream only is used as it is; otherwise
`downstream_links` keeps the links that lead one step further from the nearest publisher's broker, which in a layered
mesh are exactly those from each layer to the next.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tidings.errors import ConfigurationError
from tidings.routing._arrays import BoolArray, FloatArray, IntArray, LongArray, frozen
from tidings.routing._overlay import NO_LINK, Overlay
from tidings.routing._trees import whole_weights


@dataclass(frozen=True, kw_only=True, eq=False)
class ReachabilityTable:
    """For [link, destination broker]: does a downstream path start with this link, and the figures of the best one.

    A link stands for a broker and one of its downstream neighbours. `nodes` (NN_p), mean and variance are those of the
    path with the least mean slowness, then the fewest brokers, through the lowest-numbered neighbours; -1 and infinite
    where `reaches` is false. `out_offsets` and `out_links` list each broker's downstream links by ascending neighbour.
    """

    out_offsets: IntArray
    out_links: IntArray
    reaches: BoolArray
    nodes: IntArray
    mean_s_per_kb: FloatArray
    variance_s2_per_kb2: FloatArray

    def links_towards(self, broker: int, homes: IntArray | list[int]) -> IntArray:
        """The links on which this broker forwards a copy of an event that subscribers at these homes match."""
        links = self.out_links[self.out_offsets[broker] : self.out_offsets[broker + 1]]
        return frozen(links[self.reaches[np.ix_(links, np.asarray(homes, np.intp))].any(axis=1)], np.int32)


def downstream_links(overlay: Overlay, publisher_brokers: Iterable[int]) -> BoolArray:
    """Which links lead further from the nearest publisher's broker, counting hops."""
    hops = np.full(overlay.broker_count, -1, np.int64)
    front = sorted(set(publisher_brokers))
    for broker in front:
        overlay.require_broker(broker, "publisher's broker")
        hops[broker] = 0
    while front:
        following: set[int] = set()
        for broker in front:
            links = overlay.out_links[overlay.out_offsets[broker] : overlay.out_offsets[broker + 1]]
            fresh = [int(b) for b in overlay.target[links] if hops[b] < 0]
            hops[fresh] = hops[broker] + 1
            following.update(fresh)
        front = sorted(following)
    downstream = (hops[overlay.source] >= 0) & (hops[overlay.target] > hops[overlay.source])
    return frozen(downstream, np.bool_)


def reachability_table(overlay: Overlay, downstream: BoolArray | None = None) -> ReachabilityTable:
    """The table over these links (default: all); a ConfigurationError if they run in a circle."""
    used = np.ones(overlay.link_count, np.bool_) if downstream is None else np.asarray(downstream, np.bool_)
    n, m = overlay.broker_count, overlay.link_count
    ordered = overlay.out_links[used[overlay.out_links]]
    offsets = frozen(np.searchsorted(overlay.source[ordered], np.arange(n + 1)), np.int32)
    whole = whole_weights(overlay.slowness_mean_s_per_kb)
    cost = np.zeros((m, n), np.int64)
    nodes = np.full((m, n), -1, np.int32)
    mean, variance = np.full((m, n), np.inf), np.full((m, n), np.inf)
    for broker in reversed(_downstream_order(overlay, offsets, ordered)):
        best = _best_links(ordered[offsets[broker] : offsets[broker + 1]], nodes, cost)
        there = np.flatnonzero(best >= 0)
        chosen = best[there]
        for link in overlay.in_links[overlay.in_offsets[broker] : overlay.in_offsets[broker + 1]]:
            if used[link]:
                nodes[link, broker], cost[link, broker] = 1, whole[link]
                mean[link, broker] = overlay.slowness_mean_s_per_kb[link]
                variance[link, broker] = overlay.slowness_variance_s2_per_kb2[link]
                nodes[link, there] = nodes[chosen, there] + 1
                cost[link, there] = cost[chosen, there] + whole[link]
                mean[link, there] = mean[chosen, there] + mean[link, broker]
                variance[link, there] = variance[chosen, there] + variance[link, broker]
    return ReachabilityTable(
        out_offsets=offsets,
        out_links=frozen(ordered, np.int32),
        reaches=frozen(nodes >= 0, np.bool_),
        nodes=frozen(nodes, np.int32),
        mean_s_per_kb=frozen(mean, np.float64),
        variance_s2_per_kb2=frozen(variance, np.float64),
    )


def _best_links(links: IntArray, nodes: IntArray, cost: LongArray) -> IntArray:
    """For each destination the best of these links of one broker to take, or -1."""
    best = np.full(nodes.shape[1], NO_LINK, np.int32)
    best_cost = np.full(nodes.shape[1], np.iinfo(np.int64).max)
    best_nodes = np.full(nodes.shape[1], np.iinfo(np.int32).max)
    for link in links:
        cheaper = (cost[link] < best_cost) | ((cost[link] == best_cost) & (nodes[link] < best_nodes))
        better = (nodes[link] >= 0) & cheaper
        best[better], best_cost[better], best_nodes[better] = link, cost[link, better], nodes[link, better]
    return best


def _downstream_order(overlay: Overlay, offsets: IntArray, links: IntArray) -> list[int]:
    """The brokers so that every downstream link leads from an earlier to a later one."""
    entering = np.bincount(overlay.target[links], minlength=overlay.broker_count)
    order: list[int] = np.flatnonzero(entering == 0).tolist()
    for broker in order:  # grows while it is read, by each broker at most once
        for link in links[offsets[broker] : offsets[broker + 1]]:
            target = int(overlay.target[link])
            entering[target] -= 1
            if entering[target] == 0:
                order.append(target)
    if len(order) < overlay.broker_count:
        circling = np.flatnonzero(entering > 0).tolist()
        raise ConfigurationError(
            f"downstream links form a cycle at or before {overlay.names(circling)}: multi-path forwarding "
            "needs a mesh that runs downstream; choose links with downstream_links, or use single-path routing"
        )
    return order
