"""A queue whose arrivals wait until a decision is due: then they are entered together, by few compiled calls.

- Before the first decision no kernel and no array is loaded. At most MOST_DEFERRED wait until then.
- Later, at most AT_ONCE wait. Entering them takes a third of the time that entering one by one takes.
- Decisions are due when something is to leave, and when more wait than the queue holds. A queue that is not full does
  nothing with an event but enter it, and time does not matter to that, so every choice is the one that a queue would
  have made which enters everything at once.
- A full queue gives up 1 / SLACK of its events more than it has to, and at most AT_ONCE: a queue that stays full, whose
  reader lags, decides once for all of them. Queues of fewer than SLACK give up no more than they have to.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tidings.scheduling._entry import Deleted, Waiting
from tidings.scheduling._strategies import Strategy

if TYPE_CHECKING:
    from tidings.scheduling._kernels import FloatArray
    from tidings.scheduling._queues import LinkQueue

__all__ = ["MOST_DEFERRED", "Arrival", "Columns", "DeferredQueue"]

T = TypeVar("T")

Columns = tuple[tuple[float, float, float, float, float], ...]
"""For each subscription behind the link a column of `Waiting.rows`."""

MOST_DEFERRED: Final = 1_024
"""So many wait at most before the queue is made: they are entered at once then, which must not take long."""
AT_ONCE: Final = 64
SLACK: Final = 128


Arrival = tuple[T, float, float, Columns, Hashable, int]
"""An event that has come, with the facts of `Waiting`: published_s, size_kb, columns in place of rows, chain, place."""


class DeferredQueue(Generic[T]):
    """The output queue that `queue_for` makes, made when it has to decide."""

    def __init__(self, strategy: Strategy, *, turn_s: float, processing_s: float, max_queued: int) -> None:
        self._strategy = strategy
        self._turn_s = turn_s
        self._processing_s = processing_s
        self._max_queued = max_queued
        self._slack = min(max_queued // SLACK, AT_ONCE)
        self._arrived: list[Arrival[T]] = []
        self._arrived_s = 0.0  # when the last of them came
        self._known: tuple[Columns, FloatArray] | None = None
        self._queue: LinkQueue[T] | None = None

    def __len__(self) -> int:
        return len(self._arrived) + (0 if self._queue is None else len(self._queue))

    def push_all(self, events: Sequence[Arrival[T]], now_s: float) -> tuple[Deleted[T], ...]:
        """Enqueue events that have come together; returns what had to go because the queue was full."""
        self._arrived += events
        self._arrived_s = now_s
        is_over = len(self) > self._max_queued
        if not is_over and len(self._arrived) <= (MOST_DEFERRED if self._queue is None else AT_ONCE):
            return ()
        queue, gone = self._enter()
        return (*gone, *queue.drop(self._slack, now_s)) if is_over else gone

    def drop(self, many: int, now_s: float) -> tuple[Deleted[T], ...]:
        """Give up so many, those with the least expected benefit."""
        return self._entered().drop(many, now_s)

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        """What to send now, if anything, and what was deleted at this moment, in the order it was enqueued."""
        return self._entered().pop(now_s)

    def retime(self, turn_s: float) -> None:
        """From now on a transmission takes this long."""
        self._turn_s = turn_s
        if self._queue is not None:
            self._queue.retime(turn_s)

    def _entered(self) -> "LinkQueue[T]":
        """The queue with all that has come."""
        queue, gone = self._enter()
        assert not gone, "a queue with room has let an event go"
        return queue

    def _enter(self) -> "tuple[LinkQueue[T], tuple[Deleted[T], ...]]":
        if self._queue is None:
            from tidings.scheduling._queues import LinkQueue  # compiled: takes long to load

            self._queue = LinkQueue(
                self._strategy, turn_s=self._turn_s, processing_s=self._processing_s, max_queued=self._max_queued
            )
        if not self._arrived:
            return self._queue, ()
        arrived, self._arrived = self._arrived, []
        return self._queue, self._queue.push_all(self._waiting(arrived), self._arrived_s)

    def _waiting(self, events: Iterable[Arrival[T]]) -> list[Waiting[T]]:
        known, rows = self._known or (None, None)
        waiting = []
        for event, published_s, size_kb, columns, chain, place in events:
            # Events of one course share their columns, so they are often those of the event before.
            if rows is None or known is not columns:
                import numpy as np

                rows = np.ascontiguousarray(np.array(columns, np.float64).reshape(len(columns), 5).T)
                known = columns
                self._known = (columns, rows)
            waiting.append(Waiting(event, published_s, size_kb, rows, chain, place))
        return waiting
