import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.routing import overlay_of_links, root_figures, shortest_path_figures, shortest_path_tree, tree_figures

SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 20), extra=st.integers(0, 20))
def test_tree_figures_add_up_along_paths(make_overlay, seed, brokers, extra) -> None:
    overlay = make_overlay(seed, brokers, extra)
    tree = shortest_path_tree(overlay, 0)
    figures, from_root = tree_figures(overlay, tree), root_figures(overlay, tree)
    for destination in range(brokers):
        path = tree.path(destination)
        for broker in range(brokers):
            if broker not in path:
                assert figures.nodes[broker, destination] == -1
                assert figures.next_hop[broker, destination] == figures.next_link[broker, destination] == -1
                assert np.isinf(figures.mean_s_per_kb[broker, destination])
                continue
            rest = path[path.index(broker) :]
            links = overlay.links_between(rest[:-1], rest[1:])
            assert figures.nodes[broker, destination] == len(rest) - 1
            assert figures.mean_s_per_kb[broker, destination] == pytest.approx(
                overlay.slowness_mean_s_per_kb[links].sum()
            )
            assert figures.variance_s2_per_kb2[broker, destination] == pytest.approx(
                overlay.slowness_variance_s2_per_kb2[links].sum()
            )
            if broker != destination:
                assert figures.next_hop[broker, destination] == rest[1]
                assert figures.next_link[broker, destination] == links[0]
        links = overlay.links_between(path[:-1], path[1:])
        assert from_root.mean_s_per_kb[destination] == pytest.approx(figures.mean_s_per_kb[0, destination])
        assert from_root.variance_s2_per_kb2[destination] == pytest.approx(figures.variance_s2_per_kb2[0, destination])
        assert from_root.propagation_s[destination] == pytest.approx(overlay.propagation_mean_s[links].sum())


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 20), extra=st.integers(0, 25), ties=st.booleans())
def test_shortest_paths_against_networkx_and_hop_by_hop(make_overlay, seed, brokers, extra, ties) -> None:
    overlay = make_overlay(seed, brokers, extra, weights=(0.0, 0.1, 0.2) if ties else (), one_way=0.5)
    figures = shortest_path_figures(overlay)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(brokers))
    for a, b, w in zip(overlay.source, overlay.target, overlay.slowness_mean_s_per_kb, strict=True):
        graph.add_edge(int(a), int(b), weight=float(w))
    expected = dict(nx.all_pairs_dijkstra_path_length(graph))
    for broker in range(brokers):
        for destination in range(brokers):
            assert figures.mean_s_per_kb[broker, destination] == pytest.approx(expected[broker][destination])
            if broker == destination:
                assert figures.nodes[broker, destination] == 0
                continue
            after, link = figures.next_hop[broker, destination], figures.next_link[broker, destination]
            assert (overlay.source[link], overlay.target[link]) == (broker, after)
            assert figures.nodes[broker, destination] == figures.nodes[after, destination] + 1
            step = overlay.slowness_variance_s2_per_kb2[link]
            assert figures.variance_s2_per_kb2[broker, destination] == pytest.approx(
                figures.variance_s2_per_kb2[after, destination] + step
            )


def test_no_path_has_no_figures() -> None:
    figures = shortest_path_figures(overlay_of_links(2, [(0, 1, 0.5)]))
    assert figures.next_hop.tolist() == [[-1, 1], [-1, -1]]
    assert figures.next_link.tolist() == [[-1, 0], [-1, -1]]
    assert figures.nodes.tolist() == [[0, 1], [-1, 0]]
    assert figures.mean_s_per_kb.tolist() == [[0.0, 0.5], [np.inf, 0.0]]


def test_paper_c_example_path() -> None:
    # 50 kB over a link of 75 ms/kB takes 3.75 s with a standard deviation of 1 s (20 ms/kB): figures are per kB.
    overlay = overlay_of_links(3, [(0, 1, 0.075), (1, 2, 0.05)], slowness_variance_s2_per_kb2=0.02**2)
    figures = tree_figures(overlay, shortest_path_tree(overlay, 0))
    assert 50 * figures.mean_s_per_kb[0, 1] == pytest.approx(3.75)
    assert 50 * np.sqrt(figures.variance_s2_per_kb2[0, 1]) == pytest.approx(1.0)
    assert figures.nodes[0, 2] == 2
    assert figures.variance_s2_per_kb2[0, 2] == pytest.approx(0.0008)
