"""The connections of clients: each has those that it asks for (`Connect`), as long as it does (`Disconnect`).

A connection is there after the time that it takes to make one, over a link with figures of its own. When it is closed,
what is under way on it is gone, and both ends know.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from tidings.protocol import Connect, Disconnect
from tidings.storm._dice import Dice
from tidings.storm._network import Network, Node

__all__ = ["Connections"]

_GONE: Final = 1 << 30
_LATENCY_NS: Final = (0.2e6, 30e6)
_NS_PER_BYTE: Final = (10, 200)


class Connections:
    """Which client is connected to which broker; `how_cut` says how many faults a new connection suffers from."""

    def __init__(
        self,
        network: Network,
        dice: Dice,
        brokers: Iterable[str],
        wanted: Iterable[tuple[str, str]],
        how_cut: Callable[[str, str], int] = lambda *_: 0,
    ) -> None:
        self._network = network
        self._dice = dice
        self._brokers = frozenset(brokers)
        self._wanted = set(wanted)
        self._how_cut = how_cut

    def of(self, client: str) -> tuple[str, ...]:
        """The brokers that a client is connected to."""
        return tuple(other for one, other in self._network.links if one == client)

    def on_effect(self, node: Node, effect: Any) -> bool:
        """A client wants a connection, or no more; False if the effect is about something else."""
        if type(effect) is Connect:
            self._connect(node.name, effect.broker)
        elif type(effect) is Disconnect:
            self._wanted.discard((node.name, effect.broker))
            self._network.at(self._network.now_ns, self._close, node.name, effect.broker)
        else:
            return False
        return True

    def _connect(self, client: str, broker: str) -> None:
        if (client, broker) not in self._wanted and broker in self._brokers:
            self._wanted.add((client, broker))
            latency_ns = self._dice.between(*_LATENCY_NS)
            self._network.at(self._network.now_ns + round(3 * latency_ns), self._open, client, broker, latency_ns)

    def _open(self, client: str, broker: str, latency_ns: float) -> None:
        network = self._network
        if (client, broker) in self._wanted and (client, broker) not in network.links:
            network.join(client, broker, latency_ns, latency_ns / 2, self._dice.between(*_NS_PER_BYTE))
            for one, other in ((client, broker), (broker, client)):
                network.links[one, other].is_cut = self._how_cut(one, other)
            self._tell(client, broker, "connected")

    def _close(self, client: str, broker: str) -> None:
        if (client, broker) in self._network.links and (client, broker) not in self._wanted:
            for ends in ((client, broker), (broker, client)):
                self._network.links.pop(ends).is_cut = _GONE  # what is under way finds it cut
            self._tell(client, broker, "disconnected")

    def _tell(self, client: str, broker: str, what: str) -> None:
        for one, other in ((client, broker), (broker, client)):
            node = self._network.nodes[one]
            if node.machine is not None:
                self._network.call(node, getattr(node.machine, what), other)
