"""Machines joined frame by frame in virtual time, without nodes, turns or faults: what a machine says of times can be
held against the true ones. Clocks begin anywhere and run up to 100 ppm fast or slow; a sync takes a few milliseconds.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from tidings.protocol import Machine, Send, SetTimer, Sync
from tidings.storm._dice import Dice

__all__ = ["Link", "Network", "Node"]

_WORST_DRIFT: Final = 1e-4
_SYNC_NS: Final = (2e6, 40e6)


class Node:
    """A machine and its clock."""

    def __init__(self, name: str, rate: float, offset_ns: int) -> None:
        self.name = name
        self.machine: Machine | None = None
        self.rate = rate
        self.offset_ns = offset_ns
        self.timer_ns: int | None = None
        self.links: dict[str, Link] = {}  # by target

    def clock_ns(self, now_ns: int) -> int:
        """What the node's own clock shows."""
        return int(now_ns * self.rate) + self.offset_ns

    def when_ns(self, clock_ns: int) -> int:
        """When the node's own clock will show this."""
        when_ns = int((clock_ns - self.offset_ns) / self.rate)
        while self.clock_ns(when_ns) < clock_ns:
            when_ns += 1
        return when_ns


class Link:
    """One direction; `draw`, if given, says how long a frame of so many bytes is sent, and travels."""

    def __init__(self, target: Node, latency_ns: float, jitter_ns: float, ns_per_byte: float) -> None:
        self.target = target
        self.latency_ns = latency_ns
        self.jitter_ns = jitter_ns
        self.ns_per_byte = ns_per_byte
        self.draw: Callable[[int], tuple[float, float]] | None = None
        self.busy_until_ns = 0.0


class Network:
    """Nodes and links, and what is to happen next; `on_effect` gets what is neither frame, disk nor timer."""

    def __init__(self, dice: Dice, on_effect: Callable[[Node, Any], None]) -> None:
        self.now_ns = 0
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self._dice = dice
        self._on_effect = on_effect
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = count(1).__next__

    def add(self, name: str) -> Node:
        """A node without a machine yet."""
        rate = 1.0 + self._dice.between(-_WORST_DRIFT, _WORST_DRIFT)
        node = self.nodes[name] = Node(name, rate, round(self._dice.between(1e9, 1e15)))
        return node

    def join(self, one: str, other: str, latency_ns: float, jitter_ns: float, ns_per_byte: float) -> None:
        """A connection, as two links."""
        for source, target in ((one, other), (other, one)):
            link = Link(self.nodes[target], latency_ns, jitter_ns, ns_per_byte)
            self.links[source, target] = self.nodes[source].links[target] = link

    def at(self, when_ns: int, do: Callable[..., None], *what: Any) -> None:
        """Let something happen."""
        heappush(self._heap, (when_ns, self._serial(), do, what))

    def run(self, until_ns: int) -> None:
        """Let everything happen that is to happen before this time."""
        while self._heap and self._heap[0][0] < until_ns:
            self.now_ns, _, do, what = heappop(self._heap)
            do(*what)
        self.now_ns = until_ns

    def start(self, node: Node, machine: Machine) -> None:
        """Start a machine and connect it to its neighbours."""
        node.machine = machine
        self.step(node, machine.start(node.clock_ns(self.now_ns)))
        for target in node.links:
            self.step(node, machine.connected(target, node.clock_ns(self.now_ns)))

    def call(self, node: Node, do: Callable[..., Any], *what: Any, **more: Any) -> Any:
        """Call a machine with its own time; effects are carried out, anything else it returns is returned."""
        result = do(*what, node.clock_ns(self.now_ns), **more)
        effects, rest = (result[1], result[0]) if isinstance(result, tuple) else (result, None)
        self.step(node, effects)
        return rest

    def step(self, node: Node, effects: list[Any]) -> None:
        """Carry out what a machine wants done."""
        for effect in effects:
            if isinstance(effect, Send):
                self._send(node, effect.connection, effect.frame)
            elif isinstance(effect, SetTimer):
                when_ns = max(node.when_ns(effect.at_ns), self.now_ns)
                if node.timer_ns is None or when_ns < node.timer_ns:
                    node.timer_ns = when_ns
                    self.at(when_ns, self._wake, node, when_ns)
            elif isinstance(effect, Sync):
                self.at(self.now_ns + round(self._dice.between(*_SYNC_NS)), self._synced, node, effect.token)
            else:
                self._on_effect(node, effect)

    def _send(self, node: Node, target: str, frame: bytes) -> None:
        link = node.links.get(target)
        if link is None:
            return
        if link.draw is None:
            sent_ns, travels_ns = len(frame) * link.ns_per_byte, link.latency_ns + link.jitter_ns * self._dice.share()
        else:
            sent_ns, travels_ns = link.draw(len(frame))
        link.busy_until_ns = max(link.busy_until_ns, self.now_ns) + sent_ns
        self.at(int(link.busy_until_ns + travels_ns), self._arrive, node.name, link, frame)

    def _arrive(self, source: str, link: Link, frame: bytes) -> None:
        node = link.target
        if node.machine is not None:
            self.step(node, node.machine.receive(source, frame, node.clock_ns(self.now_ns)))

    def _wake(self, node: Node, when_ns: int) -> None:
        if node.machine is not None and node.timer_ns == when_ns:
            node.timer_ns = None
            self.step(node, node.machine.wake(node.clock_ns(self.now_ns)))

    def _synced(self, node: Node, token: int) -> None:
        assert node.machine is not None
        self.step(node, node.machine.synced(token, node.clock_ns(self.now_ns)))
