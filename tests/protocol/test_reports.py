"""What a client says has become of the events that it was given: true, its own, and only ever more."""

from typing import Any

import pytest

from tidings.ordering import Policy
from tidings.protocol import Broker, BrokerSettings, wire
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Tally

SECOND = 10**9


def told(row: Any, client: str = "s", broker: str = "c") -> Tally:
    return row.machines[broker].clients[client].outcomes.tally()


def test_a_broker_knows_what_was_on_time_late_and_discarded(row: Any) -> None:
    row.call("s", "subscribe", "strict", "x > 5", max_delay_ns=1 * SECOND)
    row.call("s", "subscribe", "lenient", "x > 5", max_delay_ns=1 * SECOND, late_ns=60 * SECOND)
    row.call("p", "publish", {"x": 7})
    assert told(row) == Tally(3, 0, 0)
    assert row.machines["c"].clients["s"].outbox.given == 3
    row.call("s", "pause")  # what is under way when it pauses comes late
    row.links.discard(("c", "s"))
    row.call("p", "publish", {"x": 8})
    row.pass_time(2 * SECOND)
    row.links.add(("c", "s"))
    row.call("s", "resume")
    row.pass_time(10 * SECOND)
    assert told(row) == Tally(4, 1, 1)
    assert row.machines["s"].counts["too late"] == 1
    assert row.machines["c"].outcomes.tally() == Tally(4, 1, 1)
    assert len(row.delivered("s")) == 5


def test_what_leaves_a_receiver_later_is_told_later(row: Any) -> None:
    row.call("s", "unsubscribe", "some")
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("CST-1000"))
    for x in (10, 1, 11):
        row.call("p", "publish", {"x": x})
    assert told(row) == Tally(1, 0, 0)
    row.pass_time(10 * SECOND)
    assert told(row) == Tally(2, 0, 0)


def test_what_comes_out_of_order_and_is_not_wanted_so_is_discarded(row: Any) -> None:
    row.call("s", "unsubscribe", "some")
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("CST-0", late="drop"))
    row.call("p", "publish", {"x": 10})
    row.links.discard(("p", "a"))
    row.call("p", "publish", {"x": 11})
    row.links.add(("p", "a"))
    row.call("p", "publish", {"x": 12})
    row.pass_time(10 * SECOND)
    assert told(row) == Tally(2, 0, 1)
    assert row.machines["s"].counts["out of order"] == 1


def test_lives_of_the_client_and_of_the_broker_are_counted_on(row: Any) -> None:
    row.call("p", "publish", {"x": 7})
    row.pass_time(6 * SECOND)
    row.crash("s")
    row.client("s", "c", epoch=2)
    row.call("s", "subscribe", "some", "x > 5")
    row.call("p", "publish", {"x": 8})
    assert told(row) == Tally(2, 0, 0)
    row.crash("c")
    row.add(row.broker("c", "b", kept=dict(row.disks["c"])))
    row.pass_time(6 * SECOND)
    row.call("p", "publish", {"x": 9})
    row.pass_time(6 * SECOND)
    assert told(row) == Tally(1, 0, 0)  # of the broker's present life
    assert row.machines["c"].clients["s"].outbox.given == 1


@pytest.mark.parametrize(
    "lie",
    [
        Tally(3, 0, 0),  # it was given two
        Tally(1, 1, 1),
        Tally(2**62, 2**62, 2**62),
        Tally(0, 0, 0),  # less than before
        Tally(1, 0, 0),
        Tally(0, 2, 0),
    ],
)
def test_a_client_that_lies_changes_nothing(row: Any, lie: Tally) -> None:
    for x in (7, 8):
        row.call("p", "publish", {"x": x})
    row.pass_time(1 * SECOND)
    broker = row.machines["c"]
    assert told(row) == Tally(2, 0, 0)
    for message in (wire.Pong(0, None, lie), wire.Ack(broker.epoch, ((0, 0),), 0, 5, lie)):
        broker.receive("s", wire.encode(message), row.now_ns)
    assert told(row) == Tally(2, 0, 0)
    row.call("p", "publish", {"x": 9})
    row.pass_time(6 * SECOND)
    assert told(row) == Tally(3, 0, 0)


def test_a_client_that_was_forgotten_counts_on_from_where_it_is() -> None:
    """Its first report is of more than it was given since: so much of it is of before."""
    broker = Broker(BrokerSettings(name="b"))
    peer = Peer("s", "client", broker._outbox(10))
    peer.outbox.given = 3
    assert peer.report(Tally(100, 20, 3)) == Tally()
    assert peer.report(Tally(101, 20, 4)) == Tally(1, 0, 1)
    assert peer.outcomes.tally() == Tally(1, 0, 1)


def test_nobody_reports_of_others(row: Any) -> None:
    """A report counts for who is at the other end of the connection; of a broker it counts for nothing."""
    row.call("p", "publish", {"x": 7})
    broker = row.machines["c"]
    broker.receive("b", wire.encode(wire.Pong(0, None, Tally())), row.now_ns)
    broker.receive("b", wire.encode(wire.Pong(0, None, Tally(0, 1, 0))), row.now_ns)
    assert told(row) == broker.outcomes.tally() == Tally(1, 0, 0)
