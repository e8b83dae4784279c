"""What waits for a link and what is under way on it (paper C, section 3; paper D, section 2.4.2).

- At most `window` events, and no more than the peer's credit, are under way; the others wait in the queue of the
  scheduling strategy, which decides what leaves next and what is not worth sending any more.
- An idle link sends at once: nothing waits, so there is nothing to choose.
- What is not acknowledged in time is sent again under the same number, each time after twice as long, until it is
  acknowledged or has expired.
- When routes change, everything that waits is withdrawn and finds its way anew.
"""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from tidings.protocol._states import TRANSFER_STEPS, TransferState, TransferStep
from tidings.protocol.broker._link_state import Path
from tidings.protocol.links._measuring import LinkMeter
from tidings.protocol.wire import Term
from tidings.scheduling import OutputQueue, Reason, ScanQueue, Strategy, Waiting, queue_for

if TYPE_CHECKING:
    from tidings.protocol.broker._custody import Custody
    from tidings.protocol.links._peers import Peer

__all__ = ["Outbox", "Parcel"]

_TYPICAL_KB: Final = 1.0
_RETIME: Final = 1.25
"""A queue is told of another time per turn when it differs by this factor."""


class Parcel:
    """One event for one neighbour or client, with the targets that go that way."""

    __slots__ = ("custody", "due_ns", "number", "paths", "peer", "sent_ns", "state", "targets", "tries")

    def __init__(
        self, custody: "Custody", peer: "Peer", targets: dict[str, tuple[Term, ...]], paths: dict[str, Path]
    ) -> None:
        self.custody = custody
        self.peer = peer
        self.targets = targets
        self.paths = paths
        self.state = TransferState.WAITING
        self.number = -1
        self.sent_ns = self.due_ns = self.tries = 0

    def step(self, step: TransferStep) -> None:
        """Take a step of the table."""
        self.state = TRANSFER_STEPS[self.state, step]


class Outbox:
    """Everything that is to go to one peer."""

    def __init__(
        self,
        *,
        strategy: Strategy,
        processing_s: float,
        window: int,
        max_queued: int,
        retry_least_ns: int,
        retry_most_ns: int,
    ) -> None:
        self.meter = LinkMeter()
        self.credit = window
        self._strategy = strategy
        self._processing_s = processing_s
        self._window = window
        self._max_queued = max_queued
        self._retry_least_ns = retry_least_ns
        self._retry_most_ns = retry_most_ns
        self._queue: OutputQueue[Parcel] | None = None
        self._turn_s = 0.0
        self._waiting: dict[Parcel, None] = {}
        self._under_way: dict[int, Parcel] = {}
        self._next_number = 0

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """How many events are under way."""
        return len(self._under_way)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._waiting and not self._under_way

    @property
    def floor(self) -> int:
        """The lowest number that may still be sent again."""
        return next(iter(self._under_way), self._next_number)  # they went under way in the order of their numbers

    @property
    def is_open(self) -> bool:
        """Whether one more event may be under way."""
        under_way = len(self._under_way)
        return under_way < self._window and under_way < self.credit

    def enqueue(self, parcel: Parcel, now_ns: int) -> list[Parcel]:
        """Let an event wait; what had to go because there are too many."""
        if self._queue is None:
            self._turn_s = _TYPICAL_KB * self.meter.mean_s_per_kb
            self._queue = queue_for(
                self._strategy, turn_s=self._turn_s, processing_s=self._processing_s, max_queued=self._max_queued
            )
        self._waiting[parcel] = None
        deleted = self._queue.push(_waiting(parcel, self.meter), now_ns * 1e-9)
        return [self._drop(gone.waiting.event) for gone in deleted]

    def next(self, now_ns: int) -> tuple[Parcel | None, list[tuple[Parcel, Reason]]]:
        """What the strategy sends next, and what it deletes, with the reason."""
        if self._queue is None or not self._waiting:
            return None, []
        self._retime()
        chosen, deleted = self._queue.pop(now_ns * 1e-9)
        gone = [(self._drop(each.waiting.event), each.reason) for each in deleted]
        if chosen is None:
            return None, gone
        del self._waiting[chosen.event]
        return chosen.event, gone

    def send(self, parcel: Parcel, now_ns: int) -> None:
        """The event goes under way, under a number of its own."""
        parcel.state = TRANSFER_STEPS[parcel.state, TransferStep.SENT]
        parcel.number = self._next_number
        parcel.sent_ns = now_ns
        parcel.tries = 1
        parcel.due_ns = now_ns + self._patience_ns(parcel)
        self._under_way[parcel.number] = parcel
        self._next_number += 1

    def acknowledge(self, number: int, held_ns: int, now_ns: int) -> Parcel | None:
        """The peer has taken the event; None if that is no news."""
        parcel = self._under_way.pop(number, None)
        if parcel is not None:
            parcel.state = TRANSFER_STEPS[parcel.state, TransferStep.ACKNOWLEDGED]
            if parcel.tries == 1:
                self.meter.note_transfer(now_ns - parcel.sent_ns, held_ns, parcel.custody.size_bytes)
        return parcel

    def give_up(self, parcel: Parcel) -> None:
        """The event has expired, or is no longer wanted: it neither waits nor is under way."""
        if parcel.state is TransferState.UNDER_WAY:
            del self._under_way[parcel.number]
            parcel.step(TransferStep.EXPIRED)
        elif parcel in self._waiting:
            # The queue still holds it; without targets it is passed over when its turn comes.
            parcel.targets = {}

    @property
    def next_due_ns(self) -> int | None:
        """When something has to be sent again."""
        return min((parcel.due_ns for parcel in self._under_way.values()), default=None)

    def due(self, now_ns: int) -> Iterator[Parcel]:
        """The events to be sent again now; each is given more time than before."""
        for parcel in list(self._under_way.values()):
            if parcel.due_ns <= now_ns:
                parcel.step(TransferStep.TIMED_OUT)
                parcel.tries += 1
                backoff_ns = self._patience_ns(parcel) << min(parcel.tries - 1, 16)
                parcel.due_ns = now_ns + min(backoff_ns, self._retry_most_ns)
                yield parcel

    def hasten(self, now_ns: int) -> None:
        """The peer is back: what is under way is sent again at once."""
        for parcel in self._under_way.values():
            parcel.due_ns = now_ns

    def withdraw(self, *, under_way: bool) -> list[Parcel]:
        """Take back what waits, and if asked what is under way: others may get it there."""
        parcels = [parcel for parcel in self._waiting if parcel.targets]
        self._waiting.clear()
        self._queue = None
        if under_way:
            parcels += self._under_way.values()
            for parcel in self._under_way.values():
                parcel.step(TransferStep.PEER_LOST)
            self._under_way.clear()
        return parcels

    def _drop(self, parcel: Parcel) -> Parcel:
        del self._waiting[parcel]
        parcel.step(TransferStep.EXPIRED)
        return parcel

    def _patience_ns(self, parcel: Parcel) -> int:
        patience_ns = self.meter.patience_ns(parcel.custody.size_bytes)
        if patience_ns < self._retry_least_ns:
            return self._retry_least_ns
        return min(patience_ns, self._retry_most_ns)

    def _retime(self) -> None:
        turn_s = _TYPICAL_KB * self.meter.mean_s_per_kb
        if isinstance(self._queue, ScanQueue) and not self._turn_s / _RETIME <= turn_s <= self._turn_s * _RETIME:
            self._turn_s = turn_s
            self._queue.retime(turn_s)


def _waiting(parcel: Parcel, meter: LinkMeter) -> Waiting[Parcel]:
    """The event as a queue sees it: one column for each thing that somebody behind the link pays for."""
    custody = parcel.custody
    columns = list(_columns(parcel.targets.items(), parcel.paths, meter))
    rows = np.array(columns, np.float64).reshape(len(columns), 5).T
    return Waiting(parcel, custody.since_ns * 1e-9, custody.size_bytes / 1000.0, np.ascontiguousarray(rows))


def _columns(
    targets: Iterable[tuple[str, tuple[Term, ...]]], paths: dict[str, Path], meter: LinkMeter
) -> Iterator[tuple[float, float, float, float, float]]:
    for target, terms in targets:
        path = paths.get(target)
        nodes = 0.0 if path is None else float(path.nodes)
        mean = meter.mean_s_per_kb if path is None else path.mean_s_per_kb
        variance = meter.variance_s2_per_kb2 if path is None else path.variance_s2_per_kb2
        for allowed_ns, price in terms:
            yield allowed_ns * 1e-9, price, nodes, mean, math.sqrt(variance)
