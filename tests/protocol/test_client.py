"""A client's promises: once, in order, on time or marked, and nothing unconfirmed is forgotten."""

from typing import Any

import pytest

from tidings.ordering import Policy
from tidings.protocol import Client, ClientSettings, Confirmed, Failed, PeerError, RequestError

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
