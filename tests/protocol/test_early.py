"""What a broker has kept comes before a new incarnation of its client has subscribed: in order, at once, and once."""

from typing import Any

import pytest

from tidings.protocol import Client, ClientSettings

SECOND = 10**9


def numbers(row: Any, name: str = "some") -> list[int]:
    """The sequence numbers that the application was given, in order."""
    return [effect.event[2] for effect in row.delivered("s") if effect.subscription == name]


@pytest.fixture
def late(row: Any) -> Any:
    """Three events were published while the subscriber was away; it is back, and has not subscribed."""
    row.crash("s")
    row.cut("s", "c")
    row.do("c", row.machines["c"].disconnected("s", row.now_ns))
    for x in (7, 8, 9):
        row.call("p", "publish", {"x": x})
    row.add(Client(ClientSettings(name="s", epoch=1)), links=("c",))
    assert len(row.machines["s"]._early) == 3
    assert numbers(row) == []
    return row


def test_they_come_at_once_and_before_what_is_published_later(late: Any) -> None:
    late.call("p", "publish", {"x": 10})
    late.call("s", "subscribe", "some", "x > 5")
    late.call("p", "publish", {"x": 11})
    late.pass_time(0)
    assert numbers(late) == [0, 1, 2, 3, 4]
    late.pass_time(5 * SECOND)
    assert numbers(late) == [0, 1, 2, 3, 4]
    assert late.machines["c"].counts["resent"] == 0
    assert late.machines["c"].bounds()["stored"][0] == 0
    assert late.machines["s"].bounds()["early"][0] == 0


def test_what_is_sent_again_meanwhile_comes_once(late: Any) -> None:
    late.pass_time(3 * SECOND)
    assert late.machines["c"].counts["resent"] > 0
    late.call("s", "subscribe", "some", "x > 5")
    late.pass_time(5 * SECOND)
    assert numbers(late) == [0, 1, 2]
    assert late.machines["s"].counts["duplicates"] == 0
    assert late.machines["c"].bounds()["stored"][0] == 0


def test_they_are_not_kept_for_a_subscription_that_is_ended(late: Any) -> None:
    late.call("s", "unsubscribe", "some")
    late.pass_time(5 * SECOND)
    assert numbers(late) == []
    assert late.machines["s"].bounds()["early"][0] == 0
    assert late.machines["c"].bounds()["stored"][0] == 0


def test_they_are_acknowledged_when_nobody_has_asked_for_them_in_time(late: Any) -> None:
    late.pass_time(2 * ClientSettings(name="s").settle_ns)
    assert late.machines["s"].bounds()["early"][0] == 0
    assert late.machines["s"].counts["not subscribed"] == 3
    assert late.machines["c"].bounds()["stored"][0] == 0
    late.call("s", "subscribe", "some", "x > 5")
    assert numbers(late) == []


def test_a_broker_that_starts_again_sends_them_again(late: Any) -> None:
    late.crash("c")
    late.pass_time(1 * SECOND)
    late.add(late.broker("c", "b", kept=dict(late.disks["c"])))
    late.pass_time(3 * SECOND)
    late.call("s", "subscribe", "some", "x > 5")
    late.pass_time(15 * SECOND)
    assert sorted(numbers(late)) == [0, 1, 2]
    assert late.machines["c"].bounds()["stored"][0] == 0


def test_one_of_two_subscriptions_does_not_wait_for_the_other(row: Any) -> None:
    row.call("s", "subscribe", "more", "x > 6")
    row.crash("s")
    row.cut("s", "c")
    row.do("c", row.machines["c"].disconnected("s", row.now_ns))
    row.call("p", "publish", {"x": 7})
    row.add(Client(ClientSettings(name="s", epoch=1)), links=("c",))
    row.call("s", "subscribe", "some", "x > 5")
    row.pass_time(0)
    assert (numbers(row), numbers(row, "more")) == ([0], [])
    assert row.machines["c"].bounds()["stored"][0] == 1  # it is owed to the other
    row.call("s", "subscribe", "more", "x > 6")
    row.pass_time(5 * SECOND)
    assert (numbers(row), numbers(row, "more")) == ([0], [0])
    assert row.machines["c"].bounds()["stored"][0] == 0
