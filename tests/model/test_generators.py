import itertools
import json
import math
from collections import Counter
from importlib import resources

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError
from tidings.model.generators import (
    balanced_tree,
    layered_mesh,
    length_delay_s,
    random_graph,
    random_tree,
    topohub_names,
    topohub_network,
)


def seeded(seed=1):
    return np.random.default_rng(seed)


def degrees(topology):
    return [len(topology.neighbours(broker.name)) for broker in topology.brokers]


def is_symmetric(topology):
    return all(topology.has_link(link.target, link.source) for link in topology.links)


@pytest.mark.parametrize(("branching", "depth", "brokers"), [(2, 5, 63), (2, 6, 127), (3, 2, 13), (1, 4, 5), (4, 0, 1)])
def test_balanced_tree(branching, depth, brokers):
    tree = balanced_tree(branching=branching, depth=depth)
    assert len(tree.brokers) == brokers
    assert len(tree.links) == 2 * (brokers - 1)
    assert is_symmetric(tree)
    if depth:
        root, *_, leaf = degrees(tree)
        assert (root, leaf) == (branching, 1)


def test_an_absurd_tree_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="too many"):
        balanced_tree(branching=2, depth=10**9)


@given(st.integers(1, 60), st.integers(2, 6), st.integers(0, 10**6))
@settings(max_examples=40)
def test_random_tree_is_a_tree_of_bounded_degree(brokers, max_degree, seed):
    tree = random_tree(brokers=brokers, max_degree=max_degree, generator=seeded(seed))
    assert networkx.is_tree(tree.to_networkx().to_undirected())
    assert max(degrees(tree)) <= max_degree
    assert tree == random_tree(brokers=brokers, max_degree=max_degree, generator=seeded(seed))


def test_random_tree_joins_earlier_brokers_evenly():
    # The third broker joins the first or the second alike; 2000 draws, margin of 4 standard deviations.
    generator = seeded()
    first = sum(random_tree(brokers=3, generator=generator).has_link("b1", "b3") for _ in range(2000))
    assert abs(first - 1000) < 4 * math.sqrt(2000 / 4)


@given(st.integers(1, 40), st.floats(0, 1), st.integers(0, 10**6))
@settings(max_examples=40)
def test_random_graph_is_connected_with_the_mean_degree(brokers, share, seed):
    least, most = 2 * (brokers - 1) / brokers, brokers - 1
    wanted = min(most, max(least, least + share * (most - least)))
    graph = random_graph(brokers=brokers, mean_degree=wanted, generator=seeded(seed))
    assert is_symmetric(graph)
    # Half a connection of rounding is one end at each of two brokers, shared by all.
    assert abs(sum(degrees(graph)) / brokers - wanted) <= 1 / brokers + 1e-9


def test_random_graph_of_tree_degree_is_every_labelled_tree_alike():
    # 16 labelled trees on 4 brokers; 3200 draws, each expected 200 times, margin of 5 standard deviations.
    generator = seeded(3)
    seen = Counter(
        frozenset(
            (link.source, link.target) for link in random_graph(brokers=4, mean_degree=1.5, generator=generator).links
        )
        for _ in range(3200)
    )
    assert len(seen) == 16
    assert all(abs(count - 200) < 5 * math.sqrt(200) for count in seen.values())


@pytest.mark.parametrize("mean_degree", [1.0, 10.0])
def test_impossible_mean_degree_names_the_range(mean_degree):
    with pytest.raises(ConfigurationError, match=r"give mean_degree from 1.8 to 9"):
        random_graph(brokers=10, mean_degree=mean_degree, generator=seeded())


@pytest.mark.parametrize("seed", range(5))
def test_layered_mesh_of_paper_c(seed):
    mesh = layered_mesh(generator=seeded(seed))
    layer = {broker.name: broker.layer for broker in mesh.brokers}
    assert Counter(layer.values()) == {1: 4, 2: 4, 3: 8, 4: 16}
    assert len(mesh.links) == 16 + 16 + 32
    assert all(layer[link.target] == layer[link.source] + 1 for link in mesh.links)
    entering = Counter(link.target for link in mesh.links)
    assert {entering[name] for name in layer if layer[name] == 2} == {4}
    assert {entering[name] for name in layer if layer[name] in (3, 4)} == {2}


def test_layered_mesh_in_both_directions_and_other_sizes():
    mesh = layered_mesh(layers=(2, 3), fan_in=(2,), direction="both", generator=seeded())
    assert is_symmetric(mesh)
    assert len(mesh.links) == 12


@pytest.mark.parametrize(
    ("layers", "fan_in", "message"),
    [
        ((), (), "at least one layer"),
        ((2, 2), (), "2 layers need 1 values of fan_in"),
        ((2, 2), (3,), "layer 2 takes 3 links from the 2 brokers above it; give a fan_in from 1 to 2"),
        ((2, 1), (1,), "came out disconnected"),
    ],
)
def test_impossible_meshes(layers, fan_in, message):
    with pytest.raises(ConfigurationError, match=message):
        layered_mesh(layers=layers, fan_in=fan_in, generator=seeded())


def test_topohub_delays_follow_from_the_lengths_in_the_data():
    network = topohub_network("sndlib/germany50")
    data = json.loads((resources.files("topohub") / "data" / "sndlib" / "germany50.json").read_text("utf-8"))
    assert len(network.brokers) == 50
    assert len(network.links) == 2 * len(data["edges"]) == 176
    names = {node["id"]: node["name"] for node in data["nodes"]}
    for edge in data["edges"]:
        link = network.link(names[edge["target"]], names[edge["source"]])
        assert link.length_km == edge["dist"]
        assert link.propagation.mean() == pytest.approx(edge["dist"] / 200_000, rel=1e-12)
    assert network.broker("Berlin").position == tuple(
        next(node["pos"] for node in data["nodes"] if node["name"] == "Berlin")
    )


def test_refractive_index_slows_the_signal():
    vacuum = topohub_network("sndlib/polska", refractive_index=1.0)
    assert vacuum.links[0].propagation.mean() == pytest.approx(vacuum.links[0].length_km / 299_792.458)
    assert length_delay_s(200.0) == pytest.approx(0.001)
    with pytest.raises(ConfigurationError, match="signals are not faster than light"):
        topohub_network("sndlib/polska", refractive_index=0.9)


def test_unknown_network_names_close_ones():
    with pytest.raises(ConfigurationError, match=r"no network 'sndlib/germany5'; did you mean 'sndlib/germany50'"):
        topohub_network("sndlib/germany5")
    with pytest.raises(ConfigurationError, match="no network"):
        topohub_network("../../secret")


def test_networks_with_nameless_or_doubled_places_load_too():
    groups = {name.split("/")[0] for name in topohub_names()}
    assert {"sndlib", "topozoo", "backbone", "caida", "gabriel"} <= groups
    for group in sorted(groups):
        for name in itertools.islice((name for name in topohub_names() if name.startswith(group + "/")), 3):
            network = topohub_network(name)
            assert len(network.index) == len(network.brokers)
