"""The overlay changes while events are under way: nothing is lost, nothing comes twice, no peer lingers."""

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.conftest import Wire

from tidings.protocol import Close

SECOND = 10**9
NAMES = ("a", "b", "c", "d")
PAIRS = tuple(combinations(NAMES, 2))
Graph = dict[str, frozenset[str]]


def graph_of(pairs: Any) -> Graph:
    return {name: frozenset(end for pair in pairs if name in pair for end in pair if end != name) for name in NAMES}


def rewire(net: Wire, before: Graph, after: Graph) -> None:
    """All brokers follow, one after the other; connections come and go as they say."""
    for name in NAMES:
        if name in net.machines:
            net.call(name, "rewire", after[name], after)
    for one, other in PAIRS:
        if other in before[one] and other not in after[one]:
            net.disconnect(one, other)
        elif other in after[one] and other not in before[one]:
            net.connect(one, other)
    net.settle()


def network(scheme: str, graph: Graph) -> Wire:
    net = Wire()
    for name in NAMES:
        broker = net.broker(name, *graph[name], scheme=scheme, graph=graph)
        net.add(broker, links=tuple(sorted(other for other in graph[name] if other < name)))
    net.pass_time(4 * SECOND)
    net.client("p", "a")
    net.client("s", "d")
    net.call("p", "advertise", "all", "TRUE")
    net.call("s", "subscribe", "all", "x >= 0")
    net.pass_time(2 * SECOND)
    return net


@pytest.mark.parametrize("scheme", ["bypass+buffer", "buffer"])
def test_what_was_under_way_on_a_link_that_is_gone_takes_another_path(scheme: str) -> None:
    before, after = graph_of([("a", "b"), ("b", "d"), ("c", "d")]), graph_of([("a", "b"), ("b", "c"), ("c", "d")])
    net = network(scheme, before)
    net.cut("b", "d")
    net.call("p", "publish", {"x": 1})
    assert not net.delivered("s")
    rewire(net, before, after)
    net.pass_time(3 * SECOND)
    assert [effect.event for effect in net.delivered("s")] == [("p", 1, 0)]
    b: Any = net.machines["b"]
    assert sorted(b.neighbours) == ["a", "c"]
    assert any(isinstance(effect, Close) and effect.connection == "d" for name, effect in net.effects if name == "b")
    net.mend("b", "d")
    net.connect("b", "d")
    net.pass_time(3 * SECOND)
    assert sorted(b.neighbours) == ["a", "c"], "who is no neighbour any more is not greeted"
    assert b.refused["unknown"] > 0
    assert not b.carrier.holdings.held


@settings(max_examples=25, deadline=None)
@given(
    scheme=st.sampled_from(["bypass+buffer", "buffer"]),
    more=st.lists(st.sets(st.sampled_from(PAIRS)), min_size=1, max_size=4),
    trees=st.lists(st.permutations(NAMES), min_size=5, max_size=5),
    pause_ms=st.integers(0, 1500),
)
def test_whatever_the_overlay_becomes_everything_comes_once(
    scheme: str, more: list[set[tuple[str, str]]], trees: list[list[str]], pause_ms: int
) -> None:
    # A path through all of them makes every overlay whole, and a plan without cycles where routes follow the plan.
    graphs = [
        graph_of({*map(tuple, map(sorted, pairwise(row))), *(extra if scheme != "buffer" else ())})
        for row, extra in zip(trees, [set(), *more], strict=False)
    ]
    net = network(scheme, graphs[0])
    sent = 0
    for before, after in pairwise(graphs):
        for _ in range(3):
            net.call("p", "publish", {"x": sent})
            sent += 1
        rewire(net, before, after)
        net.pass_time(pause_ms * 10**6)
    net.call("p", "publish", {"x": sent})
    net.pass_time(20 * SECOND)
    assert sorted(effect.event[2] for effect in net.delivered("s")) == list(range(sent + 1))
    for name in NAMES:
        broker: Any = net.machines[name]
        assert broker.neighbours.keys() == graphs[-1][name]
        assert not broker.carrier.holdings.held


def test_an_operator_asks_a_client_to_move(row: Any) -> None:
    assert row.call("a", "ask_to_move", "p", "c")
    row.pass_time(2 * SECOND)
    assert [name for name in "abc" if "p" in row.machines[name].clients] == ["c"]
    assert not row.call("a", "ask_to_move", "p", "b"), "it is not here"
    assert not row.call("c", "ask_to_move", "p", "x"), "there is no such broker"
    assert not row.call("c", "ask_to_move", "p", "c"), "it is there"


def test_publishers_are_traced_over_links_that_were_not_there_at_first() -> None:
    before, after = graph_of([("a", "b"), ("b", "c"), ("c", "d")]), graph_of([("a", "b"), ("b", "c"), ("a", "d")])
    net = Wire()
    for name in NAMES:
        broker = net.broker(
            name, *before[name], graph=before, relocation="pop", relocation_stay_ns=0, relocation_events=2
        )
        net.add(broker, links=tuple(sorted(other for other in before[name] if other < name)))
    net.pass_time(4 * SECOND)
    net.client("p", "a")
    net.client("s", "d")
    net.call("p", "advertise", "all", "TRUE")
    net.call("s", "subscribe", "all", "x >= 0")
    net.pass_time(2 * SECOND)
    net.call("p", "publish", {"x": 0})
    rewire(net, before, after)
    net.pass_time(3 * SECOND)
    for step in range(1, 5):
        net.call("p", "publish", {"x": step})
        net.pass_time(SECOND)
    net.pass_time(3 * SECOND)
    assert [effect.event[2] for effect in net.delivered("s")] == list(range(5))
    assert [name for name in NAMES if "p" in net.machines[name].clients] == ["d"], "the walk went over the new link"


def test_a_neighbour_that_is_taken_out_and_put_back_takes_new_events_for_new() -> None:
    """The other one reads its file only once, when the link is back: it never knew that it was gone."""
    graph = graph_of([("a", "b"), ("b", "d"), ("c", "d")])
    net = network("bypass+buffer", graph)
    sent = [net.call("p", "publish", {"x": n}) for n in range(20)]
    net.pass_time(SECOND)
    without = graph_of([("b", "d"), ("c", "d")])
    net.call("a", "rewire", without["a"], without)
    net.disconnect("a", "b")
    net.pass_time(5 * SECOND)
    net.call("a", "rewire", graph["a"], graph)
    net.connect("a", "b")
    net.pass_time(5 * SECOND)
    sent += [net.call("p", "publish", {"x": n}) for n in range(3)]
    net.pass_time(5 * SECOND)
    assert [effect.event[2] for effect in net.delivered("s")] == sent
