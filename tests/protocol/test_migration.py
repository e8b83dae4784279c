"""A client moves: nothing is lost, nothing comes twice, and in the end it is at home at exactly one broker."""

from typing import Any

import msgspec
import pytest

from tidings.ordering import Policy
from tidings.protocol import Broker, Client, ClientSettings, Failed, Moved, PeerError, RequestError, Store, wire

SECOND = 10**9
MS = 10**6


def homes(net: Any, client: str) -> list[str]:
    """The brokers that know a client."""
    return [name for name, it in net.machines.items() if isinstance(it, Broker) and client in it.clients]


def ends(net: Any, client: str) -> list[str]:
    """How the moves of a client ended."""
    found = [effect for name, effect in net.effects if name == client]
    return ["moved" if isinstance(e, Moved) else e.code for e in found if isinstance(e, Moved | Failed)]


def came(net: Any, client: str = "s") -> list[int]:
    return [effect.event[2] for effect in net.delivered(client)]


def announced_at(net: Any, broker: str) -> dict[str, list[str]]:
    """Whom the broker knows to want something, by home."""
    return {home: sorted(name for name, _ in wanted) for home, wanted in net.machines[broker].view().interests.items()}


def test_a_publisher_moves_and_goes_on(row: Any) -> None:
    row.call("p", "publish", {"x": 6})
    row.call("p", "move", "c")
    row.call("p", "publish", {"x": 7})
    row.pass_time(2 * SECOND)
    assert homes(row, "p") == ["c"]
    assert ends(row, "p") == ["moved"]
    assert came(row) == [0, 1]
    assert [effect.event for effect in row.delivered("s")] == [("p", 1, 0), ("p", 1, 1)]
    assert not any(key.startswith(("advertisement", "subscription")) for key in row.disks["a"])
    assert row.machines["a"].sent["Transfer"] == 1


def test_a_subscriber_moves_and_misses_nothing(row: Any) -> None:
    row.call("p", "publish", {"x": 6})
    row.call("s", "move", "a")
    row.call("p", "publish", {"x": 7})
    row.pass_time(2 * SECOND)
    row.call("p", "publish", {"x": 8})
    row.pass_time(1 * SECOND)
    assert homes(row, "s") == ["a"]
    assert came(row) == [0, 1, 2]


def test_what_comes_to_the_old_home_is_sent_after_the_client(row: Any) -> None:
    """The event travels from a to c, stuck at b, while the subscriber moves from c to a."""
    row.cut("b", "c")
    row.call("p", "publish", {"x": 6})
    assert came(row) == []
    row.call("s", "move", "a")
    assert row.machines["s"].home.name == "a"
    row.pass_time(2 * SECOND)
    row.mend("b", "c")
    row.pass_time(20 * SECOND)
    assert came(row) == [0]
    assert homes(row, "s") == ["a"]


def test_an_event_that_the_new_home_has_given_to_others_still_reaches_the_client(row: Any) -> None:
    """`t` at b got the event long ago; the copy for `s` was held at c, and must not be taken for one of those."""
    row.client("t", "b")
    row.call("t", "subscribe", "all", "x > 0")
    row.links.discard(("c", "s"))
    row.call("p", "publish", {"x": 6})
    row.pass_time(1 * SECOND)
    assert came(row, "t") == [0]
    row.call("s", "move", "b")
    row.pass_time(5 * SECOND)
    assert came(row) == [0]
    assert came(row, "t") == [0]
    assert row.machines["b"].counts["sent after a client"] >= 1


def test_the_old_home_is_announced_until_the_new_one_is_known(row: Any) -> None:
    row.call("s", "move", "a")
    assert announced_at(row, "b") == {"a": ["s/some"], "c": ["a\0s/some"]}
    row.pass_time(40 * SECOND)
    assert announced_at(row, "b") == {"a": ["s/some"]}
    assert len(row.machines["c"].departures) == 1
    row.pass_time(800 * SECOND)
    assert len(row.machines["c"].departures) == 0
    assert not any(key.startswith("departed") for key in row.disks["c"])


def test_a_queue_that_is_full_moves_along_in_order(row: Any) -> None:
    row.call("s", "subscribe", "ordered", "x > 5", policy=Policy.parse("CST-5000"))
    row.call("s", "pause")
    for x in range(60):
        row.call("p", "publish", {"x": 6 + x})
    row.pass_time(1 * SECOND)
    row.call("s", "move", "b")
    row.pass_time(1 * SECOND)
    row.call("s", "resume")
    row.pass_time(20 * SECOND)
    ordered = [effect.event[2] for effect in row.delivered("s") if effect.subscription == "ordered"]
    assert ordered == list(range(60))
    assert sorted(e.event[2] for e in row.delivered("s") if e.subscription == "some") == list(range(60))
    assert row.machines["c"].bounds()["stored"][0] == 0


def test_on_and_back_again(row: Any) -> None:
    for number, broker in enumerate(["b", "a", "c", "b", "c"]):
        row.call("p", "publish", {"x": 6})
        row.call("s", "move", broker)
        row.call("p", "move", "abc"[number % 3])
        row.pass_time(1 * SECOND)
    row.call("p", "publish", {"x": 6})
    row.pass_time(5 * SECOND)
    assert came(row) == list(range(6))
    assert homes(row, "s") == ["c"]
    assert homes(row, "p") == ["b"]


def test_all_move_at_once(row: Any) -> None:
    for name in "qrtu":
        row.client(name, "b")
        row.call(name, "advertise", "all", "x >= 0")
        row.call(name, "subscribe", "some", "x > 5")
    for name in "pqrtu":
        row.do(name, row.machines[name].move("c", row.now_ns))
        row.do(name, row.machines[name].publish({"x": 9}, row.now_ns)[1])
    row.settle()
    row.pass_time(2 * SECOND)
    for name in "pqrtu":
        assert homes(row, name) == ["c"]
    assert sorted(e.event for e in row.delivered("s")) == [(name, 1, 0) for name in "pqrtu"]
    for name in "qrtu":
        assert sorted(e.event for e in row.delivered(name)) == [(other, 1, 0) for other in "pqrtu"]


def test_a_broker_that_does_not_answer_gets_no_client(row: Any) -> None:
    row.crash("b")
    row.call("p", "move", "b")
    row.call("p", "publish", {"x": 6})
    row.pass_time(12 * SECOND)
    assert ends(row, "p") == ["timeout"]
    assert homes(row, "p") == ["a"]
    assert not row.machines["p"].is_moving
    assert ("p", "b") not in row.links


def test_a_broker_that_has_no_room_gets_no_client(wire: Any) -> None:
    wire.chain("a")
    wire.add(wire.broker("b", "a", max_subscriptions=1))
    wire.client("s", "a")
    for name in ("one", "two"):
        wire.call("s", "subscribe", name, "x > 5")
    wire.call("s", "move", "b")
    wire.pass_time(2 * SECOND)
    assert ends(wire, "s") == ["too-many"]
    assert homes(wire, "s") == ["a"]
    assert wire.machines["b"].gossip.local.of("s") == {}


def test_the_pause_lasts_until_home_has_acknowledged(row: Any) -> None:
    row.links.discard(("a", "p"))  # home hears, but is not heard
    row.call("p", "publish", {"x": 6})
    row.call("p", "move", "b")
    row.call("p", "publish", {"x": 7})
    assert row.machines["p"].home.name == "a"
    assert row.machines["b"].sent["Ack"] == row.machines["a"].sent["Transfer"]
    row.links.add(("a", "p"))
    row.pass_time(500 * MS)
    assert row.machines["p"].home.name == "b"
    assert came(row) == [0, 1]
    (moved,) = [effect for name, effect in row.effects if isinstance(effect, Moved)]
    assert 0 < moved.paused_ns <= 500 * MS


def test_the_new_home_takes_over_what_the_old_one_never_acknowledges(row: Any) -> None:
    row.links.discard(("a", "p"))
    row.call("p", "publish", {"x": 6})
    row.call("p", "move", "b")
    row.call("p", "publish", {"x": 7})
    row.pass_time(1500 * MS)
    assert row.machines["p"].home.name == "b"
    assert came(row) == [0, 1]
    assert homes(row, "p") == ["a", "b"]  # until home before hears of it
    row.links.add(("a", "p"))
    row.pass_time(5 * SECOND)
    assert homes(row, "p") == ["b"]
    assert came(row) == [0, 1]


@pytest.mark.parametrize("loses_tail", [False, True])
@pytest.mark.parametrize("victim", ["a", "b", "c"])
@pytest.mark.parametrize("steps", range(1, 36, 3))
def test_a_crash_at_any_moment(row: Any, victim: str, steps: int, loses_tail: bool) -> None:
    """The publisher goes from a to b, the subscriber from c to b; a broker fails, with its disk's tail or not."""
    row.do("p", row.machines["p"].publish({"x": 6}, row.now_ns)[1])
    row.do("p", row.machines["p"].move("b", row.now_ns))
    row.do("s", row.machines["s"].move("b", row.now_ns))
    for _ in range(steps):
        if row.frames:
            source, target, frame = row.frames.popleft()
            if (source, target) in row.links:
                row.do(target, row.machines[target].receive(source, frame, row.now_ns))
        elif row.syncs:
            row.sync()
    row.crash(victim, loses_tail=loses_tail)
    for other in [other for one, other in row.links if one == victim]:
        row.do(other, row.machines[other].disconnected(victim, row.now_ns))
    row.settle()
    row.do("p", row.machines["p"].publish({"x": 7}, row.now_ns)[1])
    row.pass_time(3 * SECOND)
    beside = sorted(other for one, other in row.links if one == victim and other in "abc")
    row.add(row.broker(victim, *beside, kept=dict(row.disks[victim])))
    row.pass_time(30 * SECOND)
    row.call("p", "publish", {"x": 8})
    row.pass_time(5 * SECOND)
    assert sorted(came(row)) == [0, 1, 2]
    for client in "ps":
        assert homes(row, client) == [row.machines[client].home.name]
        assert not row.machines[client].is_moving


def test_a_departure_outlives_its_broker(row: Any) -> None:
    row.cut("b", "c")
    row.call("p", "publish", {"x": 6})
    row.call("s", "move", "a")
    row.crash("c")
    row.pass_time(1 * SECOND)
    row.mend("b", "c")
    row.add(row.broker("c", "b", kept=dict(row.disks["c"])))
    row.pass_time(20 * SECOND)
    assert "s" in row.machines["c"].departures
    assert came(row) == [0]


def lose_what_home_sent_on(row: Any) -> None:
    """The home of `p` sends an event on, which `s` at c gets, and crashes before the event is durable."""
    row.holds_syncs = True
    row.call("p", "publish", {"x": 6})
    assert came(row) == [0]
    row.crash("a", loses_tail=True)
    row.holds_syncs = False
    for other in [other for one, other in row.links if one == "a"]:
        row.do(other, row.machines[other].disconnected("a", row.now_ns))
    row.cut("a", "p")
    row.pass_time(10 * MS)


def test_an_event_accepted_twice_reaches_who_has_moved_to_where_it_was_before(row: Any) -> None:
    """Its client moves, and the publisher repeats it (found by a storm)."""
    row.client("t", "a")
    row.call("t", "subscribe", "all", "x > 0")
    row.pass_time(2 * SECOND)
    row.cut("a", "t")
    lose_what_home_sent_on(row)
    row.mend("a", "t")
    row.add(row.broker("a", "b", kept=dict(row.disks["a"])))
    row.pass_time(5 * SECOND)
    row.call("t", "move", "c")
    row.pass_time(1 * SECOND)
    assert homes(row, "t") == ["c"]
    row.connect("p", "a")
    row.pass_time(20 * SECOND)
    assert came(row, "t") == [0]
    assert came(row) == [0]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_event_accepted_twice_reaches_who_has_come_from_a_third_broker(wire: Any, restarts: bool) -> None:
    """The event never came to d, and d no longer tells anybody of its client when the publisher repeats the event."""
    wire.chain("d", "a", "b", "c")
    for name, home in (("p", "a"), ("s", "c"), ("t", "d")):
        wire.client(name, home)
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x > 5")
    wire.call("t", "subscribe", "some", "x > 5")
    wire.pass_time(1 * SECOND)
    wire.cut("a", "d")
    lose_what_home_sent_on(wire)
    wire.mend("a", "d")
    wire.call("t", "move", "c")
    wire.add(wire.broker("a", "b", "d", kept=dict(wire.disks["a"])))
    wire.pass_time(60 * SECOND)
    assert announced_at(wire, "a") == {"c": ["s/some", "t/some"]}
    if restarts:
        wire.crash("c")
        for other in ("b", "s", "t"):
            wire.do(other, wire.machines[other].disconnected("c", wire.now_ns))
        wire.add(wire.broker("c", "b", kept=dict(wire.disks["c"])))
        wire.pass_time(2 * SECOND)
    wire.connect("p", "a")
    wire.pass_time(20 * SECOND)
    assert came(wire, "t") == [0]
    assert came(wire) == [0]
    assert wire.machines["t"].counts["duplicates"] == wire.machines["s"].counts["duplicates"] == 0


def test_an_event_accepted_twice_reaches_who_has_come_to_its_publisher(row: Any) -> None:
    """Publisher and subscriber both move to where the event was before."""
    row.client("t", "a")
    row.call("t", "subscribe", "all", "x > 0")
    row.pass_time(2 * SECOND)
    row.cut("a", "t")
    lose_what_home_sent_on(row)
    row.call("t", "move", "c")
    row.call("p", "move", "c")
    row.pass_time(20 * SECOND)
    assert homes(row, "t") == homes(row, "p") == ["c"]
    assert came(row, "t") == [0]
    assert came(row) == [0]


def test_an_event_accepted_twice_reaches_who_has_come_and_gone_on(wire: Any) -> None:
    """The client is at c when the event is accepted again, and at d when it comes to c, which had it before."""
    wire.chain("a", "b", "c", "d")
    for name, home in (("p", "a"), ("s", "c"), ("t", "a")):
        wire.client(name, home)
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x > 5")
    wire.call("t", "subscribe", "some", "x > 5")
    wire.pass_time(2 * SECOND)
    wire.cut("a", "t")
    lose_what_home_sent_on(wire)
    wire.mend("a", "t")
    wire.add(wire.broker("a", "b", kept=dict(wire.disks["a"])))
    wire.pass_time(5 * SECOND)
    wire.call("t", "move", "c")
    wire.pass_time(1 * SECOND)
    wire.cut("b", "c")
    wire.connect("p", "a")
    wire.pass_time(1 * SECOND)
    wire.call("t", "move", "d")
    assert wire.machines["t"].home.name == "d"
    wire.mend("b", "c")
    wire.pass_time(20 * SECOND)
    assert came(wire, "t") == [0]
    assert came(wire) == [0]


def test_what_was_taken_back_meanwhile_does_not_come_back(row: Any) -> None:
    """Home is down while the client moves away, unsubscribes, and comes home again (found by a storm)."""
    row.call("s", "subscribe", "more", "x > 7")
    row.crash("c")
    row.do("s", row.machines["s"].disconnected("c", row.now_ns))
    row.call("s", "move", "b")
    assert row.machines["s"].home.name == "b"
    row.call("s", "unsubscribe", "more")
    row.call("s", "move", "c")
    row.add(row.broker("c", "b", kept=dict(row.disks["c"])))
    row.pass_time(20 * SECOND)
    assert homes(row, "s") == ["c"]
    assert list(row.machines["c"].gossip.local.of("s")) == ["some"]


def test_one_with_many_subscriptions_that_comes_back_costs_a_few_bytes_for_each(row: Any) -> None:
    for number in range(60):
        row.call("s", "subscribe", f"more{number}", f"y = {number}")
    row.call("s", "move", "b")
    row.pass_time(1 * SECOND)
    assert sum(key.startswith("left/") for key in row.disks["c"]) == 61
    row.effects.clear()
    row.call("s", "move", "c")
    row.pass_time(1 * SECOND)
    stored = [effect for name, effect in row.effects if name == "c" and isinstance(effect, Store)]
    assert sum(len(effect.value) for effect in stored) < 15_000
    assert not any(key.startswith("left/") for key in row.disks["c"])
    row.crash("c")
    again = row.broker("c", "b", kept=dict(row.disks["c"]))
    row.add(again)
    assert len(again.gossip.local.of("s")) == len(again.gossip.local) == 61


def test_a_departure_of_an_older_store_is_read_and_written_anew(row: Any) -> None:
    row.call("s", "subscribe", "more", "y = 1")
    row.call("s", "move", "b")
    row.pass_time(1 * SECOND)
    machine = row.machines["c"]
    owner = machine.departures._gone["s"].owner
    older = {key: value for key, value in row.disks["c"].items() if not key.startswith("left/")}
    older["departed/s"] = msgspec.msgpack.encode(machine.departures._gone["s"])
    row.crash("c")
    row.disks["c"] = dict(older)
    row.add(row.broker("c", "b", kept=older))
    for _ in range(2):
        assert sorted(row.machines["c"].gossip.local.of(owner)) == ["more", "some"]
        row.crash("c")
        row.add(row.broker("c", "b", kept=dict(row.disks["c"])))
    assert sum(key.startswith("left/") for key in row.disks["c"]) == 2
    row.pass_time(720 * SECOND)
    assert not any(key.startswith(("left/", "departed/")) for key in row.disks["c"])


def test_an_old_copy_of_a_request_does_not_register_who_has_left(row: Any) -> None:
    broker = row.machines["c"]
    row.call("s", "move", "a")
    row.connect("s", "c")
    greeting = wire.Hello(wire.VERSION, "s", "client", 1, 10)
    broker.connected("s", row.now_ns)
    broker.receive("s", wire.encode(greeting), row.now_ns)
    old = wire.Subscribe(broker.epoch, 1, wire.Entry("some", "x > 5", None, 1.0, 0))
    broker.receive("s", wire.encode(old), row.now_ns)
    assert not broker.registry.knows("s")


def test_home_may_ask_a_client_to_move(row: Any) -> None:
    row.frames.append(("a", "p", wire.encode(wire.Move("b"))))
    row.settle()
    row.pass_time(1 * SECOND)
    assert homes(row, "p") == ["b"]


def test_a_client_that_may_not_be_moved_stays(wire: Any) -> None:
    wire.chain("a", "b")
    wire.client("p", "a", may_be_moved=False)
    wire.frames.append(("a", "p", b"\x92\x12\xa1b"))
    wire.settle()
    wire.pass_time(1 * SECOND)
    assert homes(wire, "p") == ["a"]


def test_only_home_may_ask(row: Any) -> None:
    row.connect("p", "b")
    row.frames.append(("b", "p", wire.encode(wire.Move("c"))))
    row.settle()
    assert row.machines["p"].home.name == "a"


def test_moves_that_cannot_be_are_refused(row: Any) -> None:
    with pytest.raises(RequestError, match="cannot move to 'b' now: it has no home"):
        Client(ClientSettings(name="p")).move("b", 0)
    row.crash("b")
    row.call("p", "move", "b")
    with pytest.raises(RequestError, match="is moving already"):
        row.call("p", "move", "c")
    with pytest.raises(PeerError, match="contains the character 0"):
        row.call("s", "move", "a\0b")


def test_a_move_home_is_done_at_once(row: Any) -> None:
    row.call("p", "move", "a")
    assert ends(row, "p") == ["moved"]
    assert not row.machines["p"].is_moving


def test_nobody_leaves_a_broker_for_itself(row: Any) -> None:
    broker = row.machines["c"]
    broker.receive("s", wire.encode(wire.MigrationUpdate(broker.epoch, 99, "c")), row.now_ns)
    assert broker.refused == {"home": 1}
    assert broker.registry.knows("s")


def test_a_client_connected_elsewhere_is_at_home_there(row: Any) -> None:
    """Not a planned move: its home is gone, and the application has connected it to another broker."""
    row.crash("c")
    row.do("s", row.machines["s"].disconnected("c", row.now_ns))
    row.connect("s", "b")
    row.settle()
    row.pass_time(1 * SECOND)
    row.call("p", "publish", {"x": 6})
    assert came(row) == [0]
    row.add(row.broker("c", "b", kept=dict(row.disks["c"])))
    row.pass_time(20 * SECOND)
    assert homes(row, "s") == ["b"]


def test_what_nobody_wants_any_more_is_not_sent_to_and_fro(row: Any) -> None:
    """b knows s at c, with a subscription that ended while b was down; and c, where s was before, knew s at b."""
    row.call("s", "subscribe", "rest", "x < 3")
    row.call("s", "move", "b")
    row.pass_time(SECOND)
    row.crash("b")
    for other in ("a", "c", "s"):
        row.do(other, row.machines[other].disconnected("b", row.now_ns))
    row.call("s", "unsubscribe", "some")
    row.call("s", "move", "c")
    row.pass_time(SECOND)
    assert row.machines["s"].home.name == "c"
    assert row.machines["c"].departures._gone["s"].entries == {}
    row.add(row.broker("b", "a", "c", kept=row.disks["b"]), links=("a", "c", "s"))
    row.pass_time(4 * SECOND)
    assert set(row.machines["b"].departures._gone["s"].entries) == {"some", "rest"}
    row.call("p", "publish", {"x": 7})
    row.call("p", "publish", {"x": 2})
    row.pass_time(2 * SECOND)
    assert came(row) == [1]
    assert not any(len(row.machines[name].carrier.holdings) for name in "abc")


def test_who_has_moved_gets_events_for_as_long_as_it_wants_them(row: Any) -> None:
    """The new home does not hear from the old one, which knows of somebody else there who wants the same events, but
    not for so long."""
    row.call("s", "unsubscribe", "some")
    row.client("hasty", "c")
    row.client("q", "b")
    row.call("q", "advertise", "all", "x >= 0")
    row.call("hasty", "subscribe", "some", "x > 5", max_delay_ns=2 * SECOND)
    row.client("t", "b")
    row.call("t", "subscribe", "some", "x > 5")
    row.disconnect("b", "c")
    row.call("t", "move", "c")
    assert row.machines["t"].home.name == "c"
    row.call("q", "publish", {"x": 7}, lifetime_ns=60 * SECOND)
    row.pass_time(5 * SECOND)
    assert came(row, "t") == came(row, "hasty") == []
    row.connect("b", "c")
    row.pass_time(2 * SECOND)
    assert came(row, "t") == [0]
    assert came(row, "hasty") == []
