import heapq
from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError, InputError
from tidings.routing import Overlay, overlay_of_links, shortest_path_tree, shortest_path_trees, tree_of_parents
from tidings.routing._trees import shortest_parents, whole_weights

SEEDS = st.integers(0, 2**32 - 1)


def as_graph(overlay: Overlay, weights: np.ndarray) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(overlay.broker_count))
    for link in range(overlay.link_count):
        graph.add_edge(int(overlay.source[link]), int(overlay.target[link]), weight=float(weights[link]))
    return graph


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 40), extra=st.integers(0, 60))
@pytest.mark.parametrize("weight", ["slowness", "propagation", "hops"])
def test_against_networkx(make_overlay, seed, brokers, extra, weight) -> None:
    overlay = make_overlay(seed, brokers, extra, one_way=0.5)
    weights = overlay.weights(weight)
    tree = shortest_path_tree(overlay, 0, weight=weight)
    expected = nx.single_source_dijkstra_path_length(as_graph(overlay, weights), 0)
    for broker in range(brokers):
        path = tree.path(broker)
        links = overlay.links_between(path[:-1], path[1:])
        assert weights[links].sum() == pytest.approx(expected[broker], rel=1e-9)
        assert tree.depth[broker] == len(path) - 1


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(2, 6), extra=st.integers(0, 8))
def test_ties_go_to_fewer_hops_then_to_the_lowest_previous_broker(make_overlay, seed, brokers, extra) -> None:
    overlay = make_overlay(seed, brokers, extra, weights=(0.0, 0.1, 0.2, 0.3), one_way=0.5)
    tree = shortest_path_tree(overlay, 0)
    tenths = np.rint(overlay.slowness_mean_s_per_kb * 10).astype(int)
    for broker in range(1, brokers):
        best = None
        others = [b for b in range(1, brokers) if b != broker]
        for inner in (p for k in range(len(others) + 1) for p in permutations(others, k)):
            path = (0, *inner, broker)
            links = overlay.links_between(path[:-1], path[1:])
            if (links >= 0).all():
                label = (int(tenths[links].sum()), len(links), path[-2])
                best = label if best is None else min(best, label)
        found = tree.path(broker)
        links = overlay.links_between(found[:-1], found[1:])
        assert (int(tenths[links].sum()), len(links), found[-2]) == best


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 25), extra=st.integers(0, 30))
def test_renumbering_brokers_renumbers_the_tree(make_overlay, seed, brokers, extra) -> None:
    overlay = make_overlay(seed, brokers, extra)
    new = np.random.default_rng(seed + 1).permutation(brokers)
    shuffled = np.random.default_rng(seed + 2).permutation(overlay.link_count)
    other = overlay_of_links(
        brokers,
        [
            (int(new[overlay.source[k]]), int(new[overlay.target[k]]), float(overlay.slowness_mean_s_per_kb[k]))
            for k in shuffled
        ],
    )
    tree, renumbered = shortest_path_tree(overlay, 0), shortest_path_tree(other, int(new[0]))
    for broker in range(brokers):
        assert [int(new[b]) for b in tree.path(broker)] == list(renumbered.path(int(new[broker])))


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 30), root=st.integers(0, 29))
def test_on_an_acyclic_overlay_the_tree_is_the_overlay(make_overlay, seed, brokers, root) -> None:
    overlay = make_overlay(seed, brokers, 0, weights=(0.0, 1.0, 2.0))
    tree = shortest_path_tree(overlay, root % brokers)
    pairs = {frozenset((int(tree.parent[b]), b)) for b in range(brokers) if b != tree.root}
    both_ways = zip(overlay.source.tolist(), overlay.target.tolist(), strict=True)
    assert pairs == {frozenset(pair) for pair in both_ways}


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 30), extra=st.integers(0, 20))
def test_preorder_makes_every_subtree_one_interval(make_overlay, seed, brokers, extra) -> None:
    tree = shortest_path_tree(make_overlay(seed, brokers, extra), 0)
    assert tree.order[tree.position].tolist() == list(range(brokers))
    for broker in range(brokers):
        start = tree.position[broker]
        subtree = {b for b in range(brokers) if broker in tree.path(b)}
        assert set(tree.order[start : start + tree.size[broker]].tolist()) == subtree
        assert tree.children(broker) == tuple(b for b in range(brokers) if tree.parent[b] == broker)


def dijkstra(root: int, offsets, heads, weights) -> tuple[list[int], list[int], list[int]]:
    """Labels and parents as `shortest_parents` must have them, by the textbook."""
    never = np.iinfo(np.int64).max
    best = [(never, never)] * (len(offsets) - 1)
    best[root] = (0, 0)
    heap = [(0, 0, root)]
    while heap:
        cost, hops, broker = heapq.heappop(heap)
        for slot in range(offsets[broker], offsets[broker + 1]):
            label, head = (cost + int(weights[slot]), hops + 1), int(heads[slot])
            if label < best[head]:
                best[head] = label
                heapq.heappush(heap, (*label, head))
    parents = [-1] * len(best)
    for near, (cost, hops) in enumerate(best):
        for slot in range(offsets[near], offsets[near + 1]) if cost != never else ():
            head = int(heads[slot])
            if parents[head] < 0 and best[head] == (cost + int(weights[slot]), hops + 1):
                parents[head] = near
    return [cost for cost, _ in best], [hops for _, hops in best], parents


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 20), extra=st.integers(0, 20))
def test_kernel_and_plain_twin_agree(make_overlay, seed, brokers, extra) -> None:
    overlay = make_overlay(seed, brokers, extra, weights=(0.0, 0.1, 0.2), one_way=0.5)
    heads = overlay.target[overlay.out_links]
    weights = whole_weights(overlay.slowness_mean_s_per_kb)[overlay.out_links]
    kernel = shortest_parents(0, overlay.out_offsets, heads, weights)
    plain = dijkstra(0, overlay.out_offsets.tolist(), heads, weights)
    for one, other in zip(kernel, plain, strict=True):
        assert one.tolist() == other


def test_decimals_tie_as_written() -> None:
    # .1 + .2 exceeds .3 in doubles; as written they are equal, and fewer hops win.
    overlay = overlay_of_links(3, [(0, 1, 0.1), (1, 2, 0.2), (0, 2, 0.3)])
    assert shortest_path_tree(overlay, 0).path(2) == (0, 2)
    overlay = overlay_of_links(4, [(0, 1, 0.1), (1, 3, 0.6), (0, 2, 0.3), (2, 3, 0.4)])
    assert shortest_path_tree(overlay, 0).path(3) == (0, 1, 3)


def test_an_unreachable_broker_is_named() -> None:
    overlay = overlay_of_links(["hub", "leaf", "island"], [(0, 1, 1.0), (2, 0, 1.0)])
    with pytest.raises(ConfigurationError, match="from broker 'hub' to 'island'"):
        shortest_path_tree(overlay, 0)
    tree = shortest_path_tree(overlay, 0, destinations=[1])
    assert 2 not in tree
    assert tree.order.tolist() == [0, 1]
    with pytest.raises(InputError, match="not in the tree"):
        tree.path(2)


def test_publishers_at_one_broker_share_a_tree() -> None:
    overlay = overlay_of_links(3, [(0, 1, 1.0), (1, 2, 1.0)], both_ways=True)
    first, second, third = shortest_path_trees(overlay, [0, 2, 0])
    assert first is third
    assert second.root == 2


@pytest.mark.parametrize(
    ("root", "parents", "message"),
    [
        (5, [-1, 0, 1], "root 5 is not a broker"),
        (0, [-1, 0], "one broker for each of 3"),
        (0, [1, -1, 1], "-1 for the root"),
        (0, [-1, 2, 1], "cycle"),
        (0, [-1, 0, 0], "no link leads from broker 0 to broker 2"),
    ],
)
def test_wrong_parents_are_named(root: int, parents: list[int], message: str) -> None:
    overlay = overlay_of_links(3, [(0, 1, 1.0), (1, 2, 1.0)], both_ways=True)
    with pytest.raises(InputError, match=message):
        tree_of_parents(overlay, root, parents)
