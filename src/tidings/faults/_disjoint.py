"""Equation 12: a lower bound of connectivity by paths that share no broker but their ends (paper D, section 4.4).

    r = a_s a_t (1 - product over paths of (1 - product of a over the path's connections and inner brokers))

The paper does not define which paths. A greedy choice, shortest first, can block better ones; here k paths are those of
the least cost flow of k units, cost - ln a, for k = 1, 2, ... as many as there are, and the best k counts. Each unit
more is one shortest path (Bellman and Ford, with a queue) in the residual graph.
"""

import numpy as np

from tidings.compiled import compiled
from tidings.faults._graph import Array, FaultGraph, FloatArray

__all__ = ["disjoint_path_chances"]

_FAR = 1e300


def disjoint_path_chances(graph: FaultGraph, root: int) -> FloatArray:
    """By broker, given that it and the root are up: the chance that one of the disjoint paths is; 0 without a path."""
    graph.require_broker(root, "root")
    n = graph.broker_count
    brokers = np.arange(n)
    one, other = graph.ends[:, 0], graph.ends[:, 1]
    # A broker is an arc from where events enter (2 b) to where they leave (2 b + 1); arc k ^ 1 is arc k backwards.
    tail = np.concatenate((2 * brokers, 2 * one + 1, 2 * other + 1))
    head = np.concatenate((2 * brokers + 1, 2 * other, 2 * one))
    cost = -np.log(np.concatenate((graph.broker_availability, graph.link_availability, graph.link_availability)))
    tails, heads = np.stack((tail, head), axis=1).ravel(), np.stack((head, tail), axis=1).ravel()
    costs = np.stack((cost, -cost), axis=1).ravel()
    order = np.argsort(tails, kind="stable")
    offsets = np.searchsorted(tails[order], np.arange(2 * n + 1))
    return _best(n, root, offsets.astype(np.int64), order.astype(np.int64), heads, costs)


@compiled
def _best(n: int, root: int, offsets: Array, arcs: Array, heads: Array, costs: Array) -> Array:
    out = np.zeros(n)
    out[root] = 1.0
    room = np.empty(len(heads), np.bool_)
    nodes = 2 * n
    distance, via = np.empty(nodes), np.empty(nodes, np.int64)
    queue, is_queued = np.empty(nodes, np.int64), np.zeros(nodes, np.bool_)
    for target in range(n):
        if target == root:
            continue
        for arc in range(len(heads)):
            room[arc] = arc % 2 == 0
        source, sink = 2 * root + 1, 2 * target
        while True:
            distance[:], via[:] = _FAR, -1
            distance[source] = 0.0
            queue[0], first, waiting = source, 0, 1
            while waiting > 0:
                node = queue[first]
                first = (first + 1) % nodes
                waiting -= 1
                is_queued[node] = False
                for place in range(offsets[node], offsets[node + 1]):
                    arc = arcs[place]
                    new = distance[node] + costs[arc]
                    if room[arc] and new < distance[heads[arc]] - 1e-12:
                        distance[heads[arc]] = new
                        via[heads[arc]] = arc
                        if not is_queued[heads[arc]]:
                            is_queued[heads[arc]] = True
                            queue[(first + waiting) % nodes] = heads[arc]
                            waiting += 1
            if via[sink] < 0:
                break
            node = sink
            while node != source:
                arc = via[node]
                room[arc], room[arc ^ 1] = False, True
                node = heads[arc ^ 1]
            out[target] = max(out[target], _of_paths(source, sink, offsets, arcs, heads, costs, room))
    return out


@compiled
def _of_paths(source: int, sink: int, offsets: Array, arcs: Array, heads: Array, costs: Array, room: Array) -> float:
    """1 - the product over the flow's paths of the chance that the path is down."""
    all_down = 1.0
    for place in range(offsets[source], offsets[source + 1]):
        arc = arcs[place]
        if arc % 2 == 1 or room[arc]:
            continue
        cost, node = costs[arc], heads[arc]
        while node != sink:
            for onward in range(offsets[node], offsets[node + 1]):
                step = arcs[onward]
                if step % 2 == 0 and not room[step]:
                    cost += costs[step]
                    node = heads[step]
                    break
        all_down *= 1.0 - np.exp(-cost)
    return 1.0 - all_down
