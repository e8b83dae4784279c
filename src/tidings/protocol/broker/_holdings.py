"""All events that a broker holds, and when they expire.

Each is held in one of three ways, and by itself (`Held.alone`) as soon as something happens to it alone:

- *By itself*, with its own account of whom it is owed to.
- *In a group*: together with others of its course that have left for everybody whom they are for. They are stored one
  by one, so that each can be erased by itself; but who still has to acknowledge them is one account for all: when it
  is empty, all of them are done. A group is undone when its first event expires, when somebody has acknowledged only a
  part of it, or when routes or clients change. Each event then has a parcel for every peer that has not acknowledged.
- *As the store kept it.* A broker that starts again may hold very many events, and others wait for it meanwhile. It
  reads `read_at_once` of them when it starts, and so many again every `read_pause_ns` while it serves. One that is not
  read yet counts as held. It goes on, if there is a route or a client for it, when it is read; if it comes again before
  that, it is read first. What is read shares a course with all events for the same receivers, and is held by itself
  when a client or a route comes for that course, when the event itself comes again, or when it expires.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import TransferState
from tidings.protocol.broker._courses import NO_COURSE, Course, read_course
from tidings.protocol.broker._held import Held, event_key, read_record
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._window import Lot, Parcel

__all__ = ["Group", "Holdings"]

_SPARE: Final = 64


class Group:
    """Events under way together; `pending` are the peers that have not acknowledged, with their lots."""

    __slots__ = ("_holdings", "expires_ns", "id", "members", "pending")

    def __init__(self, holdings: "Holdings", members: list[Held]) -> None:
        self._holdings = holdings
        self.members = members
        self.pending: dict[Peer, Lot] = {}
        self.id: EventId = members[0].id
        self.expires_ns = min(held.since_ns for held in members) + members[0].course.latest_ns

    def ended(self, peer: Peer) -> None:
        """A peer has acknowledged all of them."""
        del self.pending[peer]
        if not self.pending:
            self._holdings.let_go(self.members)

    def undo(self) -> None:
        """Hold each of them by itself, with parcels in place of the lots."""
        pending = list(self.pending.values())
        self.pending.clear()
        homes = self._part(pending)
        for lot in pending:
            is_client, name = lot.peer.kind == "client", lot.peer.name
            theirs = [home for home, hop in homes.items() if hop == name]
            parcels = []
            for number, held in enumerate(self.members, lot.first):
                targets = held.local[name] if is_client else {home: held.targets[home] for home in theirs}
                parcel = Parcel(held, lot.peer, targets, {})
                parcel.state, parcel.number, parcel.tries = TransferState.UNDER_WAY, number, 1
                parcel.sent_ns, parcel.due_ns = lot.sent_ns, lot.due_ns
                if is_client:
                    held.handed[name] = parcel
                else:
                    held.parcels.update(dict.fromkeys(theirs, parcel))
                parcels.append(parcel)
            lot.peer.outbox.window.replace(lot, parcels)
        for held in self.members:
            if self._holdings.held.get(held.id) is held:
                self._holdings.hold(held)

    def _part(self, pending: list[Lot]) -> dict[str, str]:
        """Each of them is owed to those whose lots are pending; the home brokers among them, with the next hop."""
        course = self.members[0].course
        clients = [lot.peer.name for lot in pending if lot.peer.kind == "client"]
        hops = {lot.peer.name for lot in pending if lot.peer.kind == "broker"}
        homes = {home: hop for home, hop in course.hops.items() if hop in hops}
        for held in self.members:
            held.alone()
            held.take_on_local({client: course.local[client] for client in clients})
            held.take_on({home: course.targets[home] for home in homes})
        return homes


class Holdings:
    """All events of one broker; `wake_by` is told when the first of them expires."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        store: Callable[[str, bytes], None],
        erase: Callable[[str], None],
        wake_by: Callable[[int], None],
    ) -> None:
        self.held: dict[EventId, Held] = {}
        self.unread: dict[str, bytes] = {}
        """Events that the store kept and that are not read yet, by their keys."""
        self._keeps = settings.buffers
        self._store = store
        self._erase = erase
        self._wake_by = wake_by
        self._courses: dict[tuple[bytes, bytes], Course] = {}  # of events from the store, by how their records say them
        self._expiries: list[tuple[int, EventId]] = []

    def __len__(self) -> int:
        return len(self.held) + len(self.unread)

    def get(self, id: EventId) -> Held | None:
        """An event that is held, by itself."""
        held = self.held.get(id)
        if held is not None and not held.is_alone:
            self._single_out(held)
        return held

    def each(self, wanted: Callable[[Course], bool]) -> list[Held]:
        """All events that are held, each by itself; of those that are as the store kept them, only wanted courses."""
        answers: dict[int, bool] = {}
        for held in list(self.held.values()):
            course = held.course
            if held.group is not None:
                self._single_out(held)
            elif course is not NO_COURSE:
                if id(course) not in answers:
                    answers[id(course)] = wanted(course)
                if answers[id(course)]:
                    self._single_out(held)
        return [held for held in self.held.values() if held.course is NO_COURSE]

    def hold(self, held: Held) -> None:
        """Hold an event by itself."""
        self.held[held.id] = held
        self._note_expiry(held)

    def keep(self, held: Held) -> None:
        """Store an event, if this broker stores at all."""
        if self._keeps:
            self._store(event_key(held.id), held.record())

    def settle(self, held: Held) -> None:
        """Let go of an event if it is owed to nobody any more."""
        if held.is_done:
            self.let_go((held,))

    def let_go(self, events: Iterable[Held]) -> None:
        """Hold these events no longer."""
        for held in events:
            # The same event may have come again since this one was done: that one is not.
            if self.held.get(held.id) is held:
                del self.held[held.id]
                if self._keeps:
                    self._erase(event_key(held.id))

    def hold_together(self, members: list[Held], now_ns: int) -> None:
        """Hold, and store, events of one course that have left for everybody whom they are for."""
        group, course = Group(self, members), members[0].course
        for held in members:
            held.group = group
            self.held[held.id] = held
            self._store(event_key(held.id), held.record())
        most_bytes = max(held.size_bytes for held in members)
        for peer, outbox, _ in course.ways or ():
            group.pending[peer] = outbox.add_lot(peer, group, len(members), most_bytes, now_ns)
        self._note_expiry(group)

    def _single_out(self, held: Held) -> None:
        course = held.course
        if held.group is not None:
            held.group.undo()
        else:
            held.alone()
            held.take_on(course.targets)
            held.take_on_local(course.local)

    # -- from the store ------------------------------------------------------------------------------------------

    def restore(self, events: Mapping[str, bytes]) -> None:
        """Events that the durable store kept, by their keys; they are not read yet."""
        self.unread.update(events)

    def read(self, most: int | None, now_ns: int) -> list[Held]:
        """Read the next of them, or all; those that have not expired."""
        keys = list(islice(self.unread, most))
        return self._enter(map(self.unread.pop, keys), now_ns)

    def read_one(self, id: EventId, now_ns: int) -> list[Held]:
        """Read this event, if it is not read yet."""
        data = self.unread.pop(event_key(id), None)
        return [] if data is None else self._enter((data,), now_ns)

    def _enter(self, records: Iterable[bytes], now_ns: int) -> list[Held]:
        entered = []
        for data in records:
            held = read_record(data, self._course_of)
            if held.expires_ns > now_ns:
                self.held[held.id] = held
                heapq.heappush(self._expiries, (held.expires_ns, held.id))
                entered.append(held)
            else:
                self._erase(event_key(held.id))
        if not self.unread:
            self._courses.clear()
        return entered

    def _course_of(self, targets: bytes, local: bytes) -> Course:
        key = (targets, local)
        course = self._courses.get(key)
        if course is None:
            course = self._courses[key] = read_course(targets, local)
        return course

    # -- time ----------------------------------------------------------------------------------------------------

    @property
    def next_expiry_ns(self) -> int | None:
        """When it may be that something has expired."""
        return self._expiries[0][0] if self._expiries else None

    def expired(self, now_ns: int) -> Iterator[Held]:
        """What nobody wants any more."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            held = self.get(heapq.heappop(self._expiries)[1])
            if held is not None and held.expires_ns <= now_ns:
                yield held

    def _note_expiry(self, what: Held | Group) -> None:
        self._wake_by(what.expires_ns)
        heapq.heappush(self._expiries, (what.expires_ns, what.id))
        if len(self._expiries) > 2 * len(self.held) + _SPARE:
            each = [held.group or held for held in self.held.values()]
            self._expiries = [(what.expires_ns, what.id) for what in each]
            heapq.heapify(self._expiries)
