"""A broker's node with its gateway, in memory and in virtual time: what real sockets, disks and clocks do is done here
at once, or when a test says so. Clients are packets in and packets out."""

from collections import deque
from collections.abc import Callable
from typing import Any

from tidings.mqtt import Door, Gateway, GatewaySettings, Hand, Pipe, Sever
from tidings.mqtt._codec import Reader, encode
from tidings.mqtt._packets import Ack, Connack, Connect, Kind, Packet, Publish, Suback, Subscribe, Wanted
from tidings.protocol import Broker, BrokerSettings, SetTimer
from tidings.protocol.node import Admission, Commit, ConnectionLimits, Node, Preamble, Read, Report, Shut, Write
from tidings.scheduling import strategy as scheduling_strategy

NOW = 1_700_000_000 * 10**9
SECOND = 10**9


class World:
    """One broker with its door. `is_slow`: commits are durable only when `sync` is called."""

    def __init__(
        self, *, admission: dict[str, Any] | None = None, strategy: str = "lookahead", **settings: Any
    ) -> None:
        self._strategy = scheduling_strategy(strategy)
        self.now_ns = NOW
        self.is_slow = False
        self.full = ""
        self.reports: list[Report] = []
        self.disks: dict[str, dict[str, bytes]] = {"broker": {}, "door": {}}
        self.clients: dict[str, Client] = {}
        self._numbers = 0
        self._admission = admission or {}
        self._settings = settings
        self.begin()

    def begin(self) -> None:
        """A process begins with what is on its disks."""
        self._work: deque[Callable[[], Any]] = deque()
        self._timers: dict[str, int | None] = {"broker": None, "door": None}
        self._commits: dict[str, Commit | None] = {"broker": None, "door": None}
        found = Node.read(self.disks["broker"])
        self.now_ns = max(self.now_ns, found.noted_ns)
        self.machine = Broker(BrokerSettings(name="b", tracing=False, strategy=self._strategy), found.kept)
        self.node = Node(
            self.machine,
            preamble=Preamble("broker", "b"),
            limits=ConnectionLimits(max_frame_bytes=1 << 20),
            chance=lambda: 0.5,
            admission=Admission(name="b", **self._admission),
            found=found,
        )
        settings = GatewaySettings(broker="b", **self._settings)
        self.gateway = Gateway(settings, chance=lambda: 0.5, found=Node.read(self.disks["door"]))
        self._door = Door(self.gateway)
        self._carry("broker", self.node.start(self.now_ns))
        self._carry("door", self.gateway.start(self.now_ns))
        self.settle()

    def kill(self, *written: str) -> None:
        """The process dies: what was not durable never was, but of `written` the commit under way. The next begins."""
        for who in written:
            self._write_down(who)
        for client in self.clients.values():
            client.is_open = False
        self.now_ns += SECOND
        self.begin()
        self.wait(1.0)

    def connect(self, client_id: str = "c", **more: Any) -> "Client":
        """A client that has been answered."""
        client = self.open(more.get("version", 5))
        client.send(Connect(client_id=client_id, **more))
        self.wait(0.1)
        return client

    def open(self, version: int = 5, *, certified: tuple[str, ...] = ()) -> "Client":
        """A connection over which nothing was sent."""
        self._numbers += 1
        client = Client(self, f"in-{self._numbers}", version)
        self.clients[client.name] = client
        facts: dict[str, Any] = {"address": "test", "certified": certified}
        self._carry("door", self.gateway.opened(client.name, self.now_ns, **facts))
        self.settle()
        return client

    def give(self, client: "Client", data: bytes) -> None:
        """Bytes of a client."""
        self._carry("door", self.gateway.received(client.name, data, self.now_ns))
        self.settle()

    def lose(self, client: "Client") -> None:
        """The connection of a client breaks."""
        client.is_open = False
        self._carry("door", self.gateway.lost(client.name, self.now_ns))
        self.settle()

    def settle(self) -> None:
        """Do all that can be done at this moment."""
        for _ in range(100_000):
            if self._work:
                self._work.popleft()()
            elif self.node.is_stirred:
                self._carry("broker", self.node.turn(self.now_ns))
            elif self._door.is_stirred:
                self._carry_out("door", self._door.turn(self.now_ns))
            elif not self.is_slow and any(self._commits.values()):
                self.sync()
            else:
                return
        raise AssertionError("it never comes to rest")

    def sync(self, *whose: str) -> None:
        """What is being committed is durable; there is no room in the store of `full`, except for erasures."""
        for who in whose or ("broker", "door"):
            commit = self._commits[who]
            if who == self.full and commit is not None and any(each is not None for each in commit.writes.values()):
                self._commits[who] = None
                refused: Any = self.node.refused if who == "broker" else self.gateway.refused
                self._carry(who, refused("no room", self.now_ns))
            elif self._write_down(who):
                done = self.node.committed if who == "broker" else self.gateway.durable
                self._carry(who, done(self.now_ns))  # type: ignore[operator]

    def _write_down(self, who: str) -> bool:
        commit, self._commits[who] = self._commits[who], None
        for key, value in () if commit is None else commit.writes.items():
            if value is None:
                self.disks[who].pop(key, None)
            else:
                self.disks[who][key] = value
        return commit is not None

    def wait(self, seconds: float) -> None:
        """Time passes, from timer to timer."""
        end_ns = self.now_ns + round(seconds * SECOND)
        for _ in range(100_000):
            self.settle()
            due = [(at_ns, who) for who, at_ns in self._timers.items() if at_ns is not None and at_ns <= end_ns]
            if not due:
                self.now_ns = end_ns
                return
            at_ns, who = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            self._timers[who] = None
            self._carry(who, (self.node if who == "broker" else self.gateway).wake(self.now_ns))  # type: ignore[attr-defined]
        raise AssertionError("timers without end")

    def _carry(self, who: str, effects: list[Any]) -> None:
        self._carry_out(who, self._door.routed(effects) if who == "door" else effects)

    def _carry_out(self, who: str, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case SetTimer(at_ns):
                    self._timers[who] = at_ns
                case Commit():
                    assert self._commits[who] is None, "one commit at a time"
                    self._commits[who] = effect
                case Hand(name, frames):
                    self.node.handed(name, frames)
                case Write(name, parts) if who == "broker":
                    self._door.written(name, parts)
                case Write(name, parts):
                    self._work.append(self._written(name, parts))
                case Pipe(name, address, certified):
                    facts: dict[str, Any] = {
                        "address": address,
                        "certified": certified,
                        "is_encrypted": True,
                        "is_local": True,
                    }
                    self._carry("broker", self.node.opened(name, self.now_ns, **facts))
                case Sever(name, reason):
                    self._carry("broker", self.node.lost(name, reason, self.now_ns))
                case Shut(name, reason) if who == "broker":
                    self._door.shut(name, reason)
                case Shut(name):
                    self._work.append(self._shut(name))
                case Report():
                    self.reports.append(effect)
                case Read(name, is_on) if name in self.clients:
                    self.clients[name].reads.append(is_on)

    def _written(self, name: str, parts: list[Any]) -> Callable[[], Any]:
        data = b"".join(parts)
        return lambda: self.clients[name].take(data) if name in self.clients else None

    def _shut(self, name: str) -> Callable[[], Any]:
        def shut() -> None:
            if name in self.clients:
                self.clients[name].is_open = False
                self._carry("door", self.gateway.lost(name, self.now_ns))

        return shut


class Client:
    """One MQTT connection; `got` are the packets that came over it."""

    def __init__(self, world: World, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.is_open = True
        self.got: list[Packet] = []
        self.reads: list[bool] = []
        self._world = world
        self._reader = Reader(version=version)

    def send(self, *packets: Packet) -> None:
        """Send packets together."""
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes."""
        self._world.give(self, data)

    def take(self, data: bytes) -> None:
        """What the gateway has written."""
        if not self.is_open:
            return
        if not self.got and data[:1] == b"\x20":  # without properties, the CONNECT that it sent was of MQTT 3.1.1
            self._reader.version = 4 if data[1] == 2 else 5
        self._reader.feed(data)
        while (packet := self._reader.next()) is not None:
            self.got.append(packet)

    def break_off(self) -> None:
        """The connection breaks without a word."""
        self._world.lose(self)

    def all(self, kind: type) -> list[Any]:
        """The packets of a kind that have come."""
        return [packet for packet in self.got if isinstance(packet, kind)]

    def acks(self, kind: Kind) -> list[Ack]:
        """The acknowledgements of a kind that have come."""
        return [ack for ack in self.all(Ack) if ack.kind is kind]

    @property
    def connack(self) -> Connack:
        """The answer to CONNECT."""
        (found,) = self.all(Connack)
        assert isinstance(found, Connack)
        return found

    @property
    def messages(self) -> list[Publish]:
        """The messages that have come."""
        return self.all(Publish)

    @property
    def payloads(self) -> list[bytes]:
        """Their payloads."""
        return [message.payload for message in self.messages]

    def subscribe(
        self, topic_filter: str, qos: int = 0, *, packet_id: int = 1, properties: Any = None, **more: Any
    ) -> int:
        """Subscribe, and wait for the answer; its reason code."""
        wanted = Wanted(topic_filter=topic_filter, qos=qos, **more)
        self.send(Subscribe(packet_id=packet_id, wanted=(wanted,), properties=properties or {}))
        self._world.wait(1.0)
        found: Suback = self.all(Suback)[-1]
        assert found.packet_id == packet_id
        return found.reasons[0]

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, **more: Any) -> None:
        """Publish, and let the broker do its work."""
        if qos and "packet_id" not in more:
            more["packet_id"] = 1
        self.send(Publish(topic=topic, payload=payload, qos=qos, **more))
        self._world.wait(0.2)
