"""The network in virtual time: nodes with clocks of their own, links that lose and delay, disks that forget.

Rules:

- One heap of things to happen, ordered by time and then by the order in which they were put there: a run depends on
  its plan and its seed, and on nothing else.
- A node's clock runs at its own rate (off by up to 100 ppm) from its own origin; a machine never sees another time.
- A frame takes its turn on its link (size x ns per byte), then the link's latency with jitter. It may be lost, come
  twice, or be held back so that others overtake it. Over a link that is cut it is lost, and nobody is told.
- Stored values are durable from the completed sync on. A crash that loses the tail keeps a random first part of what
  came after it, and of a part that follows what may be erased ahead, as a disk does that was full; one that does not
  lose it keeps all.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from tidings.protocol import Erase, Machine, Send, SetTimer, Store, Sync
from tidings.storm._dice import Dice

__all__ = ["Disk", "Link", "Network", "Node"]

_WORST_DRIFT: Final = 1e-4
_SYNC_NS: Final = (2e6, 40e6)
_HELD_BACK_NS: Final = (20e6, 400e6)


class Disk:
    """A durable store with a tail that a crash may lose."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self._tail: list[tuple[str, bytes | None, bool]] = []

    def write(self, key: str, value: bytes | None, *, ahead: bool = False) -> None:
        """Store a value, or erase it; an erasure may be one that can go ahead of what was stored before."""
        self._tail.append((key, value, ahead))

    @property
    def length(self) -> int:
        """How many writes are not yet durable."""
        return len(self._tail)

    def sync(self, count: int) -> None:
        """The first of them are durable now."""
        for key, value, _ in self._tail[:count]:
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value
        del self._tail[:count]

    def crash(self, survivors: int, looked_at: int = 0) -> None:
        """Only this many of the writes that are not durable have reached the disk.

        Of so many that follow, erasures have that could go ahead, if they are the last word on their keys.
        """
        self.sync(survivors)
        last = {key: ahead for key, _, ahead in self._tail[:looked_at]}
        for key in [key for key, ahead in last.items() if ahead]:
            self.kept.pop(key, None)
        self._tail.clear()


class Node:
    """A machine, its clock, and its disk; `life` counts its starts."""

    __slots__ = ("dice", "disk", "life", "links", "machine", "name", "offset_ns", "rate", "timer_ns")

    def __init__(self, name: str, dice: Dice, rate: float, offset_ns: int) -> None:
        self.name = name
        self.machine: Machine | None = None
        self.disk = Disk()
        self.life = 0
        self.dice = dice
        self.rate = rate
        self.offset_ns = offset_ns
        self.timer_ns: int | None = None
        self.links: dict[str, Link] = {}  # by target

    def clock_ns(self, now_ns: int) -> int:
        """What the node's own clock shows."""
        return int(now_ns * self.rate) + self.offset_ns

    def when_ns(self, clock_ns: int) -> int:
        """When the node's own clock will show this."""
        rate, offset_ns = self.rate, self.offset_ns
        when_ns = int((clock_ns - offset_ns) / rate)
        while int(when_ns * rate) + offset_ns < clock_ns:
            when_ns += 1
        return when_ns


class Link:
    """One direction of a connection; `draw`, if given, says how long a frame of so many bytes is sent and travels."""

    __slots__ = ("busy_until_ns", "draw", "is_cut", "jitter_ns", "latency_ns", "ns_per_byte", "source", "target")

    def __init__(self, source: Node, target: Node, latency_ns: float, jitter_ns: float, ns_per_byte: float) -> None:
        self.source = source
        self.target = target
        self.latency_ns = latency_ns
        self.jitter_ns = jitter_ns
        self.ns_per_byte = ns_per_byte
        self.draw: Callable[[int], tuple[float, float]] | None = None
        self.busy_until_ns = 0.0
        self.is_cut = 0


class Network:
    """Nodes and links, and what is to happen next; `on_effect` gets what is neither frame, disk nor timer."""

    def __init__(self, dice: Dice, on_effect: Callable[[Node, Any], None]) -> None:
        self.now_ns = 0
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.frames = 0
        self.loss = self.doubling = self.overtaking = 0.0
        self._dice = dice
        self._on_effect = on_effect
        self._share = dice.share
        # When, in which order, what to call (None: a frame arrives), and with what.
        self._heap: list[tuple[int, int, Callable[..., None] | None, tuple[Any, ...]]] = []
        self._serial = count(1).__next__

    def add(self, name: str) -> Node:
        """A node without a machine yet."""
        rate = 1.0 + self._dice.between(-_WORST_DRIFT, _WORST_DRIFT)
        node = self.nodes[name] = Node(name, self._dice, rate, round(self._dice.between(1e9, 1e15)))
        return node

    def join(self, one: str, other: str, latency_ns: float, jitter_ns: float, ns_per_byte: float) -> None:
        """A connection, as two links."""
        for source, target in ((one, other), (other, one)):
            node = self.nodes[source]
            link = Link(node, self.nodes[target], latency_ns, jitter_ns, ns_per_byte)
            self.links[source, target] = node.links[target] = link

    def at(self, when_ns: int, do: Callable[..., None], *what: Any) -> None:
        """Let something happen."""
        heappush(self._heap, (when_ns, self._serial(), do, what))

    def run(self, until_ns: int) -> None:
        """Let everything happen that is to happen before this time."""
        heap, step = self._heap, self.step
        while heap and heap[0][0] < until_ns:
            now_ns, _, do, what = heappop(heap)
            self.now_ns = now_ns
            if do is not None:
                do(*what)
                continue
            link, frame, life = what
            node = link.target
            machine = node.machine
            # A frame for a life that is over may still reach the next one: that is what sessions are for.
            if machine is not None and life <= node.life and not link.is_cut:
                effects = machine.receive(link.source.name, frame, int(now_ns * node.rate) + node.offset_ns)
                if effects:
                    step(node, effects)
        self.now_ns = until_ns

    def start(self, node: Node, machine: Machine) -> None:
        """A machine comes to life and is connected to whoever it has a link with."""
        node.machine = machine
        node.life += 1
        node.timer_ns = None
        self.step(node, machine.start(node.clock_ns(self.now_ns)))
        for source, target in self.links:
            if source == node.name:
                self.step(node, machine.connected(target, node.clock_ns(self.now_ns)))

    def crash(self, node: Node, *, loses_tail: bool) -> None:
        """The machine is gone; its disk keeps what was synced, and all or a part of the rest."""
        length = node.disk.length
        survivors = self._dice.whole(length + 1) if loses_tail else length
        node.disk.crash(survivors, self._dice.whole(length - survivors + 1) if loses_tail else 0)
        node.machine = None
        node.life += 1

    def call(self, node: Node, do: Callable[..., Any], *what: Any, **more: Any) -> Any:
        """Call a machine with its own time; effects are carried out, anything else it returns is returned."""
        result = do(*what, node.clock_ns(self.now_ns), **more)
        effects, rest = (result[1], result[0]) if isinstance(result, tuple) else (result, None)
        self.step(node, effects)
        return rest

    def step(self, node: Node, effects: list[Any]) -> None:
        """Carry out what a machine wants done."""
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(node, effect.connection, effect.frame)
            elif kind is SetTimer:
                when_ns = node.when_ns(effect.at_ns)
                if when_ns < self.now_ns:
                    when_ns = self.now_ns
                if node.timer_ns is None or when_ns < node.timer_ns:
                    node.timer_ns = when_ns
                    heappush(self._heap, (when_ns, self._serial(), self._wake, (node, node.life, when_ns)))
            elif kind is Store:
                node.disk.write(effect.key, effect.value)
            elif kind is Erase:
                node.disk.write(effect.key, None, ahead=effect.ahead)
            elif kind is Sync:
                done_ns = self.now_ns + round(self._dice.between(*_SYNC_NS))
                self.at(done_ns, self._synced, node, node.life, effect.token, node.disk.length)
            else:
                self._on_effect(node, effect)

    def _send(self, node: Node, target: str, frame: bytes) -> None:
        link = node.links.get(target)
        if link is None:
            return
        self.frames += 1
        share = self._share
        if link.is_cut or (self.loss and share() < self.loss):
            return
        began_ns = link.busy_until_ns
        if began_ns < self.now_ns:
            began_ns = self.now_ns
        if link.draw is None:
            link.busy_until_ns = free_ns = began_ns + len(frame) * link.ns_per_byte
            arrives_ns = free_ns + link.latency_ns + link.jitter_ns * share()
        else:
            sent_ns, travels_ns = link.draw(len(frame))
            link.busy_until_ns = began_ns + sent_ns
            arrives_ns = link.busy_until_ns + travels_ns
        if self.overtaking and share() < self.overtaking:
            arrives_ns += self._dice.between(*_HELD_BACK_NS)
        what = (link, frame, link.target.life)
        heappush(self._heap, (int(arrives_ns), self._serial(), None, what))
        if self.doubling and share() < self.doubling:
            again_ns = int(arrives_ns + self._dice.between(*_HELD_BACK_NS))
            heappush(self._heap, (again_ns, self._serial(), None, what))

    def _wake(self, node: Node, life: int, when_ns: int) -> None:
        machine = node.machine
        if machine is not None and node.life == life and node.timer_ns == when_ns:
            node.timer_ns = None
            effects = machine.wake(int(self.now_ns * node.rate) + node.offset_ns)
            if effects:
                self.step(node, effects)

    def _synced(self, node: Node, life: int, token: int, length: int) -> None:
        if node.machine is not None and node.life == life:
            node.disk.sync(length)
            self.step(node, node.machine.synced(token, node.clock_ns(self.now_ns)))
