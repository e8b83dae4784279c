"""The overlay: brokers, the directed links between them, and the graph they form.

Rules:

- A link is directed; a connection in both directions is two links, which may behave differently.
- A link carries one event at a time. Moving an event takes its size times a draw of `slowness` (seconds per kB), then
  a draw of `propagation` (seconds); without `slowness` the transfer itself is free. `loss` is the chance that an
  event sent over the link never arrives.
- A broker handles one event at a time when it has a `service` distribution (seconds per event, or per event and stored
  subscription), and delays every event by a draw of `processing` (seconds) during which other events do not wait.
- A topology is checked when it is made: it has a broker, names are unique, links join two different known brokers, no
  link is given twice, and the whole hangs together (taking links in both directions, since a mesh may run downstream
  only). Dense integers follow the order in which brokers were given.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tidings.errors import ConfigurationError

if TYPE_CHECKING:  # only for types: a topology is read without loading the numerics behind the distributions
    from tidings.model.distributions import DelayDistribution

__all__ = ["Broker", "Link", "Topology"]

_NAMED_IN_MESSAGE = 8


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """One broker; `position` is on the map (longitude, latitude) or in the plane, `layer` counts from 1 at the top."""

    name: str
    service: "DelayDistribution | None" = None
    service_per: Literal["event", "subscription"] = "event"
    processing: "DelayDistribution | None" = None
    position: tuple[float, float] | None = None
    layer: int | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a connection: `propagation` in seconds, `slowness` in seconds per kB (None: a free transfer)."""

    source: str
    target: str
    propagation: "DelayDistribution"
    slowness: "DelayDistribution | None" = None
    loss: float = 0.0
    length_km: float | None = None

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise ConfigurationError(f"link from broker {self.source!r} to itself: a link joins two different brokers")
        if not 0.0 <= self.loss < 1.0:
            raise ConfigurationError(
                f"link {self.source!r} -> {self.target!r}: loss is {self.loss!r}, "
                "but must be a probability, at least 0 and below 1"
            )


class Topology(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Brokers and directed links; refused with a ConfigurationError when they do not form one network."""

    brokers: tuple[Broker, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        if not self.brokers:
            raise ConfigurationError("the topology has no brokers: give at least one")
        names = set[str]()
        for broker in self.brokers:
            if broker.name in names:
                raise ConfigurationError(f"broker {broker.name!r} is given twice: names must be unique")
            names.add(broker.name)
        pairs = set[tuple[str, str]]()
        for link in self.links:
            for end in (link.source, link.target):
                if end not in names:
                    raise ConfigurationError(
                        f"link {link.source!r} -> {link.target!r}: there is no broker {end!r}{_close(end, names)}"
                    )
            if (link.source, link.target) in pairs:
                raise ConfigurationError(f"link {link.source!r} -> {link.target!r} is given twice")
            pairs.add((link.source, link.target))
        unreached = self._unreached()
        if unreached:
            raise ConfigurationError(
                f"the topology is disconnected: from broker {self.brokers[0].name!r} no links lead to "
                f"{_some(unreached)}; add links or leave these brokers out"
            )

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Broker name to dense integer, in the order the brokers were given."""
        return MappingProxyType({broker.name: number for number, broker in enumerate(self.brokers)})

    @cached_property
    def _outgoing(self) -> dict[str, dict[str, Link]]:
        outgoing: dict[str, dict[str, Link]] = {broker.name: {} for broker in self.brokers}
        for link in self.links:
            outgoing[link.source][link.target] = link
        return outgoing

    def broker(self, name: str) -> Broker:
        """The broker of this name; a KeyError names it if there is none."""
        return self.brokers[self.index[name]]

    def neighbours(self, name: str) -> tuple[str, ...]:
        """The brokers that `name` has a link to, in the order of the links."""
        return tuple(self._outgoing[name])

    def link(self, source: str, target: str) -> Link:
        """The link from `source` to `target`; a KeyError if they are not joined in that direction."""
        return self._outgoing[source][target]

    def has_link(self, source: str, target: str) -> bool:
        return target in self._outgoing.get(source, {})

    def reachable(self, source: str) -> frozenset[str]:
        """Every broker that an event leaving `source` can get to along directed links, `source` included."""
        return frozenset(_walk(source, {name: list(targets) for name, targets in self._outgoing.items()}))

    def map(
        self,
        *,
        brokers: Callable[[Broker], Broker] | None = None,
        links: Callable[[Link], Link] | None = None,
    ) -> "Topology":
        """The same network with every broker and link replaced by the result of the functions, in order."""
        return Topology(
            brokers=self.brokers if brokers is None else tuple(brokers(broker) for broker in self.brokers),
            links=self.links if links is None else tuple(links(link) for link in self.links),
        )

    def to_networkx(self) -> Any:
        """A networkx DiGraph: nodes carry `broker`, edges carry `link`; order as given here."""
        import networkx

        graph = networkx.DiGraph()
        for broker in self.brokers:
            graph.add_node(broker.name, broker=broker)
        for link in self.links:
            graph.add_edge(link.source, link.target, link=link)
        return graph

    def _unreached(self) -> list[str]:
        joined: dict[str, list[str]] = {broker.name: [] for broker in self.brokers}
        for link in self.links:
            joined[link.source].append(link.target)
            joined[link.target].append(link.source)
        reached = _walk(self.brokers[0].name, joined)
        return [broker.name for broker in self.brokers if broker.name not in reached]


def _walk(source: str, joined: dict[str, list[str]]) -> set[str]:
    reached = {source}
    waiting = deque([source])
    while waiting:
        for target in joined[waiting.popleft()]:
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return reached


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMED_IN_MESSAGE])
    rest = len(names) - _NAMED_IN_MESSAGE
    return f"{shown} and {rest} more" if rest > 0 else shown


def _close(name: str, names: set[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, sorted(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
