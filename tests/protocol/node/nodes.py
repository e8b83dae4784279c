"""Nodes joined by hand in virtual time: their bytes are carried, their disks are quick, their timers wait."""

from collections.abc import Callable
from typing import Any

from tidings.protocol import OLDEST_VERSION, VERSION, Broker, BrokerSettings, Client, ClientSettings, SetTimer
from tidings.protocol.node import (
    Admission,
    Answer,
    Commit,
    ConnectionLimits,
    Credentials,
    Dial,
    Directory,
    Node,
    Preamble,
    Shut,
    Token,
    Write,
    opened,
)

SECOND = 10**9
LIMITS = ConnectionLimits(max_frame_bytes=1 << 20)
LATEST = (OLDEST_VERSION, VERSION)


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


def broker(
    wire: Wire,
    name: str,
    *neighbours: str,
    tokens: tuple[Token, ...] = (),
    speaks: tuple[int, int] = LATEST,
    token: str | None = None,
    kept: dict[str, bytes] | None = None,
    **more: Any,
) -> Node:
    graph = {name: frozenset(neighbours)} | {other: frozenset({name}) for other in neighbours}
    settings = BrokerSettings(name=name, neighbours=frozenset(neighbours), graph=graph, **more)
    admission = Admission(
        name=name, brokers=frozenset(graph), neighbours=frozenset(neighbours), tokens=tokens, broker_token=token
    )
    node = Node(
        Broker(settings, opened(kept or {}).kept),
        preamble=Preamble("broker", name),
        limits=LIMITS,
        chance=lambda: 1.0,
        admission=admission,
        answer=lambda message: Answer(detail=message.detail),
        speaks=speaks,
        credentials=Credentials(token=token),
    )
    node.directory = Directory(name, {each: each for each in graph})
    return wire.add(name, node)


def client(
    wire: Wire,
    name: str,
    home: str,
    token: str | None = None,
    speaks: tuple[int, int] = LATEST,
    secret: str | None = None,
    known_as: str = "",
    epoch: int = 1,
) -> Node:
    """A client that the test knows as `name`, and brokers as `known_as`."""
    node = Node(
        Client(ClientSettings(name=known_as or name, epoch=epoch)),
        preamble=Preamble("client", known_as or name),
        credentials=Credentials(token=token, secret=secret),
        limits=LIMITS,
        chance=lambda: 1.0,
        is_refusal_final=True,
        speaks=speaks,
    )
    wire.add(name, node)
    wire.carry(name, node.want(home, home, None, wire.now_ns))
    wire.settle()
    return node


def network(wire: Wire, **speaks: tuple[int, int]) -> tuple[Node, Node]:
    """Two brokers that know each other, with a publisher at one and a subscriber at the other; `speaks` by name."""
    a = broker(wire, "a", "b", speaks=speaks.get("a", LATEST))
    broker(wire, "b", "a", speaks=speaks.get("b", LATEST))
    wire.carry("a", a.want("b", "b", "b", wire.now_ns))
    wire.run(0.1)
    p = client(wire, "p", "a", speaks=speaks.get("p", LATEST))
    s = client(wire, "s", "b", speaks=speaks.get("s", LATEST))
    wire.run(0.1)
    wire.call("p", p.machine.advertise, "all", "TRUE")  # type: ignore[attr-defined]
    wire.call("s", s.machine.subscribe, "all", "n >= 0")  # type: ignore[attr-defined]
    wire.run(4.0)
    return p, s
