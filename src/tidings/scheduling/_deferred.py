"""A queue before its first decision: until then nothing has to be worked out, so no kernel and no array is loaded.

What is pushed is kept in its order, and pushed at its time when a decision is due: when something is to leave, or when
more waits than MOST_DEFERRED or than the queue holds. A queue that is not full does nothing with an event but enter it,
and time does not matter to that, so every choice is the one that a queue made at once would have made.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tidings.scheduling._strategies import Strategy
from tidings.scheduling._waiting import Deleted, Waiting

if TYPE_CHECKING:
    from tidings.scheduling._kernels import FloatArray
    from tidings.scheduling._queues import LinkQueue

__all__ = ["MOST_DEFERRED", "Arrival", "Columns", "DeferredQueue"]

T = TypeVar("T")

Columns = tuple[tuple[float, float, float, float, float], ...]
"""For each subscription behind the link a column of `Waiting.rows`."""

MOST_DEFERRED: Final = 1_024
"""So many wait at most before the queue is made: they are entered at once then, which must not take long."""


Arrival = tuple[T, float, float, Columns, Hashable, int]
"""An event that has come, with the facts of `Waiting`: published_s, size_kb, columns in place of rows, chain, place."""


class DeferredQueue(Generic[T]):
    """The output queue that `queue_for` makes, made when it has to decide."""

    def __init__(self, strategy: Strategy, *, turn_s: float, processing_s: float, max_queued: int) -> None:
        self._strategy = strategy
        self._turn_s = turn_s
        self._processing_s = processing_s
        self._max_queued = max_queued
        self._most = min(max_queued, MOST_DEFERRED)
        self._arrived: list[tuple[Arrival[T], float]] = []
        self._known: tuple[Columns, FloatArray] | None = None
        self._queue: LinkQueue[T] | None = None

    def __len__(self) -> int:
        return len(self._arrived) if self._queue is None else len(self._queue)

    def push_all(self, events: Sequence[Arrival[T]], now_s: float) -> tuple[Deleted[T], ...]:
        """Enqueue events that have come together; returns what had to go because the queue was full."""
        if self._queue is None and len(self._arrived) + len(events) <= self._most:
            self._arrived += [(event, now_s) for event in events]
            return ()
        return self._made().push_all(self._waiting(events), now_s)

    def drop(self, many: int, now_s: float) -> tuple[Deleted[T], ...]:
        """Give up so many, those with the least expected benefit."""
        return self._made().drop(many, now_s)

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        """What to send now, if anything, and what was deleted at this moment, in the order it was enqueued."""
        return self._made().pop(now_s)

    def retime(self, turn_s: float) -> None:
        """From now on a transmission takes this long."""
        self._turn_s = turn_s
        if self._queue is not None:
            self._queue.retime(turn_s)

    def _made(self) -> "LinkQueue[T]":
        if self._queue is not None:
            return self._queue
        from tidings.scheduling._queues import LinkQueue  # compiled: takes long to load

        queue: LinkQueue[T] = LinkQueue(
            self._strategy, turn_s=self._turn_s, processing_s=self._processing_s, max_queued=self._max_queued
        )
        for arrival, at_s in self._arrived:
            gone = queue.push_all(self._waiting((arrival,)), at_s)
            assert not gone, "a queue with room has let an event go"
        self._arrived.clear()
        self._queue = queue
        return queue

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
