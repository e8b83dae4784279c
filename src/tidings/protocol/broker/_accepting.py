"""How events come in: each is taken on once, and acknowledged when it is durable and its way on is known.

What cannot be taken on is not acknowledged, and comes again: nothing while the store is full, and nothing from clients
while the broker does not know what the others want. What must not be taken on is refused, and its publisher told why.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tidings.errors import EventError
from tidings.protocol import wire
from tidings.protocol._addresses import broker_of, is_address
from tidings.protocol._errors import PeerError
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._carrier import Carrier
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._registry import Registry
from tidings.protocol.links._peers import Peer
from tidings.protocol.relocation._relocating import Relocating

__all__ = ["Accepting"]


class Accepting:
    """The entrance of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        gossip: Gossip,
        carrier: Carrier,
        registry: Registry,
        relocating: Relocating,
        send: Callable[[Peer, wire.Message], None],
        deny: Callable[[Peer, str, str, int, PeerError], None],
        note: Callable[..., None],
        count: Callable[[str], None],
        when_durable: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._gossip = gossip
        self._carrier = carrier
        self._registry = registry
        self._relocating = relocating
        self._send = send
        self._deny = deny
        self._note = note
        self._count = count
        self._when_durable = when_durable

    @property
    def credit(self) -> int:
        """How many events a peer may have under way: none when the store is as good as full."""
        room = self._settings.max_stored - len(self._carrier.held)
        return min(self._settings.window, max(room - self._settings.window, 0))

    def tell_credit(self, peer: Peer) -> None:
        """A peer that was held back may send more."""
        if peer.is_up and peer.credit_told < self._settings.window and self.credit > peer.credit_told:
            peer.credit_told = self.credit
            self._send(peer, wire.Credit(peer.credit_told))

    def transfer(self, source: Peer, said: wire.Transfer, now_ns: int) -> None:
        """A neighbour hands an event over."""
        if self._is_new(source, said.session, said.number, said.floor):
            self._carrier.transfer(source, said, now_ns)
            self._take(source, said.number, now_ns)

    def publish(self, source: Peer, said: wire.Publish, now_ns: int) -> None:
        """A client publishes an event."""
        if not self._is_new(source, said.session, said.number, said.floor):
            return
        try:
            matched = self._match(source, wire.decode_content(said.content).attributes)
        except (EventError, PeerError) as error:
            code = error.code if isinstance(error, PeerError) else "content"
            self._deny(source, "publish", str(said.sequence), said.number, PeerError(code, str(error)))
            return
        id = (source.name, source.epoch, said.sequence)
        self._note("accepted", id)
        self._carrier.publish(source, said, matched, self._relocating.tag(id, now_ns), now_ns)
        self._take(source, said.number, now_ns)

    def acknowledge(self, peer: Peer, epoch: int, number: int, held_ns: int) -> None:
        """An event is durable: say so, if its sender is still the one who sent it."""
        if peer.epoch == epoch:
            peer.inbox.acknowledge(number)
            self._acknowledge(peer, number, held_ns)

    def _match(self, source: Peer, attributes: Mapping[str, Any]) -> dict[str, list[wire.Entry]]:
        """By home broker, this one included: the subscriptions that want an event of this client."""
        self._registry.require_advertised(source.name, attributes)
        matched = self._gossip.interests.match(attributes)
        here: list[wire.Entry] = []
        for client, entries in self._gossip.local.match(attributes).items():
            if not is_address(client):
                here += entries
            elif broker_of(client) not in matched:  # the client's new home is told of, but not yet known here
                matched[client] = entries
        if here:
            matched[self._settings.name] = here
        return matched

    def _is_new(self, source: Peer, session: int, number: int, floor: int) -> bool:
        """Whether a transfer has to be taken on; one that was is acknowledged again."""
        if session != source.epoch:
            return False
        known = source.inbox.look(number, floor)
        if known == "acknowledged":
            self._acknowledge(source, number, 0)
        elif known == "new" and not self._carrier.has_room:
            self._count("no room")
            return False
        return known == "new"

    def _take(self, source: Peer, number: int, now_ns: int) -> None:
        source.inbox.take(number)
        self._when_durable("ack", source, source.epoch, number, now_ns)

    def _acknowledge(self, peer: Peer, number: int, held_ns: int) -> None:
        """Tell the sender; without buffering no broker waits for it, and credit comes with the pings."""
        if peer.is_up and (peer.kind == "client" or self._settings.buffers):
            peer.credit_told = self.credit
            self._send(peer, wire.Ack(peer.epoch, number, max(held_ns, 0), peer.credit_told))
