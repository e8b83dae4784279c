"""A broker's promises, one at a time, on a wire without faults but those that a test makes."""

from typing import Any

import pytest

from tidings.errors import ConfigurationError
from tidings.model.scenario import Scheme
from tidings.protocol import Broker, BrokerSettings, Confirmed, Failed, Note, Send, Store, Sync
from tidings.protocol._histogram import bucket_of
from tidings.protocol.wire import encode_plain

MS = 10**6
SECOND = 10**9


def test_an_event_reaches_who_wants_it_and_nobody_else(row: Any) -> None:
    row.client("t", "b")
    row.call("t", "subscribe", "others", "x < 3")
    row.call("p", "publish", {"x": 7})
    row.call("p", "publish", {"x": 1})
    assert [effect.event for effect in row.delivered("s")] == [("p", 1, 0)]
    assert [effect.event for effect in row.delivered("t")] == [("p", 1, 1)]


def test_an_event_crosses_a_link_once_however_many_want_it_behind_it(row: Any) -> None:
    for name in ("t", "u"):
        row.client(name, "c")
        row.call(name, "subscribe", "too", "x > 6")
    before = row.machines["a"].sent["Transfer"]
    row.call("p", "publish", {"x": 7})
    assert row.machines["a"].sent["Transfer"] == before + 1
    assert len(row.delivered("s") + row.delivered("t") + row.delivered("u")) == 3


def test_nothing_is_acknowledged_before_it_is_durable(row: Any) -> None:
    row.holds_syncs = True
    row.call("p", "publish", {"x": 7})
    assert ("p", Confirmed("publish", "0")) not in row.effects
    assert len(row.delivered("s")) == 1  # going on does not wait for it
    row.holds_syncs = False
    row.settle()
    assert ("p", Confirmed("publish", "0")) in row.effects


def test_many_events_share_a_sync(row: Any) -> None:
    row.holds_syncs = True
    before = sum(isinstance(effect, Sync) for name, effect in row.effects if name == "a")
    for _ in range(10):
        row.call("p", "publish", {"x": 7})
    row.holds_syncs = False
    row.settle()
    assert sum(isinstance(effect, Sync) for name, effect in row.effects if name == "a") == before + 2


def test_accepted_events_are_kept_while_the_path_is_cut_and_sent_when_it_is_back(row: Any) -> None:
    row.cut("b", "c")
    row.pass_time(5 * SECOND)
    row.call("p", "publish", {"x": 7})
    assert ("p", Confirmed("publish", "0")) in row.effects
    assert row.delivered("s") == []
    row.mend("b", "c")
    row.pass_time(3 * SECOND)
    assert [effect.event for effect in row.delivered("s")] == [("p", 1, 0)]
    assert not any(key.startswith("event/") for key in row.disks["a"] | row.disks["b"])


def test_a_broker_goes_on_from_its_disk(row: Any) -> None:
    row.cut("b", "c")
    row.pass_time(5 * SECOND)
    row.call("p", "publish", {"x": 7})
    row.crash("a")
    row.mend("b", "c")
    row.add(row.broker("a", "b", kept=dict(row.disks["a"])))
    row.pass_time(6 * SECOND)
    assert [effect.event for effect in row.delivered("s")] == [("p", 1, 0)]


def test_no_two_incarnations_share_an_epoch_even_without_a_disk(row: Any) -> None:
    epochs = [row.machines["b"].epoch]
    for kept in (dict(row.disks["b"]), {}):
        row.crash("b")
        row.pass_time(10 * MS)
        row.add(row.broker("b", "a", "c", kept=kept))
        epochs.append(row.machines["b"].epoch)
    assert epochs == sorted(set(epochs))


def test_the_epoch_is_durable_before_the_first_frame() -> None:
    machine = Broker(BrokerSettings(name="a", neighbours=frozenset("b")))
    effects = machine.start(SECOND) + machine.connected("b", SECOND)
    assert [type(effect) for effect in effects[:2]] == [Store, Sync]
    assert not any(isinstance(effect, Send) for effect in effects)
    assert any(isinstance(effect, Send) for effect in machine.synced(1, SECOND))


def test_a_broker_is_ready_when_its_epoch_is_durable_and_not_before() -> None:
    """What a client says before is not answered, so nobody should be sent here yet."""
    broker = Broker(BrokerSettings(name="a"))
    (token,) = [effect.token for effect in broker.start(SECOND) if isinstance(effect, Sync)]
    assert not broker.is_ready
    broker.synced(token, SECOND)
    assert broker.is_ready


def test_a_failed_broker_is_bypassed(wire: Any) -> None:
    for name, beside in {"a": "bd", "b": "ac", "c": "bd", "d": "ac"}.items():
        wire.add(wire.broker(name, *beside), links=tuple(beside))
    wire.pass_time(4 * SECOND)
    wire.client("p", "a")
    wire.client("s", "c")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x > 5")
    wire.crash("b")
    wire.pass_time(5 * SECOND)
    wire.call("p", "publish", {"x": 7})
    assert [effect.event for effect in wire.delivered("s")] == [("p", 1, 0)]
    assert wire.machines["d"].sent["Transfer"] == 1


def test_a_broker_that_is_gone_leaves_the_map_and_what_its_clients_want_stays(row: Any) -> None:
    before = row.machines["a"].view().interests
    row.crash("c")
    row.pass_time(60 * SECOND)
    for name in ("a", "b"):
        machine = row.machines[name]
        assert isinstance(machine, Broker)
        assert machine.view().interests == before != {}
        assert "c" not in machine.gossip.links


def test_an_expired_event_is_let_go_and_its_room_with_it(row: Any) -> None:
    row.cut("b", "c")
    row.pass_time(5 * SECOND)
    row.call("p", "publish", {"x": 7}, lifetime_ns=2 * SECOND)
    machine = row.machines["a"]
    assert machine.bounds()["stored"][0] == 1 or row.machines["b"].bounds()["stored"][0] == 1
    row.pass_time(3 * SECOND)
    row.mend("b", "c")
    row.pass_time(3 * SECOND)
    assert row.delivered("s") == []
    assert all(row.machines[name].bounds()["stored"][0] == 0 for name in "abc")


@pytest.mark.parametrize(("late_ns", "expected"), [(0, []), (10 * SECOND, [True])])
def test_what_becomes_of_a_late_event_is_the_subscriptions_choice(row: Any, late_ns: int, expected: list[bool]) -> None:
    row.client("t", "c")
    row.call("t", "subscribe", "late", "x > 5", max_delay_ns=1 * SECOND, late_ns=late_ns)
    row.cut("b", "c")
    row.pass_time(5 * SECOND)
    row.call("p", "publish", {"x": 7})
    row.pass_time(2 * SECOND)
    row.mend("b", "c")
    row.pass_time(5 * SECOND)
    assert [effect.late for effect in row.delivered("t")] == expected
    assert [effect.late for effect in row.delivered("s")] == [False]


def test_an_event_that_was_not_advertised_is_refused_with_an_error(row: Any) -> None:
    row.call("p", "publish", {"y": 1})
    failed = [effect for name, effect in row.effects if name == "p" and isinstance(effect, Failed)]
    assert [(effect.kind, effect.name, effect.code) for effect in failed] == [("publish", "0", "not-advertised")]
    row.call("p", "publish", {"x": 9})
    assert [effect.event for effect in row.delivered("s")] == [("p", 1, 1)]


def test_an_unsubscribed_client_gets_nothing_and_its_subscription_is_gone_everywhere(row: Any) -> None:
    row.call("s", "unsubscribe", "some")
    row.call("p", "publish", {"x": 7})
    assert row.delivered("s") == []
    assert row.machines["a"].view().interests == {}


def test_a_slow_client_stalls_nobody_and_its_queue_keeps_its_bound(wire: Any) -> None:
    wire.chain("a", "b", max_queued_client=5, window=2)
    wire.client("p", "a")
    wire.client("slow", "b")
    wire.client("quick", "b")
    wire.call("p", "advertise", "all", "x >= 0")
    for name in ("slow", "quick"):
        wire.call(name, "subscribe", "all", "x >= 0")
    wire.call("slow", "pause")
    for number in range(50):
        wire.call("p", "publish", {"x": number})
    assert len(wire.delivered("quick")) == 50
    assert wire.machines["b"].bounds()["queue to slow"] == (5, 5)
    assert wire.machines["b"].counts["full"] >= 40
    wire.call("slow", "resume")
    wire.pass_time(3 * SECOND)
    assert 5 <= len(wire.delivered("slow")) <= 10


def test_a_full_store_takes_nothing_on_and_says_so(wire: Any) -> None:
    wire.chain("a", "b", max_stored=20, window=4)
    wire.client("p", "a")
    wire.client("s", "b")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "all", "x >= 0")
    wire.cut("a", "b")
    wire.pass_time(5 * SECOND)
    for number in range(60):
        wire.call("p", "publish", {"x": number})
    wire.pass_time(2 * SECOND)
    size, bound = wire.machines["a"].bounds()["stored"]
    assert size <= bound
    assert sum(effect.kind == "publish" for _, effect in wire.effects if isinstance(effect, Confirmed)) == size
    wire.mend("a", "b")
    wire.pass_time(20 * SECOND)
    assert len(wire.delivered("s")) == 60  # those that were not taken on waited at their publisher


@pytest.mark.parametrize("scheme", ["static", "periodic", "bypass"])
def test_without_buffering_nothing_is_kept(wire: Any, scheme: Scheme) -> None:
    graph = {"a": frozenset("b"), "b": frozenset("ac"), "c": frozenset("b")}
    wire.chain("a", "b", "c", scheme=scheme, graph=graph)
    wire.client("p", "a")
    wire.client("s", "c")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x > 5")
    wire.call("p", "publish", {"x": 7})
    assert len(wire.delivered("s")) == 1
    wire.cut("b", "c")
    wire.pass_time(5 * SECOND)
    wire.call("p", "publish", {"x": 8})
    wire.mend("b", "c")
    wire.pass_time(5 * SECOND)
    assert len(wire.delivered("s")) == 1
    assert not any(key.startswith("event/") for disk in wire.disks.values() for key in disk)


def test_covered_subscriptions_are_not_announced(wire: Any) -> None:
    wire.chain("a", "b", covering=True)
    wire.client("s", "b")
    wire.call("s", "subscribe", "narrow", "x > 10")
    wire.call("s", "subscribe", "wide", "x > 5")
    wire.call("s", "subscribe", "other", "y = 1")
    known = {name for name, _ in wire.machines["a"].view().interests["b"]}
    assert known == {"s/wide", "s/other"}
    wire.client("p", "a")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("p", "publish", {"x": 20})
    assert sorted(effect.subscription for effect in wire.delivered("s")) == ["narrow", "wide"]


def test_an_event_taken_back_while_it_is_under_way_is_not_lost() -> None:
    """Two brokers whose maps differ hand an event to each other; each acknowledges, and one still answers for it."""
    from tidings.protocol.broker._held import Held
    from tidings.protocol.links._peers import Peer
    from tidings.protocol.links._window import Parcel

    machine = Broker(BrokerSettings(name="a", neighbours=frozenset("b")))
    peer = Peer("b", "broker", machine._outbox(10))
    event = ("p", 1, 0)
    held = Held(event, root="a", departure_ns=0, since_ns=0, lifetime_ns=10, size_bytes=1, hops=0, content=b"").alone()
    terms = ((10, 1.0),)
    assert held.take_on({"t": terms}) == ["t"]
    parcel = held.parcels["t"] = Parcel(held, peer, {"t": terms}, {})
    assert held.take_on({"t": terms}) == []  # it waits: nothing else is to be done
    peer.outbox.send(parcel, encode_plain({}), 0)
    assert held.take_on({"t": terms}) == ["t"]
    assert machine.carrier.dispatch.unlink(parcel) == []
    assert held.targets == {"t": terms}
    assert peer.outbox.acknowledge([(parcel.number, parcel.number)], 0, 1) == []  # nobody waits for this copy any more


def test_notes_can_be_switched_off(wire: Any) -> None:
    wire.chain("a", "b", tracing=False)
    wire.client("p", "a")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("p", "publish", {"x": 7})
    assert not any(isinstance(effect, Note) for _, effect in wire.effects)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="silence_ns must be above ping_ns"):
        BrokerSettings(name="a", silence_ns=1)
    with pytest.raises(ConfigurationError, match="give it as `graph`"):
        BrokerSettings(name="a", neighbours=frozenset("b"), scheme="static")
    with pytest.raises(ConfigurationError, match="window is 0, but must be positive"):
        BrokerSettings(name="a", window=0)


def test_deadlines_hold_between_clocks_that_have_nothing_in_common(wire: Any) -> None:
    """An event carries its age; a broker and a client whose clocks are years apart agree on it."""
    wire.chain("a", "b")
    wire.client("p", "a")
    wire.client("s", "b")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x > 5", max_delay_ns=5 * SECOND)
    years_ns = 10**18
    publisher = wire.machines["p"]
    receive = publisher.receive
    publisher.receive = lambda c, f, now: receive(c, f, now + years_ns)
    _, effects = publisher.publish({"x": 9}, wire.now_ns + years_ns)
    wire.do("p", effects)
    wire.settle()
    assert [effect.late for effect in wire.delivered("s")] == [False]
    assert wire.delivered("s")[0].age_ns < SECOND


def test_what_is_missing_is_asked_for_until_it_comes(wire: Any) -> None:
    wire.chain("a", "b")
    wire.client("s", "b")
    wire.links.discard(("b", "a"))  # a does not hear of it
    wire.call("s", "subscribe", "one", "x > 1")
    wire.links = {pair for pair in wire.links if pair != ("a", "b")} | {("b", "a")}
    wire.call("s", "subscribe", "two", "x > 2")  # a sees the gap, and nobody hears it ask
    assert wire.machines["a"].view().interests == {}
    wire.mend("a", "b")
    wire.pass_time(1 * SECOND)
    assert wire.machines["a"].view().interests == {"b": {("s/one", "x > 1"), ("s/two", "x > 2")}}


def test_neighbours_whose_knowledge_differs_exchange_everything(row: Any) -> None:
    """No flood reaches a: what b reports of c and its subscriptions is lost, all but pings."""
    machine = row.machines["a"]
    machine.gossip.interests.forget("c")
    machine.gossip.links.forget_old(10**18)
    assert machine.view().interests == {}
    row.pass_time(3 * SECOND)  # less than a refresh
    assert machine.view().interests == row.machines["b"].view().interests
    assert machine.view().links == row.machines["b"].view().links


def test_an_obligation_that_is_over_does_not_end_a_later_one(row: Any) -> None:
    """An old copy is acknowledged after the event has come back: the broker still answers for it."""
    from tidings.protocol.broker._held import Held

    carrier = row.machines["a"].carrier
    figures = {"root": "a", "departure_ns": 0, "since_ns": row.now_ns, "lifetime_ns": SECOND, "size_bytes": 1}
    old, new = (Held(("p", 1, 9), hops=0, content=b"", **figures).alone() for _ in range(2))
    new.take_on({"t": ((SECOND, 1.0),)})
    carrier.holdings.hold(new)
    carrier.holdings.settle(old)
    assert carrier.holdings.held[("p", 1, 9)] is new


def test_a_client_that_has_asked_for_nothing_is_forgotten_when_it_goes(wire: Any) -> None:
    """Otherwise a peer that connects under many names would leave no room for others."""
    wire.chain("a", max_clients=2)
    for name in ("one", "two", "three"):
        wire.client(name, "a")
        wire.disconnect(name, "a")
    assert not wire.machines["a"].clients
    wire.client("four", "a")
    wire.call("four", "subscribe", "all", "x >= 0")
    wire.disconnect("four", "a")
    assert list(wire.machines["a"].clients) == ["four"]  # what it asked for stands


def test_a_publisher_that_has_asked_for_nothing_else_is_still_known_when_it_returns(wire: Any) -> None:
    """What it has sent and not heard of is sent again under the same numbers: it is taken once."""
    wire.chain("a", must_advertise=False)
    wire.client("p", "a")
    wire.call("p", "publish", {"x": 1})
    wire.disconnect("p", "a")
    assert list(wire.machines["a"].clients) == ["p"]


def test_how_long_frames_travel_and_events_wait_is_counted(row: Any) -> None:
    home, between = row.machines["c"], row.machines["b"]
    row.call("p", "publish", {"x": 7})
    assert home.neighbours["b"].meter.transits == {0: 1}
    assert home.waits == {"broker": {}, "client": {}}, "it did not have to wait"
    row.disconnect("s", "c")
    for _ in range(2):
        row.call("p", "publish", {"x": 7})
    row.pass_time(3 * SECOND)
    row.connect("s", "c")
    row.settle()
    assert home.waits == {"broker": {}, "client": {bucket_of(3 * SECOND): 2}}
    assert home.neighbours["b"].meter.transits == {0: 3}
    assert between.waits == {"broker": {}, "client": {}}


@pytest.mark.parametrize("names", ["ab", "abcd", "abcdef"])
def test_full_stores_do_not_wait_for_each_other(wire: Any, names: str) -> None:
    """Each broker of a ring is full of events for the opposite one when they are connected (found by a storm: each of
    two neighbours had no room, because of events for the other)."""
    bounds = {"max_stored": 64, "max_stored_bytes": 64_000, "window": 4, "max_under_way_bytes": 1_000}
    ring = [(name, names[place - 1]) for place, name in enumerate(names)]
    for place, name in enumerate(names):
        wire.add(wire.broker(name, names[place - 1], names[(place + 1) % len(names)], **bounds))
    for one, other in ring:
        wire.connect(one, other)
    for place, name in enumerate(names):
        wire.client(f"p{name}", name)
        wire.call(f"p{name}", "advertise", "all", "x = 0")
        wire.client(f"s{name}", names[place - len(names) // 2])
        wire.call(f"s{name}", "subscribe", "some", f"of = '{name}'")
    wire.pass_time(4 * SECOND)
    for one, other in ring:
        wire.disconnect(one, other)
    for name in names:
        for _ in range(100):
            event = {"x": 0, "of": name}
            wire.call(f"p{name}", "publish", event, payload=b"." * 900, lifetime_ns=60 * SECOND)
    wire.pass_time(3 * SECOND)
    for one, other in ring:
        wire.connect(one, other)
    wire.pass_time(56 * SECOND)
    assert [len(wire.delivered(f"s{name}")) for name in names] == [100] * len(names)


def test_what_has_come_further_does_not_wait_behind_what_is_refused(wire: Any) -> None:
    """b holds what a client of it will take when it is back: half of its store are events of clients there, and the
    next sixteenth is the most for those from a. What d sends comes over two links, and is for another client."""
    wire.chain("d", "a", "b", max_stored=32, window=4)
    for name, home in (("pd", "d"), ("pa", "a"), ("pb", "b")):
        wire.client(name, home)
        wire.call(name, "advertise", "all", "x >= 0")
    wire.client("away", "b")
    wire.call("away", "subscribe", "some", "x < 5")
    wire.client("s", "b")
    wire.call("s", "subscribe", "some", "x >= 5")
    wire.pass_time(2 * SECOND)
    wire.disconnect("away", "b")
    for name in ("pb", "pa"):
        for _ in range(30):
            wire.call(name, "publish", {"x": 1})
        wire.pass_time(2 * SECOND)
    assert wire.machines["b"].bounds()["stored"][0] == 18
    assert wire.machines["a"].neighbours["b"].outbox.window.room == 0
    wire.call("pd", "publish", {"x": 7})
    wire.pass_time(5 * SECOND)
    assert len(wire.delivered("s")) == 1
    assert wire.machines["a"].is_within_bounds()
    wire.connect("away", "b")
    wire.pass_time(30 * SECOND)
    assert len(wire.delivered("away")) == 60
