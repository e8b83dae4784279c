"""Paper E, section 3.3 by the errata: what is lost and doubled while publishers move, and how long they pause.

The real protocol in virtual time: brokers in a binary tree, wide-area links, publishers at 50 events per second,
readers of everything at every third broker. Publishers go to random brokers, one by one or all at the same moment.
Every event has to reach every reader once; what the application sees of a move is that events wait in the client until
the old home has acknowledged the last of those in transit.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings, Confirmed, Deliver, Moved
from tidings.storm import Dice, Process, StormNetwork

__all__ = ["MOVES", "TOGETHER", "Migration", "migrate"]

MS: Final = 10**6
SECOND: Final = 10**9

MOVES: Final = 40
TOGETHER: Final = 5
RATE_PER_S: Final = 50
BROKERS: Final = 15
APART_NS: Final = 1_500 * MS
SETTLE_NS: Final = 5 * SECOND
LINK_NS: Final = 40 * MS
CLIENT_NS: Final = 5 * MS
WINDOW: Final = 256
"""Enough for all publishers together on links of a tenth of a second and back."""


class Migration(NamedTuple):
    """What became of the events, and of the moves."""

    published: int
    accepted: int
    lost: int
    duplicated: int
    moves: int
    pauses_ms: tuple[float, ...]


class _Trial:
    """One network; `together` publishers move at the same moment."""

    def __init__(self, generator: np.random.Generator, together: int, moves: int) -> None:
        dice = Dice(generator)
        self._network = StormNetwork(dice, self._on_effect)
        self._brokers = [f"b{number:02}" for number in range(BROKERS)]
        self._publishers = [f"p{number}" for number in range(together)]
        self._readers = {f"r{number}": broker for number, broker in enumerate(self._brokers[::3])}
        self._homes = {name: dice.one_of(self._brokers) for name in self._publishers} | self._readers
        self._published: set[tuple[str, int, int]] = set()
        self._accepted = 0
        self._came: dict[tuple[str, tuple[str, int, int]], int] = {}
        self._pauses_ms: list[float] = []
        self._set_up(dice, moves)

    def run(self) -> Migration:
        """Let it happen."""
        self._network.run(self._end_ns)
        expected = len(self._published) * len(self._readers)
        return Migration(
            published=len(self._published),
            accepted=self._accepted,
            lost=expected - len(self._came),
            duplicated=sum(self._came.values()) - len(self._came),
            moves=len(self._pauses_ms),
            pauses_ms=tuple(self._pauses_ms),
        )

    def _set_up(self, dice: Dice, moves: int) -> None:
        network, graph = self._network, self._graph()
        for name in (*self._brokers, *self._homes):
            network.add(name)
        for broker, beside in graph.items():
            for other in beside:
                if broker < other:
                    network.join(broker, other, LINK_NS * dice.between(0.5, 1.5), LINK_NS / 10, 100.0)
        for client, broker in self._homes.items():
            network.join(client, broker, CLIENT_NS, CLIENT_NS / 10, 50.0)
        for broker in self._brokers:
            settings = BrokerSettings(name=broker, neighbours=graph[broker], window=WINDOW, tracing=False)
            network.start_broker(network.processes[broker], Broker(settings), self._brokers)
        for client, home in self._homes.items():
            network.start_client(network.processes[client], Client(ClientSettings(name=client)), home)
        for reader in self._readers:
            network.at(0, self._call, reader, "subscribe", "all", "x >= 0")
        for publisher in self._publishers:
            network.at(0, self._call, publisher, "advertise", "all", "x >= 0")
        rounds = moves // len(self._publishers)
        last_ns = SETTLE_NS + (rounds + 1) * APART_NS
        for number in range((last_ns - SETTLE_NS) * RATE_PER_S // SECOND):
            for publisher in self._publishers:
                network.at(SETTLE_NS + number * SECOND // RATE_PER_S, self._publish, publisher)
        for number in range(rounds):
            for publisher in self._publishers:
                others = [broker for broker in self._brokers if broker != self._homes[publisher]]
                self._homes[publisher] = dice.one_of(others)
                network.at(SETTLE_NS + (number + 1) * APART_NS, self._call, publisher, "move", self._homes[publisher])
        self._end_ns = last_ns + SETTLE_NS

    def _graph(self) -> dict[str, frozenset[str]]:
        """A binary tree, numbered level by level."""
        found: dict[str, set[str]] = {broker: set() for broker in self._brokers}
        for number in range(1, BROKERS):
            one, other = self._brokers[(number - 1) // 2], self._brokers[number]
            found[one].add(other)
            found[other].add(one)
        return {broker: frozenset(beside) for broker, beside in found.items()}

    def _call(self, name: str, what: str, *arguments: Any) -> Any:
        process = self._network.processes[name]
        assert process.node is not None
        return process.call(getattr(process.node.machine, what), *arguments)

    def _publish(self, publisher: str) -> None:
        node = self._network.processes[publisher].node
        assert node is not None
        machine = node.machine
        assert isinstance(machine, Client)
        sequence = self._call(publisher, "publish", {"x": 1})
        self._published.add((publisher, machine.settings.epoch, sequence))

    def _on_effect(self, process: Process, effect: Any) -> None:
        if isinstance(effect, Deliver):
            key = (process.name, effect.event)
            self._came[key] = self._came.get(key, 0) + 1
        elif isinstance(effect, Confirmed):
            self._accepted += effect.kind == "publish"
        elif isinstance(effect, Moved):
            self._pauses_ms.append(effect.paused_ns / MS)


def migrate(seed: int, *, together: int = 1, moves: int = MOVES) -> Migration:
    """This many moves of publishers, `together` at the same moment; the same seed gives the same figures."""
    return _Trial(np.random.default_rng([seed, together, moves]), together, moves).run()
