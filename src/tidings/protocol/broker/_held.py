"""The events that a broker holds, and their expiry.

A broker that holds an event owes it to its receivers: to home brokers that no other broker has taken on yet
(`targets`), and to clients here that have not acknowledged it yet (`local`). An event is durable before it is
acknowledged, and is released when it is owed to nobody any more. Each part ends when its receiver no longer wants it.
`since_ns` is the departure on this broker's own clock, so the age is always known. Whether an event came from a client,
a neighbour or the durable store, it is `Held`, in one of three forms:

- *Separately* (`Held.alone`), with its own list of receivers and parcels. An event takes this form as soon as something
  happens to it alone.
- *In a group*, together with other events of its course that have left for all open receivers. They are stored one by
  one, so that each can be erased separately, but have one list of pending acknowledgements. Events that wait for shut
  receivers have a list of their own meanwhile (`hold_part`). When the group's list is empty, events that are owed to
  nobody else are done, and the others are held separately. Events that wait for shut clients alone share the list
  (`Part`), and are themselves what waits in the queues: a client that lags must not cost others a parcel and five lists
  for each event. An event gets lists of its own (`own`) when it leaves for such a client. A group is undone when its
  first event expires, when a receiver has acknowledged only part of it, or when routes or clients change. Each event
  then has a parcel for every peer that has not acknowledged.
- *As stored.* A broker that starts again may hold very many events, and others wait for it meanwhile. It reads
  `read_at_once` of them at the start, and as many every `read_pause_ns` while it serves. An unread event counts as
  held. When it is read, it is sent on if there is a route or a client for it; if it arrives again before that, it is
  read first. Events that were read share a course with all events for the same receivers, and are held separately when
  a client or a route for that course appears, when the event itself arrives again, or when it expires.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Self, cast

import msgspec
from msgspec import Raw

from tidings.protocol._effects import Arrival, EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import TransferState
from tidings.protocol.broker._courses import NO_COURSE, Course, Exit, latest_ns, read_course
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._queue import Queue
from tidings.protocol.links._window import Lot, Parcel
from tidings.protocol.wire import LONGEST_NS, Term, Trace, encode_plain

__all__ = ["Group", "Held", "Holdings", "Part", "event_key", "in_sequence", "read_record"]

_EMPTY: Final = cast("dict[str, Any]", MappingProxyType({}))
"""The receivers of an event that has no list of its own: it cannot be written to."""
_MOST_HOPS: Final = 255
"""The most that a transfer can state."""
_SPARE: Final = 64


class Held(msgspec.Struct, eq=False):
    """One event that this broker holds."""

    id: EventId
    root: str
    """The home broker of its publisher."""
    departure_ns: int
    since_ns: int
    lifetime_ns: int
    size_bytes: int
    hops: int
    content: bytes
    course: Course = NO_COURSE
    """All its receivers, unless it is held separately."""
    is_noted: bool = False
    """Whether it is traced."""
    error_ns: int | None = None
    """The possible error of its age, from the links that it came over; None if unknown."""
    group: "Group | None" = None
    """The events that it has left with, if it is held in a group."""
    trace: Trace | None = None
    expires_ns: int = 0
    """When the last receiver no longer wants it."""
    wakes_ns: int = 0
    """When it has to be checked: the first receiver may no longer want it."""
    targets: dict[str, tuple[Term, ...]] = _EMPTY
    local: dict[str, dict[str, tuple[Term, ...]]] = _EMPTY
    parcels: dict[str, Parcel] = _EMPTY
    """By home broker: the parcel on its path there."""
    handed: dict[str, Parcel] = _EMPTY
    """By client: the same."""
    addressed: dict[str, str] = _EMPTY
    """By client: the address that the event came under; the other clients here did not get it."""
    encoded_ns: int = -1
    encoded: bytes = b""
    period: int = 0
    """Of its acceptance (`_ledgers`); 0 for none."""
    check: int | None = None
    """The publisher's checksum of the content."""
    is_restored: bool = False
    """Whether it comes from a durable store: some receivers may have it already."""
    restored_for: Mapping[str, Any] = _EMPTY
    """The clients here that the stored event was for."""
    part: "Part | None" = None
    """The shut clients that it waits for; None if it has lists of its own, or waits for none."""

    def alone(self) -> Self:
        """Hold it separately from now on, owed to nobody yet."""
        self.course, self.group = NO_COURSE, None
        self.expires_ns, self.wakes_ns = self.since_ns, LONGEST_NS
        self.targets, self.local, self.parcels, self.handed, self.addressed = {}, {}, {}, {}, {}
        return self

    def arrival(self) -> Arrival:
        """The event as this broker has taken it on."""
        times = (self.departure_ns, self.since_ns, self.lifetime_ns)
        return Arrival(self.root, *times, self.size_bytes, self.content)

    def leave_group(self) -> None:
        """Hold it separately from now on, with its own list of receivers if it has one."""
        self.own()
        if self.local is _EMPTY:
            self.alone()
        self.course, self.group = NO_COURSE, None

    def own(self) -> None:
        """Have lists of its own in place of those that it shares, with a parcel for each client that it waits for."""
        part = self.part
        if part is None:
            return
        self.part = None
        self.targets, self.local, self.parcels, self.handed, self.addressed = {}, {**part.local}, {}, {}, {}
        for client, peer in part.peers.items():
            parcel = self.handed[client] = Parcel(self, peer, part.local[client], {})
            peer.outbox.queue.replace(self, parcel)

    def leave_part(self, client: str) -> None:
        """It no longer waits for this client; its lists are shared still."""
        assert self.part is not None
        self.part = self.part.without(client)
        self.local = _EMPTY if self.part is None else self.part.local

    @property
    def is_alone(self) -> bool:
        """Whether it is held separately."""
        return self.course is NO_COURSE

    @property
    def is_done(self) -> bool:
        """Whether it is owed to nobody any more."""
        return not self.targets and not self.local and self.group is None

    def take_on(self, targets: Mapping[str, tuple[Term, ...]]) -> list[str]:
        """Owe it to these home brokers too; those for which something has to be done.

        A target that is under way to a peer counts as new: that peer may be the one that sends it back. Its
        acknowledgement, still to come, must not end an obligation that was just taken on again.
        """
        new = []
        for target in targets:
            parcel = self.parcels.get(target)
            if parcel is not None and parcel.state is TransferState.UNDER_WAY:
                del self.parcels[target]
                new.append(target)
                if parcel not in self.parcels.values():
                    parcel.peer.outbox.give_up(parcel)
            elif target not in self.targets:
                new.append(target)
        for target in new:
            self.targets[target] = targets[target]
            self._note_end(latest_ns(targets[target]))
        return new

    def take_on_local(self, local: Mapping[str, dict[str, tuple[Term, ...]]]) -> None:
        """Owe it to these clients too."""
        for client, wanted in local.items():
            self.local[client] = wanted
            self.addressed.pop(client, None)
            self._note_end(_last_ns(wanted))

    def _note_end(self, age_ns: int) -> None:
        ends_ns = self.since_ns + age_ns
        self.expires_ns = max(self.expires_ns, ends_ns)
        self.wakes_ns = min(self.wakes_ns, ends_ns)

    def wanted_less(self, client: str) -> None:
        """A client wants it for fewer subscriptions than before, perhaps not for as long."""
        self.wakes_ns = min(self.wakes_ns, self.since_ns + _last_ns(self.local[client]))

    def overdue(self, now_ns: int) -> tuple[list[str], list[str]]:
        """The receivers, brokers and clients, that no longer want it. A parcel for several brokers lasts until the last
        of them no longer wants it."""
        if self.expires_ns <= now_ns:
            return list(self.targets), list(self.local)
        age_ns = now_ns - self.since_ns
        targets = [target for target in self.targets if self._last_there_ns(target) <= age_ns]
        return targets, [client for client, wanted in self.local.items() if _last_ns(wanted) <= age_ns]

    def let_go(self, targets: Iterable[str], clients: Iterable[str]) -> None:
        """Owe it to these no longer; it is checked again when the next of the others may no longer want it."""
        for target in targets:
            del self.targets[target]
            self.parcels.pop(target, None)
        for client in clients:
            del self.local[client]
            self.handed.pop(client, None)
            self.addressed.pop(client, None)
        if self.targets or self.local:
            ends_ns = [*map(self._last_there_ns, self.targets), *map(_last_ns, self.local.values())]
            self.wakes_ns = self.since_ns + min(ends_ns)

    def _last_there_ns(self, target: str) -> int:
        parcel = self.parcels.get(target)
        return latest_ns(self.targets[target]) if parcel is None else _last_ns(parcel.targets)

    def unrouted(self) -> list[str]:
        """The home brokers that no parcel is for."""
        return [target for target in self.targets if target not in self.parcels]

    def count_as(self, root: str, period: int) -> None:
        """Another broker has accepted it too, and states the period: later receivers count it there."""
        self.root, self.period = root, period
        self.encoded_ns = -1

    def encode(self, now_ns: int) -> bytes:
        """The event as transfers contain it now: `wire.Event`, field by field."""
        publisher, epoch, sequence = self.id
        return encode_plain(
            (
                publisher,
                epoch,
                sequence,
                self.root,
                self.departure_ns,
                now_ns - self.since_ns,
                self.lifetime_ns,
                self.size_bytes,
                self.hops if self.hops < _MOST_HOPS else _MOST_HOPS,
                self.content,
                self.trace,
                self.error_ns,
                self.period,
                self.check,
            )
        )

    def encode_once(self, now_ns: int) -> bytes:
        """The same, cached for all peers that are sent it at this time."""
        if self.encoded_ns != now_ns:
            self.encoded_ns = now_ns
            self.encoded = self.encode(now_ns)
        return self.encoded

    def record(self) -> bytes:
        """The record for the durable store; times are of the broker's clock, which continues over a restart."""
        publisher, epoch, sequence = self.id
        course = self.course
        targets, local = self.owed() if course is NO_COURSE else course.encoded
        return encode_plain(
            (
                publisher,
                epoch,
                sequence,
                self.root,
                self.departure_ns,
                self.since_ns,
                self.lifetime_ns,
                self.size_bytes,
                self.hops,
                targets,
                local,
                self.content,
                self.error_ns,
                self.period,
                self.check,
            )
        )

    def owed(self) -> tuple[Any, Any]:
        """The receivers, elsewhere and here, as the record contains them."""
        targets, local = self.targets, self.local
        if self.addressed:
            # What was addressed to one client does not prove that the others here have it: keep it under its address.
            named = {client: target for client, target in self.addressed.items() if client in local}
            targets = targets | {target: max(local[client].values(), key=latest_ns) for client, target in named.items()}
            local = {client: wanted for client, wanted in local.items() if client not in named}
        return targets, local


def _last_ns(wanted: Mapping[str, tuple[Term, ...]]) -> int:
    """The age at which none of these wants the event any more."""
    return max(map(latest_ns, wanted.values()), default=0)


def _wakes_ns(held: Held) -> int:
    """When an event has to be checked, for itself or for its group."""
    if held.group is None:
        return held.wakes_ns
    return held.group.wakes_ns if held.local is _EMPTY else min(held.group.wakes_ns, held.wakes_ns)


class _Record(msgspec.Struct, array_like=True, gc=False):
    """The fields of `Held.record`; a record of an earlier version ends with the content."""

    publisher: str
    epoch: int
    sequence: int
    root: str
    departure_ns: int
    since_ns: int
    lifetime_ns: int
    size_bytes: int
    hops: int
    targets: Raw
    local: Raw
    content: bytes
    error_ns: int | None = None
    period: int = 0
    check: int | None = None


_RECORD: Final = msgspec.msgpack.Decoder(_Record)


def read_record(data: bytes, course_of: Callable[[bytes, bytes], Course]) -> Held:
    """An event from the durable store; `course_of` finds its course by the encoded receivers."""
    kept = _RECORD.decode(data)
    course = course_of(bytes(kept.targets), bytes(kept.local))
    held = Held(
        (kept.publisher, kept.epoch, kept.sequence),
        kept.root,
        kept.departure_ns,
        kept.since_ns,
        kept.lifetime_ns,
        kept.size_bytes,
        kept.hops,
        kept.content,
        course,
        error_ns=kept.error_ns,
        period=kept.period,
        check=kept.check,
        is_restored=True,
        restored_for=course.local,
    )
    held.expires_ns = held.wakes_ns = kept.since_ns + course.latest_ns
    return held


def event_key(id: EventId) -> str:
    """The key of an event in the durable store: one event, one key."""
    publisher, epoch, sequence = id
    return f"event/{epoch}/{sequence}/{publisher}"


def in_sequence(events: Sequence[Held]) -> Iterator[Held]:
    """The same events with those of each publisher in sequence, in the positions of that publisher.

    Events that are routed again come in the order in which they were held, and the first may leave at once.
    """
    publishers: dict[tuple[str, int], list[Held]] = {}
    for held in events:
        publishers.setdefault(held.id[:2], []).append(held)
    turns = {name: iter(sorted(theirs, key=lambda held: held.id[2])) for name, theirs in publishers.items()}
    return (next(turns[held.id[:2]]) for held in events)


class Part:
    """The shut clients that events of one course wait for, and their subscriptions; immutable, so events share it."""

    __slots__ = ("_without", "last_ns", "local", "peers", "soonest_ns")

    def __init__(self, local: dict[str, dict[str, tuple[Term, ...]]], peers: dict[str, Peer]) -> None:
        self.local = local
        self.peers = peers
        ends_ns = [_last_ns(wanted) for wanted in local.values()]
        self.soonest_ns, self.last_ns = min(ends_ns), max(ends_ns)
        self._without: dict[str, Part | None] = {}

    def without(self, client: str) -> "Part | None":
        """The same but for one client; None if there is no other."""
        if client not in self._without:
            rest = {name: wanted for name, wanted in self.local.items() if name != client}
            self._without[client] = Part(rest, {name: self.peers[name] for name in rest}) if rest else None
        return self._without[client]

    def wanted_by(self, queue: Queue) -> dict[str, tuple[Term, ...]]:
        """What the client with this queue wants."""
        return next(self.local[client] for client, peer in self.peers.items() if peer.outbox.queue is queue)

    def overdue(self, age_ns: int) -> list[str]:
        """The clients that no longer want an event of this age."""
        return [client for client, wanted in self.local.items() if _last_ns(wanted) <= age_ns]


class Group:
    """Events under way together; `pending` are the peers that have not acknowledged, with their lots.

    If a receiver was shut, the members have lists of their own as well.
    """

    __slots__ = ("_holdings", "id", "members", "pending", "wakes_ns")

    def __init__(self, holdings: "Holdings", members: list[Held]) -> None:
        self._holdings = holdings
        self.members = members
        self.pending: dict[Peer, Lot] = {}
        self.id: EventId = members[0].id
        self.wakes_ns = min(held.since_ns for held in members) + members[0].course.latest_ns

    def ended(self, peer: Peer) -> None:
        """A peer has acknowledged all of them."""
        del self.pending[peer]
        if not self.pending:
            members, self.members = self.members, []  # break the reference cycle
            for held in members:
                held.course, held.group = NO_COURSE, None
            self._holdings.settle(*members)

    def undo(self) -> None:
        """Hold each event separately, with parcels instead of lots."""
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
        """Owe each event to the peers whose lots are pending; the home brokers among them, with the next hop."""
        course = self.members[0].course
        clients = [lot.peer.name for lot in pending if lot.peer.kind == "client"]
        hops = {lot.peer.name for lot in pending if lot.peer.kind == "broker"}
        homes = {home: hop for home, hop in course.hops.items() if hop in hops}
        for held in self.members:
            held.leave_group()
            held.take_on_local({client: course.local[client] for client in clients})
            held.take_on({home: course.targets[home] for home in homes})
        return homes


class Holdings:
    """All events of one broker. `wake_by` gets the time of the first expiry, `on_kept` every event that is stored or
    found in the store, and `on_gone` every event that is released."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        store: Callable[[str, bytes], None],
        erase: Callable[[str], None],
        wake_by: Callable[[int], None],
        on_kept: Callable[[Held], None] | None = None,
        on_gone: Callable[[EventId], None] | None = None,
    ) -> None:
        self.held: dict[EventId, Held] = {}
        self.unread: dict[str, bytes] = {}
        """Stored events that are not read yet, by their keys."""
        self.size_bytes = 0
        """The total length of the contents; for unread events, of the records."""
        self._keeps = settings.buffers
        self._store = store
        self._erase = erase
        self._wake_by = wake_by
        self._on_kept = on_kept
        self._on_gone = on_gone
        self._courses: dict[tuple[bytes, bytes], Course] = {}  # of events from the store, by the encoded receivers
        self._expiries: list[tuple[int, EventId]] = []

    def __len__(self) -> int:
        return len(self.held) + len(self.unread)

    def get(self, id: EventId) -> Held | None:
        """A held event, separately."""
        held = self.held.get(id)
        if held is not None:
            self._single_out(held)
        return held

    def each(self, wanted: Callable[[Course], bool]) -> list[Held]:
        """All held events, each separately; of stored ones, only those of wanted courses."""
        answers: dict[int, bool] = {}
        for held in list(self.held.values()):
            course = held.course
            if held.group is not None or course is NO_COURSE:
                self._single_out(held)
            else:
                if id(course) not in answers:
                    answers[id(course)] = wanted(course)
                if answers[id(course)]:
                    self._single_out(held)
        return [held for held in self.held.values() if held.course is NO_COURSE]

    def hold(self, held: Held) -> None:
        """Hold an event separately."""
        self._put(held)
        self.note_expiry(held)

    def _put(self, held: Held) -> None:
        before = self.held.get(held.id)
        if before is not held:
            self.size_bytes += len(held.content) - (0 if before is None else len(before.content))
            self.held[held.id] = held

    def hold_part(
        self,
        events: Sequence[Held],
        targets: Mapping[str, tuple[Term, ...]],
        local: Mapping[str, dict[str, tuple[Term, ...]]],
    ) -> None:
        """Hold events for these receivers, each with a list of its own; others are covered by the group, if there is
        one."""
        ends_ns = [*map(latest_ns, targets.values()), *map(_last_ns, local.values())]
        soonest_ns, last_ns = min(ends_ns), max(ends_ns)
        for held in events:
            if held.group is None:
                held.course = NO_COURSE
            held.targets, held.local, held.parcels, held.handed, held.addressed = {**targets}, {**local}, {}, {}, {}
            held.wakes_ns, held.expires_ns = held.since_ns + soonest_ns, held.since_ns + last_ns
            if self.held.get(held.id) is not held:
                self._put(held)
        self.note_expiry(*events)

    def hold_waiting(self, events: Sequence[Held], part: Part) -> None:
        """Hold events for shut clients, with lists that they share; others are covered by the group, if any."""
        for held in events:
            if held.group is None:
                held.course = NO_COURSE
            held.part, held.local = part, part.local
            held.wakes_ns, held.expires_ns = held.since_ns + part.soonest_ns, held.since_ns + part.last_ns
            if self.held.get(held.id) is not held:
                self._put(held)
        self.note_expiry(*events)

    def keep(self, held: Held) -> None:
        """Store an event, with buffering."""
        if self._keeps:
            self._store(event_key(held.id), held.record())
            if self._on_kept is not None:
                self._on_kept(held)

    def settle(self, *events: Held) -> None:
        """Release events that are owed to nobody any more."""
        for held in events:
            if held.targets or held.local or held.group is not None:
                continue  # not done: this is checked for every event
            # The same event may have arrived again after this one was done.
            if self.held.get(held.id) is held:
                del self.held[held.id]
                self.size_bytes -= len(held.content)
                if self._keeps:
                    self._erase(event_key(held.id))
                    if self._on_gone is not None:
                        self._on_gone(held.id)

    def hold_together(self, members: list[Held], exits: Sequence[Exit], now_ns: int) -> None:
        """Hold and store events of one course that have left by these exits."""
        for held in members:
            self._put(held)
            self._store(event_key(held.id), held.record())
            if self._on_kept is not None:
                self._on_kept(held)
        if not exits:
            return
        group = Group(self, members)
        for held in members:
            held.group = group
        sizes = (len(members), sum(len(held.content) for held in members), max(held.size_bytes for held in members))
        for peer, outbox, _ in exits:
            group.pending[peer] = outbox.add_lot(peer, group, *sizes, now_ns)
        self.note_expiry(group)

    def _single_out(self, held: Held) -> None:
        course = held.course
        if held.group is not None:
            held.group.undo()
        elif course is NO_COURSE:
            held.own()
        else:
            held.alone()
            held.take_on(course.targets)
            held.take_on_local(course.local)

    # -- from the store ------------------------------------------------------------------------------------------

    def restore(self, events: Mapping[str, bytes]) -> None:
        """Enter events of the durable store, by their keys; they are read later, in sequence."""
        # Keys of one publisher's epoch differ in the sequence number alone: a shorter key has a lower one.
        self.unread.update((key, events[key]) for key in sorted(sorted(events), key=len))
        self.size_bytes += sum(map(len, events.values()))

    def read(self, most: int | None, now_ns: int) -> list[Held]:
        """Read the next stored events, or all; those that have not expired."""
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
            self.size_bytes -= len(data)
            if held.expires_ns > now_ns:
                self._put(held)
                heapq.heappush(self._expiries, (held.expires_ns, held.id))
                entered.append(held)
                if self._on_kept is not None:
                    self._on_kept(held)
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
        """When something may expire."""
        return self._expiries[0][0] if self._expiries else None

    def expired(self, now_ns: int) -> Iterator[Held]:
        """Events that a receiver may no longer want: release them, or check again (`note_expiry`)."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            held = self.held.get(heapq.heappop(self._expiries)[1])
            if held is None:
                continue
            if held.part is None or (held.group is not None and held.group.wakes_ns <= now_ns):
                self._single_out(held)
            if held.wakes_ns <= now_ns:
                yield held

    def note_expiry(self, *events: Held | Group) -> None:
        """Set the time to check events, or groups of them."""
        self._wake_by(min([what.wakes_ns for what in events]))
        for what in events:
            heapq.heappush(self._expiries, (what.wakes_ns, what.id))
        if len(self._expiries) > 2 * len(self.held) + _SPARE:
            self._expiries = [(_wakes_ns(held), held.id) for held in self.held.values()]
            heapq.heapify(self._expiries)
