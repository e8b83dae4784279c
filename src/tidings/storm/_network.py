"""The network in virtual time: processes and the paths between them. Storms break it, experiments use it.

All future events of the run are in one heap, ordered by time and then by insertion: a run depends on its plan and its
seed alone.

An address is the name of a broker. Of two neighbours the one whose name sorts first dials, as live brokers do; a client
dials its home broker and learns the other addresses from it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop
from itertools import count
from typing import Any, Final

import msgspec

from tidings.protocol import OLDEST_VERSION, Broker, BrokerSettings, Client, Machine
from tidings.protocol.node import (
    NONCE_BYTES,
    Admission,
    ConnectionLimits,
    Credentials,
    Directory,
    Node,
    Opened,
    Preamble,
    Token,
)
from tidings.storm._dice import Dice
from tidings.storm._process import Busyness, Process, World
from tidings.storm._sockets import Path, SocketFigures

__all__ = ["BROKER_TOKEN", "CLIENT_TOKEN", "GUEST", "Process", "SocketFigures", "StormNetwork"]

BROKER_TOKEN: Final = "of all brokers together"
CLIENT_TOKEN: Final = "of all clients together"
GUEST: Final = "guest"
"""A client that is admitted, and on which no check relies."""
_LATENCY_NS: Final = (0.2e6, 30e6)
_NS_PER_BYTE: Final = (10, 200)
_LOPSIDED: Final = 12.0


class StormNetwork(World):
    """Processes, paths, and the agenda; `on_effect` receives the effects for applications and traces.

    A path that was not made (`join`) is drawn when it is needed.
    """

    def __init__(
        self,
        dice: Dice,
        on_effect: Callable[[Process, Any], None],
        *,
        node_type: type[Node] = Node,
        on_store_failed: Callable[[Process], None] = lambda _: None,
    ) -> None:
        super().__init__(dice, on_effect)
        self.paths: dict[tuple[str, str], Path] = {}
        self.cut_off: Counter[str] = Counter()
        """How many faults cut a host off from everybody."""
        self.has_tokens = True
        """Whether clients prove their identity by a token; otherwise by a secret of their own."""
        self._nonces = count()
        self.limits = ConnectionLimits(max_frame_bytes=BrokerSettings(name="any").max_frame_bytes)
        self._node_type = node_type
        self._on_store_failed = on_store_failed
        self._lopsided: Dice | None = None

    def add(self, name: str) -> Process:
        """A host without a node yet."""
        process = self.processes[name] = Process(self, name)
        return process

    def join(self, one: str, other: str, latency_ns: float, jitter_ns: float, ns_per_byte: float) -> None:
        """Make the paths between two hosts, in both directions."""
        lean = 1.0 if self._lopsided is None else _LOPSIDED ** self._lopsided.between(-0.5, 0.5)
        for source, target, share in ((one, other, lean), (other, one, 1.0 / lean)):
            path = self.paths[source, target] = Path(source, target, share * latency_ns, jitter_ns, ns_per_byte)
            path.cuts = self.cut_off[source] + self.cut_off[target]

    def path(self, source: str, target: str) -> Path:
        """The path from one host to another."""
        if (source, target) not in self.paths:
            latency_ns = self.dice.between(*_LATENCY_NS)
            self.join(source, target, latency_ns, latency_ns / 2, self.dice.between(*_NS_PER_BYTE))
        return self.paths[source, target]

    def make_lopsided(self, dice: Dice) -> None:
        """Let the latencies of the two directions between hosts differ from now on, by a factor of up to _LOPSIDED."""
        self._lopsided = dice

    def make_busy(self, dice: Dice, usual_ns: float, busy_ns: float) -> None:
        """Use this delay from the arrival of bytes to the turn that reads them from now on."""
        self.busyness = Busyness(dice, usual_ns, busy_ns)

    def run(self, until_ns: int) -> None:
        """Run the agenda up to this time."""
        heap = self.heap
        while heap and heap[0][0] < until_ns:
            self.now_ns, _, do, what = heappop(heap)
            do(*what)
        self.now_ns = until_ns

    # -- lives -----------------------------------------------------------------------------------------------------

    def read(self, process: Process) -> Opened:
        """The contents of a disk, as a node reads them."""
        return self._node_type.read(process.disk.kept)

    def start_broker(
        self, process: Process, broker: Broker, brokers: Iterable[str], found: Opened | None = None
    ) -> None:
        """Start a broker, which dials the neighbours that sort after it."""
        name, neighbours = broker.settings.name, broker.settings.neighbours
        admission = Admission(
            name=name,
            brokers=frozenset(brokers),
            neighbours=neighbours,
            broker_token=BROKER_TOKEN,
            tokens=(Token(identity=GUEST, secret=GUEST), Token(identity="*", secret=CLIENT_TOKEN))
            if self.has_tokens
            else (),
            budget=broker.settings.budget,
        )
        credentials = Credentials(token=BROKER_TOKEN)
        preamble = Preamble("broker", name)
        node = self._node(process, broker, preamble, credentials=credentials, admission=admission, found=found)
        node.directory = Directory(name, {each: each for each in brokers})
        process.start(node)
        for other in sorted(neighbours):
            if other > name:
                process.want(other)

    def rewire(self, process: Process, graph: Mapping[str, frozenset[str]]) -> None:
        """Apply a changed overlay to a broker as a live one would: whom it admits, greets and dials."""
        name, node = process.name, process.node
        assert node is not None
        assert isinstance(node.machine, Broker)
        assert node.admission is not None
        self.covered["rewired"] += 1
        node.admission = msgspec.structs.replace(node.admission, neighbours=graph[name])
        process.call(node.machine.rewire, graph[name], graph)
        dialled = {other for other in graph[name] if other > name}
        for other in sorted(node.dials.targets.keys() - dialled):
            process.unwant(other)
        for other in sorted(dialled - node.dials.targets.keys()):
            process.want(other)

    def start_client(self, process: Process, client: Client, home: str) -> None:
        """Start a client, which dials its home."""
        name = client.settings.name
        credentials = Credentials(token=CLIENT_TOKEN) if self.has_tokens else Credentials(secret=f"secret of {name}")
        preamble = Preamble("client", name)
        process.start(self._node(process, client, preamble, credentials=credentials, is_refusal_final=True))
        process.want(home)

    def _node(self, process: Process, machine: Machine, preamble: Preamble, **more: Any) -> Node:
        more["speaks"] = (OLDEST_VERSION, process.version)
        more["nonce"] = self._nonce
        return self._node_type(machine, preamble=preamble, limits=self.limits, chance=self.dice.share, **more)

    def _nonce(self) -> bytes:
        """Distinct numbers, not unpredictable ones: a run must be repeatable."""
        return next(self._nonces).to_bytes(NONCE_BYTES, "big")

    def host_is_back(self, name: str) -> None:
        """A peer that still sends to a process that is gone learns of it when its bytes are sent again."""
        for path in self.paths.values():
            if path.target == name and not path.cuts:
                for socket in list(path.senders):
                    socket.path_is_whole()

    def store_failed(self, process: Process) -> None:
        """A store cannot be written."""
        self._on_store_failed(process)

    # -- faults ----------------------------------------------------------------------------------------------------

    def cut_off_host(self, name: str, change: int) -> None:
        """Count one more fault, or one less, that cuts a host off from all others."""
        self.cut_off[name] += change
        for pair, path in list(self.paths.items()):
            if name in pair:
                path.cut(change)

    def reset(self, one: str, other: str) -> None:
        """Reset all connections between two hosts."""
        process = self.processes[one]
        sockets = list(process.sockets.values())
        if process.door is not None:
            sockets += process.door.sockets.values()
        for socket in sockets:
            if socket.path.target == other:
                far = socket.far
                for end in (socket, far):
                    if end is not None:
                        end.far = None
                        end.reset_soon(0)
