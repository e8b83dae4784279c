"""What a broker knows of the network: what routing goes by, and who subscribes where."""

from typing import Final, NamedTuple

from tidings.protocol._addresses import is_address
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._interests import Interests
from tidings.protocol.broker._told_names import client_of, is_identity

__all__ = ["MOST_SUBSCRIPTIONS", "Subscribers", "View", "subscribers_at", "view_of"]

MOST_SUBSCRIPTIONS: Final = 1_000
"""So many of the subscriptions at one broker are told of by name."""


class View(NamedTuple):
    """The neighbours of every broker; by home broker the (name, filter) of the subscriptions there; and where this
    broker sends an event, by the root of its tree and its target."""

    links: dict[str, tuple[str, ...]]
    interests: dict[str, frozenset[tuple[str, str]]]
    routes: dict[tuple[str, str], str]


def view_of(gossip: Gossip, settings: BrokerSettings) -> View:
    """Links, interests and routes as a broker with this knowledge sees them."""
    interests = gossip.interests
    tables = {origin: interests.entries(origin) for origin in interests} | {settings.name: gossip.told.table.entries}
    wanted = {
        origin: frozenset((entry.name, entry.filter) for entry in table.values() if not is_identity(entry.name))
        for origin, table in tables.items()
    }
    return View(
        links=dict(gossip.links.links()),
        interests={origin: kept for origin, kept in wanted.items() if kept},
        routes=gossip.links.routes(),
    )


class Subscribers(NamedTuple):
    """The subscriptions at a broker, each with its client, and how many more there are."""

    subscriptions: dict[str, str]
    left_off: int


def subscribers_at(interests: Interests, broker: str) -> Subscribers:
    """Who subscribes at another broker, whether or not it answers."""
    # A subscription is named after its client; what is kept under an address is of one that has moved away, or is a
    # client's key.
    names = sorted(name for name in (interests.entries(broker) if broker in interests else ()) if not is_address(name))
    told = {name: client_of(name) for name in names[:MOST_SUBSCRIPTIONS]}
    return Subscribers(told, len(names) - len(told))
