"""Events that go straight through a broker: nothing waits for those they are for.

Without buffering an event that can leave at once needs no custody; with it, the events that leave together are kept
together (`_groups`). The events of a step are sorted by their course, and
each neighbour and client of a course is given all of them together, as bytes that were made once. Whoever is of several
courses of a step gets its events one by one, in the order in which they came. As soon as somebody is away, has no
credit left, or has events waiting, the events for it (and not those for the others) are kept and queued like any others
(`Carrier`), so that the strategy decides what leaves first.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidings.protocol._effects import EventId
from tidings.protocol.broker._courses import Course
from tidings.protocol.links._outbox import Outbox
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import Event, Publication, encode_plain

__all__ = ["Published", "Straight"]


class Published(NamedTuple):
    """A client's event with its departure on this broker's clock, whom it is for, and whether it is traced."""

    id: EventId
    said: Publication
    lifetime_ns: int
    since_ns: int
    course: Course
    is_noted: bool


class Straight:
    """What goes straight on in the present step; `leaving` is told who gets something.

    `keep` is given what does not, and for whom; None stands for everybody whom it is for, nobody having it yet. With
    buffering, `left` is told what has left, and answers for it.
    """

    def __init__(
        self,
        name: str,
        *,
        leaving: Callable[[Peer], None],
        keep: Callable[[Published, frozenset[Peer] | None, int], None],
        is_seen: Callable[[EventId], bool],
        remember: Callable[[EventId, int], None],
        note: Callable[..., None],
        left: Callable[[list[Published], int], None] | None,
    ) -> None:
        self._name = name
        self._left = left
        self._leaving = leaving
        self._keep = keep
        self._is_seen = is_seen
        self._remember = remember
        self._note = note
        self._events: list[Published] = []

    def __len__(self) -> int:
        return len(self._events)

    def add(self, published: Published) -> None:
        """An event whose course has ways, and that everybody whom it is for still wants."""
        self._events.append(published)

    def flush(self, now_ns: int) -> None:
        """Send them on."""
        if not self._events:
            return
        events, self._events = self._events, []
        groups: dict[int, list[Published]] = {}
        for published in events:
            groups.setdefault(id(published.course), []).append(published)
        if not _are_apart([group[0].course for group in groups.values()]):
            groups = dict(enumerate([published] for published in events))
        for group in groups.values():
            self._send(group, now_ns)

    def _send(self, group: list[Published], now_ns: int) -> None:
        """Events of one course, to all whom they are for."""
        course, many = group[0].course, len(group)
        ways = course.ways or ()
        is_copied = many > 1 and len({published.id for published in group}) < many
        if is_copied or (course.local and any(self._is_seen(published.id) for published in group)):
            self._send_singly(group, now_ns)
            return
        shut = [peer for peer, outbox, _ in ways if outbox.queued or not peer.is_up or _room(outbox) < many]
        if shut and many > 1:
            self._send_singly(group, now_ns)
            return
        if shut and self._left is not None:
            self._keep(group[0], None, now_ns)
            return
        events = [self._encoded(published, now_ns) for published in group]
        size_bytes = sum(published.said.size_bytes for published in group)
        for peer, outbox, targets in ways:
            if peer not in shut:
                if not outbox.leaving:
                    self._leaving(peer)
                outbox.leave(targets, events, size_bytes)
        if self._left is not None:
            self._left(group, now_ns)
        for published in group:
            if course.local:
                self._remember(published.id, published.since_ns + max(published.lifetime_ns, course.latest_ns))
            if published.is_noted:
                self._write_down(published.id, course, many - group.index(published), shut)
            if shut:
                self._keep(published, frozenset(shut), now_ns)

    def _send_singly(self, group: list[Published], now_ns: int) -> None:
        for published in group:
            if published.course.local and self._is_seen(published.id):
                self._keep(published, None, now_ns)
            else:
                self._send([published], now_ns)

    def _encoded(self, published: Published, now_ns: int) -> bytes:
        said = published.said
        age_ns = now_ns - published.since_ns
        id, lifetime_ns = published.id, published.lifetime_ns
        return encode_plain(
            Event(*id, self._name, said.departure_ns, age_ns, lifetime_ns, said.size_bytes, 0, said.content)
        )

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
