"""Tables of subscriptions that do not fit into one message: whatever happens to their parts, brokers come to agree."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.conftest import SECOND, Wire

from tidings.protocol import Broker, Client, Close, Send, Store, wire
from tidings.protocol.broker._interest_tables import TOGETHER
from tidings.protocol.wire import MAX_FRAME_BYTES, Ask, Entry, Interest, InterestPart, decode, encode
from tidings.protocol.wire._fields import MAX_PARTS

SMALL = 120
"""Bytes: four subscriptions."""
NOW = 100 * SECOND


def subscribed(net: Wire, client: str, names: range) -> None:
    for number in names:
        net.call(client, "subscribe", f"s{number:03}", f"x > {number}")


def two(net: Wire, count: int, **more: Any) -> None:
    """Two brokers, of which b has a client with so many subscriptions, and a has lost its disk and is away."""
    net.chain("a", "b", interest_bytes=SMALL, **more)
    net.client("s", "b")
    subscribed(net, "s", range(count))
    net.crash("a")
    net.disks["a"].clear()
    net.frames.clear()


def come_back(net: Wire) -> None:
    """a is there again, and both have greeted each other; nothing more has happened."""
    machine = net.machines["a"] = net.broker("a", "b", interest_bytes=SMALL)
    net.do("a", machine.start(net.now_ns))
    net.sync()
    for one, other in (("a", "b"), ("b", "a")):
        net.do(one, net.machines[one].connected(other, net.now_ns))


def carry(net: Wire, parts: int) -> None:
    """Let frames pass until so many parts have come to a."""
    while net.frames and parts:
        source, target, frame = net.frames.popleft()
        net.do(target, net.machines[target].receive(source, frame, net.now_ns))
        parts -= target == "a" and isinstance(decode(frame), InterestPart)


def agree(net: Wire) -> bool:
    views = [net.machines[name].view().interests for name in net.machines if isinstance(net.machines[name], Broker)]
    return all(view == views[0] for view in views)


def asks(net: Wire, name: str = "a") -> list[Ask]:
    sent = [decode(effect.frame) for who, effect in net.effects if who == name and isinstance(effect, Send)]
    return [message for message in sent if isinstance(message, Ask)]


def test_requests_of_one_step_are_announced_together(wire: Wire) -> None:
    wire.chain("a", "b")
    wire.client("s", "b")
    client, reported = wire.machines["s"], wire.machines["b"].sent["Interest"]
    assert isinstance(client, Client)
    asked = [client.subscribe(f"s{number}", f"x > {number}", wire.now_ns) for number in range(50)]
    frames = [effect.frame for effects in asked for effect in effects if isinstance(effect, Send)]
    wire.do("b", wire.machines["b"].receive_many([("s", frames)], wire.now_ns))
    wire.settle()
    assert agree(wire)
    assert len(frames) == 50
    assert wire.machines["b"].sent["Interest"] == reported + 1


def test_a_table_comes_part_by_part_to_who_asks_for_it(wire: Wire) -> None:
    two(wire, 40)
    come_back(wire)
    wire.effects.clear()
    wire.settle()
    assert agree(wire)
    parts = wire.machines["b"].sent["InterestPart"]
    assert parts >= 10
    assert len(asks(wire)) == -(-parts // TOGETHER)
    assert asks(wire)[0] == Ask("b", "", TOGETHER)
    assert len({ask.after for ask in asks(wire)}) == len(asks(wire))
    assert wire.machines["a"].is_ready  # as soon as all is known, and not before


def test_a_broker_is_not_ready_before_it_knows_the_whole_table(wire: Wire) -> None:
    two(wire, 40)
    come_back(wire)
    carry(wire, 5)
    assert not wire.machines["a"].is_ready
    wire.settle()
    assert wire.machines["a"].is_ready


def test_a_broker_does_not_wait_for_tables_for_ever(wire: Wire) -> None:
    two(wire, 40)
    come_back(wire)
    while wire.now_ns < 10 * SECOND + 60 * SECOND and not wire.machines["a"].is_ready:
        carry(wire, 1)
        wire.frames = type(wire.frames)(each for each in wire.frames if not isinstance(decode(each[2]), Ask))
        wire.pass_time(SECOND // 2)
    assert wire.machines["a"].is_ready


@pytest.mark.parametrize("parts", [1, 3, 12])
def test_parts_that_are_lost_with_the_connection_are_asked_for_again(wire: Wire, parts: int) -> None:
    two(wire, 40)
    come_back(wire)
    carry(wire, parts)
    wire.disconnect("a", "b")
    subscribed(wire, "s", range(40, 45))
    wire.call("s", "unsubscribe", "s000")
    wire.connect("a", "b")
    wire.settle()
    wire.pass_time(4 * SECOND)
    assert agree(wire)
    assert len(wire.machines["a"].gossip.interests) == 44


@pytest.mark.parametrize("lost", ["InterestPart", "Ask", "Interest"])
def test_a_message_that_is_lost_is_made_up_for(wire: Wire, lost: str) -> None:
    two(wire, 40)
    come_back(wire)
    carry(wire, 4)
    wire.call("s", "subscribe", "s0005", "x > 7")  # a change between two parts, which settles nothing if it is lost
    for count in range(2_000):
        if not wire.frames:
            break
        source, target, frame = wire.frames.popleft()
        if type(decode(frame)).__name__ != lost or count % 3:
            wire.do(target, wire.machines[target].receive(source, frame, wire.now_ns))
    wire.settle()
    wire.pass_time(12 * SECOND)
    assert agree(wire)


def test_a_table_that_changes_while_it_comes_need_not_begin_anew(wire: Wire) -> None:
    two(wire, 40)
    come_back(wire)
    carry(wire, 5)
    wire.effects.clear()
    after = wire.machines["a"].gossip.asked["b"].after
    assert "s/s000" < after < "s/s039"
    machine = wire.machines["s"]
    for effects in (
        machine.subscribe("s0005", "x > 77", wire.now_ns),  # before what has come, and behind it
        machine.subscribe("s0385", "x > 78", wire.now_ns),
        machine.unsubscribe("s001", wire.now_ns),
        machine.unsubscribe("s037", wire.now_ns),
        machine.subscribe("s002", "x > 79", wire.now_ns),
        machine.subscribe("s038", "x > 80", wire.now_ns),
    ):
        wire.do("s", effects)
        carry(wire, 1)
    wire.settle()
    assert agree(wire)
    assert len(wire.machines["a"].gossip.interests) == 40
    assert all(ask.after >= after for ask in asks(wire))


def test_one_who_lags_behind_asks_once_however_much_changes(wire: Wire) -> None:
    two(wire, 40)
    come_back(wire)
    wire.effects.clear()
    carry(wire, 1)
    for number in range(40, 80):
        wire.do("s", wire.machines["s"].subscribe(f"s{number:03}", "x = 1", wire.now_ns))
    wire.settle()
    assert agree(wire)
    assert len(asks(wire)) < 45  # a part holds several


def test_who_has_missed_something_passes_on_only_that(wire: Wire) -> None:
    """A change that a broker has missed costs those behind it one message, however long the table is."""
    wire.chain("a", "b", "c", interest_bytes=SMALL)
    wire.client("s", "c")
    subscribed(wire, "s", range(40))
    wire.disconnect("b", "c")
    wire.call("s", "unsubscribe", "s007")
    wire.call("s", "subscribe", "s100", "y = 1")
    sent = Counter(wire.machines["b"].sent)
    wire.connect("b", "c")
    wire.settle()
    wire.pass_time(3 * SECOND)
    assert agree(wire)
    assert wire.machines["b"].sent["InterestPart"] == sent["InterestPart"]
    assert asks(wire, "a") == []


def test_changes_that_are_too_long_for_one_message_become_several_versions(wire: Wire) -> None:
    wire.chain("a", "b", interest_bytes=SMALL)
    wire.client("s", "b")
    subscribed(wire, "s", range(40))
    wire.effects.clear()
    version = wire.machines["b"].gossip._version
    wire.cut("s", "b")
    wire.pass_time(620 * SECOND)  # the client is forgotten, with all that it wanted
    assert agree(wire)
    assert len(wire.machines["a"].gossip.interests) == 0
    assert wire.machines["b"].gossip._version > version + 2
    assert asks(wire) == []


def test_a_reconnection_costs_no_table(wire: Wire) -> None:
    wire.chain("a", "b", interest_bytes=SMALL)
    wire.client("s", "b")
    subscribed(wire, "s", range(40))
    wire.effects.clear()
    wire.disconnect("a", "b")
    wire.connect("a", "b")
    wire.settle()
    wire.pass_time(5 * SECOND)
    assert agree(wire)
    assert asks(wire) == []


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["carry", "old", "lose", "change", "reset", "time"]), st.integers(0, 10**6)),
        max_size=25,
    )
)
def test_whatever_happens_to_the_parts_both_agree_in_the_end(steps: list[tuple[str, int]]) -> None:
    net = Wire()
    two(net, 25)
    come_back(net)
    seen: list[tuple[str, str, bytes]] = []
    for what, pick in steps:
        seen += [each for each in net.frames if isinstance(decode(each[2]), InterestPart | Interest | Ask)]
        if what == "carry":
            carry(net, 1 + pick % 4)
        elif what == "old" and seen:
            source, target, frame = seen[pick % len(seen)]
            net.do(target, net.machines[target].receive(source, frame, net.now_ns))
        elif what == "lose" and net.frames:
            del net.frames[pick % len(net.frames)]
        elif what == "change":
            machine, name = net.machines["s"], f"s{pick % 40:03}"
            effects = (
                machine.unsubscribe(name, net.now_ns) if pick % 3 else machine.subscribe(name, "y = 1", net.now_ns)
            )
            net.do("s", effects)
        elif what == "reset":
            net.disconnect("a", "b")
            net.connect("a", "b")
        else:
            net.pass_time(pick % 10 * SECOND // 4)
        assert all(size <= bound for size, bound in net.machines["a"].bounds().values())
    net.settle()
    net.pass_time(25 * SECOND)
    assert agree(net)
    assert net.machines["a"].gossip.asked == {}


# -- the durable copy ----------------------------------------------------------------------------------------------


def test_a_change_writes_what_has_changed_and_not_the_table(wire: Wire) -> None:
    wire.chain("a", "b")
    wire.client("s", "b")
    subscribed(wire, "s", range(40))
    wire.effects.clear()
    wire.call("s", "subscribe", "more", "x = 1")
    written = [effect for name, effect in wire.effects if name == "a" and isinstance(effect, Store)]
    assert sum(len(effect.value) for effect in written) < 200


def test_a_crash_between_any_two_writes_leaves_nothing_wrong_for_long(wire: Wire) -> None:
    """Every first part of what a change writes is a disk from which a broker comes to the truth."""
    wire.chain("a", "b", interest_bytes=SMALL)
    wire.client("s", "b")
    subscribed(wire, "s", range(12))
    before = dict(wire.disks["a"])
    wire.effects.clear()
    for effects in (
        wire.machines["s"].unsubscribe("s003", wire.now_ns),
        wire.machines["s"].subscribe("s004", "y = 4", wire.now_ns),
        wire.machines["s"].subscribe("s099", "y = 5", wire.now_ns),
        wire.machines["s"].unsubscribe("s099", wire.now_ns),
    ):
        wire.do("s", effects)
        wire.settle()
    writes = [
        (effect.key, getattr(effect, "value", None))
        for name, effect in wire.effects
        if name == "a" and type(effect).__name__ in ("Store", "Erase")
    ]
    assert len(writes) == 8  # what has changed, and the version
    for count in range(len(writes) + 1):
        kept = before | {key: value for key, value in writes[:count] if value is not None}
        last = dict(writes[:count])
        kept = {key: value for key, value in kept.items() if last.get(key, value) is not None}
        wire.crash("a")
        wire.disks["a"] = dict(kept)
        wire.add(wire.broker("a", "b", interest_bytes=SMALL, kept=kept))
        wire.pass_time(4 * SECOND)
        assert agree(wire), count


def test_what_a_broker_that_was_forgotten_wanted_is_erased(wire: Wire) -> None:
    wire.chain("a", "b", forget_ns=40 * SECOND)
    wire.client("s", "b")
    subscribed(wire, "s", range(5))
    assert sum(key.startswith("wanted/") for key in wire.disks["a"]) == 5
    orphans = {key: value for key, value in wire.disks["a"].items() if key.startswith("wanted/")}
    wire.crash("b")
    wire.pass_time(50 * SECOND)
    assert not any(key.startswith(("wanted/", "interest/")) for key in wire.disks["a"])
    wire.crash("a")
    wire.disks["a"].update(orphans)  # a crash between the one erasure and the others
    wire.add(wire.broker("a", "b", kept=dict(wire.disks["a"])))
    assert not any(key.startswith("wanted/") for key in wire.disks["a"])


def test_a_store_with_whole_tables_is_read_and_written_anew(wire: Wire) -> None:
    """As older brokers kept them, and longer than any frame."""
    entries = tuple(Entry(f"s/{number}", f"x IN ({'1, ' * 4_000}2)", None, 1.0, 0) for number in range(100))
    whole = encode(Interest("b", 7, 3, 5, 0, 0, entries))
    assert len(whole) > MAX_FRAME_BYTES
    machine = wire.broker("a", "b", kept={"interest/b": whole, "ready": b"", "epoch": b"3"})
    wire.disks["a"] = {"interest/b": whole}
    wire.add(machine)
    assert machine.view().interests["b"] == {(entry.name, entry.filter) for entry in entries}
    wire.crash("a")
    again = wire.broker("a", "b", kept=dict(wire.disks["a"]))
    wire.add(again)
    assert again.view().interests == machine.view().interests
    assert again.gossip.interests.versions() == {"b": (7, 5)}
    assert max(len(value) for value in wire.disks["a"].values()) < 20_000


# -- bounds, and those who do not keep to them ---------------------------------------------------------------------


def lacking_broker(**more: Any) -> Broker:
    """A broker whose neighbour says that it has a table."""
    machine = Wire().broker("a", "b", **more)
    machine.start(NOW)
    machine.synced(1, NOW)
    machine.connected("b", NOW)
    machine.receive("b", encode(wire.Hello(wire.VERSION, "b", "broker", 5, 10)), NOW)
    machine.receive("b", encode(Interest("z", 5, 1, 9, 9, 0)), NOW)
    return machine


def part(after: str, names: list[str], *, is_last: bool = False, version: int = 9, filter: str = "x > 1") -> bytes:
    entries = tuple(Entry(name, filter, None, 1.0, 0) for name in names)
    return encode(InterestPart("z", 5, 1, version, 0, after, entries, is_last))


def asked(effects: list[Any]) -> list[str]:
    sent = [decode(effect.frame) for effect in effects if isinstance(effect, Send)]
    return [message.after for message in sent if isinstance(message, Ask)]


def test_parts_that_never_end_are_given_up_and_the_link_is_kept() -> None:
    machine = lacking_broker(max_entries=100)
    after, effects = "", []
    for number in range(1, 200):
        names = [f"{number:03}/{place}" for place in range(10)]
        effects = machine.receive("b", part(after, names), NOW + number)
        assert all(size <= bound for size, bound in machine.bounds().values())
        assert not any(isinstance(effect, Close) for effect in effects)
        assert asked(effects) == ([] if number % TOGETHER or number > 10 else names[-1:])
        if not machine.gossip.asked:
            break
        after = names[-1]
    assert number == 11  # a sixteenth more than the bound
    assert machine.gossip.asked == {}
    assert machine.refused == {"too-many": 1}
    for later in range(300):  # it says so again and again, and nobody asks it again
        effects = machine.receive("b", encode(Interest("z", 5, 2 + later, 10 + later, 10 + later, 0)), NOW + 300)
        effects += machine.receive("b", part("", ["a/1"], version=10 + later), NOW + 300)
        assert asked(effects) == []
    assert machine.gossip.asked == {}
    assert len(machine.gossip.interests) == 0


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (part("", ["b", "a"]), "order"),
        (part("", ["a", "a"]), "order"),
        (part("", []), "order"),
        (part("m", ["a"]), "order"),
        (part("", ["a"], filter="x >"), "filter"),
    ],
)
def test_parts_that_do_not_lead_on_are_refused(frame: bytes, code: str) -> None:
    machine = lacking_broker()
    assert asked(machine.receive("b", frame, NOW)) == []
    assert machine.refused == {code: 1}
    assert machine.gossip.asked == {}
    assert machine.view().interests == {}


def test_parts_that_nobody_asked_for_change_nothing() -> None:
    machine = lacking_broker()
    for frame in (
        part("a", ["b"]),
        encode(InterestPart("y", 5, 1, 9, 0, "", (), True)),
        encode(InterestPart("a", 99, 1, 9, 0, "", (), True)),
    ):
        assert asked(machine.receive("b", frame, NOW)) == []
    assert machine.view().interests == {}
    assert machine.gossip.asked["z"].entries == {}
    assert not machine.refused
    for _ in range(2):  # twice the same
        assert asked(machine.receive("b", part("", ["a", "c"]), NOW)) == []
    assert machine.gossip.asked["z"].after == "c"
    machine.receive("b", part("c", ["d"], is_last=True), NOW)
    assert {name for name, _ in machine.view().interests["z"]} == {"a", "c", "d"}


def test_parts_of_another_version_begin_anew_or_are_waited_for() -> None:
    machine = lacking_broker()
    machine.receive("b", part("", ["a", "c"]), NOW)
    assert asked(machine.receive("b", part("c", ["d"], version=8), NOW)) == []  # an older one
    assert asked(machine.receive("b", part("c", ["d"], version=10), NOW)) == [""]
    machine.receive("b", part("", ["b"], is_last=True, version=10), NOW)
    assert {name for name, _ in machine.view().interests["z"]} == {"b"}


def test_a_part_that_is_missing_is_asked_for_as_soon_as_a_later_one_comes() -> None:
    machine = lacking_broker()
    machine.receive("b", part("", ["a", "c"]), NOW)
    assert asked(machine.receive("b", part("d", ["e"]), NOW)) == ["c"]
    assert asked(machine.receive("b", part("e", ["f"]), NOW)) == []  # once is enough
    for after, names in (("c", ["d"]), ("d", ["e"]), ("e", ["f"])):
        assert asked(machine.receive("b", part(after, names), NOW)) == []
    assert asked(machine.receive("b", part("f", ["g"]), NOW)) == ["g"]
    machine.receive("b", part("g", [], is_last=True), NOW)
    assert {name for name, _ in machine.view().interests["z"]} == set("acdefg")


def test_nobody_is_sent_more_parts_than_there_may_be() -> None:
    net = Wire()
    two(net, 40)
    net.effects.clear()
    machine = net.machines["b"]
    machine.connected("a", net.now_ns)
    machine.receive("a", encode(wire.Hello(wire.VERSION, "a", "broker", 10**15, 10)), net.now_ns)
    for parts, answers in ((1, 1), (3, 3), (MAX_PARTS, 10), (MAX_PARTS + 1, 0)):
        frame = msgspec.msgpack.encode([15, "b", "", parts])
        sent = [decode(effect.frame) for effect in machine.receive("a", frame, net.now_ns) if isinstance(effect, Send)]
        assert sum(isinstance(message, InterestPart) for message in sent) == answers
    assert machine.refused == {"malformed": 1}


def test_what_is_asked_for_again_over_a_congested_link_leaves_once() -> None:
    """Before, every repetition was answered at once: on a slow link with large tables that broke it, without end."""
    net = Wire()
    two(net, 40)
    machine = net.machines["b"]
    machine.connected("a", net.now_ns)
    machine.receive("a", encode(wire.Hello(wire.VERSION, "a", "broker", 10**15, 10)), net.now_ns)

    def parts(effects: list[Any]) -> list[str]:
        sent = [decode(effect.frame) for effect in effects if isinstance(effect, Send)]
        return [message.after for message in sent if isinstance(message, InterestPart)]

    machine.congested("a", True, net.now_ns)
    for _ in range(10):
        assert parts(machine.receive("a", encode(Ask("b", "", 4)), net.now_ns)) == []
    after = parts(machine.congested("a", False, net.now_ns))
    assert len(after) == len(set(after)) == 4
    assert parts(machine.wake(net.now_ns + SECOND // 10)) == []


def test_what_the_network_has_no_room_for_is_refused_at_home_with_an_error(wire: Wire) -> None:
    wire.chain("a", "b", max_entries=10)
    wire.client("s", "a")
    wire.client("t", "b")
    subscribed(wire, "s", range(6))
    subscribed(wire, "t", range(7))
    failed = [effect for _, effect in wire.effects if type(effect).__name__ == "Failed"]
    assert [effect.name for effect in failed] == ["s004", "s005", "s006"]
    assert {effect.code for effect in failed} == {"too-many"}
    assert "10 is the limit" in failed[0].message
    wire.call("t", "subscribe", "s001", "y = 1")  # other terms of one that there is
    wire.call("s", "unsubscribe", "s000")
    wire.call("t", "subscribe", "s004", "x > 4")
    assert len([effect for _, effect in wire.effects if type(effect).__name__ == "Failed"]) == 3
    assert agree(wire)


def test_brokers_that_take_one_more_at_the_same_time_do_not_refuse_each_other(wire: Wire) -> None:
    wire.chain("a", "b", "c", max_entries=32)
    for name in "abc":
        wire.client(f"s{name}", name)
    subscribed(wire, "sa", range(31))
    for name in "bc":
        wire.do(f"s{name}", wire.machines[f"s{name}"].subscribe("one", "x > 1", wire.now_ns))
    wire.settle()
    wire.pass_time(5 * SECOND)
    assert agree(wire)
    assert len(wire.machines["b"].gossip.interests) == 32
    assert not wire.machines["b"].refused


def test_a_subscription_that_no_frame_can_hold_is_refused_with_the_reason(wire: Wire) -> None:
    wire.chain("a", "b", max_frame_bytes=16_384)
    wire.client("s", "b")
    wire.call("s", "subscribe", "long", f"x IN ({'1, ' * 4_500}2)")
    wire.call("s", "subscribe", "longest", f"x IN ({'1, ' * 4_050}2)")
    (failed,) = [effect for _, effect in wire.effects if type(effect).__name__ == "Failed"]
    assert (failed.name, failed.code) == ("long", "too-long")
    assert "subscription 'long' takes 135" in failed.message
    assert "shorten its filter, or have the limit `frame` of the network raised" in failed.message
    assert {name for name, _ in wire.machines["a"].view().interests["b"]} == {"s/longest"}
    sent = [effect.frame for name, effect in wire.effects if name in "ab" and isinstance(effect, Send)]
    assert max(map(len, sent)) <= 16_384


def test_a_subscription_longer_than_frames_is_kept_and_not_announced(wire: Wire) -> None:
    entry = Entry("long", f"x IN ({'1, ' * 4_500}2)", None, 1.0, 0)
    kept = {"subscription/1/s/long": msgspec.msgpack.encode(("s", entry)), "ready": b""}
    wire.chain("a", "b", max_frame_bytes=16_384)
    wire.crash("b")
    wire.add(wire.broker("b", "a", max_frame_bytes=16_384, kept=wire.disks["b"] | kept))
    wire.pass_time(5 * SECOND)
    machine = wire.machines["b"]
    assert list(machine.gossip.local.of("s")) == ["long"]
    assert machine.refused == {"too-long": 1}
    assert wire.machines["a"].neighbours["b"].is_up
    assert agree(wire)


def test_one_version_of_a_life_is_one_table_also_after_a_recovery(wire: Wire) -> None:
    """A broker that lost its disk learns from others what its clients want, and announces that as a version of its own:
    changes that were announced before under the same number would be taken for it, and later ones for old."""
    wire.chain("a", "b", "c", copies=2)
    wire.client("s", "a")
    subscribed(wire, "s", range(2))
    wire.settle()
    gossip = wire.machines["a"].gossip
    reported = gossip._version
    gossip.renew_version()
    assert gossip._version > reported
    subscribed(wire, "s", range(2, 3))
    wire.settle()
    wire.pass_time(15 * SECOND)
    assert agree(wire)
