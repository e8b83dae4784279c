"""Clients that live a new life here, and are still known to the broker where they lived before.

A client whose home does not come back may start again at another broker, under the same name. Its home, when it is
there again, holds events for the client and does not know where it is. So:

- A subscription that a client has at another broker too is noticed when the client asks for it here, or when that
  broker is heard to have it.
- From then on that broker is told (`Rehomed`), with every refresh and whenever the overlay has changed, until it lists
  the client no more; but only while the client is connected here, and wants here all that it wants there.
- A broker that is told so lets the client go as if the client had said so itself, unless it is connected with the
  client or knows of a life as late: then the client is on the move, and says where it is at home when it knows. Nor
  does it if its name is bound to another key there: then somebody else has come under the client's name.
"""

from collections.abc import Callable, Mapping

from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._told_names import client_of, is_identity, split_told, told_name
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Rehomed

__all__ = ["Newcomers"]


class Newcomers:
    """Those of one broker; `tell` sends a message on its way to a broker."""

    def __init__(
        self, name: str, *, gossip: Gossip, clients: Mapping[str, Peer], tell: Callable[[Rehomed], None]
    ) -> None:
        self._name = name
        self._gossip = gossip
        self._clients = clients
        self._tell = tell
        self._elsewhere: dict[str, set[str]] = {}  # by client: the brokers that may know it from before

    def __len__(self) -> int:
        return len(self._elsewhere)

    def subscribed(self, client: str, name: str) -> None:
        """A client has asked for something."""
        homes = self._gossip.interests.homes_of(told_name(client, name))
        if homes:
            self._elsewhere.setdefault(client, set()).update(homes)

    def learn(self) -> None:
        """Others have told of subscriptions that are new."""
        begun, self._gossip.interests.begun = self._gossip.interests.begun, []
        local = self._gossip.local
        for home, told in begun:
            client, name = split_told(told)
            if client in self._clients and name in local.of(client):
                self._elsewhere.setdefault(client, set()).add(home)

    def tell(self) -> None:
        """Tell the brokers that know a client from before where it lives now."""
        interests, local = self._gossip.interests, self._gossip.local
        for client, homes in list(self._elsewhere.items()):
            here = {told_name(client, name) for name in local.of(client)}
            peer = self._clients.get(client)
            for home in sorted(homes):
                table = interests.entries(home) if home in interests else {}
                there = {told for told in table if client_of(told) == client and not is_identity(told)}
                if not there or peer is None:
                    homes.discard(home)  # if it lists the client again, that is heard
                elif peer.is_up and there <= here:
                    self._tell(Rehomed(home, client, peer.epoch, self._name))
            if not homes:
                del self._elsewhere[client]
