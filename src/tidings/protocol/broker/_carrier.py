"""How a broker answers for events: it takes them on, stores them, finds their way, hands them over (papers C, D).

Rules:

- Whom an event is for is decided once, by its publisher's home broker, when it accepts the event: the home brokers of
  all subscriptions that match, each with what on-time deliveries there are worth. That list travels with the event;
  each broker answers for its part of it until another has taken it on. So a broker whose tables are still empty, or
  different, can misroute nothing and lose nothing.
- Each target goes to the next broker on the tree of the publisher's home; targets that share it go together, once per
  link. A target that no path leads to now is kept until one does, or until the event has expired.
- An event is acknowledged when it is durable and its way on is known; what came twice is acknowledged twice and taken
  on once. What two brokers come to answer for at once, because a link failed between sending and acknowledging, is
  delivered once: the last hop knows what it has given to its clients.
- Without buffering nothing is stored, kept or sent again: an event that cannot go on at once is dropped.
"""

from collections.abc import Callable, Iterable, Mapping

from tidings.errors import EventError
from tidings.protocol._addresses import broker_of, is_address, split_address
from tidings.protocol._effects import EventId
from tidings.protocol._errors import PeerError
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._courses import Course, Courses, latest_ns, merged
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._held import Held
from tidings.protocol.broker._holdings import Holdings
from tidings.protocol.broker._link_state import Path
from tidings.protocol.broker._memory import Memory
from tidings.protocol.broker._straight import Straight
from tidings.protocol.links._outbox import Parcel
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Ack, Event, Publication, Term, Trace, decode_content
from tidings.scheduling import Reason

__all__ = ["Carrier"]


class Carrier:
    """The part of a broker that holds events."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        gossip: Gossip,
        neighbours: Mapping[str, Peer],
        clients: Mapping[str, Peer],
        send_events: Callable[[Peer, str, bytes], None],
        store: Callable[[str, bytes], None],
        erase: Callable[[str], None],
        note: Callable[..., None],
        count: Callable[..., None],
        expire_at: Callable[[int], None],
        retry_at: Callable[[Peer, int], None],
        traced: Callable[[Held, Trace, str, int, int], None],
    ) -> None:
        self.holdings = Holdings(settings, store=store, erase=erase, wake_by=self._wake_by)
        self.memory = Memory(settings, store=store, erase=erase, count=count, wake_by=self._wake_by)
        self.epoch = 0
        self._settings = settings
        self._buffers = settings.buffers
        self._max_lifetime_ns = settings.max_lifetime_ns
        self.courses = Courses(settings.name, gossip, neighbours=neighbours, clients=clients)
        self._links = gossip.links
        self._local = gossip.local
        self._neighbours = neighbours
        self._clients = clients
        self._send_events = send_events
        self._note = note
        self._count = count
        self._expire_at = expire_at
        self._retry_at = retry_at
        self._traced = traced
        self.events_out = 0
        """How many events have left, in whatever frames; those that were sent again count once."""
        self._leaving: list[Peer] = []
        self._straight = Straight(
            leaving=lambda peer: self._leaving.append(peer),
            keep=self._keep_for,
            is_seen=self.memory.has,
            remember=self.memory.remember,
            note=note,
            left=self.holdings.hold_together if settings.buffers else None,
        )
        self._wakes_ns: int | None = None

    @property
    def room(self) -> int:
        """How many more events can be taken on."""
        return max(self._settings.max_stored - len(self.holdings) - len(self._straight), 0)

    @property
    def is_stirred(self) -> bool:
        """Whether something leaves, or has to be stored, at the end of this step."""
        return bool(self._leaving or self.memory.unstored or self._straight)

    def lifetime_ns(self, said: Publication | Event) -> int:
        """How long an event lives here."""
        most_ns, lifetime_ns = self._max_lifetime_ns, said.lifetime_ns
        return lifetime_ns if lifetime_ns and lifetime_ns < most_ns else most_ns

    def since_ns(self, said: Publication | Event, left_ns: int, now_ns: int) -> int:
        """An event's departure on this broker's clock: its age when its frame left, `left_ns` by the same clock."""
        if self._settings.synchronised_clocks:
            return min(said.departure_ns, now_ns)
        return left_ns - said.age_ns

    def publish(self, held: Held, trace: Trace | None, now_ns: int) -> None:
        """A client's event: straight on, if everybody is there and still wants it."""
        if self.holdings.unread:
            self._read_first(held.id, now_ns)
        course = held.course
        if course.ways is not None and trace is None and held.since_ns + course.soonest_ns > now_ns:
            self._straight.add(held)
        else:
            self._keep(held, now_ns, trace)

    def _keep(self, held: Held, now_ns: int, trace: Trace | None = None) -> None:
        """Answer for a client's event."""
        course = held.course
        held.alone()
        held.trace = trace
        clients = self._take_on(held, course.targets, course, now_ns)
        if trace is not None:
            self._traced(held, trace, "", clients, now_ns)

    def _keep_for(self, held: Held, peers: frozenset[Peer] | None, now_ns: int) -> None:
        """Answer for the part of a client's event that these peers are to have; the others have got theirs."""
        if peers is None:
            self._keep(held, now_ns)
            return
        course = held.course
        held.alone()
        local = {peer.name: course.local[peer.name] for peer in peers if peer.kind == "client"}
        held.take_on_local(local)
        hops = {peer.name for peer in peers if peer.kind == "broker"}
        new = held.take_on({home: course.targets[home] for home, hop in course.hops.items() if hop in hops})
        self.holdings.hold(held)
        if new:
            self._route(held, new, now_ns)
        for client in sorted(local):
            self._hand_to_client(held, client, now_ns)

    def transfer(
        self, source: Peer, said: Event, targets: Mapping[str, tuple[Term, ...]], left_ns: int, now_ns: int
    ) -> None:
        """An event that another broker hands over; PeerError, and nothing has changed, if its content is nonsense."""
        id = (said.publisher, said.epoch, said.sequence)
        if self.holdings.unread:
            self._read_first(id, now_ns)
        course: Course | None = None
        lifetime_ns = self.lifetime_ns(said)
        if self._settings.name in targets and not self.memory.has(id):
            course = self._course_here(said.content, lifetime_ns)
        self._note("received", id, source.name)
        held = self.holdings.get(id) or self._arrived(id, said, lifetime_ns, left_ns, now_ns)
        held.hops = max(held.hops, said.hops)
        held.trace = said.trace
        clients = self._take_on(held, targets, course, now_ns)
        if said.trace is not None:
            self._traced(held, said.trace, source.name, clients, now_ns)

    def send_straight(self, now_ns: int) -> None:
        """Let the events of this step leave that go straight on; what has to be stored of them is."""
        self._straight.flush(now_ns)
        if self.memory.unstored:
            self.memory.flush()

    def flush(self, now_ns: int) -> None:
        """Send what leaves with this step."""
        if self.memory.unstored:
            self.memory.flush()
        leaving, self._leaving = self._leaving, []
        for peer in leaving:
            outbox = peer.outbox
            self.events_out += len(outbox.leaving)
            for frame in outbox.frames(self.epoch, now_ns):
                self._send_events(peer, "Transfer", frame)
            self._retry_at(peer, outbox.left_due_ns)

    def restore(self, events: Mapping[str, bytes], seen: Iterable[tuple[str, bytes]], now_ns: int) -> None:
        """Events that the durable store kept, and which were seen; they go on as soon as there is a way.

        Of many events some are read now; `read_on` reads the others.
        """
        self.memory.restore(seen)
        self.holdings.restore(events)
        self._entered(self.holdings.read(self._settings.read_at_once, now_ns))

    @property
    def is_reading(self) -> bool:
        """Whether there are events that the durable store kept and that are not read yet."""
        return bool(self.holdings.unread)

    def read_on(self, now_ns: int, most: int | None = None) -> None:
        """Read some more of the events that the durable store kept, or all; those for which there is a way go on."""
        awaited: dict[int, bool] = {}
        for held in self._entered(self.holdings.read(most, now_ns)):
            course = held.course
            is_awaited = awaited.get(id(course))
            if is_awaited is None:
                is_awaited = awaited[id(course)] = self._is_awaited(course)
            if is_awaited:
                self._go_on(held, now_ns)

    def _read_first(self, id: EventId, now_ns: int) -> None:
        """An event comes that the durable store may have kept."""
        for held in self._entered(self.holdings.read_one(id, now_ns)):
            self._go_on(held, now_ns)

    def _entered(self, read: list[Held]) -> list[Held]:
        """Events of the store are held: clients here have had them, or are to have them, once."""
        for held in read:
            if held.course.local and not self.memory.has(held.id):
                self.memory.remember(held.id, max(held.expires_ns, held.since_ns + held.lifetime_ns))
        self._set_expiry()
        return read

    def _is_awaited(self, course: Course) -> bool:
        """Whether somebody is there for events of a course."""
        return self._may_go(course) or any(
            client in self._clients and self._clients[client].is_up for client in course.local
        )

    def _go_on(self, held: Held, now_ns: int) -> None:
        """Let an event of the store have what it has missed, by being read so late."""
        self.holdings.get(held.id)
        for client in [client for client in held.local if client in self._clients and self._clients[client].is_up]:
            self._hand_to_client(held, client, now_ns)
        unrouted = held.unrouted()
        if unrouted:
            self._route(held, unrouted, now_ns)

    def acknowledged(self, peer: Peer, said: Ack, now_ns: int) -> None:
        """A peer has taken events on."""
        for parcel in peer.outbox.acknowledge(said.numbers, said.held_ns, now_ns):
            self._release(parcel)
        if peer.outbox.queued:
            self.pump(peer, now_ns)

    def pump(self, peer: Peer, now_ns: int, *, probing: bool = False) -> None:
        """Send what may be sent, in the order of the strategy."""
        outbox = peer.outbox
        while peer.is_up and (outbox.is_open or probing):
            probing = False
            parcel, deleted = outbox.next(now_ns)
            for gone, reason in deleted:
                self._lose(gone, reason)
            if parcel is None:
                return
            if parcel.targets:
                self._dispatch(parcel, now_ns)

    def resend(self, peer: Peer, now_ns: int) -> None:
        """Send again what was not acknowledged in time."""
        outbox = peer.outbox
        outbox.let_lost_go(now_ns)
        for count, frame in outbox.again(self.epoch, now_ns):
            self._count("resent", count)
            self._send_events(peer, "Transfer", frame)

    def reroute(self, now_ns: int) -> None:
        """The overlay has changed: whatever waits finds its way anew."""
        for peer in self._neighbours.values():
            for parcel in peer.outbox.withdraw(under_way=not peer.is_up):
                self._note("withdrawn", parcel.held.id, peer.name)
                self._unlink(parcel)
        for held in self.holdings.each(self._may_go):
            unrouted = held.unrouted()
            if unrouted:
                self._route(held, unrouted, now_ns)

    def _may_go(self, course: Course) -> bool:
        """Whether there may be a way for events of a shelf: a neighbour is there, or they are for a client by name."""
        if not course.targets:
            return False
        own, are_up = self._settings.name, any(peer.is_up for peer in self._neighbours.values())
        return are_up or not self._buffers or any(is_address(to) and broker_of(to) == own for to in course.targets)

    def _waiting_for(self, client: str) -> list[Held]:
        """What a client has not acknowledged."""
        return [held for held in self.holdings.each(lambda course: client in course.local) if client in held.local]

    def deliver_waiting(self, client: str, now_ns: int) -> None:
        """After a restart: what clients have not acknowledged goes to them again."""
        for held in self._waiting_for(client):
            # What is handed over may push another one of them out of a full queue, before its turn.
            if client in held.local and client not in held.handed:
                self._hand_to_client(held, client, now_ns)

    def forget_client(self, client: str, now_ns: int) -> None:
        """A client is gone for good: nothing is kept for it."""
        self.read_on(now_ns)
        for held in self._waiting_for(client):
            parcel = held.handed.pop(client, None)
            if parcel is not None:
                parcel.peer.outbox.give_up(parcel)
            del held.local[client]
            self.holdings.settle(held)

    def hand_on(self, client: str, target: str, now_ns: int) -> None:
        """A client is at home elsewhere now: what waits for it goes after it, to that address."""
        self.read_on(now_ns)
        for held in self._waiting_for(client):
            parcel = held.handed.pop(client, None)
            if parcel is not None:
                parcel.peer.outbox.give_up(parcel)
            worth: dict[int, float] = {}
            for terms in held.local.pop(client).values():
                for allowed_ns, price in terms:
                    worth[allowed_ns] = worth.get(allowed_ns, 0.0) + price
            new = held.take_on({target: merged(worth)})
            self.holdings.hold(held)
            self.holdings.keep(held)
            self._route(held, new, now_ns)

    def expire(self, now_ns: int) -> None:
        """Let go of what nobody wants any more, and forget what cannot come again."""
        for held in self.holdings.expired(now_ns):
            self._count("expired")
            for parcel in dict.fromkeys([*held.parcels.values(), *held.handed.values()]):
                self._note("expired", held.id, parcel.peer.name)
                parcel.peer.outbox.give_up(parcel)
            held.targets.clear()
            held.local.clear()
            self.holdings.settle(held)
        self.memory.forget_old(now_ns)
        self._set_expiry()

    def _set_expiry(self) -> None:
        self._wakes_ns = None
        for at_ns in (self.memory.next_expiry_ns, self.holdings.next_expiry_ns):
            if at_ns is not None:
                self._wake_by(at_ns)

    def _wake_by(self, at_ns: int) -> None:
        if self._wakes_ns is None or at_ns < self._wakes_ns:
            self._wakes_ns = at_ns
            self._expire_at(at_ns)

    def _arrived(self, id: EventId, said: Event, lifetime_ns: int, left_ns: int, now_ns: int) -> Held:
        """An event that was not known here."""
        return Held(
            id,
            root=said.root,
            departure_ns=said.departure_ns,
            since_ns=self.since_ns(said, left_ns, now_ns),
            lifetime_ns=lifetime_ns,
            size_bytes=said.size_bytes,
            hops=said.hops + 1,
            content=said.content,
        ).alone()

    def _take_on(self, held: Held, targets: Mapping[str, tuple[Term, ...]], course: Course | None, now_ns: int) -> int:
        """Answer for these targets, the course being who wants the event here; how many clients here get it now."""
        wanted = {target: terms for target, terms in targets.items() if held.since_ns + latest_ns(terms) > now_ns}
        here = wanted.pop(self._settings.name, None)
        clients: list[str] = []
        if here is not None and course is not None and not self.memory.has(held.id):
            clients = self._take_on_local(held, course, wanted)
        new = held.take_on(wanted)
        if not new and not clients:
            return 0
        self.holdings.hold(held)
        self.holdings.keep(held)
        if clients:
            self.memory.remember(held.id, max(held.since_ns + max(held.lifetime_ns, 0), held.expires_ns))
        if new:
            self._route(held, new, now_ns)
        for client in clients:
            self._hand_to_client(held, client, now_ns)
        return len(clients)

    def _take_on_local(self, held: Held, course: Course, wanted: dict[str, tuple[Term, ...]]) -> list[str]:
        """The clients here that want the event; for those who have moved, their address is among the wanted."""
        since_ns, untold = held.since_ns, self._local.untold
        wanted |= {moved: terms for moved, terms in course.moved.items() if since_ns <= untold.get(moved, since_ns)}
        if not course.local:
            return []
        held.take_on_local(course.local)
        self._note("local", held.id)
        return list(course.local)

    def _course_here(self, content: bytes, lifetime_ns: int) -> Course:
        """Who wants an event here."""
        attributes = decode_content(content).attributes
        try:
            return self.courses.find_here(attributes, lifetime_ns)
        except EventError as error:
            raise PeerError("content", str(error)) from None

    def _resolve(self, held: Held, target: str, now_ns: int) -> list[str]:
        """An event for one client of this broker by name: it is handed over, or goes on to where the client is now."""
        client = split_address(target)[1]
        del held.targets[target]
        new: list[str] = []
        try:
            course = self._course_here(held.content, held.lifetime_ns)
        except PeerError as error:
            self._count(error.code)
            return new
        if client in course.local and client not in held.local:
            held.take_on_local({client: course.local[client]})
            held.addressed[client] = target
            self._hand_to_client(held, client, now_ns)
        for moved, terms in course.moved.items():
            if split_address(moved)[1] == client:
                new += held.take_on({moved: terms})
        self._count("sent after a client")
        self.holdings.hold(held)
        return new

    def _route(self, held: Held, targets: Iterable[str], now_ns: int) -> None:
        """Send each target's part to the next broker on its way."""
        ways: dict[str, dict[str, Path]] = {}
        own = self._settings.name
        for target in [target for target in targets if is_address(target) and broker_of(target) == own]:
            targets = [*(other for other in targets if other != target), *self._resolve(held, target, now_ns)]
        for target in targets:
            home = broker_of(target)
            path = self._links.path(held.root, home) if held.hops <= self._settings.max_hops else None
            peer = None if path is None else self._neighbours.get(path.next_hop)
            if path is not None and peer is not None and peer.is_up:
                ways.setdefault(path.next_hop, {})[target] = path
            elif not self._buffers:
                self._count("no route")
                del held.targets[target]
        for hop in sorted(ways):
            paths = ways[hop]
            targets = {target: held.targets[target] for target in paths}
            parcel = Parcel(held, self._neighbours[hop], targets, paths)
            held.parcels.update(dict.fromkeys(paths, parcel))
            self._offer(parcel, now_ns)
        self.holdings.settle(held)

    def _hand_to_client(self, held: Held, client: str, now_ns: int) -> None:
        peer = self._clients.get(client)
        if peer is None or not (peer.is_up or self._buffers):
            self._count("client away")
            del held.local[client]
            self.holdings.settle(held)
            return
        parcel = Parcel(held, peer, held.local[client], {})
        held.handed[client] = parcel
        self._offer(parcel, now_ns)

    def _offer(self, parcel: Parcel, now_ns: int) -> None:
        peer = parcel.peer
        outbox = peer.outbox
        self._note("enqueued", parcel.held.id, peer.name)
        if peer.is_up and not outbox.queued and outbox.is_open:
            self._dispatch(parcel, now_ns)
            return
        for dropped in outbox.enqueue(parcel, now_ns):
            self._lose(dropped, "full")
        self.pump(peer, now_ns)
        if peer.is_up and not outbox.under_way:
            self._retry_at(peer, now_ns + self._settings.probe_ns)

    def _dispatch(self, parcel: Parcel, now_ns: int) -> None:
        peer, held = parcel.peer, parcel.held
        targets = self.courses.targets_of(parcel.targets, is_client=peer.kind == "client")
        if not peer.outbox.leaving:
            self._leaving.append(peer)
        peer.outbox.send(parcel, targets, held.encode_once(now_ns), now_ns)
        self._note("sent", held.id, peer.name, parcel.number, tuple(parcel.targets))
        if not self._buffers:
            self._release(parcel)

    def _lose(self, parcel: Parcel, reason: Reason) -> None:
        """The queue has let an event go: it is too late for it, or there were too many."""
        self._count(reason)
        self._note(reason, parcel.held.id, parcel.peer.name)
        self._release(parcel)

    def _release(self, parcel: Parcel) -> None:
        """This broker no longer answers for what the parcel is for."""
        held = parcel.held
        for target in self._unlink(parcel):
            (held.local if parcel.peer.kind == "client" else held.targets).pop(target, None)
        self.holdings.settle(held)

    def _unlink(self, parcel: Parcel) -> list[str]:
        """Nothing is on its way any more to where this parcel, and no later one, was to go."""
        if parcel.peer.kind == "client":
            on_their_way, places = parcel.held.handed, [parcel.peer.name]
        else:
            on_their_way, places = parcel.held.parcels, list(parcel.targets)
        ended = [place for place in places if on_their_way.get(place) is parcel]
        for place in ended:
            del on_their_way[place]
        return ended
