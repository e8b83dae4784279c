import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.routing import (
    compile_forwarding,
    forward,
    forwarding_set,
    forwarding_sets,
    overlay_of_links,
    shortest_path_tree,
    shortest_path_trees,
)
from tidings.routing._forwarding_sets import forward_plain

SEEDS = st.integers(0, 2**32 - 1)
SHAPE = {"seed": SEEDS, "brokers": st.integers(1, 25), "extra": st.integers(0, 20)}


def draw_batch(seed: int, events: int, values: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, events)
    return np.concatenate(([0], np.cumsum(counts))), rng.integers(0, values, counts.sum())


@settings(deadline=None)  # the first call compiles
@given(**SHAPE, events=st.integers(0, 6))
def test_each_link_once_and_exactly_the_union_of_paths(make_overlay, seed, brokers, extra, events) -> None:
    overlay = make_overlay(seed, brokers, extra)
    tree = shortest_path_tree(overlay, seed % brokers)
    offsets, homes = draw_batch(seed, events, brokers)
    link_offsets, links = forwarding_sets(tree, offsets, homes)
    for event in range(events):
        taken = links[link_offsets[event] : link_offsets[event + 1]].tolist()
        wanted = homes[offsets[event] : offsets[event + 1]].tolist()
        union = {int(tree.parent_link[b]) for home in wanted for b in tree.path(home)[1:]}
        assert len(taken) == len(set(taken))
        assert set(taken) == union
        reached = {tree.root}
        for link in taken:  # from the root to the leaves: every link is fed by an earlier one
            assert overlay.source[link] in reached
            reached.add(int(overlay.target[link]))


@settings(deadline=None)  # the first call compiles
@given(**SHAPE, events=st.integers(0, 6))
def test_kernel_and_plain_twin_agree(make_overlay, seed, brokers, extra, events) -> None:
    tree = shortest_path_tree(make_overlay(seed, brokers, extra), 0)
    offsets, homes = draw_batch(seed, events, brokers)
    link_offsets, links = forwarding_sets(tree, offsets, homes)
    for event in range(events):
        plain = forwarding_set(tree, homes[offsets[event] : offsets[event + 1]])
        assert links[link_offsets[event] : link_offsets[event + 1]].tolist() == plain


@settings(deadline=None)  # the first call compiles
@given(**SHAPE, subscriptions=st.integers(1, 30), events=st.integers(1, 4))
def test_deciding_at_every_broker_gives_the_same_union(
    make_overlay, seed, brokers, extra, subscriptions, events
) -> None:
    overlay = make_overlay(seed, brokers, extra)
    trees = shortest_path_trees(overlay, [0, brokers - 1, brokers // 2])
    homes = np.random.default_rng(seed).integers(0, brokers, subscriptions)
    tables = compile_forwarding(trees, homes)
    offsets, matched = draw_batch(seed + 1, events, subscriptions)
    for index, tree in enumerate(trees):
        per_broker = [forward(tables, index, broker, offsets, matched) for broker in range(brokers)]
        for event in range(events):
            mine = matched[offsets[event] : offsets[event + 1]]
            taken, delivered, waiting = [], [], [tree.root]
            while waiting:
                broker = waiting.pop()
                out = per_broker[broker]
                links = out.links[out.link_offsets[event] : out.link_offsets[event + 1]].tolist()
                local = out.local_subscriptions[out.local_offsets[event] : out.local_offsets[event + 1]].tolist()
                assert (links, local) == forward_plain(tables, index, broker, mine)
                taken += links
                delivered += local
                waiting += [int(overlay.target[link]) for link in links]
            assert sorted(taken) == sorted(forwarding_set(tree, homes[mine]))
            assert sorted(delivered) == sorted(mine.tolist())


def test_homes_outside_the_tree_are_passed_over() -> None:
    overlay = overlay_of_links(4, [(0, 1, 1.0), (1, 2, 1.0), (3, 2, 1.0)])
    tree = shortest_path_tree(overlay, 0, destinations=[2])
    assert forwarding_set(tree, [3, 2]) == [0, 1]
    assert forwarding_sets(tree, np.array([0, 1]), np.array([3]))[1].tolist() == []
    tables = compile_forwarding([tree], [3, 2])
    assert forward(tables, 0, 3, np.array([0, 1]), np.array([1])).links.tolist() == []
    assert forward(tables, 0, 1, np.array([0, 2]), np.array([0, 1])).links.tolist() == [1]


def test_wrong_input_is_named() -> None:
    tree = shortest_path_tree(overlay_of_links(2, [(0, 1, 1.0)]), 0)
    tables = compile_forwarding([tree], [1])
    with pytest.raises(InputError, match="home broker 2 does not exist"):
        forwarding_sets(tree, np.array([0, 1]), np.array([2]))
    with pytest.raises(InputError, match="offsets must rise"):
        forwarding_sets(tree, np.array([0, 2]), np.array([1]))
    with pytest.raises(InputError, match="subscription 1 does not exist"):
        forward(tables, 0, 0, np.array([0, 1]), np.array([1]))
    with pytest.raises(InputError, match="tree 1 does not exist"):
        forward(tables, 1, 0, np.array([0]), np.array([], int))
    with pytest.raises(InputError, match="broker 2 does not exist"):
        forward(tables, 0, 2, np.array([0]), np.array([], int))
    with pytest.raises(InputError, match="at least one tree"):
        compile_forwarding([], [])
