"""How a broker comes to hold events, and how it lets go of them: taken on, restored, expired (papers C, D).

Rules:

- Whom an event is for is decided once, by its publisher's home broker, when it accepts the event: the home brokers of
  all subscriptions that match, each with what on-time deliveries there are worth. That list travels with the event;
  each broker holds the event for its part of it until another has taken it on. So a broker whose tables are still
  empty, or different, can misroute nothing and lose nothing.
- An event is acknowledged when it is durable and its way on is known; what came twice is acknowledged twice and taken
  on once. What two brokers come to hold at once, because a link failed between sending and acknowledging, is delivered
  once: the last hop knows what it has given to its clients (`_memory`).
- A client's event goes straight on if it can (`_dispatch`). Otherwise it is held by itself (`_held`), routed
  (`_router`), and leaves when its peers take it.
- Without buffering nothing is stored, kept or sent again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._courses import NO_COURSE, Course, Courses, latest_ns
from tidings.protocol.broker._dispatch import Dispatch, Straight
from tidings.protocol.broker._gossip import Gossip
from tidings.protocol.broker._held import Held, Holdings
from tidings.protocol.broker._ledgers import UNAUDITED
from tidings.protocol.broker._memory import Memory
from tidings.protocol.broker._router import Router
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Event, Term, Trace

__all__ = ["Carrier"]

MAX_UNAUDITED: Final = 10_000
"""So many events are known that another broker may have accepted too; a second copy of an older one counts as lost."""

EXPIRY_PAUSE_NS: Final = 20_000_000
"""What expires soon after other events is let go together: a queue that lags must not wake the broker for each."""


class Carrier:
    """The part of a broker that holds events."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        gossip: Gossip,
        accounts: Accounts,
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
        on_kept: Callable[[Held], None] | None,
        on_gone: Callable[[EventId], None] | None,
    ) -> None:
        self.holdings = holdings = Holdings(
            settings, store=store, erase=erase, wake_by=self._wake_by, on_kept=on_kept, on_gone=on_gone
        )
        self.memory = Memory(settings, store=store, erase=erase, count=count, wake_by=self._wake_by)
        self.courses = courses = Courses(settings.name, gossip, neighbours=neighbours, clients=clients)
        self.dispatch = dispatch = Dispatch(
            settings,
            holdings=holdings,
            courses=courses,
            accounts=accounts,
            send_events=send_events,
            note=note,
            count=count,
            retry_at=retry_at,
        )
        self.router = Router(
            settings,
            holdings=holdings,
            courses=courses,
            dispatch=dispatch,
            accounts=accounts,
            links=gossip.links,
            neighbours=neighbours,
            clients=clients,
            count=count,
        )
        self.straight = Straight(
            settings,
            holdings=holdings,
            memory=self.memory,
            dispatch=dispatch,
            accounts=accounts,
            note=note,
            keep=self.keep,
            keep_for=self.keep_for,
        )
        self.accounts = accounts
        self._settings = settings
        self._local = gossip.local
        self._note = note
        self._count = count
        self._expire_at = expire_at
        self._traced = traced
        self._wakes_ns: int | None = None
        self._expired_ns = -EXPIRY_PAUSE_NS  # when what has expired was let go last
        # Those that clients here got and that belong to no period, with the broker that accepted them.
        self._unaudited: dict[EventId, str] = {}

    @property
    def room(self) -> int:
        """How many more events can be taken on."""
        return max(self._settings.max_stored - len(self.holdings) - len(self.straight), 0)

    @property
    def room_bytes(self) -> int:
        """How long their contents may be together; less than 0: there is too much already."""
        return self._settings.max_stored_bytes - self.holdings.size_bytes - self.straight.size_bytes

    @property
    def is_stirred(self) -> bool:
        """Whether something leaves, or has to be stored, at the end of this step."""
        return bool(self.dispatch.leaving or self.memory.unstored or self.straight.events)

    # -- taken on ------------------------------------------------------------------------------------------------

    def keep(self, held: Held, now_ns: int, trace: Trace | None = None) -> None:
        """Hold a client's event by itself; one that comes again is held as it was, for whoever is not owed it yet."""
        course = held.course
        held = self.holdings.get(held.id) or held.alone()
        held.trace = trace
        clients = self._take_on(held, course.targets, course, now_ns)
        if trace is not None:
            self._traced(held, trace, "", clients, now_ns)

    def keep_for(self, events: Sequence[Held], peers: Iterable[Peer], now_ns: int) -> None:
        """Hold the part of clients' events, of one course, that these peers are to have; the others have got theirs."""
        course = events[0].course
        local = {peer.name: course.local[peer.name] for peer in peers if peer.kind == "client"}
        hops = {peer.name for peer in peers if peer.kind == "broker"}
        targets = {home: course.targets[home] for home, hop in course.hops.items() if hop in hops}
        self.holdings.hold_part(events, targets, local)
        if targets:
            for held in events:
                self.router.route(held, targets, now_ns)
        for client in sorted(local):
            self.router.hand_to_client(events, client, now_ns)

    def transfer(
        self,
        source: str,
        said: Event,
        targets: Mapping[str, tuple[Term, ...]],
        since_ns: int,
        lifetime_ns: int,
        error_ns: int | None,
        now_ns: int,
        *,
        is_restored: bool = False,
    ) -> None:
        """An event that another broker hands over, or has lost; PeerError, and nothing has changed, if its content is
        nonsense."""
        id = (said.publisher, said.epoch, said.sequence)
        if self.holdings.unread:
            self.read_first(id, now_ns)
        course = NO_COURSE
        if self._settings.name in targets:
            if not self.memory.has(id):
                course = self.courses.end(said.content, lifetime_ns)
            elif id in self._unaudited and said.period != UNAUDITED:
                # Two brokers have accepted it, of whom this one said so: it is the same event, and counts once.
                root = self._unaudited.pop(id)
                self.accounts.arrived_in(self.courses.end(said.content, lifetime_ns), root, said.root, said.period)
        self._note("received", id, source)
        held = self.holdings.get(id)
        if held is None:
            facts = (said.departure_ns, since_ns, lifetime_ns, said.size_bytes, said.hops + 1)
            held = Held(id, said.root, *facts, said.content, error_ns=error_ns, period=said.period, check=said.check)
            held.is_restored = is_restored
            held.alone()
        elif held.period == UNAUDITED:
            held.count_as(said.root, said.period)
        held.hops = max(held.hops, said.hops)
        held.trace = said.trace
        clients = self._take_on(held, targets, course, now_ns)
        if said.trace is not None:
            self._traced(held, said.trace, source, clients, now_ns)

    def _take_on(self, held: Held, targets: Mapping[str, tuple[Term, ...]], course: Course, now_ns: int) -> int:
        """Hold an event for these targets, the course being who wants it here; how many clients here get it now."""
        wanted = {target: terms for target, terms in targets.items() if held.since_ns + latest_ns(terms) > now_ns}
        if len(wanted) < len(targets):
            self._drop_late(held, targets.keys() - wanted.keys() - held.targets.keys(), course)
        here = wanted.pop(self._settings.name, None)
        clients: list[str] = []
        if here is not None and course is not NO_COURSE and not self.memory.has(held.id):
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
        """The clients here that want the event; for those who have moved, their address is among the wanted."""
        since_ns, untold = held.since_ns, self._local.untold
        wanted |= {moved: terms for moved, terms in course.moved.items() if since_ns <= untold.get(moved, since_ns)}
        if not course.local:
            return []
        held.take_on_local(course.local)
        if held.period == UNAUDITED:
            self._unaudited[held.id] = held.root
            if len(self._unaudited) > MAX_UNAUDITED:
                del self._unaudited[next(iter(self._unaudited))]
        self.accounts.arrived(course, held.root, held.period)
        self._note("local", held.id)
        return list(course.local)

    def _drop_late(self, held: Held, targets: Set[str], course: Course) -> None:
        """An event has come too late for these targets, and they are owed no other copy of it."""
        self._count("expired")
        self.accounts.dropped_on_the_way(held, sorted(targets - {self._settings.name}))
        if self._settings.name in targets and course.local and not self.memory.has(held.id):
            self.accounts.arrived(course, held.root, held.period)
            for client, wanted in course.local.items():
                self.accounts.dropped(held, client, wanted)

    def forget_client(self, client: str, now_ns: int) -> None:
        """A client is gone for good: nothing is kept for it."""
        self.read_on(now_ns)
        self.router.forget_client(client)

    def hand_on(self, client: str, target: str, now_ns: int) -> None:
        """A client is at home elsewhere now: what waits for it goes after it, to that address."""
        self.read_on(now_ns)
        self.router.hand_on(client, target, now_ns)

    # -- restored ------------------------------------------------------------------------------------------------

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
            if id(course) not in awaited:
                awaited[id(course)] = self.router.is_awaited(course)
            if awaited[id(course)]:
                self.router.go_on(held, now_ns)

    def read_first(self, id: EventId, now_ns: int) -> None:
        """An event comes that the durable store may have kept."""
        for held in self._entered(self.holdings.read_one(id, now_ns)):
            self.router.go_on(held, now_ns)

    def _entered(self, read: list[Held]) -> list[Held]:
        """Events of the store are held: clients here have had them, or are to have them, once."""
        for held in read:
            if held.course.local and not self.memory.has(held.id):
                self.memory.remember(held.id, max(held.expires_ns, held.since_ns + held.lifetime_ns))
        self._set_expiry()
        return read

    # -- expired -------------------------------------------------------------------------------------------------

    def expire(self, now_ns: int) -> None:
        """Let go of what nobody wants any more, and forget what cannot come again."""
        # What clients do not get: events for the same subscriptions are counted together.
        dropped: dict[tuple[str, int], tuple[dict[str, tuple[Term, ...]], int]] = {}
        for held in self.holdings.expired(now_ns):
            targets, clients = held.overdue(now_ns)
            if targets or clients:
                self._count("expired")
            if targets:
                self._let_targets_go(held, targets)
            for client in clients:
                handed = held.handed.get(client)
                if handed is not None:
                    self._note("expired", held.id, client)
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

    def _let_targets_go(self, held: Held, targets: Sequence[str]) -> None:
        """An event has expired for these home brokers."""
        for parcel in dict.fromkeys(filter(None, map(held.parcels.get, targets))):
            self._note("expired", held.id, parcel.peer.name)
            parcel.targets = {to: terms for to, terms in parcel.targets.items() if held.parcels.get(to) is parcel}
            parcel.peer.outbox.give_up(parcel, has_expired=True)
        self.accounts.dropped_on_the_way(held, targets)

    def _set_expiry(self) -> None:
        self._wakes_ns = None
        for at_ns in (self.memory.next_expiry_ns, self.holdings.next_expiry_ns):
            if at_ns is not None:
                self._wake_by(at_ns)

    def _wake_by(self, at_ns: int) -> None:
        if self._wakes_ns is None or at_ns < self._wakes_ns:
            self._wakes_ns = max(at_ns, self._expired_ns + EXPIRY_PAUSE_NS)
            self._expire_at(self._wakes_ns)
