"""Publishers move to where most of their deliveries are on time: links that take time, deadlines that depend on it."""

import heapq
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.conftest import Wire

from tidings.errors import ConfigurationError
from tidings.placement import _decision
from tidings.protocol import BrokerSettings, Effect, Moved, Send
from tidings.protocol import wire as messages
from tidings.protocol.broker._link_state import LinkStateMap
from tidings.protocol.relocation._on_time import Asked, better_home

SECOND = 10**9
MS = 10**6
STAY_NS = 5 * SECOND


class SlowWire(Wire):
    """A wire on which frames take their time, by link."""

    def __init__(self, latency_ns: dict[frozenset[str], int]) -> None:
        super().__init__()
        self.latency_ns = latency_ns
        self._in_transit: list[tuple[int, int, str, str, bytes]] = []
        self._numbers = count()

    def do(self, name: str, effects: list[Effect]) -> None:
        super().do(name, [effect for effect in effects if not isinstance(effect, Send)])
        for effect in effects:
            if isinstance(effect, Send):
                at_ns = self.now_ns + self.latency_ns.get(frozenset((name, effect.connection)), 0)
                frame = (at_ns, next(self._numbers), name, effect.connection, effect.frame)
                heapq.heappush(self._in_transit, frame)

    def settle(self) -> None:
        """Nothing takes no time: only disks are quick."""
        while self.syncs:
            self.sync()

    def pass_time(self, duration_ns: int) -> None:
        until_ns = self.now_ns + duration_ns
        while True:
            wakes = [(at_ns, name) for name, at_ns in self.timers.items()]
            at_ns, name = min(wakes, default=(until_ns + 1, ""))
            if self._in_transit and self._in_transit[0][0] <= min(at_ns, until_ns):
                at_ns, _, source, target, frame = heapq.heappop(self._in_transit)
                self.now_ns = max(self.now_ns, at_ns)
                if (source, target) in self.links:
                    self.do(target, self.machines[target].receive(source, frame, self.now_ns))
            elif at_ns <= until_ns:
                self.now_ns = max(self.now_ns, at_ns)
                del self.timers[name]
                self.do(name, self.machines[name].wake(self.now_ns))
            else:
                break
            self.settle()
        self.now_ns = until_ns


LATENCY_MS = {"a-b": 10, "b-c": 40, "c-d": 5, "a-d": 60}
"""A ring: from a to c it is 50 ms by b, and 65 by d."""


def ring(**more: Any) -> SlowWire:
    """Four brokers, a publisher at a that sends to everybody."""
    latency_ns = {frozenset(link.split("-")): ms * MS for link, ms in LATENCY_MS.items()}
    net = SlowWire(latency_ns)
    beside = {
        name: tuple(sorted(set("".join(latency for latency in LATENCY_MS if name in latency)) - {name, "-"}))
        for name in "abcd"
    }
    relocation = {"relocation": "on-time", "relocation_events": 10, "relocation_stay_ns": STAY_NS, "refresh_ns": SECOND}
    for name, others in beside.items():
        net.add(net.broker(name, *others, timeout_ns=5 * SECOND, **(relocation | more)), links=others)
    net.pass_time(5 * SECOND)
    net.client("p", "a")
    net.pass_time(SECOND)
    net.call("p", "advertise", "all", "x >= 0")
    return net


def subscribe(net: SlowWire, name: str, home: str, *, within_ms: int, price: float = 1.0) -> None:
    net.client(name, home)
    net.pass_time(SECOND)
    net.call(name, "subscribe", "all", "x >= 0", max_delay_ns=within_ms * MS, price=price, late_ns=SECOND)
    net.pass_time(SECOND)


def publish(net: SlowWire, duration_ns: int) -> None:
    for number in range(duration_ns // (100 * MS)):
        net.call("p", "publish", {"x": number})
        net.pass_time(100 * MS)


def moves(net: SlowWire) -> list[tuple[str, str]]:
    return [(effect.source, effect.target) for _, effect in net.effects if isinstance(effect, Moved)]


def test_a_publisher_moves_to_where_most_is_on_time_and_stays_there() -> None:
    net = ring()
    for number in range(3):
        subscribe(net, f"far-{number}", "c", within_ms=30)
    subscribe(net, "near", "a", within_ms=30)
    publish(net, 30 * SECOND)
    assert moves(net) == [("a", "c")]
    assert net.machines["p"].home.name == "c"


def test_what_a_delivery_is_worth_counts() -> None:
    net = ring()
    for number in range(3):
        subscribe(net, f"far-{number}", "c", within_ms=30)
    subscribe(net, "near", "a", within_ms=30, price=10.0)
    publish(net, 30 * SECOND)
    assert moves(net) == []


def test_nobody_moves_where_everything_is_on_time() -> None:
    """However far the readers are: GRAPE would go there."""
    net = ring()
    for number in range(3):
        subscribe(net, f"far-{number}", "c", within_ms=500)
    publish(net, 30 * SECOND)
    assert moves(net) == []


def test_nobody_moves_for_less_than_the_least_gain() -> None:
    net = ring(relocation_hysteresis=0.6)
    for number in range(3):
        subscribe(net, f"far-{number}", "c", within_ms=30)
        subscribe(net, f"near-{number}", "a", within_ms=30)
    subscribe(net, "farther", "c", within_ms=30)
    publish(net, 20 * SECOND)
    assert moves(net) == []


def test_who_has_just_come_stays_for_a_while() -> None:
    """Subscribers change sides all the time; the publisher follows them, but not more often than it may."""
    net = ring()
    for number in range(2):
        subscribe(net, f"r{number}", "c", within_ms=30)
    for turn in range(6):
        for number in range(2):
            net.call(f"r{number}", "move", "ca"[turn % 2])
        net.pass_time(2 * SECOND)
        publish(net, 3 * SECOND)
    seen = [move for broker in "abcd" for move in net.machines[broker].moves().recent if move.client == "p"]
    assert {(move.by, move.phase) for move in seen} == {("on-time", "done")}
    begun = sorted(move.since_ns for move in seen)
    assert len(begun) >= 2
    assert all(after - before >= STAY_NS for before, after in pairwise(begun))


def test_what_a_decision_needs_is_loaded_before_one_is_made(wire: Wire) -> None:
    for relocation in ("off", "pop", "grape", "on-time"):
        broker = wire.broker(f"b-{relocation}", relocation=relocation)
        broker.coordinator.warm_up()
        assert broker.moves().asked == 0


@pytest.mark.parametrize("more", [{"relocation_hysteresis": 1.0}, {"relocation_stay_ns": -1}])
def test_settings_that_cannot_be_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="relocation_hysteresis is a share"):
        BrokerSettings(name="a", **more)


# -- the decision by itself --------------------------------------------------------------------------------------------


def links_of(least_ns: dict[tuple[str, str], int]) -> LinkStateMap:
    """The map of a network whose links, in both directions, take so long."""
    both = least_ns | {(other, one): ns for (one, other), ns in least_ns.items()}
    links = LinkStateMap("a", timeout_ns=SECOND, max_origins=10)
    for name in sorted({one for one, _ in both}):
        beside = {other: ns for (one, other), ns in both.items() if one == name}
        links.learn(messages.LinkState(name, 1, 1, 0, dict.fromkeys(beside, (0.0, 0.0)), beside), 0)
    return links


@st.composite
def networks(draw: Any) -> tuple[LinkStateMap, list[Asked], float]:
    """A mesh with a time for each link, and what is asked for at its brokers."""
    names = "abcdefg"[: draw(st.integers(2, 7))]
    pairs = {(names[draw(st.integers(0, place - 1))], names[place]) for place in range(1, len(names))}
    for _ in range(draw(st.integers(0, 5))):
        one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        if one != other and (other, one) not in pairs:
            pairs.add((one, other))
    least_ns = {pair: draw(st.integers(1, 100)) * MS for pair in sorted(pairs)}
    links = links_of(least_ns)
    wanted = st.tuples(st.sampled_from(names), st.integers(1, 300), st.integers(1, 50), st.floats(0.125, 1e300))
    asked = [
        Asked(broker, ms * MS, many, worth)
        for broker, ms, many, worth in draw(st.lists(wanted, min_size=1, max_size=8))
    ]
    return links, asked, draw(st.sampled_from([0.0, 0.02, 0.2]))


def share_at(home: str, links: LinkStateMap, asked: list[Asked]) -> float:
    """The plain twin: what is on time if every event takes its tree's links and each of them its least time."""
    tree, most = links.tree(home), max(each.worth for each in asked)
    on_time = everything = 0.0
    for each in asked:
        took_ns, broker = 0, each.broker
        while broker != home:
            took_ns += links.figures(tree[broker], broker)[2]
            broker = tree[broker]
        everything += each.worth / most
        on_time += each.worth / most * (took_ns < each.deadline_ns)
    return on_time / everything


def decide(home: str, links: LinkStateMap, asked: list[Asked], hysteresis: float) -> str:
    return better_home(
        home,
        links,
        asked=asked,
        bits={each.broker: 1 for each in asked},
        events=1,
        size_kb=0.5,
        ping_ns=0,
        to_client_ns=0,
        hysteresis=hysteresis,
    )


def path_from(home: str, links: LinkStateMap, asked: list[Asked], hysteresis: float) -> Iterator[str]:
    """The homes that a publisher has, one after the other, until it stays."""
    while True:
        yield home
        following = decide(home, links, asked, hysteresis)
        if following == home:
            return
        home = following


def require_rising(links: LinkStateMap, asked: list[Asked], hysteresis: float) -> None:
    """Wherever a publisher is at first, every move raises its share on time, by more than the hysteresis."""
    for first in links.links():
        before = -1.0
        for steps, home in enumerate(path_from(first, links, asked, hysteresis)):
            share = share_at(home, links, asked)
            assert share > before + hysteresis - 1e-9
            assert share > before
            assert steps < len(links)
            before = share


@settings(max_examples=150, deadline=None)
@given(networks())
def test_every_move_raises_the_share_on_time_so_nobody_comes_back(network: Any) -> None:
    require_rising(*network)


@settings(max_examples=100, deadline=None)
@given(networks())
def test_without_cycles_it_is_the_best_place_that_there_is(network: Any) -> None:
    links, asked, _ = network
    joined = sum(len(others) for others in links.links().values()) // 2
    if joined != len(links) - 1 or sum(each.deliveries for each in asked) < 1:
        return
    shares = {name: share_at(name, links, asked) for name in links.links()}
    sure = [each._replace(deliveries=10**6) for each in asked]  # so many that nothing is noise
    for home in links.links():
        found = decide(home, links, sure, 0.01)
        gain = max(shares.values()) - shares[home]
        if gain > 0.02:
            assert shares[found] == pytest.approx(max(shares.values()))
        elif gain <= 0.01:
            assert found == home


def test_a_broker_that_is_judged_by_the_tree_of_another_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """c is next to a, but its own path to d and e is one slow hop: by the tree of a it looks like the best place."""
    links = links_of({("a", "c"): MS, ("a", "d"): MS, ("a", "e"): MS, ("c", "d"): 100 * MS, ("c", "e"): 100 * MS})
    asked = [Asked("c", MS // 2, 1_000, 1.0), Asked("d", 5 * MS, 1_000, 1.0), Asked("e", 5 * MS, 1_000, 1.0)]
    require_rising(links, asked, 0.02)
    assert decide("a", links, asked, 0.02) == "a"
    monkeypatch.setattr(_decision, "_gain", lambda *_: 1.0)
    assert decide("a", links, asked, 0.02) == "c"
    with pytest.raises(AssertionError):
        require_rising(links, asked, 0.02)


def test_a_direction_that_carried_nothing_is_not_taken_to_cost_nothing() -> None:
    """Nobody publishes behind c, so no event has gone from c to b: that link is as slow as its other direction."""
    links = LinkStateMap("a", timeout_ns=1, max_origins=3)
    slow, unused = (0.05, 1e-6), (0.0, 0.0)
    for name, states in {"a": {"b": slow}, "b": {"a": unused, "c": slow}, "c": {"b": unused}}.items():
        links.learn(messages.LinkState(name, 1, 1, 0, states, dict.fromkeys(states, MS)), 0)
    asked = [Asked("b", 20 * MS, 1_000, 3.0), Asked("c", 60 * MS, 1_000, 1.0)]
    assert decide("a", links, asked, 0.02) == "b"  # from c, b's events would be late
