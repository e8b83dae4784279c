"""What a broker knows of the network: what routing goes by, and who subscribes where."""

from collections import Counter
from typing import Final, NamedTuple

from tidings.protocol._addresses import is_address
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._interests import Interests, client_of

__all__ = ["MOST_CLIENTS", "Subscribers", "View", "subscribers_at", "view_of"]

MOST_CLIENTS: Final = 1_000
"""So many of the clients at one broker are told of by name."""


class View(NamedTuple):
    """The neighbours of every broker; by home broker the (name, filter) of the subscriptions there; and where this
    broker sends an event, by the root of its tree and its target."""

    links: dict[str, tuple[str, ...]]
    interests: dict[str, frozenset[tuple[str, str]]]
    routes: dict[tuple[str, str], str]


def view_of(gossip: Gossip, settings: BrokerSettings) -> View:
    """Links, interests and routes as a broker with this knowledge sees them."""
    interests = gossip.interests
    wanted = {origin: frozenset((e.name, e.filter) for e in interests.entries(origin).values()) for origin in interests}
    own = gossip.told.table.entries
    wanted[settings.name] = frozenset((entry.name, entry.filter) for entry in own.values())
    return View(
        links=dict(gossip.links.links()),
        interests={origin: kept for origin, kept in wanted.items() if kept},
        routes=gossip.links.routes(),
    )


class Subscribers(NamedTuple):
    """The clients that subscribe at a broker, with how many subscriptions, and how many more clients there are."""

    clients: dict[str, int]
    left_off: int


def subscribers_at(interests: Interests, broker: str) -> Subscribers:
    """Who subscribes at another broker, whether or not it answers."""
    # A subscription is named after its client; what is kept under an address is of one that has moved away.
    names = interests.entries(broker) if broker in interests else ()
    found = Counter(client_of(name) for name in names if not is_address(name))
    return Subscribers(dict(sorted(found.items())[:MOST_CLIENTS]), max(len(found) - MOST_CLIENTS, 0))
