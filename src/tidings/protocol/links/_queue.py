"""The queue of a link, in the order of the scheduling strategy (paper C, section 3).

- The strategy decides what leaves next, and what is no longer worth sending. It sees every event as columns: the prices
  and deadlines of receivers behind the link, and how long the rest of the path takes.
- At `max_queued` events, or `max_bytes` of their contents, the one with the least expected benefit is dropped.
- A publisher's events leave in sequence if receivers behind the link want order (`scheduling._chains`): an event
  belongs to its publisher's chain if the terms of one of its targets require it (IN_ORDER). All others are free.
- The strategy sees the terms that pay. What is late or hopeless for all of those, and still wanted late by somebody,
  waits behind: it leaves when nothing else waits, and otherwise gets LATE_SHARE of the bytes that leave, the first that
  was late first. At a bound it is dropped before anything that can still be in time. Where a receiver wants order, late
  events keep their place in the sequence instead.
- When routes change, everything in the queue is withdrawn and routed again.
- A newer event may take the place of one that waits (`supersede`): it leaves when the older one would have left, so
  that what is replaced again and again gets its turn. Where the older one's deadline ends that, it is entered as it is.
- The time that events waited before they left is counted, by size (`_histogram`).
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidings.protocol._histogram import bucket_of
from tidings.protocol._states import TRANSFER_STEPS, TransferState, TransferStep
from tidings.protocol.links._latest import Latest
from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._window import TYPICAL_KB, Parcel
from tidings.protocol.wire import IN_ORDER, Term
from tidings.scheduling import Arrival, Columns, DeferredQueue, Deleted, Reason, Strategy

if TYPE_CHECKING:
    from tidings.protocol.broker._held import Held
    from tidings.protocol.broker._link_state import Path

__all__ = ["LATE_SHARE", "Queue"]

LATE_SHARE: Final = 0.05
"""Of the bytes that leave while other events wait, the share of those that are late."""

_NO_PATHS: "Final[dict[str, Path]]" = {}
"""To a client of this broker."""

_RETIME: Final = 1.25
"""The strategy gets another time per turn when it differs by this factor."""
_DROPPED: Final = TRANSFER_STEPS[TransferState.WAITING, TransferStep.EXPIRED]
_SPARE: Final = 64
"""The strategy's queue may hold twice the waiting events and this many more; then it is built again."""


class Queue:
    """The parcels that wait for one peer."""

    def __init__(self, strategy: Strategy, meter: LinkMeter, *, processing_s: float, max_queued: int) -> None:
        self.size = 0
        """How many wait."""
        self.size_bytes = 0
        """The total length of their contents."""
        self.waits: dict[int, int] = {}
        """How long those that left had waited; queues may share it."""
        self._strategy = strategy
        self._meter = meter
        self._processing_s = processing_s
        self._max_queued = max_queued
        self.max_bytes = sys.maxsize
        """The most bytes of contents; if it is lowered, events are dropped with the next arrival."""
        self._queue: DeferredQueue[Parcel | Held] | None = None
        self._waiting: dict[Parcel | Held, int] = {}  # since when
        self._stand_ins: dict[Parcel | Held, Parcel | Held] = {}  # for what the strategy's queue still has
        self._roots: dict[Parcel | Held, Parcel | Held] = {}  # the reverse
        self._again: list[tuple[Parcel | Held, int]] = []  # stand-ins whose place has ended
        self._late: dict[Parcel | Held, None] = {}  # what waits behind, by what the strategy's queue had, in order
        self._late_bytes = 0.0  # of late events that may leave before the next other one
        self.latest: Latest[Parcel | Held] | None = None
        """For a client that wants the latest events of some keys alone."""
        self._turn_s = 0.0
        self._known_columns: tuple[Any, ...] = (None, None, 0.0, 0.0, (), False)

    def push(self, parcels: Sequence[Parcel], now_ns: int) -> list["Parcel | Held"]:
        """Queue events; those that were dropped because there are too many, or too many bytes."""
        arrivals: list[Arrival[Parcel | Held]] = []
        last: Parcel | None = None
        for parcel in parcels:
            held = parcel.held
            self._waiting[parcel] = now_ns
            self.size_bytes += len(held.content)
            if last is None or parcel.targets is not last.targets or parcel.paths is not last.paths:
                columns, is_ordered = self._columns(parcel.targets, parcel.paths)
                last = parcel
            chain = held.id[:2] if is_ordered else None
            arrivals.append((parcel, held.since_ns * 1e-9, held.size_bytes / 1000.0, columns, chain, held.id[2]))
        return self._arrived(arrivals, now_ns)

    def push_events(
        self, events: Sequence["Held"], wanted: Mapping[str, tuple[Term, ...]], now_ns: int
    ) -> list["Parcel | Held"]:
        """Queue events themselves, for the same subscriptions of a client."""
        columns, is_ordered = self._columns(wanted, _NO_PATHS)
        arrivals: list[Arrival[Parcel | Held]] = []
        for held in events:
            self._waiting[held] = now_ns
            self.size_bytes += len(held.content)
            chain = held.id[:2] if is_ordered else None
            arrivals.append((held, held.since_ns * 1e-9, held.size_bytes / 1000.0, columns, chain, held.id[2]))
        return self._arrived(arrivals, now_ns)

    def _arrived(self, arrivals: "Sequence[Arrival[Parcel | Held]]", now_ns: int) -> list["Parcel | Held"]:
        if self._queue is None:
            self._turn_s = TYPICAL_KB * self._meter.mean_s_per_kb
            self._queue = DeferredQueue(
                self._strategy, turn_s=self._turn_s, processing_s=self._processing_s, max_queued=self._max_queued
            )
        self.size += len(arrivals)
        dropped: list[Parcel | Held] = []
        while self._late and (self.size > self._max_queued or self.size_bytes > self.max_bytes):
            dropped.append(self._drop(self._first_late()))
        dropped += self._dropped(self._queue.push_all(arrivals, now_ns * 1e-9), now_ns)
        while self.size_bytes > self.max_bytes and (gone := self._queue.drop(1, now_ns * 1e-9)):
            dropped += self._dropped(gone, now_ns)
        return dropped + self._enter_again(now_ns) if self._again else dropped

    def holds(self, item: "Parcel | Held") -> bool:
        """Whether this waits here."""
        return item in self._waiting

    def use(self, strategy: Strategy) -> None:
        """Order what waits, and all that comes, by this strategy from now on."""
        self._strategy = strategy
        if self._queue is not None:
            self._rebuild()

    def replace(self, event: "Held", parcel: Parcel) -> None:
        """A parcel waits in place of the event itself."""
        since_ns = self._waiting.pop(event, None)
        if since_ns is not None:
            self._waiting[parcel] = since_ns
            self._put_for(event, parcel)
            if self.latest is not None:
                self.latest.replace(event, parcel)

    def supersede(self, item: "Parcel | Held", newer: "Parcel | Held", now_ns: int) -> list["Parcel | Held"]:
        """A newer event takes the place of one that waits; what is dropped because there are too many bytes."""
        del self._waiting[item]
        self._put_for(item, newer)
        self._left(item)
        self._waiting[newer] = now_ns
        self.size += 1
        self.size_bytes += len(_event(newer).content)
        return self._arrived((), now_ns) if self.size_bytes > self.max_bytes else []

    def _put_for(self, item: "Parcel | Held", other: "Parcel | Held") -> None:
        root = self._roots.pop(item, item)
        self._stand_ins[root] = other
        self._roots[other] = root

    def _found(self, root: "Parcel | Held") -> "Parcel | Held | None":
        """What has left the strategy's queue, or its stand-in; None: it waits no more."""
        item = self._stand_ins.get(root, root)
        if item in self._waiting:
            return item
        self._stand_ins.pop(root, None)
        return None

    def _dropped(self, deleted: "Iterable[Deleted[Parcel | Held]]", now_ns: int) -> list["Parcel | Held"]:
        """What is no longer worth sending; what is still wanted late waits behind."""
        dropped = []
        for gone in deleted:
            root = gone.waiting.event
            item = self._found(root)
            if item is None:
                continue
            if _event(item) is not _event(root):
                del self._stand_ins[root], self._roots[item]
                self._again.append((item, self._waiting[item]))
            elif gone.reason != "full" and self._is_wanted_late(item, now_ns):
                self._late[root] = None
            else:
                dropped.append(self._drop(item))
        return dropped

    def _drop(self, item: "Parcel | Held") -> "Parcel | Held":
        del self._waiting[item]
        self._left(item)
        if isinstance(item, Parcel):
            item.state = _DROPPED
        return item

    def _is_wanted_late(self, item: "Parcel | Held", now_ns: int) -> bool:
        """Whether a term that pays nothing holds on, after the strategy has seen those that pay."""
        terms = [term for each in self._targets(item).values() for term in each]
        if IN_ORDER in terms or not any(price for _, price in terms):
            return False  # the strategy has seen all of them
        age_ns = now_ns - _event(item).since_ns
        return any(allowed_ns > age_ns for allowed_ns, price in terms if not price)

    def _targets(self, item: "Parcel | Held") -> Mapping[str, tuple[Term, ...]]:
        if isinstance(item, Parcel):
            return item.targets
        assert item.part is not None, "it has lists of its own, and no parcel here"
        return item.part.wanted_by(self)

    def is_late(self, item: "Parcel | Held") -> bool:
        """Whether this waits behind all that can still be in time."""
        return bool(self._late) and self._roots.get(item, item) in self._late

    def _first_late(self) -> "Parcel | Held":
        root = next(iter(self._late))
        return self._stand_ins.get(root, root)

    def _next_late(self, now_ns: int, gone: "list[tuple[Parcel | Held, Reason]]") -> "Parcel | Held | None":
        """The late event that leaves next; those that nobody wants any more are dropped."""
        while self._late:
            item = self._first_late()
            if self._is_wanted_late(item, now_ns):
                return item
            gone.append((self._drop(item), "expired"))
        return None

    def _enter_again(self, now_ns: int) -> list["Parcel | Held"]:
        """Enter stand-ins as what they are: the place of the older event has ended."""
        again, self._again = self._again, []
        dropped = []
        for item, since_ns in again:
            del self._waiting[item]
            self._shrink(item)
            dropped += self._push(item, now_ns)
            if item in self._waiting:
                self._waiting[item] = since_ns
        return dropped

    def _push(self, item: "Parcel | Held", now_ns: int) -> list["Parcel | Held"]:
        if isinstance(item, Parcel):
            return self.push((item,), now_ns)
        return self.push_events((item,), self._targets(item), now_ns)

    def pop(
        self, turn_s: float | None, now_ns: int
    ) -> "tuple[Parcel | Held | None, list[tuple[Parcel | Held, Reason]]]":
        """What the strategy sends next over a link that needs `turn_s` for one event, and what it deletes, with the
        reason."""
        gone: list[tuple[Parcel | Held, Reason]] = []
        if self._queue is None:
            return None, gone
        self._retime(self._queue, turn_s or TYPICAL_KB * self._meter.mean_s_per_kb)
        while True:
            late = self._next_late(now_ns, gone) if self._late else None
            if late is not None and self._late_bytes >= _event(late).size_bytes:
                self._late_bytes -= _event(late).size_bytes
                return self._leave(late, now_ns), gone
            chosen, deleted = self._queue.pop(now_ns * 1e-9)
            for each in deleted:
                gone += [(item, each.reason) for item in self._dropped((each,), now_ns)]
            if self._again:
                gone += [(item, "full") for item in self._enter_again(now_ns)]
            elif chosen is None and late is None and self._late:
                continue
            elif chosen is None:
                return None if late is None else self._leave(late, now_ns), gone
            item = None if chosen is None else self._found(chosen.event)
            if item is not None:
                if self._late:
                    self._late_bytes += _event(item).size_bytes * LATE_SHARE / (1.0 - LATE_SHARE)
                return self._leave(item, now_ns), gone

    def _leave(self, item: "Parcel | Held", now_ns: int) -> "Parcel | Held":
        since_ns = self._waiting.pop(item)
        self._left(item)
        self._note_wait(now_ns - since_ns)
        return item

    def pop_further(self, hops: int, now_ns: int) -> Parcel | None:
        """The event that has come over the most links, and over more than these, whatever the strategy says.

        Of each publisher's events only the earliest that waits may leave.
        """
        firsts: dict[tuple[str, int], Parcel] = {}
        for each in self._waiting:
            assert isinstance(each, Parcel), "events themselves wait for clients only"
            first = firsts.setdefault(each.held.id[:2], each)
            if each.held.id[2] < first.held.id[2]:
                firsts[each.held.id[:2]] = each
        furthest = max(firsts.values(), key=lambda each: each.held.hops, default=None)
        if furthest is None or furthest.held.hops <= hops:
            return None
        self._note_wait(now_ns - self._waiting[furthest])
        self.give_up(furthest)
        return furthest

    def _note_wait(self, waited_ns: int) -> None:
        if waited_ns:
            bucket = bucket_of(waited_ns)
            self.waits[bucket] = self.waits.get(bucket, 0) + 1

    def give_up(self, item: "Parcel | Held") -> None:
        """The event has expired, or is no longer wanted."""
        # The strategy still has it, and skips it when its turn comes; too many of those make it be built again.
        if self._waiting.pop(item, None) is None or self._queue is None:
            return
        self._left(item)
        if not self.size:
            self._forget()
        elif len(self._queue) > 2 * self.size + _SPARE:
            self._rebuild()

    def _rebuild(self) -> None:
        waiting = self._waiting.copy()
        self._forget()
        for each, since_ns in waiting.items():
            self._push(each, since_ns)

    def withdraw(self) -> list[Parcel]:
        """Take back everything."""
        for each in list(self._waiting):
            if not isinstance(each, Parcel):
                each.own()
        parcels = [each for each in self._waiting if isinstance(each, Parcel)]
        self._forget()
        self.latest = None
        return parcels

    def _forget(self) -> None:
        self._waiting.clear()
        self._stand_ins.clear()
        self._roots.clear()
        self._late.clear()
        self._late_bytes = 0.0
        self.size = self.size_bytes = 0
        self._queue = None

    def _left(self, item: "Parcel | Held") -> None:
        """Something waits no more."""
        self._shrink(item)
        if self.latest is not None:
            self.latest.leave(item)
        if self._late:
            self._late.pop(self._roots.get(item, item), None)
            if not self._late:
                self._late_bytes = 0.0
        if self._roots:
            root = self._roots.pop(item, None)
            if root is not None:
                self._stand_ins.pop(root, None)

    def _shrink(self, item: "Parcel | Held") -> None:
        self.size -= 1
        self.size_bytes -= len(_event(item).content)

    def _retime(self, queue: "DeferredQueue[Parcel | Held]", turn_s: float) -> None:
        if not self._turn_s / _RETIME <= turn_s <= self._turn_s * _RETIME:
            self._turn_s = turn_s
            queue.retime(turn_s)

    def _columns(self, targets: Mapping[str, tuple[Term, ...]], paths: "Mapping[str, Path]") -> tuple[Columns, bool]:
        """Events as the strategy sees them: one column for each payment behind the link, and whether a receiver there
        wants order."""
        meter = self._meter
        # Events of one course share their targets, so the columns are often those of the event before.
        known, known_paths, mean, variance, columns, is_ordered = self._known_columns
        if (
            targets is not known
            or paths != known_paths
            or (meter.mean_s_per_kb, meter.variance_s2_per_kb2) != (mean, variance)
        ):
            is_ordered = any(IN_ORDER in terms for terms in targets.values())
            columns = tuple(_columns(targets.items(), paths, meter))
            if not is_ordered:
                columns = tuple(column for column in columns if column[1]) or columns
            facts = (targets, paths, meter.mean_s_per_kb, meter.variance_s2_per_kb2)
            self._known_columns = (*facts, columns, is_ordered)
        return columns, is_ordered


def _event(item: "Parcel | Held") -> "Held":
    return item.held if isinstance(item, Parcel) else item


def _columns(
    targets: Iterable[tuple[str, tuple[Term, ...]]], paths: "Mapping[str, Path]", meter: LinkMeter
) -> Iterator[tuple[float, float, float, float, float]]:
    for target, terms in targets:
        path = paths.get(target)
        nodes = 0.0 if path is None else float(path.nodes)
        mean = meter.mean_s_per_kb if path is None else path.mean_s_per_kb
        variance = meter.variance_s2_per_kb2 if path is None else path.variance_s2_per_kb2
        for allowed_ns, price in terms[1:] if IN_ORDER in terms else terms:
            yield allowed_ns * 1e-9, price, nodes, mean, math.sqrt(variance)
