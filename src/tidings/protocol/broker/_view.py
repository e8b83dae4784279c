"""What routing goes by, as one broker knows it: to be compared with what another knows, or should know."""

from typing import NamedTuple

from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._gossip import Gossip

__all__ = ["View", "view_of"]


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
