"""How a broker comes to hold events, and how it releases them: taken on, restored, expired (papers C, D).

Rules:

- The receivers of an event are determined once, by its publisher's home broker, when it accepts the event: the home
  brokers of all matching subscriptions, each with the worth of on-time deliveries there. That list travels with the
  event; each broker holds the event for its part of the list until another has taken it on. So a broker whose tables
  are still empty, or different, can misroute nothing and lose nothing.
- An event is acknowledged when it is durable and its next hops are known; a duplicate is acknowledged again and taken
  on once. If a link fails between sending and acknowledging, two brokers hold the event; it is delivered once, since
  the last hop knows which events it has given to its clients (`_memory`).
- An event is sent straight on if possible (`_dispatch`): a client's, and a neighbour's whose last hop this is.
  Otherwise it is held separately (`_held`), routed (`_router`), and leaves when its peers accept it.
- Without buffering nothing is stored, kept or sent again.
- Brokers whose stores are full of events for each other must not wait for each other. So the further an event has come,
  the more of the store it may use: events of clients here half of it, those that have come over FAR links all of it.
  Of all events that wait, the one that has come furthest finds room at its next broker, since nothing there can have
  come further; so one can always go on (a structured buffer pool).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from tidings.protocol._effects import EventId, NoteKind
from tidings.protocol._names import address, is_address
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._conflation import Conflation
from tidings.protocol.broker._courses import NO_COURSE, Course, Courses, latest_ns
from tidings.protocol.broker._dispatch import Dispatch, Straight
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._held import Held, Holdings, Part
from tidings.protocol.broker._journal import Journal
from tidings.protocol.broker._ledgers import UNAUDITED
from tidings.protocol.broker._memory import Memory
from tidings.protocol.broker._router import Router
from tidings.protocol.links._outbox import FAR
from tidings.protocol.links._peers import Peer, Peers, Ports
from tidings.protocol.wire import Event, Term, Trace

__all__ = ["Carrier", "Hooks"]

MAX_UNAUDITED: Final = 10_000
"""The most events remembered that another broker may have accepted too; a second copy of an older one counts as
lost."""

_MOST_PARTS: Final = 1_024
"""So many are known, to be shared by later events of their courses."""

EXPIRY_PAUSE_NS: Final = 20_000_000
"""Events that expire within this time are released together: a slow queue must not wake the broker for each."""


class Hooks(NamedTuple):
    """What a carrier calls back: the timers of expiry and of retries; what happens to traced and to stored events."""

    expire_at: Callable[[int], None]
    retry_at: Callable[[Peer, int], None]
    traced: Callable[[Held, Trace, str, int, int], None]
    on_kept: Callable[[Held], None] | None
    on_gone: Callable[[EventId], None] | None


class Carrier:
    """The part of a broker that holds events."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        gossip: Gossip,
        accounts: Accounts,
        peers: Peers,
        ports: Ports,
        journal: Journal,
        hooks: Hooks,
    ) -> None:
        store, erase = journal.store, journal.erase_ahead
        self.holdings = holdings = Holdings(
            settings, store=store, erase=erase, wake_by=self._wake_by, on_kept=hooks.on_kept, on_gone=hooks.on_gone
        )
        self.memory = Memory(settings, store=store, erase=erase, count=ports.count, wake_by=self._wake_by)
        self.courses = courses = Courses(settings.name, gossip, peers)
        conflation = Conflation(
            gossip.local.conflated, holdings=holdings, accounts=accounts, note=ports.note, count=ports.count
        )
        self.dispatch = dispatch = Dispatch(
            settings,
            holdings=holdings,
            courses=courses,
            accounts=accounts,
            conflation=conflation,
            ports=ports,
            retry_at=hooks.retry_at,
        )
        self.router = Router(
            settings,
            holdings=holdings,
            courses=courses,
            dispatch=dispatch,
            accounts=accounts,
            links=gossip.links,
            peers=peers,
            count=ports.count,
        )
        self.straight = Straight(
            settings,
            holdings=holdings,
            memory=self.memory,
            dispatch=dispatch,
            accounts=accounts,
            note=ports.note,
            keep=self.keep,
            keep_for=self.keep_for,
        )
        self.accounts = accounts
        self._settings = settings
        self._neighbours = peers.neighbours
        self._local = gossip.local
        self._note = ports.note
        self._choice = ports.choice
        self._count = ports.count
        self._expire_at = hooks.expire_at
        self._traced = hooks.traced
        self._wakes_ns: int | None = None
        self._expired_ns = -EXPIRY_PAUSE_NS  # when what has expired was let go last
        # Events without a period that clients here got, with the broker that accepted them.
        self._unaudited: dict[EventId, str] = {}
        self._parts: dict[int, tuple[Course, Sequence[Peer], Part]] = {}  # the last of each course

    def room(self, hops: int) -> int:
        """How many more events can be taken on that have come over so many links."""
        return max(self._share(self._settings.max_stored, hops) - len(self.holdings) - len(self.straight), 0)

    def room_bytes(self, hops: int) -> int:
        """How long their contents may be together; less than 0: there is too much already."""
        most_bytes = self._share(self._settings.max_stored_bytes, hops)
        return most_bytes - self.holdings.size_bytes - self.straight.size_bytes

    def _share(self, most: int, hops: int) -> int:
        """Of a bound, what events may use that have come over so many links; all if there are no neighbours."""
        return most * (FAR + min(hops, FAR)) // (2 * FAR) if self._neighbours else most

    @property
    def is_stirred(self) -> bool:
        """Whether something has to be sent or stored at the end of this step."""
        return bool(self.dispatch.leaving or self.memory.unstored or self.straight.events)

    # -- taken on ------------------------------------------------------------------------------------------------

    def keep(self, held: Held, now_ns: int, trace: Trace | None = None) -> None:
        """Hold a client's event separately; a duplicate adds receivers that are not owed it yet."""
        course = held.course
        held = self.holdings.get(held.id) or held.alone()
        held.trace = trace
        clients = self._take_on(held, course.targets, course, now_ns)
        if trace is not None:
            self._traced(held, trace, "", clients, now_ns)

    def keep_for(self, events: Sequence[Held], peers: Sequence[Peer], now_ns: int) -> None:
        """Hold the part of clients' events, of one course, that these peers have yet to get."""
        course = events[0].course
        local = {peer.name: course.local[peer.name] for peer in peers if peer.kind == "client"}
        hops = {peer.name for peer in peers if peer.kind == "broker"}
        targets = {home: course.targets[home] for home, hop in course.hops.items() if hop in hops}
        if not targets and not any(peer.is_up and peer.outbox.takes(1) for peer in peers):
            part = self._part_of(course, local, peers)
            self.holdings.hold_waiting(events, part)
            self.dispatch.queue(events, part, now_ns)
            return
        self.holdings.hold_part(events, targets, local)
        if targets:
            for held in events:
                self.router.route(held, targets, now_ns)
        for client in sorted(local):
            self.router.hand_to_client(events, client, now_ns)

    def _part_of(self, course: Course, local: dict[str, dict[str, tuple[Term, ...]]], peers: Sequence[Peer]) -> Part:
        """The shared lists of events of a course that wait for these clients."""
        known = self._parts.get(id(course))
        if known is not None and known[0] is course and known[1] == peers:
            return known[2]
        part = Part(local, {peer.name: peer for peer in peers})
        if len(self._parts) >= _MOST_PARTS:
            self._parts.clear()
        self._parts[id(course)] = (course, peers, part)
        return part

    def transfer(
        self,
        source: str,
        event: Event,
        targets: Mapping[str, tuple[Term, ...]],
        since_ns: int,
        lifetime_ns: int,
        error_ns: int | None,
        now_ns: int,
        *,
        is_restored: bool = False,
    ) -> None:
        """Take on an event that another broker hands over, or has lost; PeerError, and no change, if its content is
        invalid."""
        id = (event.publisher, event.epoch, event.sequence)
        if self.holdings.unread:
            self.read_first(id, now_ns)
        course = NO_COURSE
        if self._settings.name in targets:
            is_new = not self.memory.has(id)
            if is_new or since_ns - (error_ns or 0) < self._local.last_came_ns:
                course = self.courses.end(event.content, lifetime_ns)
            if not is_new and id in self._unaudited and event.period != UNAUDITED:
                # Two brokers have accepted it, and this one states its period: it is the same event, and counts once.
                root = self._unaudited.pop(id)
                self.accounts.arrived_in(self.courses.end(event.content, lifetime_ns), root, event.root, event.period)
        facts = (event.departure_ns, since_ns, lifetime_ns, event.size_bytes, event.hops + 1, event.content)
        more: dict[str, Any] = {"error_ns": error_ns, "period": event.period, "check": event.check}
        if not is_restored and self._is_simple(id, event, targets, course, since_ns, now_ns):
            simple = Held(id, event.root, *facts, course, self._is_noted(id, event.content), **more)
            self._note_arrival("received", simple, source)
            self.straight.add(simple)
            return
        if id in self.straight or course.record is not None or any(map(is_address, targets)):
            self.straight.send(now_ns)  # what this event must not overtake
        held = self.holdings.get(id)
        if held is None:
            is_noted = self._is_noted(id, event.content)
            held = Held(id, event.root, *facts, is_noted=is_noted, is_restored=is_restored, **more).alone()
        elif held.period == UNAUDITED:
            held.count_as(event.root, event.period)
        self._note_arrival("received", held, source)
        held.hops = max(held.hops, event.hops)
        held.trace = event.trace
        clients = self._take_on(held, targets, course, now_ns)
        if event.trace is not None:
            self._traced(held, event.trace, source, clients, now_ns)

    def _is_noted(self, id: EventId, content: bytes) -> bool:
        choice = self._choice
        return choice.is_recorded(id) or (choice.spans and choice.has_spans(id, content))

    def _note_arrival(self, kind: NoteKind, held: Held, source: str = "") -> None:
        if held.is_noted:
            arrival = held.arrival() if self._choice.spans else None
            self._note(kind, held, source, -1, (), None, held.since_ns, held.departure_ns, arrival)

    def _is_simple(
        self,
        id: EventId,
        event: Event,
        targets: Mapping[str, tuple[Term, ...]],
        course: Course,
        since_ns: int,
        now_ns: int,
    ) -> bool:
        """Whether another broker's event can be sent straight on: it is new, for clients here alone, and they want it
        still.

        One that another broker may have accepted and report too is held by itself. Without buffering, so is one for a
        client that is away.
        """
        if len(targets) > 1 or not course.local or course.exits is None or event.trace is not None:
            return False
        if not (self._settings.buffers or all(peer.is_up for peer, _, _ in course.exits)):
            return False
        soonest_ns = min(course.soonest_ns, latest_ns(targets[self._settings.name]))
        is_known = self.memory.has(id) or id in self.holdings.held or id in self.straight
        return not is_known and event.period != UNAUDITED and since_ns + soonest_ns > now_ns

    def _take_on(self, held: Held, targets: Mapping[str, tuple[Term, ...]], course: Course, now_ns: int) -> int:
        """Hold an event for these targets; `course` has the receivers here. How many clients here get it now."""
        wanted = {target: terms for target, terms in targets.items() if held.since_ns + latest_ns(terms) > now_ns}
        if len(wanted) < len(targets):
            self._drop_late(held, targets.keys() - wanted.keys() - held.targets.keys(), course)
        here = wanted.pop(self._settings.name, None)
        clients: list[str] = []
        if here is not None and course is not NO_COURSE:
            if self.memory.has(held.id):
                wanted |= self._come_since(held, course)
            else:
                clients = self._take_on_local(held, course, wanted)
        new = held.take_on(wanted)
        if not new and not clients:
            return 0
        self.holdings.hold(held)
        self.holdings.keep(held)
        if clients:
            self.memory.remember(held.id, max(held.since_ns + max(held.lifetime_ns, 0), held.expires_ns))
        if new:
            self.router.route(held, new, now_ns)
        for client in clients:
            self.router.hand_to_client((held,), client, now_ns)
        return len(clients)

    def _take_on_local(self, held: Held, course: Course, wanted: dict[str, tuple[Term, ...]]) -> list[str]:
        """The clients here that want the event; the addresses of those that have moved are added to `wanted`."""
        since_ns, unannounced = held.since_ns, self._local.unannounced
        wanted |= {
            moved: terms for moved, terms in course.moved.items() if since_ns <= unannounced.get(moved, since_ns)
        }
        if not course.local:
            return []
        held.take_on_local(course.local)
        if held.period == UNAUDITED:
            self._unaudited[held.id] = held.root
            if len(self._unaudited) > MAX_UNAUDITED:
                del self._unaudited[next(iter(self._unaudited))]
        self.accounts.arrived(course, held.root, held.period)
        self._note("local", held)
        return list(course.local)

    def _come_since(self, held: Held, course: Course) -> dict[str, tuple[Term, ...]]:
        """The addresses of clients that want a duplicate, because they have come here since the event departed.

        Others here were given the event, perhaps before. If it was accepted twice, and lost between, nobody else has it
        for them.
        """
        came_ns, since_ns = self._local.came_ns, held.since_ns - (held.error_ns or 0)
        found = {moved: terms for moved, terms in course.moved.items() if came_ns.get(moved, since_ns) > since_ns}
        for client, wanted in course.local.items():
            if came_ns.get(client, since_ns) > since_ns and client not in held.local:
                found[address(self._settings.name, client)] = max(wanted.values(), key=latest_ns)
        return found

    def _drop_late(self, held: Held, targets: Set[str], course: Course) -> None:
        """Count an event that has arrived too late for these targets, which are owed no other copy of it."""
        self._count("expired")
        self.accounts.dropped_in_transit(held, sorted(targets - {self._settings.name}))
        if self._settings.name in targets and course.local and not self.memory.has(held.id):
            self.accounts.arrived(course, held.root, held.period)
            for client, wanted in course.local.items():
                self.accounts.dropped(held, client, wanted)

    def forget_client(self, client: str, now_ns: int) -> None:
        """Keep nothing for a client that is gone for good."""
        self.read_on(now_ns)
        self.router.forget_client(client)

    def hand_on(self, client: str, target: str, now_ns: int) -> None:
        """Send what waits for a client after it, to its address at the new home."""
        self.read_on(now_ns)
        self.router.hand_on(client, target, now_ns)

    # -- restored ------------------------------------------------------------------------------------------------

    def restore(self, events: Mapping[str, bytes], seen: Iterable[tuple[str, bytes]], now_ns: int) -> None:
        """Restore events and seen events of the durable store; they are sent on as soon as there is a route.

        Of many events some are read now; `read_on` reads the others.
        """
        self.memory.restore(seen)
        self.holdings.restore(events)
        self._entered(self.holdings.read(self._settings.read_at_once, now_ns))

    @property
    def is_reading(self) -> bool:
        """Whether there are stored events that are not read yet."""
        return bool(self.holdings.unread)

    def read_on(self, now_ns: int, most: int | None = None) -> None:
        """Read more of the stored events, or all; those with a route are sent on."""
        awaited: dict[int, bool] = {}
        for held in self._entered(self.holdings.read(most, now_ns)):
            course = held.course
            if id(course) not in awaited:
                awaited[id(course)] = self.router.is_awaited(course)
            if awaited[id(course)]:
                self.router.resume(held, now_ns)

    def read_first(self, id: EventId, now_ns: int) -> None:
        """Read the stored record of an event that arrives, if there is one."""
        for held in self._entered(self.holdings.read_one(id, now_ns)):
            self.router.resume(held, now_ns)

    def _entered(self, read: list[Held]) -> list[Held]:
        """Remember stored events that clients here have had, or get now."""
        for held in read:
            held.is_noted = self._is_noted(held.id, held.content)
            if self._choice.spans:
                self._note_arrival("restored", held)
            if held.course.local and not self.memory.has(held.id):
                self.memory.remember(held.id, max(held.expires_ns, held.since_ns + held.lifetime_ns))
        self._set_expiry()
        return read

    # -- expired -------------------------------------------------------------------------------------------------

    def expire(self, now_ns: int) -> None:
        """Release events that nobody wants any more, and forget duplicates that cannot arrive any more."""
        # Drops of events for the same subscriptions are counted together.
        dropped: dict[tuple[str, int], tuple[dict[str, tuple[Term, ...]], int]] = {}
        for held in self.holdings.expired(now_ns):
            if held.part is not None:
                self._expire_part(held, held.part, dropped, now_ns)
                continue
            targets, clients = held.overdue(now_ns)
            if targets or clients:
                self._count("expired")
            if targets:
                self._expire_targets(held, targets)
            for client in clients:
                handed = held.handed.get(client)
                if handed is not None:
                    self._note("expired", held, client)
                    handed.peer.outbox.give_up(handed, has_expired=True)
                wanted = held.local[client]
                if held.restored_for:
                    was_sent = handed is not None and handed.tries > 0
                    self.accounts.dropped(held, client, wanted, was_sent=was_sent)
                else:
                    many = dropped.get((client, id(wanted)), (wanted, 0))[1]
                    dropped[client, id(wanted)] = (wanted, many + 1)
            held.let_go(targets, clients)
            if held.is_done:
                self.holdings.settle(held)
            else:
                self.holdings.note_expiry(held)
        for (client, _), (wanted, many) in dropped.items():
            self.accounts.dropped_here(client, wanted, many)
        self.memory.forget_old(now_ns)
        self._expired_ns = now_ns
        self._set_expiry()

    def _expire_part(
        self,
        held: Held,
        part: Part,
        dropped: dict[tuple[str, int], tuple[dict[str, tuple[Term, ...]], int]],
        now_ns: int,
    ) -> None:
        """An event has expired for clients that it waits for."""
        clients = list(part.local) if held.expires_ns <= now_ns else part.overdue(now_ns - held.since_ns)
        if clients:
            self._count("expired")
        for client in clients:
            self._note("expired", held, client)
            part.peers[client].outbox.queue.give_up(held)
            wanted = part.local[client]
            dropped[client, id(wanted)] = (wanted, dropped.get((client, id(wanted)), (wanted, 0))[1] + 1)
            held.leave_part(client)
        if held.part is None:
            self.holdings.settle(held)
        else:
            held.wakes_ns = held.since_ns + held.part.soonest_ns
            self.holdings.note_expiry(held)

    def _expire_targets(self, held: Held, targets: Sequence[str]) -> None:
        """An event has expired for these home brokers."""
        for parcel in dict.fromkeys(filter(None, map(held.parcels.get, targets))):
            self._note("expired", held, parcel.peer.name)
            parcel.targets = {to: terms for to, terms in parcel.targets.items() if held.parcels.get(to) is parcel}
            parcel.peer.outbox.give_up(parcel, has_expired=True)
        self.accounts.dropped_in_transit(held, targets)

    def _set_expiry(self) -> None:
        self._wakes_ns = None
        for at_ns in (self.memory.next_expiry_ns, self.holdings.next_expiry_ns):
            if at_ns is not None:
                self._wake_by(at_ns)

    def _wake_by(self, at_ns: int) -> None:
        if self._wakes_ns is None or at_ns < self._wakes_ns:
            self._wakes_ns = max(at_ns, self._expired_ns + EXPIRY_PAUSE_NS)
            self._expire_at(self._wakes_ns)
