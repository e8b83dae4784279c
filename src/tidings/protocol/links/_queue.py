"""What waits for a link, in the order of the scheduling strategy (paper C, section 3).

- The strategy decides what leaves next, and what is not worth sending any more. For that it sees every event as
  columns: what somebody behind the link pays for it, until when, and how long the rest of the path takes.
- At `max_queued` events, or `max_bytes` of their contents, the one with the least expected benefit is dropped.
- A publisher's events leave in sequence as far as somebody behind the link wants order (`scheduling._chains`): an event
  is of its publisher's chain if the terms of one of its targets say so (IN_ORDER). All others are free.
- When routes change, everything that waits is withdrawn and finds its way anew.
- How long events waited before they left is counted, by size (`_histogram`).
"""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tidings.protocol._histogram import bucket_of
from tidings.protocol._states import TRANSFER_STEPS, TransferState, TransferStep
from tidings.protocol.broker._link_state import Path
from tidings.protocol.links._meter import LinkMeter
from tidings.protocol.links._window import TYPICAL_KB, Parcel
from tidings.protocol.wire import IN_ORDER, Term
from tidings.scheduling import Arrival, Columns, DeferredQueue, Deleted, Reason, Strategy

__all__ = ["Queue"]

_RETIME: Final = 1.25
"""The strategy is told of another time per turn when it differs by this factor."""
_DROPPED: Final = TRANSFER_STEPS[TransferState.WAITING, TransferStep.EXPIRED]
_SPARE: Final = 64
"""So many more than still wait may be in the strategy's queue, twice over: then it is made anew."""


class Queue:
    """The parcels that wait for one peer."""

    def __init__(self, strategy: Strategy, meter: LinkMeter, *, processing_s: float, max_queued: int) -> None:
        self.size = 0
        """How many wait."""
        self.size_bytes = 0
        """How long their contents are together."""
        self.waits: dict[int, int] = {}
        """How long those waited that left; queues may share it."""
        self._strategy = strategy
        self._meter = meter
        self._processing_s = processing_s
        self._max_queued = max_queued
        self.max_bytes = sys.maxsize
        """How long their contents may be together; less than now, and some go with the next that comes."""
        self._queue: DeferredQueue[Parcel] | None = None
        self._waiting: dict[Parcel, int] = {}  # since when
        self._turn_s = 0.0
        self._known_columns: tuple[Any, ...] = (None, None, 0.0, 0.0, (), False)

    def push(self, parcels: Sequence[Parcel], now_ns: int) -> list[Parcel]:
        """Let events wait; what had to go because there are too many, or too many bytes."""
        if self._queue is None:
            self._turn_s = TYPICAL_KB * self._meter.mean_s_per_kb
            self._queue = DeferredQueue(
                self._strategy, turn_s=self._turn_s, processing_s=self._processing_s, max_queued=self._max_queued
            )
        arrivals: list[Arrival[Parcel]] = []
        last: Parcel | None = None
        for parcel in parcels:
            held = parcel.held
            self._waiting[parcel] = now_ns
            self.size_bytes += len(held.content)
            if last is None or parcel.targets is not last.targets or parcel.paths is not last.paths:
                columns, is_ordered = self._columns(parcel)
                last = parcel
            chain = held.id[:2] if is_ordered else None
            arrivals.append((parcel, held.since_ns * 1e-9, held.size_bytes / 1000.0, columns, chain, held.id[2]))
        self.size += len(parcels)
        dropped = self._dropped(self._queue.push_all(arrivals, now_ns * 1e-9))
        while self.size_bytes > self.max_bytes and (gone := self._queue.drop(1, now_ns * 1e-9)):
            dropped += self._dropped(gone)
        return dropped

    def _dropped(self, deleted: Iterable[Deleted[Parcel]]) -> list[Parcel]:
        dropped = []
        for gone in deleted:
            parcel = gone.waiting.event
            if self._waiting.pop(parcel, None) is not None:
                self.size_bytes -= len(parcel.held.content)
                parcel.state = _DROPPED
                dropped.append(parcel)
        self.size -= len(dropped)
        return dropped

    def pop(self, turn_s: float | None, now_ns: int) -> tuple[Parcel | None, list[tuple[Parcel, Reason]]]:
        """What the strategy sends next over a link that takes so long for one, and what it deletes, with the reason."""
        gone: list[tuple[Parcel, Reason]] = []
        if self._queue is None:
            return None, gone
        self._retime(self._queue, turn_s or TYPICAL_KB * self._meter.mean_s_per_kb)
        while True:
            chosen, deleted = self._queue.pop(now_ns * 1e-9)
            for each in deleted:
                gone += [(parcel, each.reason) for parcel in self._dropped((each,))]
            if chosen is None:
                return None, gone
            since_ns = self._waiting.pop(chosen.event, None)
            if since_ns is not None:
                self._left(chosen.event)
                self._note_wait(now_ns - since_ns)
                return chosen.event, gone

    def _note_wait(self, waited_ns: int) -> None:
        if waited_ns:
            bucket = bucket_of(waited_ns)
            self.waits[bucket] = self.waits.get(bucket, 0) + 1

    def give_up(self, parcel: Parcel) -> None:
        """The event has expired, or is no longer wanted."""
        # The strategy still has it, and it is passed over when its turn comes; but not for ever, nor too many of them.
        if self._waiting.pop(parcel, None) is None or self._queue is None:
            return
        self._left(parcel)
        if not self.size:
            self._queue = None
        elif len(self._queue) > 2 * self.size + _SPARE:
            waiting = self._waiting.copy()
            self.withdraw()
            for each, since_ns in waiting.items():
                self.push((each,), since_ns)

    def withdraw(self) -> list[Parcel]:
        """Take back all that waits."""
        parcels = list(self._waiting)
        self._waiting.clear()
        self.size = self.size_bytes = 0
        self._queue = None
        return parcels

    def _left(self, parcel: Parcel) -> None:
        self.size -= 1
        self.size_bytes -= len(parcel.held.content)

    def _retime(self, queue: DeferredQueue[Parcel], turn_s: float) -> None:
        if not self._turn_s / _RETIME <= turn_s <= self._turn_s * _RETIME:
            self._turn_s = turn_s
            queue.retime(turn_s)

    def _columns(self, parcel: Parcel) -> tuple[Columns, bool]:
        """The event as the strategy sees it: one column for each thing that somebody behind the link pays for, and
        whether somebody there wants order."""
        meter = self._meter
        # Events of one course share their targets, so what they pay is often what the one before paid.
        targets, paths, mean, variance, columns, is_ordered = self._known_columns
        if (
            parcel.targets is not targets
            or parcel.paths != paths
            or (meter.mean_s_per_kb, meter.variance_s2_per_kb2) != (mean, variance)
        ):
            columns = tuple(_columns(parcel.targets.items(), parcel.paths, meter))
            is_ordered = any(IN_ORDER in terms for terms in parcel.targets.values())
            known = (parcel.targets, parcel.paths, meter.mean_s_per_kb, meter.variance_s2_per_kb2)
            self._known_columns = (*known, columns, is_ordered)
        return columns, is_ordered


def _columns(
    targets: Iterable[tuple[str, tuple[Term, ...]]], paths: dict[str, Path], meter: LinkMeter
) -> Iterator[tuple[float, float, float, float, float]]:
    for target, terms in targets:
        path = paths.get(target)
        nodes = 0.0 if path is None else float(path.nodes)
        mean = meter.mean_s_per_kb if path is None else path.mean_s_per_kb
        variance = meter.variance_s2_per_kb2 if path is None else path.variance_s2_per_kb2
        for allowed_ns, price in terms[1:] if IN_ORDER in terms else terms:
            yield allowed_ns * 1e-9, price, nodes, mean, math.sqrt(variance)
