"""The events that a broker holds, and when they expire.

To hold an event is to owe it to somebody: to the home brokers that no other broker has taken on yet (`targets`), and to
clients here who have not acknowledged it yet (`local`). It is durable before it is acknowledged, and let go when nobody
is owed it any more. Each part of it ends when whoever it is owed to wants it no more. `since_ns` is its departure on
this broker's own clock, so its age is always at hand. Whether it came from a client, a neighbour or the durable store,
it is `Held`, in one of three ways:

- *By itself* (`Held.alone`), with its own account of whom it is owed to and of what is on its way to them. So is every
  event as soon as something happens to it alone.
- *In a group*: together with others of its course that have left for everybody who was open. They are stored one by
  one, so that each can be erased by itself; but who still has to acknowledge them is one account for all. What waits
  for those who were shut is each event's own account meanwhile (`hold_part`). When the group's account is empty, the
  events that nothing else is owed of are done, and the others are held by themselves. A group is undone when its first
  event expires, when somebody has acknowledged only a part of it, or when routes or clients change. Each event then has
  a parcel for every peer that has not acknowledged.
- *As the store kept it.* A broker that starts again may hold very many events, and others wait for it meanwhile. It
  reads `read_at_once` of them when it starts, and so many again every `read_pause_ns` while it serves. One that is not
  read yet counts as held. It goes on, if there is a route or a client for it, when it is read; if it comes again before
  that, it is read first. What is read shares a course with all events for the same receivers, and is held by itself
  when a client or a route comes for that course, when the event itself comes again, or when it expires.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Self, cast

import msgspec
from msgspec import Raw

from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import TransferState
from tidings.protocol.broker._courses import NO_COURSE, Course, Way, latest_ns, read_course
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._window import Lot, Parcel
from tidings.protocol.wire import LONGEST_NS, Term, Trace, encode_plain

__all__ = ["Group", "Held", "Holdings", "event_key", "in_sequence", "read_record"]

_NOBODY: Final = cast("dict[str, Any]", MappingProxyType({}))
"""The account of an event that has none of its own: it cannot be written to."""
_MOST_HOPS: Final = 255
"""As many as a transfer can say."""
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
    """Whom it is owed to, all of them, unless it is held by itself."""
    is_noted: bool = False
    """Whether it is written down what happens to it."""
    error_ns: int | None = None
    """By how much the links that it came over may have made its age wrong; None: not known."""
    group: "Group | None" = None
    """What it has left together with, if that is how it is held."""
    trace: Trace | None = None
    expires_ns: int = 0
    """When nobody wants it any more."""
    wakes_ns: int = 0
    """When it has to be looked at: the first of those whom it is owed to may want it no more."""
    targets: dict[str, tuple[Term, ...]] = _NOBODY
    local: dict[str, dict[str, tuple[Term, ...]]] = _NOBODY
    parcels: dict[str, Parcel] = _NOBODY
    """By home broker: what is on its way there."""
    handed: dict[str, Parcel] = _NOBODY
    """By client: the same."""
    addressed: dict[str, str] = _NOBODY
    """By client: the address under which the event came, and nobody else here got it."""
    encoded_ns: int = -1
    encoded: bytes = b""
    period: int = 0
    """Of its acceptance (`_ledgers`); 0: of none."""
    check: int | None = None
    """The publisher's checksum of the content."""
    is_restored: bool = False
    """Whether a durable store kept it: somebody whom it is owed to may have it already."""
    restored_for: Mapping[str, Any] = _NOBODY
    """The clients here for whom it did."""

    def alone(self) -> Self:
        """Held by itself from now on, and owed to nobody yet."""
        self.course, self.group = NO_COURSE, None
        self.expires_ns, self.wakes_ns = self.since_ns, LONGEST_NS
        self.targets, self.local, self.parcels, self.handed, self.addressed = {}, {}, {}, {}, {}
        return self

    def leave_group(self) -> None:
        """Held by itself from now on, with the account of its own that it may have."""
        if self.local is _NOBODY:
            self.alone()
        self.course, self.group = NO_COURSE, None

    @property
    def is_alone(self) -> bool:
        """Whether it is held by itself."""
        return self.course is NO_COURSE

    @property
    def is_done(self) -> bool:
        """Whether it is owed to nobody any more."""
        return not self.targets and not self.local and self.group is None

    def take_on(self, targets: Mapping[str, tuple[Term, ...]]) -> list[str]:
        """Owe it to these home brokers too; those for which something has to be done.

        A target that is on its way to somebody else counts as new: who sends it back may be the one who took it, and
        its acknowledgement, still to come, must not end an obligation that has just been taken on again.
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

    def overdue(self, now_ns: int) -> tuple[list[str], list[str]]:
        """The home brokers and the clients that it is owed to and that want it no more. What goes to several brokers
        together does so until the last of them wants it no more."""
        if self.expires_ns <= now_ns:
            return list(self.targets), list(self.local)
        age_ns = now_ns - self.since_ns
        targets = [target for target in self.targets if self._last_there_ns(target) <= age_ns]
        return targets, [client for client, wanted in self.local.items() if _last_ns(wanted) <= age_ns]

    def let_go(self, targets: Iterable[str], clients: Iterable[str]) -> None:
        """Owe it to these no longer; it is looked at again when the next of the others may want it no more."""
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
        """The home brokers that nothing is on its way to."""
        return [target for target in self.targets if target not in self.parcels]

    def count_as(self, root: str, period: int) -> None:
        """Another broker has accepted it too, and tells in which period: who gets it from now on counts it there."""
        self.root, self.period = root, period
        self.encoded_ns = -1

    def encode(self, now_ns: int) -> bytes:
        """The event as transfers say it now: `wire.Event`, field by field."""
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
        """The same, kept for all others who are sent it at this time."""
        if self.encoded_ns != now_ns:
            self.encoded_ns = now_ns
            self.encoded = self.encode(now_ns)
        return self.encoded

    def record(self) -> bytes:
        """What the durable store keeps; times are the broker's clock, which goes on over a restart."""
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
        """Whom it is owed to, elsewhere and here, as the record says it."""
        targets, local = self.targets, self.local
        if self.addressed:
            # What came to one client by name is no proof that the others here have it: it is kept under its address.
            named = {client: target for client, target in self.addressed.items() if client in local}
            targets = targets | {target: max(local[client].values(), key=latest_ns) for client, target in named.items()}
            local = {client: wanted for client, wanted in local.items() if client not in named}
        return targets, local


def _last_ns(wanted: Mapping[str, tuple[Term, ...]]) -> int:
    """The age from which on none of these wants the event."""
    return max(map(latest_ns, wanted.values()), default=0)


def _wakes_ns(held: Held) -> int:
    """When an event has to be looked at, for its own account or for its group's."""
    if held.group is None:
        return held.wakes_ns
    return held.group.wakes_ns if held.local is _NOBODY else min(held.group.wakes_ns, held.wakes_ns)


class _Record(msgspec.Struct, array_like=True, gc=False):
    """What `Held.record` writes; one that an earlier version wrote ends with the content."""

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
    """An event that the durable store kept; `course_of` finds its course by how the record says whom it is owed to."""
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
    """The same events; each publisher's take the places that they have, but in sequence.

    What finds its way anew comes in the order in which it was held, and the first of it may leave at once.
    """
    publishers: dict[tuple[str, int], list[Held]] = {}
    for held in events:
        publishers.setdefault(held.id[:2], []).append(held)
    turns = {name: iter(sorted(theirs, key=lambda held: held.id[2])) for name, theirs in publishers.items()}
    return (next(turns[held.id[:2]]) for held in events)


class Group:
    """Events under way together; `pending` are the peers that have not acknowledged, with their lots.

    If somebody was shut, its members have accounts of their own as well.
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
            members, self.members = self.members, []  # they refer to the group: nobody should have to find that circle
            for held in members:
                held.course, held.group = NO_COURSE, None
            self._holdings.settle(*members)

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
            held.leave_group()
            held.take_on_local({client: course.local[client] for client in clients})
            held.take_on({home: course.targets[home] for home in homes})
        return homes


class Holdings:
    """All events of one broker; `wake_by` is told when the first of them expires, `on_kept` what is stored or was found
    in the store, and `on_gone` what is held no longer."""

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
        """Events that the store kept and that are not read yet, by their keys."""
        self.size_bytes = 0
        """How long the contents of all are together; of those that are not read yet, their records."""
        self._keeps = settings.buffers
        self._store = store
        self._erase = erase
        self._wake_by = wake_by
        self._on_kept = on_kept
        self._on_gone = on_gone
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
        """Hold events for these, each with an account of its own; for others their group is, if they have one."""
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

    def keep(self, held: Held) -> None:
        """Store an event, if this broker stores at all."""
        if self._keeps:
            self._store(event_key(held.id), held.record())
            if self._on_kept is not None:
                self._on_kept(held)

    def settle(self, *events: Held) -> None:
        """Let go of events that are owed to nobody any more."""
        for held in events:
            if held.targets or held.local or held.group is not None:
                continue  # not done: this is asked for every event
            # The same event may have come again since this one was done: that one is not.
            if self.held.get(held.id) is held:
                del self.held[held.id]
                self.size_bytes -= len(held.content)
                if self._keeps:
                    self._erase(event_key(held.id))
                    if self._on_gone is not None:
                        self._on_gone(held.id)

    def hold_together(self, members: list[Held], ways: Sequence[Way], now_ns: int) -> None:
        """Hold, and store, events of one course that have left these ways."""
        for held in members:
            self._put(held)
            self._store(event_key(held.id), held.record())
            if self._on_kept is not None:
                self._on_kept(held)
        if not ways:
            return
        group = Group(self, members)
        for held in members:
            held.group = group
        sizes = (len(members), sum(len(held.content) for held in members), max(held.size_bytes for held in members))
        for peer, outbox, _ in ways:
            group.pending[peer] = outbox.add_lot(peer, group, *sizes, now_ns)
        self.note_expiry(group)

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
        """Events that the durable store kept, by their keys; they are not read yet. They are read in sequence."""
        # Keys of one publisher's life differ in the sequence number alone: a shorter key has a lower one.
        self.unread.update((key, events[key]) for key in sorted(sorted(events), key=len))
        self.size_bytes += sum(map(len, events.values()))

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
        """When it may be that something has expired."""
        return self._expiries[0][0] if self._expiries else None

    def expired(self, now_ns: int) -> Iterator[Held]:
        """What somebody whom it is owed to may want no more: let go of it, or look again (`note_expiry`)."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            held = self.get(heapq.heappop(self._expiries)[1])
            if held is not None and held.wakes_ns <= now_ns:
                yield held

    def note_expiry(self, *events: Held | Group) -> None:
        """Look at events, or groups of them, when it is time to."""
        self._wake_by(min([what.wakes_ns for what in events]))
        for what in events:
            heapq.heappush(self._expiries, (what.wakes_ns, what.id))
        if len(self._expiries) > 2 * len(self.held) + _SPARE:
            self._expiries = [(_wakes_ns(held), held.id) for held in self.held.values()]
            heapq.heapify(self._expiries)
