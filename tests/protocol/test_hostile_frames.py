"""A broker survives any input: invalid frames are refused, counted and reported to clients, and tables stay."""

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidings.protocol import (
    MAX_FRAME_BYTES,
    Broker,
    BrokerSettings,
    Client,
    ClientSettings,
    Close,
    Effect,
    Note,
    Send,
    wire,
)

SECOND = 10**9
NOW = 100 * SECOND
ENTRY = wire.Entry("s", "x > 1", None, 1.0, 0)
CONTENT = wire.encode_content(wire.Content({"x": 3}, b"", b""))


def living_broker() -> Broker:
    """A broker with a neighbour and a client, each with a subscription."""
    machine = Broker(BrokerSettings(name="a", neighbours=frozenset("b")))
    machine.start(NOW)
    machine.synced(1, NOW)
    for name, kind in (("b", "broker"), ("c", "client")):
        machine.connected(name, NOW)
        machine.receive(name, wire.encode(wire.Hello(wire.VERSION, name, kind, 5, 10)), NOW)
    machine.receive("b", wire.encode(wire.LinkState("b", 5, 1, 0, {"a": (0.0, 0.0)})), NOW)
    machine.receive("b", wire.encode(wire.Interest("b", 5, 1, 1, 0, 0, (ENTRY,))), NOW)
    machine.receive("b", wire.encode(wire.Done("exchange", "b")), NOW)
    machine.receive("c", wire.encode(wire.Subscribe(machine.epoch, 0, ENTRY)), NOW)
    machine.receive("c", wire.encode(wire.Advertise(machine.epoch, 1, "all", "x >= 0")), NOW)
    return machine


def messages(epoch: int) -> list[wire.Message]:
    """One of each kind, as an honest peer would send it."""
    return [
        wire.Hello(wire.VERSION, "c", "client", 5, 10),
        wire.Welcome(wire.VERSION, "b", "broker", 5, 10),
        wire.Error("code", "text"),
        wire.Done("exchange", "b"),
        wire.Advertise(epoch, 7, "more", "y = 2"),
        wire.Unadvertise(epoch, 8, "more"),
        wire.Subscribe(epoch, 9, wire.Entry("t", "y > 1", SECOND, 2.0, SECOND)),
        wire.Unsubscribe(epoch, 10, "t"),
        wire.Publish(5, 0, 0, (wire.Publication(0, NOW, 0, SECOND, 10, CONTENT),), NOW),
        wire.Transfer(
            5, 0, 0, ({"a": ((SECOND, 1.0),)},), (wire.Event("p", 1, 0, "b", NOW, 0, SECOND, 10, 0, CONTENT),), NOW
        ),
        wire.Ack(epoch, ((0, 0),), 0, 5, {"s": wire.Outcome(1, delays={3: 1})}),
        wire.Credit(3),
        wire.LinkState("b", 5, 2, 0, {"a": (0.1, 0.1)}),
        wire.Interest("b", 5, 2, 2, 1, 0, (), ("s",)),
        wire.Ask("a"),
        wire.Ping(NOW, 5, 0, NOW),
        wire.Pong(NOW, NOW, {"s": wire.Outcome(1)}),
        wire.Move("b"),
        wire.MigrationUpdate(epoch, 11, "b"),
        wire.MigrationComplete(3),
        wire.TraceResult("p", 1, 0, 3),
        wire.RelocationRequest("p", 2.0, ("b",)),
        wire.RelocationAnswer("c", "b", ()),
        wire.TraceRequest("b", "p", 1, 0, SECOND),
        wire.TraceAnswer("a", "c", 5, 0, (wire.Answer("b", "a", b"\x01", 3, 5, {"a": 7}),)),
        wire.InterestPart("z", 5, 2, 2, 0, "", (ENTRY,), True),
        wire.Ledger("a", epoch, "b", 5, 1, "b", 3, {"c/s": (4, 1)}, True),
    ]


def answers(effects: list[Effect], connection: str) -> list[wire.Message]:
    sends = [effect for effect in effects if isinstance(effect, Send) and effect.connection == connection]
    return [wire.decode(effect.frame) for effect in sends]


@pytest.mark.parametrize("connection", ["b", "c"])
@given(data=st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_noise_changes_nothing(connection: str, data: bytes) -> None:
    machine = living_broker()
    before = machine.view()
    effects = machine.receive(connection, data, NOW)
    assert machine.view() == before
    assert sum(machine.refused.values()) == 1
    reported = [message for message in answers(effects, connection) if isinstance(message, wire.Error)]
    assert len(reported) == (connection == "c")


@pytest.mark.parametrize("connection", ["b", "c", "stranger"])
@given(seed=st.integers(0, 2**32), kind=st.integers(0, 26), damage=st.sampled_from(["cut", "flip", "grow", "swap"]))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_frames_never_break_a_broker(connection: str, seed: int, kind: int, damage: str) -> None:
    machine = living_broker()
    machine.connected("stranger", NOW)
    dice = random.Random(seed)
    for message in [*dice.sample(messages(machine.epoch), 3), messages(machine.epoch)[kind]]:
        machine.receive(connection, damaged(wire.encode(message), damage, dice), NOW + 1)
    machine.wake(NOW + 5 * SECOND)
    assert all(size <= bound for size, bound in machine.bounds().values())
    assert machine.view().links.keys() <= {"a", "b"} or connection == "b"


def damaged(frame: bytes, damage: str, dice: random.Random) -> bytes:
    place = dice.randrange(len(frame))
    if damage == "cut":
        return frame[:place]
    if damage == "grow":
        return frame + dice.randbytes(4)
    if damage == "swap":
        parts = msgspec.msgpack.decode(frame)
        parts[dice.randrange(len(parts))] = dice.choice([None, -1, 2**63, "", "x" * 300, [], {}, float("nan"), b"\xff"])
        return msgspec.msgpack.encode(parts)
    return frame[:place] + bytes([frame[place] ^ (1 << dice.randrange(8))]) + frame[place + 1 :]


def test_a_frame_that_is_too_long_is_refused_unread() -> None:
    machine = living_broker()
    effects = machine.receive("c", bytes(MAX_FRAME_BYTES + 1), NOW)
    assert machine.refused == {"too-long": 1}
    assert [type(message) for message in answers(effects, "c")] == [wire.Error]


def test_a_later_version_is_refused_by_name() -> None:
    machine = living_broker()
    machine.connected("new", NOW)
    hello = msgspec.msgpack.encode([1, wire.VERSION + 1, "new", "client", 1, 10, "a field of the future"])
    (error,) = answers(machine.receive("new", hello, NOW), "new")
    assert isinstance(error, wire.Error)
    assert error.code == "version"
    ours = f"{wire.OLDEST_VERSION} to {wire.VERSION}"
    assert f"'new' speaks version {wire.VERSION + 1} of the protocol, and this node {ours}" in error.text


@pytest.mark.parametrize(
    "message",
    [
        wire.Transfer(
            5, 0, 0, ({"a": ((SECOND, 1.0),)},), (wire.Event("p", 1, 0, "b", NOW, 0, SECOND, 10, 0, CONTENT),)
        ),
        wire.LinkState("b", 99, 99, 0, {}),
        wire.Interest("b", 99, 99, 99, 0, 0, ()),
        wire.InterestPart("b", 99, 99, 99, 0, "", (), True),
        wire.Ask("a"),
        wire.Ping(0, 0, 0),
        wire.Done("exchange", "b"),
        wire.Move("b"),
        wire.MigrationComplete(3),
        wire.TraceResult("p", 1, 0, 3),
        wire.RelocationRequest("p", 2.0, ("b",)),
        wire.RelocationAnswer("c", "b", ()),
        wire.TraceRequest("b", "p", 1, 0, SECOND),
        wire.TraceAnswer("a", "c", 5, 0, ()),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_client_cannot_speak_as_a_broker(message: wire.Message) -> None:
    machine = living_broker()
    before = machine.view()
    (error,) = answers(machine.receive("c", wire.encode(message), NOW), "c")
    assert isinstance(error, wire.Error)
    assert error.code == "not-allowed"
    assert machine.view() == before


def test_who_is_not_a_neighbour_is_no_broker_here() -> None:
    machine = living_broker()
    machine.connected("x", NOW)
    (error,) = answers(machine.receive("x", wire.encode(wire.Hello(wire.VERSION, "x", "broker", 1, 1)), NOW), "x")
    assert isinstance(error, wire.Error)
    assert error.code == "unknown"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (wire.Interest("b", 5, 2, 2, 0, 0, (wire.Entry("s", "x >", None, 1.0, 0),)), "filter"),
        (
            wire.Interest("z", 5, 2, 2, 0, 0, tuple(wire.Entry(f"{n}", "x > 1", None, 1.0, 0) for n in range(9))),
            "too-many",
        ),
        (
            wire.Transfer(
                5, 0, 0, ({"a": ((SECOND, 1.0),)},), (wire.Event("p", 1, 0, "b", 0, 0, SECOND, 1, 0, b"\xc1"),)
            ),
            "content",
        ),
        (
            wire.Transfer(
                5, 2**40, 0, ({"a": ((SECOND, 1.0),)},), (wire.Event("p", 1, 0, "b", 0, 0, SECOND, 1, 0, CONTENT),)
            ),
            "range",
        ),
    ],
)
def test_a_neighbours_nonsense_is_counted_and_not_answered(message: wire.Message, code: str) -> None:
    machine = living_broker()
    machine.gossip.interests._max_entries = 8
    before = machine.view()
    effects = machine.receive("b", wire.encode(message), NOW)
    assert machine.refused == {code: 1}
    assert not any(isinstance(answer, wire.Error) for answer in answers(effects, "b"))
    assert machine.view() == before
    assert not machine.carrier.holdings.held


@pytest.mark.parametrize(
    "content",
    [
        *(
            msgspec.msgpack.encode([{"x": value}, b"", b""])
            for value in (float("nan"), float("inf"), 2**63 + 5, None, [])
        ),
        *(msgspec.msgpack.encode([attributes, b"", b""]) for attributes in ({"": 1}, {}, {1: 1}, {"y": 1})),
        b"\x93\x81\xa1x\xa3\xed\xa0\x80\xc4\x00\xc4\x00",  # half of a surrogate pair
        b"",
    ],
)
def test_content_that_cannot_be_matched_is_refused_with_an_error_to_the_publisher(content: bytes) -> None:
    machine = living_broker()
    effects = machine.receive(
        "c", wire.encode(wire.Publish(5, 0, 0, (wire.Publication(0, NOW, 0, SECOND, 10, content),))), NOW
    )
    reported = [message for message in answers(effects, "c") if isinstance(message, wire.Error)]
    assert [(error.kind, error.request) for error in reported] == [("publish", "0")]
    assert not machine.carrier.holdings.held


def test_one_who_goes_on_breaking_the_rules_is_cut_off() -> None:
    machine = living_broker()
    effects: list[Effect] = []
    for _ in range(machine.settings.max_refused):
        effects += machine.receive("c", b"\xc1", NOW)
    assert [effect.connection for effect in effects if isinstance(effect, Close)] == ["c"]
    assert machine.receive("c", b"\xc1", NOW) == []


def test_an_old_copy_of_a_request_undoes_nothing() -> None:
    machine = living_broker()
    subscribe = wire.encode(wire.Subscribe(machine.epoch, 20, wire.Entry("t", "y = 1", None, 1.0, 0)))
    machine.receive("c", subscribe, NOW)
    machine.receive("c", wire.encode(wire.Unsubscribe(machine.epoch, 21, "t")), NOW)
    machine.receive("c", subscribe, NOW)
    machine.receive(
        "c", wire.encode(wire.Subscribe(machine.epoch - 1, 50, wire.Entry("t", "y = 1", None, 1.0, 0))), NOW
    )
    assert list(machine.gossip.local.of("c")) == ["s"]


def test_a_frame_of_a_life_that_is_over_is_not_taken_for_one_of_the_next() -> None:
    machine = living_broker()
    old = wire.encode(wire.Publish(4, 0, 0, (wire.Publication(0, NOW, 0, SECOND, 10, CONTENT),)))
    machine.receive("c", old, NOW)
    assert not machine.carrier.holdings.held
    machine.receive("c", wire.encode(wire.Publish(5, 0, 0, (wire.Publication(0, NOW, 0, SECOND, 10, CONTENT),))), NOW)
    assert list(machine.carrier.holdings.held) == [("c", 5, 0)]


def test_frames_over_a_connection_that_was_never_made_are_ignored() -> None:
    machine = living_broker()
    assert machine.receive("nobody", wire.encode(wire.Ping(0, 0, 0)), NOW) == []


def moving_client() -> Client:
    """A client at home at a, moving to b, that has published."""
    machine = Client(ClientSettings(name="c"))
    machine.start(NOW)
    for name in "ab":
        machine.connected(name, NOW)
        machine.receive(name, wire.encode(wire.Hello(wire.VERSION, name, "broker", 5, 10)), NOW)
        if name == "a":
            machine.advertise("all", "x >= 0", NOW)
            machine.subscribe("s", "x > 1", NOW)
            machine.publish({"x": 3}, NOW)
            machine.move("b", NOW)
    return machine


def messages_to_clients() -> list[wire.Message]:
    """One of each kind that a broker may send to a client."""
    return [
        wire.Hello(wire.VERSION, "b", "broker", 5, 10),
        wire.Welcome(wire.VERSION, "a", "broker", 6, 10),
        wire.Error("too-many", "text", "subscribe", "s", 3),
        wire.Done("advertise", "all", 2),
        wire.Done("subscribe", "s", 3),
        wire.Transfer(
            5, 0, 0, ({"s": ((SECOND, 1.0),)},), (wire.Event("p", 1, 0, "b", NOW, 0, SECOND, 10, 0, CONTENT),)
        ),
        wire.Ack(1, ((0, 0),), 0, 5),
        wire.Credit(3),
        wire.Ping(NOW, 5, 0, 2**62),
        wire.Move("d"),
        wire.MigrationComplete(4),
    ]


@pytest.mark.parametrize("connection", ["a", "b", "stranger"])
@given(seed=st.integers(0, 2**32), damage=st.sampled_from(["none", "cut", "flip", "grow", "swap"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_frames_never_break_a_client_that_moves(connection: str, seed: int, damage: str) -> None:
    machine = moving_client()
    machine.connected("stranger", NOW)
    dice = random.Random(seed)
    for message in dice.choices(messages_to_clients(), k=6):
        frame = wire.encode(message)
        machine.receive(connection, frame if damage == "none" else damaged(frame, damage, dice), NOW + 1)
    for step in range(1, 30):
        machine.wake(NOW + step * SECOND)
    assert all(size <= bound for size, bound in machine.bounds().values())
    assert machine.home is not None
    assert machine.home.name in ("a", "b", "d")


@pytest.mark.parametrize("pinged_ns", [-(2**63), 0, NOW, 2**63])
@pytest.mark.parametrize("clock_ns", [0, NOW, 2**62])
@pytest.mark.parametrize("sent_ns", [0, NOW, 2**62])
def test_no_clock_is_too_absurd(pinged_ns: int, clock_ns: int, sent_ns: int) -> None:
    """A client may claim any clock: its events look as old as it likes then, within reason, and that is all."""
    machine = living_broker()
    machine.receive("c", wire.encode(wire.Pong(pinged_ns, clock_ns)), NOW)
    effects = [*machine.wake(NOW), *machine.wake(NOW + SECOND)]
    assert any(isinstance(message, wire.Ping) for message in answers(effects, "c"))
    events = (wire.Publication(0, NOW, 0, SECOND, 10, CONTENT),)
    effects = machine.receive("c", wire.encode(wire.Publish(5, 0, 0, events, sent_ns)), NOW + SECOND)
    (accepted,) = [effect for effect in effects if isinstance(effect, Note) and effect.kind == "accepted"]
    assert NOW + SECOND - wire.LONGEST_NS <= accepted.since_ns <= NOW + SECOND
    answers(effects, "b")


@pytest.mark.parametrize("content", [CONTENT, b"", b"\xc1"])
@pytest.mark.parametrize("target", ["a\0c", "a\0nobody", "b\0c", "z\0c", "\0", "a\0", "a\0c\0c"])
def test_an_event_for_a_client_by_name_is_delivered_or_dropped(target: str, content: bytes) -> None:
    machine = living_broker()
    transfer = wire.Transfer(
        5, 0, 0, ({target: ((SECOND, 1.0),)},), (wire.Event("p", 1, 0, "b", NOW, 0, SECOND, 10, 0, content),)
    )
    effects = machine.receive("b", wire.encode(transfer), NOW)
    to_client = [message for message in answers(effects, "c") if isinstance(message, wire.Transfer)]
    assert len(to_client) == (target == "a\0c" and content == CONTENT)
    machine.wake(NOW + 10 * SECOND)
    assert not machine.carrier.holdings.held


@pytest.mark.parametrize("name", ["a\0c", "\0"])
def test_nobody_is_named_like_an_address(name: str) -> None:
    machine = living_broker()
    machine.connected("x", NOW)
    (error,) = answers(machine.receive("x", wire.encode(wire.Hello(wire.VERSION, name, "client", 1, 1)), NOW), "x")
    assert isinstance(error, wire.Error)
    assert error.code == "name"
