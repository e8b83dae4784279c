"""The map of the overlay that every broker keeps, and the trees computed from it (paper D, section 2.4.3).

- Each broker announces to all others which neighbours it hears, numbered within its epoch; a lower number than the
  known one is old. What is not renewed within `timeout_ns` (its age included) is forgotten.
- A link is up if both ends report it. From equal maps every broker computes equal trees: breadth first from the root,
  the neighbour with the lowest name first. That is `routing.shortest_path_tree` by hops with brokers numbered by name.
- An event follows the tree of its publisher's home broker. A broker that is not on that tree's path to a target (maps
  may differ for a moment) uses its own shortest path; with equal maps every step leads nearer to the target.
- Failed neighbours are bypassed without a rule of their own: they are not on the map, so no path leads through them.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from tidings.protocol.wire import LinkState

__all__ = ["LinkStateMap", "Path", "breadth_first"]


class Path(NamedTuple):
    """The rest of a path to a broker: the next hop, the brokers still to enter, and the slowness of its links."""

    next_hop: str
    nodes: int
    mean_s_per_kb: float
    variance_s2_per_kb2: float


class _Known(NamedTuple):
    state: LinkState
    expires_ns: int


def breadth_first(neighbours: Mapping[str, Iterable[str]], root: str) -> dict[str, str]:
    """The parent of every broker that can be reached from the root; the root is its own parent."""
    parent = {root: root}
    level = [root]
    while level:
        found = []
        for broker in sorted(level):
            for other in neighbours.get(broker, ()):
                if other not in parent:
                    parent[other] = broker
                    found.append(other)
        level = found
    return parent


class LinkStateMap:
    """A broker's knowledge of the overlay, itself included. `version` rises whenever a link comes or goes."""

    def __init__(
        self,
        name: str,
        *,
        timeout_ns: int = 0,
        max_origins: int = 1,
        graph: Mapping[str, frozenset[str]] | None = None,
        members: Set[str] = frozenset(),
    ) -> None:
        self.version = 0
        self._name = name
        self._timeout_ns = timeout_ns
        self._max_origins = max_origins
        self._known: dict[str, _Known] = {}
        self._plan = graph  # routes follow the plan, not the state, if there is one
        self._members = members
        self._neighbours: dict[str, tuple[str, ...]] | None = None
        self._trees: dict[str, dict[str, str]] = {}
        self._is_whole: bool | None = None
        self._routes: dict[tuple[str, str], tuple[str, ...] | None] = {}  # the brokers of each path, without figures
        self._paths: dict[tuple[str, str], Path | None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def is_news(self, state: LinkState) -> bool:
        """Whether a message is newer than what is known, and there is room for it."""
        known = self._known.get(state.origin)
        if known is None:
            return len(self._known) < self._max_origins and state.age_ns < self._timeout_ns
        return (state.epoch, state.number) > (known.state.epoch, known.state.number)

    def learn(self, state: LinkState, now_ns: int) -> bool:
        """Enter the link state of a broker; whether the map has changed."""
        before = self._known.get(state.origin)
        self._known[state.origin] = _Known(state, now_ns + max(self._timeout_ns - state.age_ns, 0))
        if before is None or before.state.neighbours.keys() != state.neighbours.keys():
            return self._change()
        if before.state.neighbours != state.neighbours:
            self._paths.clear()  # the same routes, with other figures
        return False

    def forget_old(self, now_ns: int) -> bool:
        """Drop link states that were not renewed in time; whether the map has changed."""
        old = [origin for origin, known in self._known.items() if known.expires_ns <= now_ns and origin != self._name]
        for origin in old:
            del self._known[origin]
        return self._change() if old else False

    def messages(self, now_ns: int) -> list[LinkState]:
        """Everything known, as messages with their present ages."""
        return [self.message(origin, now_ns) for origin in sorted(self._known)]

    def message(self, origin: str, now_ns: int) -> LinkState:
        """What is known of one broker, as a message."""
        state, expires_ns = self._known[origin]
        age_ns = min(max(self._timeout_ns - (expires_ns - now_ns), 0), self._timeout_ns)
        return LinkState(state.origin, state.epoch, state.number, age_ns, state.neighbours, state.least_ns)

    def epoch_of(self, origin: str) -> int:
        """The known epoch of a broker; -1 if there is none."""
        known = self._known.get(origin)
        return -1 if known is None else known.state.epoch

    def figures(self, source: str, target: str) -> tuple[float, float, int]:
        """A link's slowness, its variance, and the least time that an event is under way; 0 where nothing was
        reported."""
        known = self._known.get(source)
        if known is None:
            return (0.0, 0.0, 0)
        return (*known.state.neighbours.get(target, (0.0, 0.0)), known.state.least_ns.get(target, 0))

    def reported(self) -> list[tuple[str, list[str]]]:
        """The neighbours that every broker reports, in order."""
        return [(origin, sorted(self._known[origin].state.neighbours)) for origin in sorted(self._known)]

    def links(self) -> dict[str, tuple[str, ...]]:
        """The neighbours of every broker, by name: links that both ends confirm, or the plan."""
        if self._neighbours is None:
            if self._plan is not None:
                self._neighbours = {broker: tuple(sorted(others)) for broker, others in self._plan.items()}
            else:
                says = {origin: known.state.neighbours for origin, known in self._known.items()}
                self._neighbours = {
                    origin: tuple(sorted(other for other in others if origin in says.get(other, ())))
                    for origin, others in says.items()
                }
        return self._neighbours

    def replan(self, graph: Mapping[str, frozenset[str]]) -> None:
        """Use another planned overlay; routes follow it unless they follow the state."""
        self._members = graph.keys()
        self._is_whole = None
        if self._plan is not None:
            self._plan = graph
            self._change()

    def is_whole(self) -> bool:
        """Whether all brokers of the plan, or all known ones, have been heard of and can be reached."""
        if self._is_whole is None:
            members = self._members or self._known.keys()
            self._is_whole = members <= self._known.keys() and members <= self.tree(self._name).keys()
        return self._is_whole

    def tree(self, root: str) -> dict[str, str]:
        """The parent of every broker in the tree of this root."""
        tree = self._trees.get(root)
        if tree is None:
            tree = self._trees[root] = breadth_first(self.links(), root)
        return tree

    def path(self, root: str, target: str) -> Path | None:
        """The path from here to the target for an event of this root; None if there is none now."""
        key = (root, target)
        known = self._paths.get(key)
        if known is None and key not in self._paths:
            known = self._paths[key] = self._path(root, target)
        return known

    def _path(self, root: str, target: str) -> Path | None:
        ends = (root, target)
        if ends not in self._routes:
            self._routes[ends] = self._route(root, target) or self._route(self._name, target)
        route = self._routes[ends]
        if route is None:
            return None
        mean = variance = 0.0
        before = self._name
        for broker in route:
            known = self._known.get(before)
            figures = known.state.neighbours.get(broker) if known is not None else None
            if figures is not None:
                mean += figures[0]
                variance += figures[1]
            before = broker
        return Path(route[0], len(route), mean, variance)

    def routes(self) -> dict[tuple[str, str], str]:
        """The next hop for every root and every other broker."""
        brokers = sorted(self.links())
        paths = {
            (root, target): self.path(root, target) for root in brokers for target in brokers if target != self._name
        }
        return {ends: path.next_hop for ends, path in paths.items() if path is not None}

    def _route(self, root: str, target: str) -> tuple[str, ...] | None:
        """The brokers after this one on the root's path to the target; None if it does not lead through here."""
        parent = self.tree(root)
        if target not in parent:
            return None
        route = []
        broker = target
        while broker != self._name:
            if broker == root:
                return None
            route.append(broker)
            broker = parent[broker]
        return tuple(reversed(route)) or None

    def _change(self) -> bool:
        self.version += 1
        self._neighbours = self._is_whole = None
        self._trees.clear()
        self._routes.clear()
        self._paths.clear()
        return True
