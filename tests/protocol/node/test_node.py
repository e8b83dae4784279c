"""Nodes without I/O: dialling, admission, turns, congestion and commits, driven by hand in virtual time."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings, Deliver, SetTimer
from tidings.protocol.node import (
    GRACE_NS,
    Admission,
    Admitted,
    Answer,
    Commit,
    ConnectionLimits,
    Dial,
    Directory,
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

SECOND = 10**9
LIMITS = ConnectionLimits(max_frame_bytes=1 << 20)


class Wire:
    """Two or more nodes, their bytes carried by hand; disks that are always quick, time that stands still unless moved.

    An address is a node's name. `mute` are those who accept and never answer, `gone` those who refuse.
    """

    def __init__(self) -> None:
        self.now_ns = 10**18
        self.nodes: dict[str, Node] = {}
        self.timers: dict[str, int] = {}
        self.ends: dict[tuple[str, str], tuple[str, str]] = {}  # connection of a node: the other node, its connection
        self.seen: dict[str, list[Any]] = {}
        self.mute: set[str] = set()
        self.gone: set[str] = set()
        self.is_full = False
        self.writes = 0
        self._accepted = 0

    def add(self, name: str, node: Node) -> Node:
        self.nodes[name] = node
        self.seen[name] = []
        self.carry(name, node.start(self.now_ns))
        return node

    def call(self, name: str, do: Callable[..., Any], *what: Any, **more: Any) -> Any:
        rest, effects = self.nodes[name].call(do, self.now_ns, *what, **more)
        self.carry(name, effects)
        self.settle()
        return rest

    def of(self, name: str, kind: type) -> list[Any]:
        return [effect for effect in self.seen[name] if isinstance(effect, kind)]

    def carry(self, name: str, effects: list[Any]) -> None:
        node = self.nodes[name]
        for effect in effects:
            self.seen[name].append(effect)
            match effect:
                case Dial(connection, address, _):
                    self._dial(name, connection, address)
                case Write(connection, parts):
                    self.writes += 1
                    self.carry(name, node.wrote(connection, 0, self.now_ns))
                    if (name, connection) in self.ends:
                        other, theirs = self.ends[name, connection]
                        if other in self.nodes:
                            self.nodes[other].received(theirs, b"".join(parts))
                case Shut(connection, reason, _):
                    self.cut(name, connection, reason)
                case SetTimer(at_ns):
                    self.timers[name] = at_ns
                case Commit():
                    done = node.refused("no room", self.now_ns) if self.is_full else node.committed(self.now_ns)
                    self.carry(name, done)

    def _dial(self, name: str, connection: str, address: str) -> None:
        if address in self.gone:
            self.carry(name, self.nodes[name].lost(connection, f"{address} refuses", self.now_ns))
            return
        self._accepted += 1
        theirs = f"in-{self._accepted}"
        self.ends[name, connection] = (address, theirs)
        self.ends[address, theirs] = (name, connection)
        self.carry(name, self.nodes[name].opened(connection, self.now_ns, address=address))
        if address not in self.mute:
            self.carry(address, self.nodes[address].opened(theirs, self.now_ns, address=name))

    def cut(self, name: str, connection: str, reason: str = "cut") -> None:
        other = self.ends.pop((name, connection), None)
        self.carry(name, self.nodes[name].lost(connection, reason, self.now_ns))
        if other is not None:
            self.ends.pop(other, None)
            if other[0] in self.nodes:
                self.carry(other[0], self.nodes[other[0]].lost(other[1], reason, self.now_ns))

    def settle(self) -> None:
        """Turns, until nobody has anything to do."""
        while stirred := [name for name, node in self.nodes.items() if node.is_stirred]:
            for name in stirred:
                self.carry(name, self.nodes[name].turn(self.now_ns))

    def run(self, seconds: float) -> None:
        until_ns = self.now_ns + round(seconds * SECOND)
        self.settle()
        while self.timers:
            name = min(self.timers, key=lambda each: self.timers[each])
            if self.timers[name] >= until_ns:
                break
            self.now_ns = max(self.now_ns, self.timers.pop(name))
            self.carry(name, self.nodes[name].wake(self.now_ns))
            self.settle()
        self.now_ns = until_ns


def broker(wire: Wire, name: str, *neighbours: str, tokens: tuple[Token, ...] = (), **more: Any) -> Node:
    graph = {name: frozenset(neighbours)} | {other: frozenset({name}) for other in neighbours}
    settings = BrokerSettings(name=name, neighbours=frozenset(neighbours), graph=graph, **more)
    admission = Admission(name=name, brokers=frozenset(graph), neighbours=frozenset(neighbours), tokens=tokens)
    node = Node(
        Broker(settings),
        preamble=Preamble("broker", name),
        limits=LIMITS,
        chance=lambda: 1.0,
        admission=admission,
        answer=lambda said: Answer(detail=said.detail),
    )
    node.directory = Directory(name, {each: each for each in graph})
    return wire.add(name, node)


def client(wire: Wire, name: str, home: str, token: str | None = None) -> Node:
    node = Node(
        Client(ClientSettings(name=name)),
        preamble=Preamble("client", name, token),
        limits=LIMITS,
        chance=lambda: 1.0,
        is_refusal_final=True,
    )
    wire.add(name, node)
    wire.carry(name, node.want(home, home, None, wire.now_ns))
    wire.settle()
    return node


def network(wire: Wire) -> tuple[Node, Node]:
    """Two brokers that know each other, with a publisher at one and a subscriber at the other."""
    a = broker(wire, "a", "b")
    broker(wire, "b", "a")
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))
    wire.run(0.1)
    p, s = client(wire, "p", "a"), client(wire, "s", "b")
    wire.run(0.1)
    wire.call("p", p.machine.advertise, "all", "TRUE")  # type: ignore[attr-defined]
    wire.call("s", s.machine.subscribe, "all", "n >= 0")  # type: ignore[attr-defined]
    wire.run(4.0)
    return p, s


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
def test_whoever_sends_a_long_frame_piece_by_piece_is_there(sends: bool) -> None:
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


def test_whoever_refuses_connections_is_tried_until_it_does_not() -> None:
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
    assert shut.reason == "somewhere did not say who it is within 5 s"


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
    assert isinstance(effects[-1], Shut), "after what it is told"


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
    for _ in range(2_000):
        a.received("c", b"".join(prefixed([b"\xc1"])))  # each is refused, and answered
        for effect in a.turn(wire.now_ns):
            if isinstance(effect, Write):
                found += [each for each in a.wrote("c", 1, wire.now_ns) if isinstance(each, Shut)]
        if found:
            break
    assert "wait to be read" in found[0].reason or "were refused" in found[0].reason


def test_whoever_sends_faster_than_it_may_is_not_read_from_for_a_while() -> None:
    wire = Wire()
    a = Node(
        Broker(BrokerSettings(name="a", max_refused=10_000)),
        preamble=Preamble("broker", "a"),
        limits=ConnectionLimits(max_frame_bytes=1_000, rate_per_s=10.0),
        chance=lambda: 1.0,
        admission=Admission(name="a"),
    )
    wire.add("a", a)
    wire.carry("a", a.opened("c", wire.now_ns))
    a.received("c", b"".join(prefixed([msgspec.msgpack.encode(Preamble("client", "x"))] + [b"\xc1"] * 30)))
    wire.carry("a", a.turn(wire.now_ns))
    assert [each.is_on for each in wire.of("a", Read)] == [False]
    wire.run(1.9)
    assert [each.is_on for each in wire.of("a", Read)] == [False]
    wire.run(0.2)
    assert [each.is_on for each in wire.of("a", Read)] == [False, True]


# -- the store ---------------------------------------------------------------------------------------------------------


def test_while_the_store_is_full_nothing_is_acknowledged_and_then_everything_is() -> None:
    wire = Wire()
    p, _ = network(wire)
    wire.is_full = True
    for n in range(5):
        wire.call("p", p.machine.publish, {"n": n}, lifetime_ns=60 * SECOND)  # type: ignore[attr-defined]
    wire.run(10.0)
    assert len(p.machine._publishing) == 5  # type: ignore[attr-defined]
    assert [each.event for each in wire.of("a", Report)] == ["store full"]
    wire.is_full = False
    wire.run(10.0)
    assert len(p.machine._publishing) == 0  # type: ignore[attr-defined]
    assert [each.event for each in wire.of("a", Report)] == ["store full", "store has room again"]
