"""Events that go straight through a broker: nothing waits for those they are for.

- The events of a step are sorted by their course, and each neighbour and client of a course is given all of them
  together, as bytes that were made once. Whoever is of several courses of a step gets its events one by one, in the
  order in which they came.
- With buffering, the events that have left together are held together (`_holdings`); without, they are not held.
- As soon as somebody is away, has no credit left, or has events waiting, the events for it (and not those for the
  others) are held and queued like any others (`_carrier`), so that the strategy decides what leaves first. With
  buffering that holds for the whole event: it is stored once, for all whom it is for.
"""

from collections.abc import Callable, Iterable

from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._courses import Course
from tidings.protocol.broker._dispatch import Dispatch
from tidings.protocol.broker._held import Held
from tidings.protocol.broker._holdings import Holdings
from tidings.protocol.broker._memory import Memory
from tidings.protocol.links._peers import Peer

__all__ = ["Straight"]


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
        note: Callable[..., None],
        keep: Callable[[Held, int], None],
        keep_for: Callable[[Held, Iterable[Peer], int], None],
    ) -> None:
        self.events: list[Held] = []
        """Those of this step: their courses have ways, and everybody whom they are for still wants them."""
        self._buffers = settings.buffers
        self._holdings = holdings
        self._memory = memory
        self._dispatch = dispatch
        self._note = note
        self._keep = keep
        self._keep_for = keep_for

    def __len__(self) -> int:
        return len(self.events)

    def flush(self, now_ns: int) -> None:
        """Send them on."""
        if not self.events:
            return
        events, self.events = self.events, []
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
        is_seen = self._memory.seen.has_any(batch)
        shut = [peer for peer, outbox, _ in course.ways or () if not (peer.is_up and outbox.takes(many))]
        if many > 1 and (is_seen or shut or len({held.id for held in group}) < many):
            for held in group:
                self._send([held], now_ns)
        elif is_seen or (shut and self._buffers):
            self._keep(group[0], now_ns)
        else:
            self._leave(group, course, shut, now_ns)
            if batch:
                self._memory.remember_all(group, stay_ns, batch)

    def _leave(self, group: list[Held], course: Course, shut: list[Peer], now_ns: int) -> None:
        """Events leave, but for those who are shut."""
        events = [held.encode(now_ns) for held in group]
        size_bytes, encoded_bytes = sum(held.size_bytes for held in group), sum(map(len, events))
        for peer, outbox, targets in course.ways or ():
            if peer not in shut:
                if not outbox.leaving:
                    self._dispatch.leaves_for(peer)
                outbox.leave(targets, events, size_bytes, encoded_bytes)
        if self._buffers:
            self._holdings.hold_together(group, now_ns)
        for place, held in enumerate(group):
            if held.is_noted:
                self._write_down(held.id, course, len(group) - place, shut)
            if shut:
                self._keep_for(held, shut, now_ns)

    def _write_down(self, event: EventId, course: Course, from_last: int, shut: list[Peer]) -> None:
        if course.local:
            self._note("local", event)
        for peer, outbox, _ in course.ways or ():
            if peer in shut:
                continue
            self._note("enqueued", event, peer.name)
            wanted = course.local.get(peer.name, {}) if peer.kind == "client" else {}
            self._note("sent", event, peer.name, outbox.window.next_number - from_last, tuple(wanted))


def _are_apart(courses: list[Course]) -> bool:
    """Whether nobody is of two of these courses."""
    seen: set[int] = set()
    count = 0
    for course in courses:
        seen.update(course.outboxes)
        count += len(course.outboxes)
    return count == len(seen)
