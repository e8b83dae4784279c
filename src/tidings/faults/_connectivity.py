"""The chance that two brokers are connected, and how often they stop being so, for all pairs (paper D, section 4.4).

The paper's equation 12 bounds it from below by disjoint paths. Here the graph is cut at its articulation brokers:
between two brokers all paths pass the same articulation brokers and, between two of these, stay in one biconnected
block. Blocks fail independently, given that the brokers they share are up. So every block is an equivalent connection
between any two of its brokers, with the availability and the frequency of their being connected inside it: a bridge is
itself, a block of up to BLOCK_MAX brokers is exact (`_subsets`), a larger one is nearly so (`_large_blocks`).

From a root, every broker hangs below the articulation broker before it: an `EquivalentTree`. Connectivity is a product
along it, and buffering with bypass is the chain of `_hops` along it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidings.errors import InputError
from tidings.faults._graph import FaultGraph, FloatArray, LongArray
from tidings.faults._large_blocks import SAMPLES, connect_large_block
from tidings.faults._subsets import BLOCK_MAX, connect_all_pairs

__all__ = ["Connectivity", "EquivalentTree", "connectivity_of"]

DEFAULT_SEED = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class EquivalentTree:
    """`order` lists the root and the brokers below it; `parent` and `connection` are by broker, -1 outside the tree.

    `availability` and `frequency_per_s` are those of the equivalent connection from the parent; `connection` is the
    real one where it is a bridge, otherwise -1.
    """

    order: LongArray
    parent: LongArray
    connection: LongArray
    availability: FloatArray
    frequency_per_s: FloatArray

    def passed(self, broker: int) -> set[int]:
        """The brokers that every path from the root to this one passes, both included."""
        found = {broker}
        while self.parent[broker] >= 0:
            broker = int(self.parent[broker])
            found.add(broker)
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Connectivity:
    """By [one, other] inside a block, both up: `inner` chance of being connected, `frequency_per_s` of losing it."""

    graph: FaultGraph
    blocks: Sequence[LongArray]
    blocks_of: Sequence[Sequence[int]]
    inner: FloatArray
    frequency_per_s: FloatArray

    def tree(self, root: int) -> EquivalentTree:
        """The brokers connected to `root`, each below the articulation broker before it."""
        self.graph.require_broker(root, "root")
        n = self.graph.broker_count
        parent = np.full(n, -1, np.int64)
        order, is_used = [root], np.zeros(len(self.blocks), np.bool_)
        for broker in order:  # grows while it is read
            for block in self.blocks_of[broker]:
                if not is_used[block]:
                    is_used[block] = True
                    below = [other for other in self.blocks[block].tolist() if other != broker]
                    parent[below] = broker
                    order += below
        brokers = np.array(order[1:], np.int64)
        availability, frequency = np.ones(n), np.zeros(n)
        availability[brokers] = self.inner[parent[brokers], brokers]
        frequency[brokers] = self.frequency_per_s[parent[brokers], brokers]
        connection = np.full(n, -1, np.int64)
        bridges = np.array([len(self.blocks[self._block(parent[b], b)]) == 2 for b in brokers.tolist()], np.bool_)
        connection[brokers] = np.where(bridges, self.graph.connections_between(parent[brokers], brokers), -1)
        return EquivalentTree(
            order=np.array(order, np.int64),
            parent=parent,
            connection=connection,
            availability=availability,
            frequency_per_s=frequency,
        )

    def _block(self, one: int, other: int) -> int:
        return next(block for block in self.blocks_of[one] if block in self.blocks_of[other])

    def chances(self, root: int) -> FloatArray:
        """By broker: the chance that it and the root are up and connected; 0 without a path."""
        tree, a = self.tree(root), self.graph.broker_availability
        out = np.zeros(self.graph.broker_count)
        out[root] = a[root]
        for broker in tree.order[1:].tolist():
            out[broker] = out[tree.parent[broker]] * tree.availability[broker] * a[broker]
        return out


def connectivity_of(
    graph: FaultGraph,
    *,
    generator: np.random.Generator | None = None,
    samples: int = SAMPLES,
    exact_up_to: int = BLOCK_MAX,
) -> Connectivity:
    """Works out every block. Blocks of more than `exact_up_to` brokers draw `samples` from `generator` (default: always
    the same one, so that a prediction is the same each time)."""
    import networkx

    if not 2 <= exact_up_to <= BLOCK_MAX:
        raise InputError(f"blocks can be exact up to {BLOCK_MAX} brokers, not {exact_up_to}: choose 2..{BLOCK_MAX}")
    n = graph.broker_count
    net = networkx.Graph()
    net.add_nodes_from(range(n))
    net.add_edges_from(graph.ends.tolist())
    blocks = [np.array(sorted(block), np.int64) for block in networkx.biconnected_components(net)]
    draws = np.random.default_rng(DEFAULT_SEED) if generator is None else generator
    blocks.sort(key=lambda block: block.tolist())
    blocks_of: list[list[int]] = [[] for _ in range(n)]
    inner, frequency = np.zeros((n, n)), np.zeros((n, n))
    np.fill_diagonal(inner, 1.0)
    for number, block in enumerate(blocks):
        for broker in block.tolist():
            blocks_of[broker].append(number)
        found, rate = _connect(_part(graph, block), draws, samples, exact_up_to)
        inner[np.ix_(block, block)], frequency[np.ix_(block, block)] = found, rate
    return Connectivity(graph=graph, blocks=blocks, blocks_of=blocks_of, inner=inner, frequency_per_s=frequency)


def _part(graph: FaultGraph, block: LongArray) -> FaultGraph:
    number = np.full(graph.broker_count, -1, np.int64)
    number[block] = np.arange(len(block))
    ends = number[graph.ends]
    kept = np.flatnonzero((ends >= 0).all(axis=1))
    return FaultGraph(
        brokers=tuple(graph.brokers[b] for b in block.tolist()),
        links=tuple(graph.links[link] for link in kept.tolist()),
        ends=ends[kept],
    )


def _connect(
    part: FaultGraph, generator: np.random.Generator, samples: int, exact_up_to: int
) -> tuple[FloatArray, FloatArray]:
    if part.broker_count == 2:
        a, rate = float(part.link_availability[0]), float(part.link_frequency_per_s[0])
        return np.array([[1.0, a], [a, 1.0]]), np.array([[0.0, rate], [rate, 0.0]])
    if part.broker_count > exact_up_to:
        return connect_large_block(part, generator, samples=samples)
    return connect_all_pairs(
        part.broker_availability,
        part.broker_frequency_per_s,
        part.ends,
        part.link_availability,
        part.link_frequency_per_s,
    )
