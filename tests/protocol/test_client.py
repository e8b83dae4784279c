"""A client's promises: once, in order, on time or marked, and nothing unconfirmed is forgotten."""

from typing import Any

import pytest

from tidings.ordering import Policy
from tidings.protocol import Client, ClientSettings, Confirmed, Failed, PeerError, RequestError, wire
from tidings.protocol.client._requests import MOST_ENDED
from tidings.protocol.wire import MAX_FILTER

SECOND = 10**9


def test_requests_wait_for_a_broker_and_are_confirmed_once(wire: Any) -> None:
    wire.add(Client(ClientSettings(name="s")))
    wire.call("s", "subscribe", "some", "x > 5")
    wire.links |= {("s", "a"), ("a", "s")}
    wire.chain("a")
    wire.pass_time(5 * SECOND)
    assert wire.effects.count(("s", Confirmed("subscribe", "some"))) == 1


def test_everything_is_asked_again_of_a_broker_that_has_started_again(row: Any) -> None:
    row.crash("c")
    row.disks["c"].clear()
    row.pass_time(1 * SECOND)
    row.add(row.broker("c", "b"))
    row.pass_time(15 * SECOND)
    row.call("p", "publish", {"x": 7})
    assert [effect.event for effect in row.delivered("s")] == [("p", 1, 0)]
    assert row.effects.count(("s", Confirmed("subscribe", "some"))) == 1


def test_a_broker_that_has_forgotten_the_end_of_a_subscription_gets_it_again(row: Any) -> None:
    """As one does that has lost its store, and learns what its clients want from others that have not heard of it."""
    before = dict(row.disks["c"])
    assert row.machines["a"].view().interests["c"]
    row.call("s", "unsubscribe", "some")
    row.pass_time(1 * SECOND)
    row.crash("c")
    row.pass_time(1 * SECOND)
    row.add(row.broker("c", "b", kept=before))
    row.pass_time(15 * SECOND)
    assert not row.machines["c"].view().interests.get("c")
    assert not row.machines["a"].view().interests.get("c")
    assert row.effects.count(("s", Confirmed("unsubscribe", "some"))) == 1


def test_no_more_than_the_last_ends_of_subscriptions_are_kept(row: Any) -> None:
    for number in range(MOST_ENDED + 9):
        row.call("s", "subscribe", f"s{number}", "x > 5")
        row.pass_time(SECOND // 10)
        row.call("s", "unsubscribe", f"s{number}")
        row.pass_time(SECOND // 10)
    row.machines["s"].sent.clear()
    row.crash("c")
    row.pass_time(1 * SECOND)
    row.add(row.broker("c", "b"))
    row.pass_time(15 * SECOND)
    assert row.machines["s"].sent["Unsubscribe"] == MOST_ENDED


def test_a_broker_that_confirms_one_after_the_other_is_asked_nothing_twice_and_a_silent_one_is() -> None:
    now_ns, many = 10**17, 60
    client = Client(ClientSettings(name="s"))
    client.start(now_ns)
    client.connected("a", now_ns)
    welcome = wire.Welcome(wire.VERSION, "a", "broker", 7, 256)
    client.receive("a", wire.encode(welcome), now_ns)
    client.subscribe_many([(f"n{number}", "x = 1") for number in range(many)], now_ns)
    assert client.sent["Subscribe"] == many
    for number in range(many - 1):  # it takes 9 s for them, and patience would have ended after .2 s
        now_ns += SECOND * 3 // 20
        client.wake(now_ns)
        client.receive("a", wire.encode(wire.Done("subscribe", f"n{number}", number)), now_ns)
    assert client.sent["Subscribe"] == many
    for _ in range(10):
        now_ns += SECOND
        client.receive("a", wire.encode(wire.Ping(now_ns, 0, 0)), now_ns)
        client.wake(now_ns)
    assert client.sent["Subscribe"] > many + 2


def test_a_wrong_filter_is_refused_before_it_is_sent() -> None:
    with pytest.raises(PeerError, match="expected"):
        Client(ClientSettings(name="s")).subscribe("some", "x >", 0)


def test_an_event_that_never_reached_its_broker_is_reported_as_expired(row: Any) -> None:
    row.cut("p", "a")
    row.call("p", "publish", {"x": 7}, lifetime_ns=2 * SECOND)
    row.pass_time(20 * SECOND)
    row.mend("p", "a")
    row.pass_time(20 * SECOND)
    failed = [effect for _, effect in row.effects if isinstance(effect, Failed)]
    assert [(effect.kind, effect.name, effect.code) for effect in failed] == [("publish", "0", "expired")]
    assert row.delivered("s") == []


def test_publishing_beyond_the_bound_is_refused() -> None:
    machine = Client(ClientSettings(name="p", max_unacknowledged=3))
    machine.start(0)
    for _ in range(3):
        machine.publish({"x": 1}, 1)
    with pytest.raises(RequestError, match="3 events of 'p' wait for their broker"):
        machine.publish({"x": 1}, 1)
    assert machine.bounds()["unacknowledged"] == (3, 3)


@pytest.mark.parametrize("lifetime_ns", [0, -1, 10**18])
def test_a_lifetime_that_cannot_be_is_refused(lifetime_ns: int) -> None:
    with pytest.raises(RequestError, match="lifetime"):
        Client(ClientSettings(name="p")).publish({"x": 1}, 1, lifetime_ns=lifetime_ns)


def test_order_is_restored_by_the_subscriptions_policy(row: Any) -> None:
    """The second event overtakes the first, which waits at its publisher until its frame is sent again."""
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("CST-5000"))
    row.call("p", "publish", {"x": 10})
    row.links.discard(("p", "a"))
    row.call("p", "publish", {"x": 11})
    row.links.add(("p", "a"))
    row.call("p", "publish", {"x": 12})
    row.pass_time(3 * SECOND)
    assert [effect.event[2] for effect in row.delivered("s") if effect.subscription == "some"] == [0, 2, 1]
    assert [effect.event[2] for effect in row.delivered("s") if effect.subscription == "ordered"] == [0, 1, 2]


def test_order_does_not_cost_the_event_that_came_far_behind(row: Any) -> None:
    """More than 1,024 numbers behind the highest: out of order, and delivered so."""
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("ours-record"))
    row.call("p", "publish", {"x": 10})
    row.links.discard(("p", "a"))
    row.call("p", "publish", {"x": 11})
    row.links.add(("p", "a"))
    for _ in range(1_100):
        row.call("p", "publish", {"x": 12})
    row.pass_time(3 * SECOND)
    numbers = [effect.event[2] for effect in row.delivered("s") if effect.subscription == "ordered"]
    assert sorted(numbers) == list(range(1_102))
    assert numbers[-1] == 1
    assert row.machines["s"].counts["out of order"] == 1


@pytest.mark.parametrize("late_ns", [0, 10 * SECOND])
def test_no_event_is_held_for_order_until_it_is_late(row: Any, late_ns: int) -> None:
    """The gap is not for this subscription, but only a record shows that; the latch is longer than the deadline."""
    policy = Policy.parse("CST-5000")
    row.call("s", "subscribe", "ordered", "x > 5", max_delay_ns=1 * SECOND, late_ns=late_ns, policy=policy)
    for x in (10, 1, 11, 12):
        row.call("p", "publish", {"x": x})
    row.pass_time(10 * SECOND)
    found = [effect for effect in row.delivered("s") if effect.subscription == "ordered"]
    assert [(effect.event[2], effect.late) for effect in found] == [(0, False), (2, False), (3, False)]
    assert 0.9 * SECOND < found[1].held_ns < 1 * SECOND


def test_what_is_late_already_is_held_while_it_is_wanted(row: Any) -> None:
    policy = Policy.parse("CST-5000")
    row.call("s", "subscribe", "ordered", "x > 5", max_delay_ns=1 * SECOND, late_ns=3 * SECOND, policy=policy)
    row.call("p", "publish", {"x": 10})
    row.cut("s", "c")
    for x in (1, 11):
        row.call("p", "publish", {"x": x})
    row.pass_time(2 * SECOND)
    row.mend("s", "c")
    row.pass_time(10 * SECOND)
    found = [effect for effect in row.delivered("s") if effect.subscription == "ordered"]
    assert [(effect.event[2], effect.late) for effect in found] == [(0, False), (2, True)]
    assert found[1].age_ns < 4 * SECOND


def test_a_copy_is_delivered_once_and_acknowledged_again(row: Any) -> None:
    row.links.discard(("s", "c"))  # what s says is lost: c sends again and again
    row.call("p", "publish", {"x": 7})
    row.pass_time(3 * SECOND)
    row.links.add(("s", "c"))
    row.pass_time(10 * SECOND)
    assert len(row.delivered("s")) == 1
    assert row.machines["c"].counts["resent"] > 0
    assert row.machines["c"].bounds()["stored"][0] == 0


def test_a_copy_from_another_life_of_the_broker_is_known_too(row: Any) -> None:
    row.links.discard(("s", "c"))
    row.call("p", "publish", {"x": 7})
    row.crash("c")
    row.links.add(("s", "c"))
    row.pass_time(1 * SECOND)
    row.add(row.broker("c", "b", kept=dict(row.disks["c"])))
    row.pass_time(15 * SECOND)
    assert len(row.delivered("s")) == 1
    assert row.machines["s"].counts["duplicates"] == 1


def test_what_is_remembered_is_forgotten_when_no_copy_can_come(row: Any) -> None:
    row.call("p", "publish", {"x": 7}, lifetime_ns=1 * SECOND)
    assert row.machines["s"].bounds()["seen"][0] == 1
    assert row.machines["c"].bounds()["seen"][0] == 1
    row.pass_time(120 * SECOND)
    assert row.machines["s"].bounds()["seen"][0] == 0
    assert row.machines["c"].bounds()["seen"][0] == 0
    assert not any(key.startswith("seen/") for key in row.disks["c"])


def test_what_no_message_can_hold_is_refused_before_it_is_sent(row: Any) -> None:
    """The broker could not read it, so it could not say what it refuses, and the client would ask for ever."""
    longest = "y" * (MAX_FILTER - len("x = ''"))
    row.call("s", "subscribe", "long", f"x = '{longest}'")
    row.call("p", "advertise", "long", f"x = '{longest}'")
    for client, what in (("s", "subscribe"), ("p", "advertise")):
        with pytest.raises(RequestError, match="16385 characters; the limit is 16384: shorten it"):
            row.call(client, what, "longer", f"x = '{longest}y'")
        with pytest.raises(RequestError, match="a name of 256 characters: from 1 to 255 are allowed"):
            row.call(client, what, "n" * 256, "x = 1")
    row.pass_time(5 * SECOND)
    assert not row.machines["a"].refused
    assert not row.machines["c"].refused
    assert sorted(row.machines["c"].gossip.local.of("s")) == ["long", "some"]
