"""Two copies of every event: no single disk that is lost loses an event, and nothing is accepted without its copy."""

from typing import Any

import pytest
from tests.protocol.node.nodes import LIMITS, SECOND, Wire, client

from tidings.errors import ConfigurationError
from tidings.protocol import OLDEST_VERSION, VERSION, Broker, BrokerSettings, Confirmed, Deliver
from tidings.protocol.node import Admission, Commit, Directory, Node, Preamble

RING = {"a": frozenset("bc"), "b": frozenset("ac"), "c": frozenset("ab")}


class Disks(Wire):
    """A wire whose brokers have disks."""

    def __init__(self, copies: int, version: int = VERSION) -> None:
        super().__init__()
        self.copies = copies
        self.version = version
        self.disks: dict[str, dict[str, bytes]] = {}

    def carry(self, name: str, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Commit):
                for key, value in effect.writes.items():
                    if value is None:
                        self.disks[name].pop(key, None)
                    else:
                        self.disks[name][key] = value
        super().carry(name, effects)

    def start(self, name: str) -> None:
        """A broker starts, from what its disk holds."""
        found = Node.read(self.disks.setdefault(name, {}))
        settings = BrokerSettings(name=name, neighbours=RING[name], graph=RING, copies=self.copies)
        node = Node(
            Broker(settings, found.kept),
            preamble=Preamble("broker", name),
            limits=LIMITS,
            chance=lambda: 1.0,
            admission=Admission(name=name, brokers=frozenset(RING), neighbours=RING[name]),
            found=found,
            speaks=(OLDEST_VERSION, self.version),
        )
        node.directory = Directory(name, {each: each for each in RING})
        self.gone.discard(name)
        self.add(name, node)
        for other in sorted(RING[name]):
            if other > name:
                if other not in self.nodes:
                    self.gone.add(other)
                self.carry(name, node.want(other, other, other, self.now_ns))
        self.settle()

    def end(self, name: str) -> None:
        """A process ends, and its peers are notified."""
        del self.nodes[name]
        self.timers.pop(name, None)
        for end, other in list(self.ends.items()):
            if end[0] == name:
                del self.ends[end]
                self.ends.pop(other, None)
                if other[0] in self.nodes:
                    self.carry(other[0], self.nodes[other[0]].lost(other[1], "gone", self.now_ns))
        self.settle()

    def kill(self, name: str, *, with_disk: bool) -> None:
        """A broker's process ends, and its disk may be lost."""
        self.gone.add(name)
        if with_disk:
            self.disks[name] = {}
        self.end(name)

    def copies_at(self, *names: str) -> int:
        return sum(key.startswith("copy/") for name in names for key in self.disks[name])


def network(copies: int = 2, version: int = VERSION) -> tuple[Disks, Node]:
    """Three brokers; a publisher and a subscriber at `a`, the latter away with its subscription."""
    wire = Disks(copies, version)
    for name in RING:
        wire.start(name)
    wire.run(10.0)
    publisher, subscriber = client(wire, "p", "a"), client(wire, "s", "a")
    wire.run(0.5)
    wire.call("p", publisher.machine.advertise, "all", "TRUE")  # type: ignore[attr-defined]
    wire.call("s", subscriber.machine.subscribe, "all", "n >= 0")  # type: ignore[attr-defined]
    wire.run(2.0)
    wire.end("s")
    return wire, publisher


def accepted(wire: Disks) -> int:
    return sum(effect.kind == "publish" for effect in wire.of("p", Confirmed))


def publish(wire: Disks, publisher: Node, count: int) -> int:
    """Publish events; how many were accepted by now."""
    for n in range(count):
        wire.call("p", publisher.machine.publish, {"n": n}, lifetime_ns=300 * SECOND)  # type: ignore[attr-defined]
    wire.run(2.0)
    return accepted(wire)


def come_back(wire: Disks) -> list[int]:
    """The subscriber starts again and asks for the same; what it gets."""
    subscriber = client(wire, "s", "a")
    wire.call("s", subscriber.machine.subscribe, "all", "n >= 0")  # type: ignore[attr-defined]
    wire.run(5.0)
    return sorted(effect.attributes["n"] for effect in wire.of("s", Deliver))


def keeper_of(wire: Disks, owner: str) -> str:
    machine = wire.nodes[owner].machine
    assert isinstance(machine, Broker)
    assert machine.copies.keeper is not None
    return machine.copies.keeper.name


def lose_and_start(wire: Disks, name: str) -> None:
    wire.kill(name, with_disk=True)
    wire.run(1.0)
    wire.start(name)
    wire.run(10.0)


@pytest.mark.parametrize("copies", [1, 2])
def test_what_only_a_lost_disk_held_comes_from_its_copies(copies: int) -> None:
    wire, publisher = network(copies)
    assert publish(wire, publisher, 20) == 20
    lose_and_start(wire, "a")
    assert come_back(wire) == (list(range(20)) if copies == 2 else [])


def test_the_disk_of_the_keeper_may_be_lost_first() -> None:
    wire, publisher = network()
    assert publish(wire, publisher, 20) == 20
    keeper = keeper_of(wire, "a")
    assert wire.copies_at(keeper) == 20
    lose_and_start(wire, keeper)
    assert wire.copies_at("b", "c") == 20, "they have been copied again"
    lose_and_start(wire, "a")
    assert come_back(wire) == list(range(20))


def test_a_restart_with_its_disk_delivers_once_and_tidies_up() -> None:
    wire, publisher = network()
    assert publish(wire, publisher, 20) == 20
    wire.kill("a", with_disk=False)
    wire.run(1.0)
    wire.start("a")
    wire.run(10.0)
    assert come_back(wire) == list(range(20))
    wire.run(5.0)
    assert wire.copies_at("a", "b", "c") == 0


def test_nothing_is_accepted_that_nobody_has_a_copy_of() -> None:
    wire, publisher = network()
    wire.kill("b", with_disk=False)
    wire.kill("c", with_disk=False)
    wire.run(5.0)
    assert publish(wire, publisher, 5) == 0
    assert wire.nodes["a"].machine.copies.unconfirmed == 5  # type: ignore[attr-defined]
    wire.start("c")
    wire.run(15.0)
    assert accepted(wire) == 5


def test_another_neighbour_takes_over_from_a_keeper_that_is_gone() -> None:
    wire, publisher = network()
    assert publish(wire, publisher, 1) == 1
    keeper = keeper_of(wire, "a")
    wire.kill(keeper, with_disk=False)
    assert publish(wire, publisher, 10) == 11
    (other,) = {"b", "c"} - {keeper}
    assert wire.copies_at(other) == 10


def test_brokers_of_the_version_before_keep_no_copies() -> None:
    wire, publisher = network(version=OLDEST_VERSION)
    assert publish(wire, publisher, 3) == 0


def test_copies_that_expire_are_erased() -> None:
    wire, publisher = network()
    assert publish(wire, publisher, 5) == 5
    assert wire.copies_at("b", "c") == 5
    wire.kill("a", with_disk=False)  # it can release nothing
    wire.run(310.0)
    assert wire.copies_at("b", "c") == 0


def test_what_a_broker_that_has_left_the_network_held_goes_on() -> None:
    wire, publisher = network()
    other = client(wire, "o", "c")
    wire.run(0.5)
    wire.call("o", other.machine.subscribe, "all", "n >= 0")  # type: ignore[attr-defined]
    wire.run(3.0)
    wire.kill("c", with_disk=False)
    wire.run(5.0)
    assert publish(wire, publisher, 8) == 8  # a holds them for c, and b has the copies
    wire.kill("a", with_disk=True)
    graph = {"b": frozenset("c"), "c": frozenset("b")}
    wire.start("c")
    for name in graph:
        wire.call(name, wire.nodes[name].machine.rewire, graph[name], graph)  # type: ignore[attr-defined]
    wire.run(20.0)
    assert sorted(effect.attributes["n"] for effect in wire.of("o", Deliver)) == list(range(8))


def test_what_waits_for_a_damaged_subscription_goes_after_a_client_that_has_moved() -> None:
    """Of its two subscriptions the old home still knows one; others know both, and that the client is elsewhere."""
    wire, filters = Disks(copies=2), {"some": "n < 0", "others": "n >= 0"}
    for name in RING:
        wire.start(name)
    wire.run(10.0)
    publisher, subscriber = client(wire, "p", "b"), client(wire, "s", "a")
    wire.run(0.5)
    wire.call("p", publisher.machine.advertise, "all", "TRUE")  # type: ignore[attr-defined]
    for name, wanted in filters.items():
        wire.call("s", subscriber.machine.subscribe, name, wanted)  # type: ignore[attr-defined]
    wire.run(2.0)
    wire.end("s")
    wire.kill("a", with_disk=False)
    (damaged,) = (key for key in wire.disks["a"] if key.startswith("subscription/") and "others" in key)
    wire.disks["a"][damaged] = bytes(byte ^ 1 for byte in wire.disks["a"][damaged])
    assert publish(wire, publisher, 3) == 3
    subscriber = client(wire, "s", "c")
    for name, wanted in filters.items():
        wire.call("s", subscriber.machine.subscribe, name, wanted)  # type: ignore[attr-defined]
    wire.run(5.0)
    wire.start("a")
    wire.run(30.0)
    got = sorted((effect.subscription, effect.attributes["n"]) for effect in wire.of("s", Deliver))
    assert got == [("others", n) for n in range(3)]


def test_two_copies_need_buffers() -> None:
    with pytest.raises(ConfigurationError, match="2 copies with 'bypass'"):
        BrokerSettings(name="a", copies=2, scheme="bypass")


def test_a_broker_that_has_lost_its_store_and_its_time_begins_a_later_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, its neighbours took it for an old life, and ignored it until they started again."""
    wire = Disks(copies=1)
    for name in RING:
        wire.start(name)
    wire.run(10.0)
    before = wire.nodes["b"].machine.epoch  # type: ignore[attr-defined]
    monkeypatch.setattr("tidings.protocol.broker._recovery.next_epoch", lambda *_: before - 3_600_000)  # an hour ago
    lose_and_start(wire, "b")
    machine = wire.nodes["b"].machine
    assert isinstance(machine, Broker)
    assert machine.epoch > before
    assert machine.counts["outlived"] == 1
    assert wire.disks["b"]["epoch"].endswith(str(machine.epoch).encode())
    for name in ("a", "c"):
        other = wire.nodes[name].machine
        assert isinstance(other, Broker)
        assert other.neighbours["b"].is_up
        assert other.gossip.interests.epoch_of("b") == machine.epoch
