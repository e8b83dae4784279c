"""A broker's node behind a door: clients and neighbours come in and say frames, time stands still unless moved."""

from typing import Any, Literal

import msgspec

from tidings.protocol import Broker, BrokerSettings, Budget, Purse, wire
from tidings.protocol.node import Admission, ConnectionLimits, Node, Preamble, Read, Write, prefixed

__all__ = ["NOW", "SECOND", "STEP_NS", "Door"]

NOW = 10**17
SECOND = 10**9
STEP_NS = SECOND // 500
"""How far time moves at once."""


class Door:
    """A node that clients come to over connections of their names; time stands still unless moved."""

    def __init__(self, budget: Budget, *neighbours: str) -> None:
        self.now_ns = NOW
        beside = frozenset(neighbours)
        machine = Broker(BrokerSettings(name="b", neighbours=beside, tracing=False))
        limits = ConnectionLimits(max_frame_bytes=1 << 20)
        admission = Admission(name="b", neighbours=beside, budget=budget, budgets=(("rich-*", Budget()),))
        facts = {"preamble": Preamble("broker", "b"), "limits": limits, "admission": admission}
        self.node = Node(machine, chance=lambda: 1.0, **facts)  # type: ignore[arg-type]
        self.machine = machine
        self.reads: list[tuple[str, bool]] = []
        self.written: dict[str, bytes] = {}
        self.carry(self.node.start(self.now_ns))

    def come(self, name: str, kind: Literal["client", "broker"] = "client") -> None:
        self.carry(self.node.opened(name, self.now_ns))
        preamble = msgspec.msgpack.encode(Preamble(kind, name, speaks=(2, 2)))
        hello = wire.encode(wire.Hello(2, name, kind, 1, 256))
        self.say(name, [preamble, hello])

    def say(self, name: str, frames: list[bytes]) -> None:
        self.node.received(name, b"".join(prefixed(frames)))
        self.carry(self.node.turn(self.now_ns))

    def wait(self, seconds: float) -> None:
        """In steps, as timers would."""
        end_ns = self.now_ns + round(seconds * SECOND)
        while self.now_ns < end_ns:
            self.now_ns = min(self.now_ns + STEP_NS, end_ns)
            self.carry(self.node.wake(self.now_ns))
            self.carry(self.node.turn(self.now_ns))

    def carry(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Read):
                self.reads.append((effect.connection, effect.is_on))
            elif isinstance(effect, Write):
                self.written[effect.connection] = self.written.get(effect.connection, b"") + b"".join(effect.parts)
            elif type(effect).__name__ == "Commit":
                self.carry(self.node.committed(self.now_ns))

    def purse(self, client: str) -> Purse:
        found = self.node.purse_of(client)
        assert found is not None
        return found

    def subscriptions(self, client: str) -> int:
        return len(self.machine.gossip.local.of(client))

    def fat(self, first: int, count: int) -> list[bytes]:
        """Requests with filters that take long to read, but cost little to match."""
        text = f"x IN ({', '.join(map(str, range(2_500)))}, "
        entries = [wire.Entry(f"n{n}", f"{text}{n})", None, 1.0, 0) for n in range(first, first + count)]
        return [wire.encode(wire.Subscribe(self.machine.epoch, n, entry)) for n, entry in enumerate(entries, first)]
