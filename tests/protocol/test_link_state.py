"""The map and its trees, against the routing algorithms on the same overlay."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.protocol import LinkStateMap, breadth_first
from tidings.protocol.wire import LinkState
from tidings.routing import overlay_of_links, shortest_path_tree

SECOND = 10**9


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, frozenset[str]]:
    count = draw(st.integers(1, 9))
    names = [f"b{number}" for number in range(count)]
    pairs = [(one, other) for one in names for other in names if one < other]
    chosen = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    beside: dict[str, set[str]] = {name: set() for name in names}
    for one, other in chosen:
        beside[one].add(other)
        beside[other].add(one)
    return {name: frozenset(others) for name, others in beside.items()}


@settings(deadline=None)
@given(graph=graphs(), pick=st.integers(0, 100))
def test_trees_against_shortest_path_trees_by_hops(graph: dict[str, frozenset[str]], pick: int) -> None:
    names = sorted(graph)
    number = {name: place for place, name in enumerate(names)}
    links = [(number[one], number[other], 1.0) for one in names for other in sorted(graph[one])]
    overlay = overlay_of_links(names, links)
    root = names[pick % len(names)]
    tree = shortest_path_tree(overlay, number[root], weight="hops", destinations=[])
    expected = {names[b]: names[tree.parent[b]] for b in np.flatnonzero(tree.parent >= 0).tolist()} | {root: root}
    assert breadth_first({name: sorted(others) for name, others in graph.items()}, root) == expected


@settings(deadline=None)
@given(graph=graphs(), pick=st.integers(0, 10**6))
def test_every_step_of_a_route_leads_to_its_target(graph: dict[str, frozenset[str]], pick: int) -> None:
    names = sorted(graph)
    root, target = names[pick % len(names)], names[pick // len(names) % len(names)]
    maps = {name: LinkStateMap(name, graph=graph) for name in names}
    here, steps = names[pick // len(names) ** 2 % len(names)], 0
    while here != target:
        path = maps[here].path(root, target)
        if path is None:
            assert target not in breadth_first(graph, here)
            return
        assert path.next_hop in graph[here]
        here, steps = path.next_hop, steps + 1
        assert steps <= len(names)


def state(origin: str, number: int, *others: str, epoch: int = 1, age_ns: int = 0) -> LinkState:
    return LinkState(origin, epoch, number, age_ns, dict.fromkeys(others, (0.5, 0.25)))


def test_a_link_is_there_if_both_ends_say_so() -> None:
    found = LinkStateMap("a", timeout_ns=10 * SECOND, max_origins=9)
    found.learn(state("a", 1, "b"), 0)
    assert found.path("a", "b") is None
    assert found.learn(state("b", 1, "a", "c"), 0)
    assert found.path("a", "b") == ("b", 1, 0.5, 0.25)
    found.learn(state("c", 1, "b"), 0)
    assert found.path("a", "c") == ("b", 2, 1.0, 0.5)


def test_old_news_is_no_news_and_a_new_life_is() -> None:
    found = LinkStateMap("a", timeout_ns=10 * SECOND, max_origins=2)
    found.learn(state("b", 5, "a", epoch=3), 0)
    assert not found.is_news(state("b", 5, epoch=3))
    assert not found.is_news(state("b", 9, epoch=2))
    assert found.is_news(state("b", 6, epoch=3))
    assert found.is_news(state("b", 1, epoch=4))
    found.learn(state("c", 1), 0)
    assert not found.is_news(state("d", 1))  # there is no room for a third


def test_what_is_not_renewed_is_forgotten_and_its_age_counts() -> None:
    found = LinkStateMap("a", timeout_ns=10 * SECOND, max_origins=9)
    found.learn(state("a", 1, "b"), 0)
    found.learn(state("b", 1, "a", age_ns=4 * SECOND), 0)
    assert found.message("b", 2 * SECOND).age_ns == 6 * SECOND
    assert not found.forget_old(5 * SECOND)
    assert found.forget_old(6 * SECOND)
    assert found.path("a", "b") is None
    assert list(found) == ["a"]


def test_the_version_rises_with_links_and_not_with_figures() -> None:
    found = LinkStateMap("a", timeout_ns=10 * SECOND, max_origins=9)
    found.learn(state("a", 1, "b"), 0)
    found.learn(state("b", 1, "a"), 0)
    version = found.version
    assert not found.learn(LinkState("a", 1, 2, 0, {"b": (2.0, 1.0)}), 0)
    assert found.version == version
    assert found.path("a", "b") == ("b", 1, 2.0, 1.0)
