"""Events that go straight through a broker: nothing waits for those they are for.

Without buffering an event that can leave at once needs no custody; with it, the events that leave together are kept
together (`_holdings`). The events of a step are sorted by their course, and
each neighbour and client of a course is given all of them together, as bytes that were made once. Whoever is of several
courses of a step gets its events one by one, in the order in which they came. As soon as somebody is away, has no
credit left, or has events waiting, the events for it (and not those for the others) are kept and queued like any others
(`Carrier`), so that the strategy decides what leaves first.
"""

from collections.abc import Callable

from tidings.protocol._effects import EventId
from tidings.protocol.broker._courses import Course
from tidings.protocol.broker._held import Held
from tidings.protocol.links._outbox import Outbox
from tidings.protocol.links._peers import Peer

__all__ = ["Straight"]


class Straight:
    """What goes straight on in the present step; `leaving` is told who gets something.

    `keep` is given what does not, and for whom; None stands for everybody whom it is for, nobody having it yet. With
    buffering, `left` is told what has left, and answers for it.
    """

    def __init__(
        self,
        *,
        leaving: Callable[[Peer], None],
        keep: Callable[[Held, frozenset[Peer] | None, int], None],
        is_seen: Callable[[EventId], bool],
        remember: Callable[[EventId, int], None],
        note: Callable[..., None],
        left: Callable[[list[Held], int], None] | None,
    ) -> None:
        self._left = left
        self._leaving = leaving
        self._keep = keep
        self._is_seen = is_seen
        self._remember = remember
        self._note = note
        self._events: list[Held] = []

    def __len__(self) -> int:
        return len(self._events)

    def add(self, held: Held) -> None:
        """An event whose course has ways, and that everybody whom it is for still wants."""
        self._events.append(held)

    def flush(self, now_ns: int) -> None:
        """Send them on."""
        if not self._events:
            return
        events, self._events = self._events, []
        groups: dict[int, list[Held]] = {}
        for held in events:
            groups.setdefault(id(held.course), []).append(held)
        if not _are_apart([group[0].course for group in groups.values()]):
            groups = dict(enumerate([held] for held in events))
        for group in groups.values():
            self._send(group, now_ns)

    def _send(self, group: list[Held], now_ns: int) -> None:
        """Events of one course, to all whom they are for."""
        course, many = group[0].course, len(group)
        ways = course.ways or ()
        is_copied = many > 1 and len({held.id for held in group}) < many
        if is_copied or (course.local and any(self._is_seen(held.id) for held in group)):
            self._send_singly(group, now_ns)
            return
        shut = [peer for peer, outbox, _ in ways if outbox.queued or not peer.is_up or _room(outbox) < many]
        if shut and many > 1:
            self._send_singly(group, now_ns)
            return
        if shut and self._left is not None:
            self._keep(group[0], None, now_ns)
            return
        events = [held.encode(now_ns) for held in group]
        size_bytes = sum(held.size_bytes for held in group)
        for peer, outbox, targets in ways:
            if peer not in shut:
                if not outbox.leaving:
                    self._leaving(peer)
                outbox.leave(targets, events, size_bytes)
        if self._left is not None:
            self._left(group, now_ns)
        for held in group:
            if course.local:
                self._remember(held.id, held.since_ns + max(held.lifetime_ns, course.latest_ns))
            if held.is_noted:
                self._write_down(held.id, course, many - group.index(held), shut)
            if shut:
                self._keep(held, frozenset(shut), now_ns)

    def _send_singly(self, group: list[Held], now_ns: int) -> None:
        for held in group:
            if held.course.local and self._is_seen(held.id):
                self._keep(held, None, now_ns)
            else:
                self._send([held], now_ns)

    def _write_down(self, event: EventId, course: Course, from_last: int, shut: list[Peer]) -> None:
        if course.local:
            self._note("local", event)
        for peer, outbox, _ in course.ways or ():
            if peer in shut:
                continue
            self._note("enqueued", event, peer.name)
            wanted = course.local.get(peer.name, {}) if peer.kind == "client" else {}
            self._note("sent", event, peer.name, outbox.next_number - from_last, tuple(wanted))


def _room(outbox: Outbox) -> int:
    return outbox.most - outbox.under_way


def _are_apart(courses: list[Course]) -> bool:
    """Whether nobody is of two of these courses."""
    seen: set[int] = set()
    count = 0
    for course in courses:
        seen.update(course.outboxes)
        count += len(course.outboxes)
    return count == len(seen)
