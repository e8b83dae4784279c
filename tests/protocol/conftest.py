"""A few machines joined by a wire that the test holds in its hands: no time, no faults but those that it asks for."""

from collections import deque
from typing import Any

import pytest

from tidings.protocol import (
    Broker,
    BrokerSettings,
    Client,
    ClientSettings,
    Connect,
    Deliver,
    Disconnect,
    Effect,
    Erase,
    Machine,
    Send,
    SetTimer,
    Store,
    Sync,
)

SECOND = 10**9


class Wire:
    """Machines by name, their disks, and the frames between them."""

    def __init__(self) -> None:
        self.now_ns = 10 * SECOND
        self.machines: dict[str, Machine] = {}
        self.links: set[tuple[str, str]] = set()
        self.disks: dict[str, dict[str, bytes]] = {}
        self.durable: dict[str, dict[str, bytes]] = {}
        self.snapshots: dict[tuple[str, int], dict[str, bytes]] = {}
        self.frames: deque[tuple[str, str, bytes]] = deque()
        self.syncs: deque[tuple[str, int]] = deque()
        self.timers: dict[str, int] = {}
        self.effects: list[tuple[str, Effect]] = []
        self.holds_syncs = False

    def add(self, machine: Machine, *, links: tuple[str, ...] = ()) -> None:
        self.machines[machine.name] = machine
        self.disks.setdefault(machine.name, {})
        self.do(machine.name, machine.start(self.now_ns))
        for other in links:
            self.links |= {(machine.name, other), (other, machine.name)}
        for one, other in sorted(self.links):
            if one == machine.name and other in self.machines:
                self.do(one, machine.connected(other, self.now_ns))
                self.do(other, self.machines[other].connected(one, self.now_ns))
        self.settle()

    def do(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            self.effects.append((name, effect))
            if isinstance(effect, Send):
                if (name, effect.connection) in self.links:
                    self.frames.append((name, effect.connection, effect.frame))
            elif isinstance(effect, Store):
                self.disks[name][effect.key] = effect.value
            elif isinstance(effect, Erase):
                self.disks[name].pop(effect.key, None)
            elif isinstance(effect, Sync):
                self.syncs.append((name, effect.token))
                self.snapshots[name, effect.token] = dict(self.disks[name])
            elif isinstance(effect, SetTimer):
                self.timers[name] = effect.at_ns
            elif isinstance(effect, Connect):
                self.connect(name, effect.broker)
            elif isinstance(effect, Disconnect):
                self.disconnect(name, effect.broker)

    def connect(self, client: str, broker: str) -> None:
        """A client wants a connection; it has it, if the broker is not down."""
        self.links |= {(client, broker), (broker, client)}
        for one, other in ((client, broker), (broker, client)):
            if client in self.machines and broker in self.machines:
                self.do(one, self.machines[one].connected(other, self.now_ns))

    def disconnect(self, client: str, broker: str) -> None:
        """The connection is closed, with all that is under way on it."""
        self.cut(client, broker)
        for one, other in ((client, broker), (broker, client)):
            self.frames = deque(frame for frame in self.frames if frame[:2] != (one, other))
            if one in self.machines:
                self.do(one, self.machines[one].disconnected(other, self.now_ns))

    def settle(self) -> None:
        """Carry frames and confirm syncs until there are no more."""
        for _ in range(100_000):
            if self.frames:
                source, target, frame = self.frames.popleft()
                if target in self.machines and (source, target) in self.links:
                    self.do(target, self.machines[target].receive(source, frame, self.now_ns))
            elif self.syncs and not self.holds_syncs:
                self.sync()
            else:
                return
        raise AssertionError("the machines never come to rest")

    def sync(self) -> None:
        """The sync that was asked for first is done."""
        name, token = self.syncs.popleft()
        if name in self.machines:
            self.durable[name] = self.snapshots.pop((name, token))
            self.do(name, self.machines[name].synced(token, self.now_ns))

    def pass_time(self, duration_ns: int) -> None:
        """Wake all machines with a timer, in order, until the time has passed."""
        until_ns = self.now_ns + duration_ns
        while True:
            due = [(at_ns, name) for name, at_ns in self.timers.items() if at_ns <= until_ns and name in self.machines]
            if not due:
                break
            at_ns, name = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            del self.timers[name]
            self.do(name, self.machines[name].wake(self.now_ns))
            self.settle()
        self.now_ns = until_ns

    def call(self, name: str, what: str, *arguments: Any, **more: Any) -> Any:
        result = getattr(self.machines[name], what)(*arguments, self.now_ns, **more)
        effects, rest = (result[1], result[0]) if isinstance(result, tuple) else (result, None)
        self.do(name, effects)
        self.settle()
        return rest

    def cut(self, one: str, other: str) -> None:
        self.links -= {(one, other), (other, one)}

    def mend(self, one: str, other: str) -> None:
        self.links |= {(one, other), (other, one)}

    def crash(self, name: str, *, loses_tail: bool = False) -> None:
        del self.machines[name]
        self.timers.pop(name, None)
        self.syncs = deque(sync for sync in self.syncs if sync[0] != name)
        if loses_tail:
            self.disks[name] = dict(self.durable.get(name, {}))

    def broker(self, name: str, *neighbours: str, kept: dict[str, bytes] | None = None, **more: Any) -> Broker:
        return Broker(BrokerSettings(name=name, neighbours=frozenset(neighbours), **more), kept)

    def chain(self, *names: str, **more: Any) -> None:
        """Brokers in a row, all alive and ready."""
        for place, name in enumerate(names):
            beside = {names[other] for other in (place - 1, place + 1) if 0 <= other < len(names)}
            self.add(self.broker(name, *beside, **more), links=tuple(sorted(beside)))
        self.pass_time(4 * SECOND)

    def client(self, name: str, home: str, **more: Any) -> None:
        self.add(Client(ClientSettings(name=name, **more)), links=(home,))

    def delivered(self, client: str) -> list[Deliver]:
        return [effect for name, effect in self.effects if name == client and isinstance(effect, Deliver)]


@pytest.fixture
def wire() -> Wire:
    """A wire that nothing is on."""
    return Wire()


@pytest.fixture
def row(wire: Wire) -> Wire:
    """Three brokers in a row, a publisher at one end and a subscriber at the other."""
    wire.chain("a", "b", "c")
    wire.client("p", "a")
    wire.client("s", "c")
    wire.call("p", "advertise", "all", "x >= 0")
    wire.call("s", "subscribe", "some", "x > 5")
    return wire
