"""What leaves a broker for its peers at the end of a step: together with others, or by itself (papers C, D).

- *Straight.* Clients' events are sorted by their course, and each neighbour and client of a course that is there, with
  nothing waiting for it, is given all of them together, as bytes that were made once. Whoever is of several courses of
  a step gets its events one by one, in the order in which they came. With buffering, the events that have left together
  are held together (`_held`); without, they are not held.
- As soon as somebody is away, has no credit left, or has events waiting, it is *shut*: the events for it (and not those
  for the others) are held and queued like any others (`_carrier`), so that the strategy decides what leaves first. An
  event is stored once, for all whom it is for.
- *By itself.* Each part of an event that is held by itself is a parcel. It leaves at once if nothing waits for its peer
  and one more may be under way. Otherwise it waits in the peer's outbox. It ends when its peer has acknowledged it, or
  when the queue has let it go: the event is no longer owed to those whom it was for. Without buffering it ends as it
  leaves.
- All that leaves for a peer in a step leaves in as few frames as can be (`flush`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._states import TransferState
from tidings.protocol.broker._accounts import Accounts
from tidings.protocol.broker._courses import Course, Courses, Way
from tidings.protocol.broker._held import Held, Holdings
from tidings.protocol.broker._ledgers import UNAUDITED
from tidings.protocol.broker._memory import Memory
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._window import Parcel
from tidings.protocol.wire import Ack
from tidings.scheduling import Reason

__all__ = ["Dispatch", "Straight"]


class Dispatch:
    """The exit of one broker; `retry_at` is told when something may have to be sent again to a peer."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        holdings: Holdings,
        courses: Courses,
        accounts: Accounts,
        send_events: Callable[[Peer, str, bytes], None],
        note: Callable[..., None],
        count: Callable[..., None],
        retry_at: Callable[[Peer, int], None],
    ) -> None:
        self.epoch = 0
        self.events_out = 0
        """How many events have left, in whatever frames; those that were sent again count once."""
        self._buffers = settings.buffers
        self._probe_ns = settings.probe_ns
        self._notes = settings.tracing
        self._holdings = holdings
        self._courses = courses
        self._accounts = accounts
        self._send_events = send_events
        self._note = note
        self._count = count
        self._retry_at = retry_at
        self.leaving: list[Peer] = []
        """Those who are sent something at the end of this step."""

    def leaves_for(self, peer: Peer) -> None:
        """Something leaves for a peer with this step, the first."""
        self.leaving.append(peer)

    def flush(self, now_ns: int) -> None:
        """Send what leaves with this step."""
        leaving, self.leaving = self.leaving, []
        for peer in leaving:
            outbox = peer.outbox
            self.events_out += len(outbox.leaving)
            for frame in outbox.frames(self.epoch, now_ns):
                self._send_events(peer, "Transfer", frame)
            self._retry_at(peer, outbox.left_due_ns)

    def offer(self, peer: Peer, parcels: Iterable[Parcel], now_ns: int) -> None:
        """Let parcels for a peer leave, or wait."""
        outbox = peer.outbox
        rest: list[Parcel] = []
        for parcel in parcels:
            if self._notes:
                self._note("enqueued", parcel.held.id, peer.name, -1, tuple(parcel.targets))
            if not rest and peer.is_up and outbox.takes(1):
                self._send(parcel, now_ns)
            else:
                rest.append(parcel)
        if not rest:
            return
        dropped = outbox.enqueue(rest, now_ns)
        if dropped:
            self._lose(peer, dropped, "full")
        self.pump(peer, now_ns)
        if peer.is_up and not outbox.under_way:
            self._retry_at(peer, now_ns + self._probe_ns)

    def pump(self, peer: Peer, now_ns: int, *, probing: bool = False) -> None:
        """Send what may be sent, in the order of the strategy."""
        outbox = peer.outbox
        while peer.is_up and (outbox.window.room > 0 or probing):
            probing = False
            parcel, deleted = outbox.next(now_ns)
            for gone, reason in deleted:
                self._lose(peer, (gone,), reason)
            if parcel is None:
                return
            self._send(parcel, now_ns)

    def resend(self, peer: Peer, now_ns: int) -> None:
        """Send again what was not acknowledged in time."""
        outbox = peer.outbox
        outbox.window.let_lost_go(now_ns)
        for count, frame in outbox.again(self.epoch, now_ns):
            self._count("resent", count)
            self._send_events(peer, "Transfer", frame)

    def acknowledged(self, peer: Peer, said: Ack, now_ns: int) -> None:
        """A peer has taken events on."""
        for parcel in peer.outbox.acknowledge(said.numbers, said.held_ns, now_ns):
            self._end(parcel)
        if peer.outbox.window.gone:
            for parcel in peer.outbox.window.not_gone(said.numbers):
                self._drop(parcel, parcel.targets, -1)  # it had expired here, and was there all the same
        if peer.outbox.queued:
            self.pump(peer, now_ns)

    def withdraw(self, peer: Peer) -> None:
        """Take back what waits for a peer, and if it is lost what is under way to it: others may get it there."""
        for parcel in peer.outbox.withdraw(under_way=not peer.is_up):
            self._note("withdrawn", parcel.held.id, peer.name)
            self.unlink(parcel)

    def give_up(self, parcel: Parcel) -> None:
        """An event is to go to this peer no more."""
        if parcel.state is TransferState.WAITING:
            self._note("withdrawn", parcel.held.id, parcel.peer.name)
        parcel.peer.outbox.give_up(parcel)

    def unlink(self, parcel: Parcel) -> list[str]:
        """Nothing is on its way any more to where this parcel, and no later one, was to go."""
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
        peer.outbox.send(parcel, targets, held.encode_once(now_ns), now_ns)
        if peer.kind == "client" and peer.name in held.restored_for:
            self._accounts.arrived_for(peer.name, parcel.targets)
        self._note("sent", held.id, peer.name, parcel.number, tuple(parcel.targets))
        if not self._buffers:
            self._end(parcel)

    def _lose(self, peer: Peer, parcels: Sequence[Parcel], reason: Reason) -> None:
        """The queue of a peer has let events go: it is too late for them, or there were too many."""
        self._count(reason, len(parcels))
        for parcel in parcels if self._notes else ():
            self._note(reason, parcel.held.id, peer.name)
        if peer.kind == "client":
            self._lose_for(peer.name, parcels)
        else:
            for parcel in parcels:
                self._drop(parcel, self._end(parcel))

    def _lose_for(self, client: str, parcels: Sequence[Parcel]) -> None:
        """Events will not reach a client; those for the same subscriptions are counted together."""
        counts: dict[int, tuple[Parcel, int]] = {}
        for parcel in parcels:
            held = parcel.held
            if held.handed.get(client) is not parcel:
                continue
            del held.handed[client]
            held.local.pop(client, None)
            if held.restored_for:
                self._drop(parcel, parcel.targets)
            else:
                counts[id(parcel.targets)] = (parcel, counts.get(id(parcel.targets), (parcel, 0))[1] + 1)
        for parcel, many in counts.values():
            self._drop(parcel, parcel.targets, many)
        self._holdings.settle(*[parcel.held for parcel in parcels])

    def _drop(self, parcel: Parcel, targets: Iterable[str], many: int = 1) -> None:
        if parcel.peer.kind == "client":
            self._accounts.dropped(parcel.held, parcel.peer.name, targets, many, was_sent=parcel.tries > 0)
        else:
            self._accounts.dropped_on_the_way(parcel.held, targets, many)

    def _end(self, parcel: Parcel) -> list[str]:
        """The event is no longer owed to those whom the parcel was for, and nothing else is on its way to."""
        held = parcel.held
        ended = self.unlink(parcel)
        for target in ended:
            (held.local if parcel.peer.kind == "client" else held.targets).pop(target, None)
        self._holdings.settle(held)
        return ended


class Straight:
    """What goes straight on in the present step.

    `keep` is given what does not, whole: nobody has it yet; `keep_for` what some of those whom it is for have not.
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
        keep_for: Callable[[list[Held], Iterable[Peer], int], None],
    ) -> None:
        self.events: list[Held] = []
        """Those of this step: their courses have ways, and everybody whom they are for still wants them."""
        self.size_bytes = 0
        """How long their contents are together."""
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

    def add(self, held: Held) -> None:
        """One more."""
        self.events.append(held)
        self.size_bytes += len(held.content)

    def flush(self, now_ns: int) -> None:
        """Send them on, and store which events clients here were given in this step."""
        self.send(now_ns)
        if self._memory.unstored:
            self._memory.flush()

    def send(self, now_ns: int) -> None:
        """Send them on."""
        events, self.events, self.size_bytes = self.events, [], 0
        groups: dict[int, list[Held]] = {}
        for held in events:
            groups.setdefault(id(held.course), []).append(held)
        if not _are_apart([group[0].course for group in groups.values()]):
            groups = dict(enumerate([held] for held in events))
        for group in groups.values():
            self._send(group, now_ns)

    def _send(self, group: list[Held], now_ns: int) -> None:
        """Events of one course: together to all whom they are for, or else one by one."""
        course, many = group[0].course, len(group)
        stay_ns = max(group[0].lifetime_ns, course.latest_ns)  # they live equally long, or they had not one course
        batch = self._memory.batch(group, stay_ns) if course.local else {}
        shut = [peer for peer, outbox, _ in course.ways or () if not (peer.is_up and outbox.takes(many))]
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
        """Events leave, but for those who are shut."""
        if course.local:
            for period, many in Counter(held.period for held in group).items():
                self._accounts.arrived(course, group[0].root, period, many)
        ways = course.ways or ()
        if shut:
            ways = tuple(way for way in ways if way[0] not in shut)
        if ways:
            events = [held.encode(now_ns) for held in group]
            size_bytes, encoded_bytes = sum(held.size_bytes for held in group), sum(map(len, events))
            for peer, outbox, targets in ways:
                if not outbox.leaving:
                    self._dispatch.leaves_for(peer)
                outbox.leave(targets, events, size_bytes, encoded_bytes)
        if self._buffers:
            self._holdings.hold_together(group, ways, now_ns)
        for place, held in enumerate(group):
            if held.is_noted:
                self._write_down(held.id, course, len(group) - place, ways)
        if shut:
            self._keep_for(group, shut, now_ns)

    def _write_down(self, event: EventId, course: Course, from_last: int, ways: Iterable[Way]) -> None:
        if course.local:
            self._note("local", event)
        for peer, outbox, _ in ways:
            self._note("enqueued", event, peer.name)
            wanted = course.local.get(peer.name, {}) if peer.kind == "client" else {}
            self._note("sent", event, peer.name, outbox.window.next_number - from_last, tuple(wanted))


def _is_any_unaudited(group: list[Held]) -> bool:
    """Whether one of them may have been accepted elsewhere too: that is noted of events that are held by themselves."""
    return any(held.period == UNAUDITED for held in group)


def _are_apart(courses: list[Course]) -> bool:
    """Whether nobody is of two of these courses."""
    seen: set[int] = set()
    count = 0
    for course in courses:
        seen.update(course.outboxes)
        count += len(course.outboxes)
    return count == len(seen)
