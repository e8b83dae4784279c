"""Reloading: on SIGHUP a running broker reads its file again.

- A change that cannot be applied is refused, with the reason in the log, and nothing changes (`change_of`).
- A new neighbour is greeted like any other. A removed link is cut at once: what was under way on it takes another path,
  or waits for one.
- Another strategy orders the queues as soon as its kernels are loaded; what waits is ordered again, and none of it is
  lost.
- A broker that is removed from the file leaves: it asks its clients to move to its neighbours, keeps serving until they
  have moved (for at most `drain`), and then drains as on SIGTERM. Its neighbours keep their links with it until it has
  left, or for twice `drain`.
- Clients that are away cannot be asked. What is kept for them stays in the store of the broker that left, and is
  delivered if it comes back.
"""

import asyncio
import contextlib
import os
from itertools import cycle
from typing import TYPE_CHECKING, Final

from tidings.errors import TidingsError
from tidings.live.configuration._changes import Change, change_of
from tidings.live.configuration._config import Network, read_network
from tidings.live.security._tls import Judge, listening_context

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["Reloading"]

_POLL_S: Final = 0.05
_ASK_S: Final = 1.0


class Reloading:
    """Applies a changed file to one broker."""

    def __init__(self, node: "BrokerNode") -> None:
        self._node = node
        self._lingering: dict[str, asyncio.Task[None]] = {}  # by neighbour that is leaving the network
        self._leaving: asyncio.Task[None] | None = None
        self._reordering: asyncio.Task[None] | None = None

    def hung_up(self, had_terminal: bool) -> None:
        """SIGHUP: sent after the file has changed, or because the terminal is gone."""
        if had_terminal and not os.isatty(0):
            self._node.stop()
        else:
            self.reload()

    def reload(self) -> None:
        """Read the file again and apply it, or log why not."""
        node = self._node
        try:
            after = read_network(node.network.path)
            change = change_of(node.network, after)
            after.shared_token()
            self._renew_certificates(after)
        except TidingsError as error:
            node.log.error("reload refused", why=str(error))
            return
        node.log.info("reloaded", change=str(change))
        self._follow(after, change)

    def close(self) -> None:
        """Ignore further changes."""
        for task in (*self._lingering.values(), self._leaving, self._reordering):
            if task is not None:
                task.cancel()

    def _renew_certificates(self, after: Network) -> None:
        """Use the certificates, the authority and the list of revoked certificates as they are now; ConfigurationError
        if they cannot be read. Connections whose certificate is no longer valid are closed."""
        node = self._node
        tls = after.tls_of(node.name)
        if tls is None:
            return
        node.listening, judge = listening_context(tls), Judge(tls)
        for connection in list(node.driver.connections.values()):
            why = judge.objection(connection.certificate)
            if why:
                node.driver.call_node(node.driver.node.expel, connection.name, why)

    def _follow(self, after: Network, change: Change) -> None:
        node = self._node
        if node.name in change.removed:
            if self._leaving is None:
                self._leaving = asyncio.create_task(self._leave(after))
            return
        before = node.network.links[node.name]
        node.adopt(after)
        if change.strategy is not None:
            self._reorder()
        for other in sorted((before - after.links[node.name]) & set(change.removed)):
            self._lingering.setdefault(other, asyncio.create_task(self._linger(other)))
        for other in [other for other in self._lingering if other in after.brokers]:
            self._lingering.pop(other).cancel()  # added again before it was gone
        self._rewire()

    def _rewire(self) -> None:
        node = self._node
        node.rewire(node.network.links[node.name] | self._lingering.keys())

    def _reorder(self) -> None:
        """Use the strategy of the file once its kernels are loaded; a later file overtakes an earlier one."""
        if self._reordering is not None:
            self._reordering.cancel()
        self._reordering = asyncio.create_task(self._use_strategy())

    async def _use_strategy(self) -> None:
        from tidings.scheduling import prepare  # compiled: slow to load

        node = self._node
        strategy = node.network.settings_of(node.name).strategy
        await asyncio.to_thread(prepare, strategy)
        node.driver.call(node.machine.use_strategy, strategy)
        node.log.info("strategy changed", strategy=strategy.name)

    async def _linger(self, other: str) -> None:
        """Wait until a neighbour has left, then forget it."""
        node = self._node
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * node.network.document.network.drain_s + _ASK_S):
                while (peer := node.machine.neighbours.get(other)) is not None and peer.is_up:
                    await asyncio.sleep(_POLL_S)
        del self._lingering[other]
        self._rewire()
        node.log.info("neighbour gone", peer=other)

    async def _leave(self, after: Network) -> None:
        """Ask the clients to move; when they have, or when it takes too long, stop."""
        node = self._node
        node.log.info("leaving", clients=len(self._clients()))
        if node.door is not None:
            node.door.refer(after, self._places(after))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after.document.network.drain_s):
                while self._clients():
                    for client, place in zip(self._clients(), cycle(self._places(after)), strict=False):
                        node.driver.call(node.machine.ask_to_move, client, place)
                    await asyncio.sleep(_ASK_S / 2)
                # Brokers that did not know of a move yet may have sent events here meanwhile: they are forwarded.
                await asyncio.sleep(2 * after.document.network.ping_s)
        for client in self._clients():
            node.log.warning("client stays behind", client=client, why="it did not move in time")
        node.stop()

    def _places(self, after: Network) -> list[str]:
        """The neighbours that stay and can be reached."""
        neighbours = self._node.machine.neighbours
        return sorted(name for name, peer in neighbours.items() if peer.is_up and name in after.brokers)

    def _clients(self) -> list[str]:
        return sorted(name for name, peer in self._node.machine.clients.items() if peer.is_up)
