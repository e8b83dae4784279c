"""Nodes without I/O: dialling, admission, turns, congestion and commits, driven by hand in virtual time."""

from typing import Any

import msgspec
import pytest
from tests.protocol.node.nodes import SECOND, Wire, broker, client, network

from tidings.protocol import Broker, BrokerSettings, Budget, Deliver
from tidings.protocol.node import (
    GRACE_NS,
    Admission,
    Admitted,
    Answer,
    ConnectionLimits,
    Dial,
    Node,
    Parted,
    Preamble,
    Read,
    Report,
    Shut,
    Splitter,
    Token,
    Unreached,
    Write,
    prefixed,
    read_answer,
)
from tidings.protocol.node._dials import LEAST_NS, MOST_NS, STEADY_NS


def run_to_next_dial(wire: Wire, name: str) -> int:
    """Let time pass until a node dials; when that is."""
    dials = len(wire.of(name, Dial))
    while len(wire.of(name, Dial)) == dials:
        wire.run((min(wire.timers.values()) - wire.now_ns + 1) / SECOND)
    return wire.now_ns


# -- from end to end ---------------------------------------------------------------------------------------------------


def test_events_travel_over_bytes_from_client_to_client() -> None:
    wire = Wire()
    p, _ = network(wire)
    for n in range(20):
        wire.call("p", p.machine.publish, {"n": n}, lifetime_ns=60 * SECOND)  # type: ignore[attr-defined]
    wire.run(1.0)
    assert [effect.attributes["n"] for effect in wire.of("s", Deliver)] == list(range(20))


def test_what_a_turn_causes_leaves_in_one_write_per_connection() -> None:
    wire = Wire()
    p, _ = network(wire)
    for n in range(20):
        p.call(p.machine.publish, wire.now_ns, {"n": n}, lifetime_ns=60 * SECOND)  # type: ignore[attr-defined]
    wire.writes = 0
    wire.carry("p", p.turn(wire.now_ns))
    assert wire.writes == 1
    effects = wire.nodes["a"].turn(wire.now_ns)
    written = [effect.connection for effect in effects if isinstance(effect, Write)]
    assert len(written) == len(set(written))


def test_bytes_may_come_in_any_pieces() -> None:
    wire = Wire()
    a = broker(wire, "a")
    wire.carry("a", a.opened("c", wire.now_ns))
    for byte in b"".join(prefixed([msgspec.msgpack.encode(Preamble("client", "x"))])):
        a.received("c", bytes([byte]))
    wire.carry("a", a.turn(wire.now_ns))
    assert [(each.peer, each.kind) for each in wire.of("a", Admitted)] == [("x", "client")]


@pytest.mark.parametrize("sends", [True, False])
def test_a_peer_that_sends_a_long_frame_piece_by_piece_is_alive(sends: bool) -> None:
    wire = Wire()
    network(wire)
    b = wire.nodes["b"]
    (ours,) = [mine for mine, theirs in wire.ends.items() if mine[0] == "b" and theirs[0] == "a"]
    del wire.ends[wire.ends[ours]]  # nothing else arrives
    for _ in range(10):
        if sends:
            b.received(ours[1], bytes([0, 8, 0, 0]))  # the head of a frame of 512 kB, and then some of it
        wire.run(1.0)
    assert b.machine.neighbours["a"].is_up is sends  # type: ignore[attr-defined]


# -- dialling ----------------------------------------------------------------------------------------------------------


def test_a_dial_that_nobody_answers_is_given_up_and_tried_again() -> None:
    wire = Wire()
    a = broker(wire, "a", "b")
    broker(wire, "b", "a")
    wire.mute.add("b")
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))
    wire.run(60.0)
    assert len(wire.of("a", Dial)) >= 5
    assert "did not answer within 5 s" in wire.of("a", Unreached)[0].why
    assert [each.is_news for each in wire.of("a", Unreached)].count(True) == 1
    wire.mute.clear()
    wire.run((GRACE_NS + MOST_NS) / SECOND)
    assert [each.peer for each in wire.of("a", Admitted)] == ["b"]


@pytest.mark.parametrize("lasts_s", [0.0, STEADY_NS / 2 / SECOND])
def test_connections_that_do_not_last_are_dialled_ever_more_rarely(lasts_s: float) -> None:
    wire = Wire()
    a = broker(wire, "a", "b")
    broker(wire, "b", "a")
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))
    run_to_next_dial(wire, "a")
    gaps: list[int] = []
    for _ in range(12):
        wire.run(lasts_s)
        lost_ns = wire.now_ns
        wire.cut("a", wire.of("a", Dial)[-1].connection)
        gaps.append(run_to_next_dial(wire, "a") - lost_ns)
    assert gaps[0] <= 2 * LEAST_NS
    assert all(gap >= 0.9 * MOST_NS for gap in gaps[-3:])


def test_a_connection_that_lasted_is_dialled_again_at_once() -> None:
    wire = Wire()
    a = broker(wire, "a", "b")
    broker(wire, "b", "a")
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))
    for _ in range(10):
        wire.run((STEADY_NS + SECOND) / SECOND)
        wire.cut("a", wire.of("a", Dial)[-1].connection)
        lost_ns = wire.now_ns
        assert run_to_next_dial(wire, "a") - lost_ns <= 2 * LEAST_NS
    assert len(wire.of("a", Parted)) == 10


def test_a_peer_that_refuses_connections_is_dialled_until_it_accepts() -> None:
    wire = Wire()
    a = broker(wire, "a", "b")
    broker(wire, "b", "a")
    wire.gone.add("b")
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))
    wire.run(30.0)
    assert 5 < len(wire.of("a", Dial)) < 20
    wire.gone.clear()
    wire.run(MOST_NS / SECOND)
    assert wire.of("a", Admitted)


def test_a_client_that_is_refused_does_not_come_again() -> None:
    wire = Wire()
    broker(wire, "a", tokens=(Token(identity="c", secret="right"),))
    client(wire, "c", "a", token="wrong")
    wire.run(60.0)
    assert len(wire.of("c", Dial)) == 1
    assert [each.code for each in wire.of("c", Unreached)] == ["token"]
    assert not wire.of("a", Admitted)


def test_a_stranger_who_says_nothing_is_closed() -> None:
    wire = Wire()
    a = broker(wire, "a")
    wire.carry("a", a.opened("c", wire.now_ns, address="somewhere"))
    wire.run(GRACE_NS / SECOND + 0.1)
    (shut,) = wire.of("a", Shut)
    assert shut.reason == "somewhere did not identify itself within 5 s"


# -- admission ---------------------------------------------------------------------------------------------------------


def say(wire: Wire, node: Node, preamble: Preamble, certified: tuple[str, ...] = ()) -> Answer:
    """The answer to a preamble over a new connection; DeniedError if it is no."""
    wire.carry("a", node.opened("c", wire.now_ns, certified=certified))
    node.received("c", b"".join(prefixed([msgspec.msgpack.encode(preamble)])))
    written = [each for each in node.turn(wire.now_ns) if isinstance(each, Write)]
    return read_answer(Splitter(1 << 20).feed(b"".join(written[0].parts))[0])


def test_questions_are_answered_and_closed() -> None:
    wire = Wire()
    node = broker(wire, "a", "b")
    answer = say(wire, node, Preamble("status", "status", detail=b"how are you"))
    assert answer.detail == b"how are you"
    assert node.opened("d", wire.now_ns) is not None
    node.received("d", b"".join(prefixed([msgspec.msgpack.encode(Preamble("directory", "x"))])))
    effects = node.turn(wire.now_ns)
    assert [each.at_once for each in effects if isinstance(each, Shut)] == [False]
    assert isinstance(effects[-1], Shut), "after its last frames"


# -- congestion and rates ----------------------------------------------------------------------------------------------


def test_events_wait_while_a_socket_is_congested_and_leave_when_it_is_not() -> None:
    wire = Wire()
    p, _ = network(wire)
    b = wire.nodes["b"]
    connection = next(name for (node, name), (other, _) in wire.ends.items() if (node, other) == ("b", "s"))
    wire.carry("b", b.congested(connection, wire.now_ns, is_congested=True))
    for n in range(20):
        wire.call("p", p.machine.publish, {"n": n}, lifetime_ns=60 * SECOND)  # type: ignore[attr-defined]
    wire.run(2.0)
    assert not wire.of("s", Deliver)
    wire.carry("b", b.congested(connection, wire.now_ns, is_congested=False))
    wire.run(1.0)
    assert sorted(effect.attributes["n"] for effect in wire.of("s", Deliver)) == list(range(20))


def test_a_peer_that_never_reads_is_closed() -> None:
    wire = Wire()
    a = Node(
        Broker(BrokerSettings(name="a")),
        preamble=Preamble("broker", "a"),
        limits=ConnectionLimits(max_frame_bytes=1_000, max_unread_bytes=10_000),
        chance=lambda: 1.0,
        admission=Admission(name="a"),
        answer=lambda _: Answer(detail=bytes(20_000)),
    )
    wire.add("a", a)
    a.opened("c", wire.now_ns)
    a.received("c", b"".join(prefixed([msgspec.msgpack.encode(Preamble("client", "x"))])))
    a.turn(wire.now_ns)
    found: list[Any] = []
    unsent_bytes = 0
    for _ in range(2_000):
        a.received("c", b"".join(prefixed([b"\xc1"])))  # each is refused, and answered
        for effect in a.turn(wire.now_ns):
            if isinstance(effect, Write):
                unsent_bytes += sum(map(len, effect.parts))
                found += [each for each in a.wrote("c", unsent_bytes, wire.now_ns) if isinstance(each, Shut)]
        if found:
            break
    assert "wait for it to read" in found[0].reason or "were refused" in found[0].reason


def test_a_client_over_its_rate_is_not_read_from_for_a_while() -> None:
    wire = Wire()
    a = Node(
        Broker(BrokerSettings(name="a", max_refused=10_000)),
        preamble=Preamble("broker", "a"),
        limits=ConnectionLimits(max_frame_bytes=1_000),
        chance=lambda: 1.0,
        admission=Admission(name="a", budget=Budget(rate_per_s=10.0)),
    )
    wire.add("a", a)
    wire.carry("a", a.opened("c", wire.now_ns))
    a.received("c", b"".join(prefixed([msgspec.msgpack.encode(Preamble("client", "x"))] + [b"\xc1"] * 30)))
    wire.carry("a", a.turn(wire.now_ns))
    assert [each.is_on for each in wire.of("a", Read)] == [False]
    wire.run(1.9)
    assert not wire.of("a", Read)[-1].is_on
    wire.run(0.2)
    assert wire.of("a", Read)[-1].is_on


# -- the store ---------------------------------------------------------------------------------------------------------


def test_while_the_store_is_full_nothing_is_acknowledged_and_then_everything_is() -> None:
    wire = Wire()
    p, _ = network(wire)
    wire.is_full = True
    for n in range(5):
        wire.call("p", p.machine.publish, {"n": n}, lifetime_ns=60 * SECOND)  # type: ignore[attr-defined]
    wire.run(10.0)
    assert len(p.machine._publisher) == 5  # type: ignore[attr-defined]
    assert [each.event for each in wire.of("a", Report)] == ["store full"]
    wire.is_full = False
    wire.run(10.0)
    assert len(p.machine._publisher) == 0  # type: ignore[attr-defined]
    assert [each.event for each in wire.of("a", Report)] == ["store full", "store has room again"]
