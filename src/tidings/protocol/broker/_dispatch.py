"""What leaves a broker for its peers at the end of a step: together with other events, or alone (papers C, D).

- *Straight.* Events of clients, and those of neighbours that are for clients here alone, are grouped by course. Each
  neighbour and client of a course that is connected and has an empty queue gets all of them together, as bytes that
  were encoded once. A peer in several courses of a step gets its events one by one, in the order in which they came.
  With buffering, events that left together are held together (`_held`); without, they are not held.
- A peer that is away, has no credit left, or has events queued is *shut*: events for it (and not those for the others)
  are held and queued like any others (`_carrier`), so that the strategy decides what leaves first. An event is stored
  once, for all its receivers.
- *Alone.* Each part of an event that is held separately is a parcel. It leaves at once if the peer's queue is empty and
  one more may be under way. Otherwise it waits in the peer's outbox. It ends when its peer has acknowledged it, or when
  the queue has dropped it: the event is no longer owed to its targets. Without buffering it ends as it leaves.
- What waits for a client that wants the latest events alone may be replaced by what comes (`_conflation`).
- All events for a peer in a step leave in as few frames as possible (`flush`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import TransferState
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._conflation import Conflation
from tidings.protocol.broker._courses import Course, Courses, Exit
from tidings.protocol.broker._held import Held, Holdings, Part
from tidings.protocol.broker._ledgers import UNAUDITED
from tidings.protocol.broker._memory import Memory
from tidings.protocol.links._outbox import FAR
from tidings.protocol.links._peers import Peer, Ports
from tidings.protocol.links._window import Parcel
from tidings.protocol.wire import Ack, Term
from tidings.scheduling import Reason

__all__ = ["Dispatch", "Straight"]


class Dispatch:
    """The exit of one broker; `retry_at` gets the time when something may have to be sent again to a peer."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        holdings: Holdings,
        courses: Courses,
        accounts: Accounts,
        conflation: Conflation,
        ports: Ports,
        retry_at: Callable[[Peer, int], None],
    ) -> None:
        self.conflation = conflation
        self.epoch = 0
        self.events_out = 0
        """How many events have left, in all frames; those sent again count once."""
        self._buffers = settings.buffers
        self._probe_ns = settings.probe_ns
        self._holdings = holdings
        self._courses = courses
        self._accounts = accounts
        self._send_events = ports.send_events
        self._note = ports.note
        self._count = ports.count
        self._retry_at = retry_at
        self.leaving: list[Peer] = []
        """The peers with frames at the end of this step."""

    def note_leaving(self, peer: Peer) -> None:
        """Note that a peer gets frames at the end of this step."""
        self.leaving.append(peer)

    def flush(self, now_ns: int) -> None:
        """Send the frames of this step."""
        leaving, self.leaving = self.leaving, []
        for peer in leaving:
            outbox = peer.outbox
            self.events_out += len(outbox.leaving)
            for frame in outbox.frames(self.epoch, now_ns):
                self._send_events(peer, "Transfer", frame)
            self._retry_at(peer, outbox.left_due_ns)

    def offer(self, peer: Peer, parcels: Sequence[Parcel], now_ns: int) -> None:
        """Send parcels to a peer, or queue them."""
        outbox = peer.outbox
        if self.conflation.applies_to(peer) and (len(parcels) > 1 or not (peer.is_up and outbox.takes(1))):
            self._conflate(peer, parcels, now_ns)
            self._pump_queued(peer, now_ns)
            return
        rest: list[Parcel] = []
        for parcel in parcels:
            if parcel.held.is_noted:
                self._note_queued(parcel.held, peer, parcel.targets)
            if not rest and peer.is_up and outbox.takes(1):
                self._send(parcel, now_ns)
            else:
                rest.append(parcel)
        if rest:
            dropped = outbox.enqueue(rest, now_ns)
            if dropped:
                self._lose(peer, dropped, "full")
            self._pump_queued(peer, now_ns)

    def queue(self, events: Sequence[Held], part: Part, now_ns: int) -> None:
        """Queue events themselves for the shut clients that they wait for."""
        dropped = []
        conflated: list[Peer] = []
        for client, peer in sorted(part.peers.items()):
            if self.conflation.applies_to(peer):
                conflated.append(peer)
                continue
            for held in events:
                if held.is_noted:
                    self._note_queued(held, peer, part.local[client])
            dropped.append((peer, peer.outbox.enqueue_events(events, part.local[client], now_ns)))
        for peer, gone in dropped:
            if gone:
                self._lose(peer, gone, "full")
        for peer in conflated:  # an event may have lists of its own after that
            self._conflate(peer, events, now_ns)
        for _, peer in sorted(part.peers.items()):  # what leaves has lists of its own, so nothing leaves before
            self._pump_queued(peer, now_ns)

    def _conflate(self, peer: Peer, items: Sequence[Parcel | Held], now_ns: int) -> None:
        """Queue events for a client that wants the latest alone."""
        for item in items:
            held = item.held if isinstance(item, Parcel) else item
            each = item if isinstance(item, Parcel) or held.part is not None else held.handed[peer.name]
            wanted = each.targets if isinstance(each, Parcel) else each.local[peer.name]
            if held.is_noted:
                self._note_queued(held, peer, wanted)
            gone = self.conflation.enqueue(peer, each, now_ns)
            if gone:
                self._lose(peer, gone, "full")

    def _note_queued(self, held: Held, peer: Peer, targets: Iterable[str]) -> None:
        self._note("enqueued", held, peer.name, -1, tuple(targets), None, held.since_ns, held.departure_ns)

    def renew(self, peer: Peer, now_ns: int) -> None:
        """A peer is back: events under way are sent again before newer ones, those that nothing has replaced."""
        peer.outbox.hasten(now_ns)
        self.conflation.renew(peer)
        if not peer.outbox.is_congested:
            self.resend(peer, now_ns)

    def _pump_queued(self, peer: Peer, now_ns: int) -> None:
        self.pump(peer, now_ns)
        if peer.is_up and not peer.outbox.under_way:
            self._retry_at(peer, now_ns + self._probe_ns)

    def pump(self, peer: Peer, now_ns: int, *, probing: bool = False) -> None:
        """Send what may be sent, in the order of the strategy."""
        outbox = peer.outbox
        while peer.is_up and (outbox.window.room > 0 or probing):
            probing = False
            chosen, deleted = outbox.next(now_ns)
            for reason, gone in groupby(deleted, key=itemgetter(1)):
                self._lose(peer, [each for each, _ in gone], reason)
            if chosen is None:
                return
            if not isinstance(chosen, Parcel):
                chosen.own()
                chosen = chosen.handed[peer.name]
            self._send(chosen, now_ns)

    def resend(self, peer: Peer, now_ns: int) -> None:
        """Send again events that were not acknowledged in time."""
        outbox = peer.outbox
        outbox.window.forget_lost(now_ns)
        for count, frame in outbox.again(self.epoch, now_ns):
            self._count("resent", count)
            self._send_events(peer, "Transfer", frame)

    def overtake(self, peer: Peer, now_ns: int) -> None:
        """Send a neighbour that has no room for what is under way an event that has come further: it may take that."""
        if peer.kind == "broker":
            parcel = peer.outbox.next_further(FAR, now_ns)
            if parcel is not None:
                self._send(parcel, now_ns)

    def acknowledged(self, peer: Peer, ack: Ack, now_ns: int) -> None:
        """A peer has taken on events."""
        for parcel in peer.outbox.acknowledge(ack.numbers, ack.held_ns, now_ns):
            self._end(parcel)
        if peer.outbox.window.gone:
            for parcel in peer.outbox.window.take_back_gone(ack.numbers):
                self._drop(parcel, parcel.targets, -1)  # it had expired here, and arrived in time nevertheless
        if peer.outbox.queued:
            self.pump(peer, now_ns)

    def withdraw(self, peer: Peer) -> None:
        """Take back events queued for a peer, and those under way if the peer is lost: other paths may lead
        there."""
        for parcel in peer.outbox.withdraw(under_way=not peer.is_up):
            self._note("withdrawn", parcel.held, peer.name)
            self.unlink(parcel)

    def give_up(self, parcel: Parcel) -> None:
        """Do not send a parcel any more."""
        if parcel.state is TransferState.WAITING:
            self._note("withdrawn", parcel.held, parcel.peer.name)
        parcel.peer.outbox.give_up(parcel)

    def unlink(self, parcel: Parcel) -> list[str]:
        """Remove a parcel from its event; the targets that no other parcel is for."""
        held, name = parcel.held, parcel.peer.name
        if parcel.peer.kind == "client":
            if held.handed.get(name) is not parcel:
                return []
            del held.handed[name]
            return [name]
        ended = [target for target in parcel.targets if held.parcels.get(target) is parcel]
        for target in ended:
            del held.parcels[target]
        return ended

    def _send(self, parcel: Parcel, now_ns: int) -> None:
        peer, held = parcel.peer, parcel.held
        targets = self._courses.targets_of(parcel.targets, is_client=peer.kind == "client")
        if not peer.outbox.leaving:
            self.leaving.append(peer)
        peer.outbox.send(parcel, targets, now_ns)
        if peer.kind == "client" and peer.name in held.restored_for:
            self._accounts.arrived_for(peer.name, parcel.targets)
        if held.is_noted:
            self._note("sent", held, peer.name, parcel.number, tuple(parcel.targets))
        if not self._buffers:
            self._end(parcel)

    def _lose(self, peer: Peer, gone: Sequence[Parcel | Held], reason: Reason) -> None:
        """The queue of a peer has dropped events: they are too late, or too many."""
        self._count(reason, len(gone))
        for each in gone:
            self._note(reason, each.held if isinstance(each, Parcel) else each, peer.name)
        if peer.kind == "client":
            self._lose_for(peer.name, gone)
            return
        for each in gone:
            assert isinstance(each, Parcel), "events themselves wait for clients only"
            self._drop(each, self._end(each))

    def _lose_for(self, client: str, gone: Sequence[Parcel | Held]) -> None:
        """Count events that will not reach a client; those for the same subscriptions together."""
        counts: dict[int, tuple[Mapping[str, tuple[Term, ...]], int]] = {}
        events: list[Held] = []
        for each in gone:
            if isinstance(each, Parcel):
                held, wanted = each.held, each.targets
                if held.handed.get(client) is not each:
                    continue
                del held.handed[client]
                held.local.pop(client, None)
                if held.restored_for:
                    self._drop(each, wanted)
                    wanted = {}
            else:
                held, wanted = each, each.local[client]
                held.leave_part(client)
            events.append(held)
            counts[id(wanted)] = (wanted, counts.get(id(wanted), (wanted, 0))[1] + 1)
        for names, many in counts.values():
            self._accounts.dropped_here(client, names, many)
        self._holdings.settle(*events)

    def _drop(self, parcel: Parcel, targets: Iterable[str], many: int = 1) -> None:
        if parcel.peer.kind == "client":
            count = self._accounts.replaced if parcel.is_replaced else self._accounts.dropped
            count(parcel.held, parcel.peer.name, targets, many, was_sent=parcel.tries > 0)
        else:
            self._accounts.dropped_in_transit(parcel.held, targets, many)

    def _end(self, parcel: Parcel) -> list[str]:
        """The event is no longer owed to the targets of a parcel, unless a later parcel is for them."""
        held = parcel.held
        ended = self.unlink(parcel)
        for target in ended:
            (held.local if parcel.peer.kind == "client" else held.targets).pop(target, None)
        self._holdings.settle(held)
        return ended


class Straight:
    """The events that are sent straight on in the present step.

    `keep` gets those that are not, whole; `keep_for` those that some of their receivers have not got.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        holdings: Holdings,
        memory: Memory,
        dispatch: Dispatch,
        accounts: Accounts,
        note: Callable[..., None],
        keep: Callable[[Held, int], None],
        keep_for: Callable[[list[Held], Sequence[Peer], int], None],
    ) -> None:
        self.events: list[Held] = []
        """Those of this step: their courses have exits, and all receivers still want them."""
        self.size_bytes = 0
        """The total length of their contents."""
        self._ids: set[EventId] = set()
        self._buffers = settings.buffers
        self._holdings = holdings
        self._memory = memory
        self._dispatch = dispatch
        self._accounts = accounts
        self._note = note
        self._keep = keep
        self._keep_for = keep_for

    def __len__(self) -> int:
        return len(self.events)

    def __contains__(self, id: EventId) -> bool:
        return id in self._ids

    def add(self, held: Held) -> None:
        """Add an event."""
        self.events.append(held)
        self._ids.add(held.id)
        self.size_bytes += len(held.content)

    def flush(self, now_ns: int) -> None:
        """Send the events on, and store which events clients here were given in this step."""
        if self.events:
            self.send(now_ns)
        if self._memory.unstored:
            self._memory.flush()

    def send(self, now_ns: int) -> None:
        """Send the events on."""
        events, self.events, self.size_bytes = self.events, [], 0
        self._ids.clear()
        groups: dict[int, list[Held]] = {}
        for held in events:
            groups.setdefault(id(held.course), []).append(held)
        if not _are_apart([group[0].course for group in groups.values()]):
            groups = dict(enumerate([held] for held in events))
        for group in groups.values():
            self._send(group, now_ns)

    def _send(self, group: list[Held], now_ns: int) -> None:
        """Send events of one course: together to all receivers, or else one by one."""
        course, many = group[0].course, len(group)
        stay_ns = max(group[0].lifetime_ns, course.latest_ns)  # they live equally long: they share a course
        batch = self._memory.batch(group, stay_ns) if course.local else {}
        shut = [peer for peer, outbox, _ in course.exits or () if not (peer.is_up and outbox.takes(many))]
        is_odd = self._memory.seen.has_any(batch) or (shut and self._buffers and _is_any_unaudited(group))
        if many > 1 and (is_odd or len({held.id for held in group}) < many):
            for held in group:
                self._send([held], now_ns)
        elif is_odd or (shut and group[0].id in self._holdings.held):
            self._keep(group[0], now_ns)
        else:
            self._leave(group, course, shut, now_ns)
            if batch:
                self._memory.remember_all(group, stay_ns, batch)

    def _leave(self, group: list[Held], course: Course, shut: list[Peer], now_ns: int) -> None:
        """Send events to all receivers that are not shut."""
        if course.local:
            counts: dict[tuple[str, int], int] = {}
            for held in group:
                accepted = (held.root, held.period)
                counts[accepted] = counts.get(accepted, 0) + 1
            for (root, period), many in counts.items():
                self._accounts.arrived(course, root, period, many)
        exits = course.exits or ()
        if shut:
            exits = tuple(leg for leg in exits if leg[0] not in shut)
        if exits:
            are_local = [outbox.is_local for _, outbox, _ in exits]
            encoded = [] if all(are_local) else [held.encode(now_ns) for held in group]
            handed = [*group] if any(are_local) else []
            size_bytes, encoded_bytes = sum(held.size_bytes for held in group), sum(map(len, encoded))
            handed_bytes = sum(len(held.content) for held in handed)
            until_ns = min(held.since_ns for held in group) + course.soonest_ns
            for peer, outbox, targets in exits:
                if not outbox.leaving:
                    self._dispatch.note_leaving(peer)
                if outbox.is_local:
                    outbox.leave(targets, handed, size_bytes, handed_bytes, until_ns)
                else:
                    outbox.leave(targets, encoded, size_bytes, encoded_bytes, until_ns)
        if self._buffers:
            self._holdings.hold_together(group, exits, now_ns)
        for place, held in enumerate(group):
            if held.is_noted:
                self._write_down(held, course, len(group) - place, exits)
        if shut:
            self._keep_for(group, shut, now_ns)

    def _write_down(self, held: Held, course: Course, from_last: int, exits: Iterable[Exit]) -> None:
        if course.local:
            self._note("local", held)
        for peer, outbox, _ in exits:
            self._note("enqueued", held, peer.name, -1, (), None, held.since_ns, held.departure_ns)
            wanted = course.local.get(peer.name, {}) if peer.kind == "client" else {}
            self._note("sent", held, peer.name, outbox.window.next_number - from_last, tuple(wanted))


def _is_any_unaudited(group: list[Held]) -> bool:
    """Whether one of them may have been accepted elsewhere too: that is noted of events held by themselves."""
    return any(held.period == UNAUDITED for held in group)


def _are_apart(courses: list[Course]) -> bool:
    """Whether no peer is in two of these courses."""
    seen: set[int] = set()
    count = 0
    for course in courses:
        seen.update(course.outboxes)
        count += len(course.outboxes)
    return count == len(seen)
