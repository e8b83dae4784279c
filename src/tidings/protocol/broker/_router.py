"""Where a broker sends an event: to the next brokers on its paths, and to clients here (papers C, D).

- Each target is served by the next broker on the tree of the publisher's home; targets with the same next hop share a
  parcel, once per link. A target without a path is kept until there is one, or until the event has expired.
- A target may be one client by address, which has moved (`_names`): the event is handed to that client if it is here,
  and otherwise sent to the client's new home.
- Without buffering nothing is kept: an event that cannot be sent at once is dropped.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from tidings.protocol._errors import PeerError
from tidings.protocol._names import broker_of, is_address, split_address
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._courses import Course, Courses, merged
from tidings.protocol.broker._dispatch import Dispatch
from tidings.protocol.broker._held import Held, Holdings, in_sequence
from tidings.protocol.broker._link_state import LinkStateMap, Path
from tidings.protocol.links._peers import Peers
from tidings.protocol.links._window import Parcel

__all__ = ["Parked", "Router"]


_COUNT_NS: Final = 1_000_000_000


class Parked(NamedTuple):
    """The events that wait for an unreachable broker."""

    events: int
    size_bytes: int
    oldest_ns: int


class Router:
    """The routing of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        holdings: Holdings,
        courses: Courses,
        dispatch: Dispatch,
        accounts: Accounts,
        links: LinkStateMap,
        peers: Peers,
        count: Callable[..., None],
    ) -> None:
        self._name = settings.name
        self._buffers = settings.buffers
        self._max_hops = settings.max_hops
        self._max_parked_bytes = settings.max_parked_bytes
        self._parked_bytes: dict[str, int] = {}  # by unreachable broker, as counted last, and what has arrived since
        self._parked_ns = -_COUNT_NS
        self._holdings = holdings
        self._courses = courses
        self._dispatch = dispatch
        self._accounts = accounts
        self._links = links
        self._neighbours = peers.neighbours
        self._clients = peers.clients
        self._count = count

    # -- to brokers ----------------------------------------------------------------------------------------------

    def route(self, held: Held, targets: Collection[str], now_ns: int) -> None:
        """Send the part of each target to the next broker on its path."""
        by_hop: dict[str, dict[str, Path]] = {}
        for target in [target for target in targets if is_address(target) and broker_of(target) == self._name]:
            targets = [*(other for other in targets if other != target), *self._resolve(held, target, now_ns)]
        for target in targets:
            home = broker_of(target)
            path = self._links.path(held.root, home) if held.hops <= self._max_hops else None
            peer = None if path is None else self._neighbours.get(path.next_hop)
            if path is not None and peer is not None and peer.is_up:
                by_hop.setdefault(path.next_hop, {})[target] = path
            elif not self._buffers:
                self._count("no route")
                self._accounts.dropped_in_transit(held, (target,))
                del held.targets[target]
        for hop in sorted(by_hop):
            paths = by_hop[hop]
            peer = self._neighbours[hop]
            parcel = Parcel(held, peer, {target: held.targets[target] for target in paths}, paths)
            held.parcels.update(dict.fromkeys(paths, parcel))
            self._dispatch.offer(peer, (parcel,), now_ns)
        self._holdings.settle(held)

    def reaches(self, target: str) -> bool:
        """Whether there is a path to a target now."""
        home = broker_of(target)
        return home == self._name or self._links.path(self._name, home) is not None

    def parked(self, now_ns: int) -> dict[str, Parked]:
        """By unreachable broker: the events that wait for it here. Nothing is computed while all brokers are within
        reach."""
        if self._links.is_whole():
            return {}
        found: dict[str, list[int]] = {}
        for held in self._holdings.held.values():
            targets = held.targets if held.is_alone else held.course.targets
            for home in {broker_of(target) for target in targets if not self.reaches(target)}:
                row = found.setdefault(home, [0, 0, now_ns])
                row[0] += 1
                row[1] += held.size_bytes
                row[2] = min(row[2], held.since_ns)
        return {home: Parked(many, size, now_ns - since_ns) for home, (many, size, since_ns) in sorted(found.items())}

    @property
    def is_whole(self) -> bool:
        """Whether all brokers are within reach."""
        return self._links.is_whole()

    def require_room(self, course: Course, size_bytes: int, now_ns: int) -> None:
        """PeerError if too much would wait for an unreachable broker; the waiting bytes are counted once a second."""
        if now_ns - self._parked_ns >= _COUNT_NS:
            self._parked_ns = now_ns
            self._parked_bytes = {home: parked.size_bytes for home, parked in self.parked(now_ns).items()}
        for home in {broker_of(target) for target in course.targets if not self.reaches(target)}:
            waiting_bytes = self._parked_bytes.get(home, 0) + size_bytes
            if waiting_bytes > self._max_parked_bytes:
                raise PeerError(
                    "parked",
                    f"{waiting_bytes:,} bytes would wait here for broker {home!r}, which is out of reach; the limit "
                    f"is {self._max_parked_bytes:,}: publish later, or have the limit `parked` of the network raised",
                )
            self._parked_bytes[home] = waiting_bytes

    def reroute(self, now_ns: int) -> None:
        """Route all waiting events again: the overlay has changed."""
        for peer in self._neighbours.values():
            self._dispatch.withdraw(peer)
        for held in in_sequence(self._holdings.each(self._may_go)):
            unrouted = held.unrouted()
            if unrouted:
                self.route(held, unrouted, now_ns)

    def is_awaited(self, course: Course) -> bool:
        """Whether a peer is connected for events of a course."""
        return self._may_go(course) or any(
            client in self._clients and self._clients[client].is_up for client in course.local
        )

    def resume(self, held: Held, now_ns: int) -> None:
        """Send a stored event, which was read late, to the peers that are connected by now."""
        self._holdings.get(held.id)
        for client in [client for client in held.local if client in self._clients and self._clients[client].is_up]:
            self.hand_to_client((held,), client, now_ns)
        unrouted = held.unrouted()
        if unrouted:
            self.route(held, unrouted, now_ns)

    def _may_go(self, course: Course) -> bool:
        """Whether there may be a path for events of a course: a neighbour is connected, or a target is a client of this
        broker."""
        if not course.targets:
            return False
        are_up = any(peer.is_up for peer in self._neighbours.values())
        return (
            are_up or not self._buffers or any(is_address(to) and broker_of(to) == self._name for to in course.targets)
        )

    def _resolve(self, held: Held, target: str, now_ns: int) -> list[str]:
        """Hand an event to one client of this broker by address, or send it to where the client is now."""
        client = split_address(target)[1]
        del held.targets[target]
        new: list[str] = []
        try:
            course = self._courses.end(held.content, held.lifetime_ns)
        except PeerError as error:
            self._count(error.code)
            return new
        if client in course.local and client not in held.local:
            held.take_on_local({client: course.local[client]})
            self._accounts.arrived_for(client, course.local[client])
            held.addressed[client] = target
            self.hand_to_client((held,), client, now_ns)
        for moved, terms in course.moved.items():
            if split_address(moved)[1] == client:
                new += held.take_on({moved: terms})
        self._count("sent after a client")
        self._holdings.hold(held)
        return new

    # -- to clients ----------------------------------------------------------------------------------------------

    def hand_to_client(self, events: Iterable[Held], client: str, now_ns: int) -> None:
        """Give events to a client that they are owed to."""
        peer = self._clients.get(client)
        if peer is None or not (peer.is_up or self._buffers):
            for held in events:
                self._count("client away")
                self._accounts.dropped(held, client, held.local[client])
                del held.local[client]
                self._holdings.settle(held)
            return
        parcels = []
        paths: dict[str, Path] = {}  # no paths are needed; one shared dict saves the queue work
        for held in events:
            parcel = held.handed[client] = Parcel(held, peer, held.local[client], paths)
            parcels.append(parcel)
        self._dispatch.offer(peer, parcels, now_ns)

    def deliver_waiting(self, client: str, now_ns: int) -> None:
        """Deliver unacknowledged events to a client again after a restart."""
        if self._dispatch.conflation.applies_to(self._clients[client]):
            # All of them wait before the first leaves; it is not known in which order they came.
            waiting = [held for held in self._waiting_for(client) if client not in held.handed]
            self.hand_to_client(sorted(waiting, key=lambda held: held.since_ns), client, now_ns)
            return
        for held in self._waiting_for(client):
            # An event may push another one of them out of a full queue, before its turn.
            if client in held.local and client not in held.handed:
                self.hand_to_client((held,), client, now_ns)

    def forget_client(self, client: str) -> None:
        """Keep nothing for a client that is gone for good."""
        for held in self._waiting_for(client):
            self._take_back(held, client)
            del held.local[client]
            self._holdings.settle(held)

    def hand_on(self, client: str, target: str, now_ns: int) -> None:
        """Send what waits for a client after it, to its address at the new home."""
        for held in self._waiting_for(client):
            self._take_back(held, client)
            worth: dict[int, float] = {}
            for terms in held.local.pop(client).values():
                for allowed_ns, price in terms:
                    worth[allowed_ns] = worth.get(allowed_ns, 0.0) + price
            new = held.take_on({target: merged(worth)})
            self._holdings.hold(held)
            self._holdings.keep(held)
            self.route(held, new, now_ns)

    def _waiting_for(self, client: str) -> list[Held]:
        """The events that a client has not acknowledged, each publisher's in sequence."""
        waiting = [held for held in self._holdings.each(lambda course: client in course.local) if client in held.local]
        return list(in_sequence(waiting))

    def _take_back(self, held: Held, client: str) -> None:
        parcel = held.handed.pop(client, None)
        if parcel is not None:
            self._dispatch.give_up(parcel)
