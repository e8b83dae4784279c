"""Connectivity: by enumeration of all states, by derivatives, against samples; large blocks against exact ones."""

import itertools

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.faults import FaultGraph, connectivity_of, disjoint_path_chances


def enumerated(graph):
    """Chances of [one, other] being connected and how often they stop being so, by every state of all components."""
    n, m = graph.broker_count, len(graph.ends)
    a = np.concatenate((graph.broker_availability, graph.link_availability))
    fails = np.concatenate((graph.broker_frequency_per_s, graph.link_frequency_per_s)) / a
    connected = {}
    for state in itertools.product((False, True), repeat=n + m):
        net = networkx.Graph()
        net.add_nodes_from(b for b in range(n) if state[b])
        net.add_edges_from(
            pair
            for k, pair in enumerate(graph.ends.tolist())
            if state[n + k] and net.has_node(pair[0]) and net.has_node(pair[1])
        )
        together = np.zeros((n, n), np.bool_)
        for part in networkx.connected_components(net):
            members = list(part)
            together[np.ix_(members, members)] = True
        connected[state] = together
    chance, rate = np.zeros((n, n)), np.zeros((n, n))
    for state, together in connected.items():
        weight = np.prod(np.where(state, a, 1.0 - a))
        chance += weight * together
        for x in range(n + m):
            if state[x]:
                broken = together & ~connected[(*state[:x], False, *state[x + 1 :])]
                rate += weight * fails[x] * broken
    return chance, rate


@pytest.mark.parametrize("seed", range(4))
def test_against_enumeration(random_graph, seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(6, 6 + seed % 2, rng, low=0.3, high=0.95, links=0.8)
    chance, rate = enumerated(graph)
    found = connectivity_of(graph)
    ours = np.array([found.chances(root) for root in range(6)])
    assert np.abs(ours - chance).max() < 1e-12
    a, fails = graph.broker_availability, graph.broker_frequency_per_s / graph.broker_availability
    for one, other in itertools.combinations(range(6), 2):
        if not set(found.blocks_of[one]) & set(found.blocks_of[other]):
            continue
        # Theirs includes the ends' own failures.
        inside = found.frequency_per_s[one, other] + found.inner[one, other] * (fails[one] + fails[other])
        assert a[one] * a[other] * inside == pytest.approx(rate[one, other], rel=1e-9)


@pytest.mark.full
def test_large_blocks_agree_with_exact_ones(random_graph):
    rng = np.random.default_rng(11)
    for low, links, margin in ((0.9, 0.99, 2e-4), (0.6, 0.9, 0.02)):
        graph = random_graph(11, 22, rng, low=low, high=0.95, links=links)
        exact = connectivity_of(graph)
        large = connectivity_of(graph, exact_up_to=2, samples=20_000)
        assert np.abs(large.inner - exact.inner).max() < margin
        scale = exact.frequency_per_s.max()
        assert np.abs(large.frequency_per_s - exact.frequency_per_s).max() < max(20.0 * margin, 0.005) * scale


def test_a_large_block_against_samples(random_graph):
    rng = np.random.default_rng(3)
    graph = random_graph(40, 80, rng)
    found = connectivity_of(graph, generator=np.random.default_rng(1), samples=10_000)
    n, samples = 40, 20_000
    a = np.concatenate((graph.broker_availability, graph.link_availability))
    together = np.zeros((n, n))
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    # All samples are one large graph of blocks.
    up = rng.random((samples, len(a))) < a
    one, other = graph.ends[:, 0], graph.ends[:, 1]
    rows, links = np.nonzero(up[:, n:] & up[:, one] & up[:, other])
    net = coo_matrix((np.ones(len(rows)), (rows * n + one[links], rows * n + other[links])), shape=(samples * n,) * 2)
    label = connected_components(net, directed=False)[1].reshape(samples, n)
    for b in range(n):
        together[b] = ((label == label[:, [b]]) & up[:, :n] & up[:, [b]]).mean(axis=0)
    ours = np.array([found.chances(root) for root in range(n)])
    error = np.sqrt(together * (1.0 - together) / samples)
    assert np.abs(ours - together).max() < 5.0 * error.max()
    assert np.sqrt(((ours - together) ** 2).mean()) < 1.3 * np.sqrt((error**2).mean())


@pytest.mark.parametrize("size", [5, 20])
def test_a_ring(size):
    """Both ways round, in closed form; a large one is all samples, and right."""
    a, link = 0.97, 0.99
    ends = [(b, (b + 1) % size) for b in range(size)]
    graph = FaultGraph.exponential(ends=ends, brokers=[a] * size, links=link, period_s=1.0)
    found = connectivity_of(graph)
    for apart in range(1, size):
        one, other = (link**hops * a ** (hops - 1) for hops in (apart, size - apart))
        assert found.inner[0, apart] == pytest.approx(
            1.0 - (1.0 - one) * (1.0 - other), abs=0.012 if size > 12 else 1e-9
        )


def test_two_meshes_with_two_bridges_between_them(random_graph):
    """A bottleneck that no small component shows: the samples see it."""
    rng = np.random.default_rng(5)
    half = random_graph(10, 25, rng)
    ends = [*half.ends.tolist(), *(half.ends + 10).tolist(), (0, 10), (1, 11)]
    brokers = np.tile(half.broker_availability, 2).tolist()
    graph = FaultGraph.exponential(ends=ends, brokers=brokers, links=0.9, period_s=1.0)
    found = connectivity_of(graph, samples=40_000)
    a = graph.broker_availability
    bridge = [0.9 * a[b] * a[b + 10] for b in (0, 1)]
    most = 1.0 - (1.0 - bridge[0]) * (1.0 - bridge[1])
    assert found.inner[5, 15] < most
    assert found.inner[5, 15] == pytest.approx(most, abs=0.03)


@given(data=st.data())
@settings(deadline=None, max_examples=20)
def test_another_link_never_hurts(data):
    n = data.draw(st.integers(3, 7))
    pairs = list(itertools.combinations(range(n), 2))
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=2, max_size=len(pairs)))
    brokers = data.draw(st.lists(st.floats(0.05, 0.99), min_size=n, max_size=n))
    few = FaultGraph.exponential(ends=chosen[:-1], brokers=brokers, links=0.9, period_s=1.0)
    more = FaultGraph.exponential(ends=chosen, brokers=brokers, links=0.9, period_s=1.0)
    before, after = (connectivity_of(graph).chances(0) for graph in (few, more))
    assert (after >= before - 1e-12).all()
    lower = disjoint_path_chances(more, 0) * more.broker_availability * more.broker_availability[0]
    lower[0] = more.broker_availability[0]
    assert (lower <= after + 1e-12).all()  # equation 12 is a lower bound


def test_disjoint_paths_are_not_chosen_greedily():
    """The most available path, s-a-b-t, blocks both of the others; two that avoid its middle are better."""
    s, a, b, c, d, t = range(6)
    ends = [(s, a), (a, b), (b, t), (s, c), (c, b), (a, d), (d, t)]
    links = [0.99, 0.99, 0.99, 0.9, 0.9, 0.9, 0.9]
    graph = FaultGraph.exponential(ends=ends, brokers=[1.0] * 6, links=links, period_s=1.0)
    greedy = 0.99**3
    upper, lower = 0.9 * 0.9 * 0.99, 0.99 * 0.9 * 0.9
    both = 1.0 - (1.0 - upper) * (1.0 - lower)
    assert disjoint_path_chances(graph, s)[t] == pytest.approx(max(greedy, both))
    weak = FaultGraph.exponential(ends=ends, brokers=[1.0, 0.7, 0.7, 0.95, 0.95, 1.0], links=1.0, period_s=1.0)
    assert disjoint_path_chances(weak, s)[t] == pytest.approx(1.0 - (1.0 - 0.7 * 0.95) ** 2)


def test_what_cannot_be_asked(random_graph):
    graph = random_graph(5, 6, np.random.default_rng(0))
    with pytest.raises(InputError, match="exact up to 12"):
        connectivity_of(graph, exact_up_to=13)
    with pytest.raises(InputError, match="root 9"):
        connectivity_of(graph).chances(9)
