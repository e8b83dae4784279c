"""Clients with a new incarnation here that are still known to their former home.

A client whose home does not come back may restart at another broker, under the same name. Its former home, when it is
back, holds events for the client and does not know where it is. So:

- A subscription that a client also has at another broker is noticed when the client subscribes here, or when that
  broker announces it.
- From then on that broker is notified (`Rehomed`), with every refresh and whenever the overlay has changed, until it no
  longer lists the client; but only while the client is connected here, with all subscriptions that it has there.
- A notified broker releases the client as if the client had reported its move, unless it is connected with the client
  or knows an epoch as late: then the client is moving, and reports its home itself. Nor does it release the client if
  the name is bound to another key there: then it is another client.
"""

from collections.abc import Callable, Mapping

from tidings.protocol._names import client_of, is_identity, qualified_name, split_qualified
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Rehomed

__all__ = ["Newcomers"]


class Newcomers:
    """The newcomers of one broker; `forward` sends a message towards a broker."""

    def __init__(
        self, name: str, *, gossip: Gossip, clients: Mapping[str, Peer], forward: Callable[[Rehomed], None]
    ) -> None:
        self._name = name
        self._gossip = gossip
        self._clients = clients
        self._forward = forward
        self._elsewhere: dict[str, set[str]] = {}  # by client: its possible former homes

    def __len__(self) -> int:
        return len(self._elsewhere)

    def subscribed(self, client: str, name: str) -> None:
        """A client has subscribed."""
        homes = self._gossip.interests.homes_of(qualified_name(client, name))
        if homes:
            self._elsewhere.setdefault(client, set()).update(homes)

    def learn(self) -> None:
        """Enter new subscriptions at other brokers."""
        begun, self._gossip.interests.begun = self._gossip.interests.begun, []
        local = self._gossip.local
        for home, qualified in begun:
            client, name = split_qualified(qualified)
            if client in self._clients and name in local.of(client):
                self._elsewhere.setdefault(client, set()).add(home)

    def notify(self) -> None:
        """Notify the former homes of clients that are here now."""
        interests, local = self._gossip.interests, self._gossip.local
        for client, homes in list(self._elsewhere.items()):
            here = {qualified_name(client, name) for name in local.of(client)}
            peer = self._clients.get(client)
            for home in sorted(homes):
                table = interests.entries(home) if home in interests else {}
                there = {each for each in table if client_of(each) == client and not is_identity(each)}
                if not there or peer is None:
                    homes.discard(home)  # if it lists the client again, it announces that
                elif peer.is_up and there <= here:
                    self._forward(Rehomed(home, client, peer.epoch, self._name))
            if not homes:
                del self._elsewhere[client]
