"""What a broker's clients want outlives its absence: accepted is delivered, however long the broker was away."""

from typing import Any

import pytest

from tidings.errors import ConfigurationError
from tidings.protocol import BrokerSettings
from tidings.protocol.broker._interests import Interests
from tidings.protocol.broker._view import MOST_SUBSCRIPTIONS, subscribers_at
from tidings.protocol.wire import Entry, Interest

SECOND = 10**9
AWAY_S = (15, 60, 550)
QUICK = {"ping_ns": SECOND // 2, "silence_ns": 2 * SECOND, "refresh_ns": 2 * SECOND, "timeout_ns": 5 * SECOND}


def restart(wire: Any, name: str, *neighbours: str, **more: Any) -> None:
    wire.add(wire.broker(name, *neighbours, kept=dict(wire.disks[name]), **more))


def row_of(wire: Any, **more: Any) -> None:
    wire.chain("a", "b", "c", **more)
    wire.client("p", "a")
    wire.client("s", "c")
    wire.pass_time(2 * SECOND)
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x >= 5")
    wire.pass_time(2 * SECOND)


def numbers(wire: Any, client: str) -> list[int]:
    return sorted(effect.event[2] for effect in wire.delivered(client))


@pytest.mark.parametrize("away_s", AWAY_S)
@pytest.mark.parametrize("restarts", [False, True], ids=["", "publisher-s-broker-restarts"])
def test_what_is_accepted_while_a_broker_is_away_is_delivered_when_it_is_back(
    wire: Any, away_s: int, restarts: bool
) -> None:
    row_of(wire, **QUICK)
    wire.crash("c")
    sent = []
    for second in range(away_s):
        wire.pass_time(SECOND)
        if restarts and second == away_s // 2:
            wire.crash("a")
            restart(wire, "a", "b", **QUICK)
            wire.pass_time(3 * SECOND)
        sent.append(wire.call("p", "publish", {"x": 7}))
    assert "c" not in wire.machines["a"].gossip.links
    restart(wire, "c", "b", **QUICK)
    wire.pass_time(20 * SECOND)
    assert numbers(wire, "s") == sent


def test_a_broker_that_nobody_hears_of_is_forgotten_in_the_end(wire: Any) -> None:
    row_of(wire, **QUICK, forget_ns=30 * SECOND)
    wire.crash("c")
    wire.pass_time(20 * SECOND)
    assert "c" in wire.machines["a"].gossip.interests
    wire.pass_time(15 * SECOND)
    assert "c" not in wire.machines["a"].gossip.interests
    assert "c" not in wire.machines["b"].gossip.interests


def test_forgetting_cannot_come_before_missing() -> None:
    with pytest.raises(ConfigurationError, match="forget_ns is 5, but must be timeout_ns"):
        BrokerSettings(name="a", forget_ns=5)


def test_who_leaves_the_network_is_forgotten_and_not_learnt_again_from_who_has_not_heard_of_it(wire: Any) -> None:
    whole = {"a": frozenset("b"), "b": frozenset("ac"), "c": frozenset("b")}
    row_of(wire, **QUICK, graph=whole)
    wire.crash("c")
    wire.pass_time(10 * SECOND)
    left = {"a": frozenset("b"), "b": frozenset("a")}
    machine = wire.machines["a"]
    wire.do("a", machine.rewire(left["a"], left, wire.now_ns))
    for _ in range(2):
        wire.pass_time(10 * SECOND)
        assert "c" not in machine.gossip.interests
        assert not any(key.startswith(("wanted/", "interest/c")) for key in wire.disks["a"])
        assert "c" in wire.machines["b"].gossip.interests
    wire.do("b", wire.machines["b"].rewire(left["b"], left, wire.now_ns))
    wire.pass_time(10 * SECOND)
    assert "c" not in wire.machines["b"].gossip.interests


def test_a_restart_does_not_bring_back_who_has_left_the_network(wire: Any) -> None:
    row_of(wire, **QUICK)
    kept = dict(wire.disks["a"])
    assert any(key.startswith("wanted/") for key in kept)
    wire.crash("a")
    restart(wire, "a", "b", **QUICK, graph={"a": frozenset("b"), "b": frozenset("a")})
    wire.crash("c")
    wire.pass_time(10 * SECOND)
    assert "c" not in wire.machines["a"].gossip.interests
    assert not any(key.startswith("wanted/") for key in wire.disks["a"])


def test_a_client_that_moves_while_a_broker_is_away_gets_what_that_broker_accepts(wire: Any) -> None:
    """The broker that was away still holds that the client is at its old home, long after everybody else."""
    graph = {"a": frozenset("b"), "b": frozenset("ac"), "c": frozenset("b")}
    row_of(wire, **QUICK, graph=graph)
    wire.cut("a", "b")
    wire.pass_time(3 * SECOND)
    wire.call("s", "move", "b")
    wire.pass_time(40 * SECOND)
    assert wire.machines["s"].home.name == "b"
    sent = [wire.call("p", "publish", {"x": 7}) for _ in range(5)]
    wire.mend("a", "b")
    wire.pass_time(20 * SECOND)
    assert numbers(wire, "s") == sent
    wire.pass_time(20 * SECOND)
    reported = wire.machines["a"].gossip.interests.entries("c") if "c" in wire.machines["a"].gossip.interests else {}
    assert not reported  # now that everybody knows the new home


def test_an_event_that_is_accepted_again_is_still_for_a_client_that_is_away(wire: Any) -> None:
    """Its broker has stored it for the client and crashed before it could say so to the publisher."""
    wire.chain("a", "b")
    wire.client("p", "a")
    wire.client("s", "a")
    wire.client("t", "b")
    wire.pass_time(2 * SECOND)
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "here", "x >= 5")
    wire.call("t", "subscribe", "there", "x >= 5")
    wire.pass_time(2 * SECOND)
    wire.disconnect("s", "a")
    wire.pass_time(SECOND)
    wire.holds_syncs = True
    number = wire.call("p", "publish", {"x": 7}, lifetime_ns=500 * SECOND)
    wire.crash("a")
    wire.syncs.clear()
    wire.holds_syncs = False
    restart(wire, "a", "b")
    for name in "pb":
        wire.connect(name, "a")
    wire.pass_time(20 * SECOND)
    assert numbers(wire, "t") == [number]
    wire.connect("s", "a")
    wire.pass_time(10 * SECOND)
    assert numbers(wire, "s") == [number]


def test_a_broker_with_damaged_tables_accepts_nothing_before_it_has_them_again(wire: Any) -> None:
    row_of(wire, **QUICK)
    damaged = [key for key in wire.disks["a"] if key.startswith("wanted/")]
    assert damaged
    wire.crash("a")
    kept = {key: value for key, value in wire.disks["a"].items() if key not in damaged}
    wire.cut("a", "b")
    for _ in range(2):  # a crash meanwhile does not hide that something is missing
        machine = wire.broker("a", "b", kept=dict(kept), **QUICK)
        wire.disks["a"] = dict(kept)
        wire.do("a", machine.mend(damaged))
        wire.add(machine)
        wire.pass_time(60 * SECOND)
        assert not machine.is_ready
        kept, damaged = dict(wire.disks["a"]), []
    wire.connect("a", "b")
    wire.pass_time(10 * SECOND)
    assert machine.is_ready
    assert "c" in machine.gossip.interests
    assert "untold" not in wire.disks["a"]


def interests_of(names: list[str]) -> Interests:
    known = Interests(max_origins=10, max_entries=10_000)
    known.learn(Interest("b", 1, 1, 1, 0, 0, tuple(Entry(name, "x > 1", None, 1.0, 0) for name in names)), 0)
    return known


def test_who_has_moved_away_is_not_counted_among_the_subscribers() -> None:
    known = interests_of(["desk/s1", "desk/s2", "c\0other/s1"])
    assert subscribers_at(known, "b").subscriptions == {"desk/s1": "desk", "desk/s2": "desk"}
    assert subscribers_at(known, "c") == ({}, 0)


def test_the_list_of_subscribers_is_bounded() -> None:
    found = subscribers_at(interests_of([f"client-{place:05}/s1" for place in range(MOST_SUBSCRIPTIONS + 7)]), "b")
    assert (len(found.subscriptions), found.left_off) == (MOST_SUBSCRIPTIONS, 7)
