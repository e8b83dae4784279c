"""Graphs that fail, and an independent simulation of them: alternating components, holders, detours; no queues."""

from collections.abc import Callable

import networkx
import numpy as np
import pytest

from tidings.faults import FaultGraph

PERIOD_S = 60_000.0


def random_graph(
    brokers: int,
    connections: int,
    rng: np.random.Generator,
    *,
    low: float = 0.9,
    high: float = 0.95,
    links: float = 0.99,
) -> FaultGraph:
    """Connected, otherwise uniformly random, with availabilities drawn from low..high."""
    while True:
        drawn = networkx.gnm_random_graph(brokers, connections, seed=int(rng.integers(2**31)))
        if networkx.is_connected(drawn):
            break
    availability = rng.uniform(low, high, brokers).tolist()
    return FaultGraph.exponential(ends=list(drawn.edges), brokers=availability, links=links, period_s=PERIOD_S)


def shortest_parents(graph: FaultGraph, root: int) -> list[int]:
    """The tree of fewest hops."""
    net = networkx.Graph()
    net.add_nodes_from(range(graph.broker_count))
    net.add_edges_from(graph.ends.tolist())
    parents = [-1] * graph.broker_count
    for above, below in networkx.bfs_edges(net, root):
        parents[below] = above
    return parents


def reachable(graph: FaultGraph, up: np.ndarray) -> np.ndarray:
    """[sample, one, other]: whether two brokers are up and connected, for states [sample, component]."""
    n = graph.broker_count
    reached = np.zeros((len(up), n, n), np.bool_)
    reached[:, np.arange(n), np.arange(n)] = up[:, :n]
    for link, (u, v) in enumerate(graph.ends.tolist()):
        both = up[:, u] & up[:, v] & up[:, n + link]
        reached[:, u, v] |= both
        reached[:, v, u] |= both
    for _ in range(max(1, int(np.ceil(np.log2(n))))):
        reached = np.einsum("kij,kjl->kil", reached.astype(np.float32), reached.astype(np.float32)) > 0.0
    return reached


def simulate_buffered(
    graph: FaultGraph,
    root: int,
    parents: list[int],
    lifetime_s: float,
    samples: int,
    rng: np.random.Generator,
    *,
    bypass: bool,
    rest: Callable[[int, int], np.ndarray] | None = None,
) -> np.ndarray:
    """By broker: the share of events, published while the root is up, that have got there by the end of the lifetime.

    Whoever has the event gives it to a child of the tree when all of the way is up; with bypass when they are
    connected, and if the child has it not, the child's children may have it from there. `rest(component, count)` draws
    what is left of a repair under way; without it times are exponential.
    """
    n = graph.broker_count
    failures = (*graph.brokers, *graph.links)
    count = len(failures)
    availability = np.concatenate((graph.broker_availability, graph.link_availability))
    up = rng.random((samples, count)) < availability
    up[:, root] = True
    change_s = np.empty((samples, count))
    for number, distribution in enumerate(failures):
        assert distribution is not None
        left = distribution.down.sample(rng, samples) if rest is None else rest(number, samples)
        change_s[:, number] = np.where(up[:, number], distribution.up.sample(rng, samples), left)
    order = sorted((b for b in range(n) if b != root), key=lambda b: _depth(parents, b))
    edge = {frozenset(pair): link for link, pair in enumerate(graph.ends.tolist())}
    has = np.zeros((samples, n), np.bool_)
    has[:, root] = True
    while True:
        near = reachable(graph, up) if bypass else None
        for broker in order:
            above = parents[broker]
            if near is None:
                link = n + edge[frozenset((above, broker))]
                has[:, broker] |= has[:, above] & up[:, above] & up[:, link] & up[:, broker]
                continue
            waiting = np.ones(samples, np.bool_)
            while above >= 0:
                has[:, broker] |= waiting & has[:, above] & near[:, above, broker]
                waiting &= ~has[:, above]
                above = parents[above]
        first = change_s.argmin(axis=1)
        rows = np.arange(samples)
        now = change_s[rows, first]
        going = np.flatnonzero(now <= lifetime_s)
        if not len(going):
            return has.mean(axis=0)
        for number in np.unique(first[going]).tolist():
            chosen = going[first[going] == number]
            distribution = failures[number]
            assert distribution is not None
            up[chosen, number] ^= True
            drawn = np.where(
                up[chosen, number], distribution.up.sample(rng, len(chosen)), distribution.down.sample(rng, len(chosen))
            )
            change_s[chosen, number] += drawn


def _depth(parents: list[int], broker: int) -> int:
    depth = 0
    while parents[broker] >= 0:
        broker, depth = parents[broker], depth + 1
    return depth


@pytest.fixture
def chain_of_three() -> FaultGraph:
    """The check values' path: brokers .92, .94, .91, links .99, cycles of 60,000 s."""
    return FaultGraph.exponential(ends=[(0, 1), (1, 2)], brokers=[0.92, 0.94, 0.91], links=0.99, period_s=PERIOD_S)


@pytest.fixture(name="random_graph")
def give_random_graph() -> Callable[..., FaultGraph]:
    return random_graph


@pytest.fixture(name="shortest_parents")
def give_shortest_parents() -> Callable[..., list[int]]:
    return shortest_parents


@pytest.fixture(name="reachable")
def give_reachable() -> Callable[..., np.ndarray]:
    return reachable


@pytest.fixture(name="simulate_buffered")
def give_simulate_buffered() -> Callable[..., np.ndarray]:
    return simulate_buffered
