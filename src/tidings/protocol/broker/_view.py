"""The visible state of a broker: its routes, the subscriptions it knows, and its bounds."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tidings.protocol._machine import Bound
from tidings.protocol._names import client_of, is_address, is_identity
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._interests import Interests
from tidings.protocol.links._outbox import FAR
from tidings.protocol.links._peers import Peer

__all__ = ["MOST_SUBSCRIPTIONS", "Subscribers", "View", "bounds_of_queues", "subscribers_at", "view_of"]

MOST_SUBSCRIPTIONS: Final = 1_000
"""The most subscriptions at one broker that are listed by name."""


class View(NamedTuple):
    """The neighbours of every broker; by home broker the (name, filter) of the subscriptions there; and the next hop of
    an event, by the root of its tree and its target."""

    links: dict[str, tuple[str, ...]]
    interests: dict[str, frozenset[tuple[str, str]]]
    routes: dict[tuple[str, str], str]


def view_of(gossip: Gossip, settings: BrokerSettings) -> View:
    """Links, subscriptions and routes as a broker with this knowledge sees them."""
    interests = gossip.interests
    tables = {origin: interests.entries(origin) for origin in interests} | {
        settings.name: gossip.announcements.table.entries
    }
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
    """The subscriptions at another broker, whether or not it is reachable."""
    # A name with an address belongs to a client that has moved away, or is a client's key.
    names = sorted(name for name in (interests.entries(broker) if broker in interests else ()) if not is_address(name))
    shown = {name: client_of(name) for name in names[:MOST_SUBSCRIPTIONS]}
    return Subscribers(shown, len(names) - len(shown))


def bounds_of_queues(
    settings: BrokerSettings, neighbours: Mapping[str, Peer], clients: Mapping[str, Peer]
) -> Iterator[tuple[str, dict[str, Bound]]]:
    """By peer: the queue to it and the events under way, with their bounds."""
    for peers, most in ((neighbours, settings.max_queued), (clients, settings.max_queued_client)):
        for peer in peers.values():
            outbox = peer.outbox
            yield (
                peer.name,
                {
                    "queue": (outbox.queued, most),
                    "queued bytes": (outbox.queue.size_bytes, outbox.max_queued_bytes),
                    "under way": (outbox.under_way, settings.window + 1 + FAR),
                },
            )
