"""A queue over the plain linear scan: the twin of the tournament that live brokers decide by.

The scan is the simulator's (`tidings.scheduling._scan`): at every decision it purges and then looks at all that waits.
"""

from typing import Generic, TypeVar

import numpy as np

from tidings.scheduling import NORMAL_TABLE, Deleted, Strategy, Waiting
from tidings.scheduling._layout import Pairs, Paths, empty_slots, fill_slot
from tidings.scheduling._scan import decide, take
from tidings.scheduling._waiting import reason_of

T = TypeVar("T")


class ScanQueue(Generic[T]):
    """An output queue of any strategy, without chains and without a bound on what waits, for so many events in all."""

    def __init__(
        self, strategy: Strategy, *, turn_s: float = 0.0, processing_s: float = 0.0, events: int = 1_000, pairs: int = 8
    ) -> None:
        self._strategy = strategy
        self._postponed_s = strategy.postponed_s(turn_s)
        self._processing_s = processing_s
        self._slots = empty_slots(events)
        self._rows = np.zeros((5, events * pairs))
        self._end = 0
        allowed_s, *paths = self._rows
        self._tables = (self._slots, Pairs(np.arange(events * pairs), allowed_s), Paths(*paths))
        self._order = np.zeros(events, np.int64)
        self._count = 0
        self._waiting: list[Waiting[T]] = []

    def __len__(self) -> int:
        return self._count

    def push(self, waiting: Waiting[T], now_s: float) -> tuple[Deleted[T], ...]:  # noqa: ARG002
        slot, count = len(self._waiting), waiting.rows.shape[1]
        start, stop = self._end, self._end + count
        self._rows[:, start:stop] = waiting.rows
        figures = (float(waiting.published_s), float(waiting.size_kb), start, stop, slot, self._strategy.quantile)
        fill_slot(slot, *figures, *self._tables, self._processing_s)
        self._waiting.append(waiting)
        self._end = stop
        self._order[self._count] = slot
        self._count += 1
        return ()

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        deleted = np.empty(self._count, np.int64)
        position, self._count, removed = decide(
            self._strategy.code,
            self._strategy.r,
            now_s,
            self._postponed_s,
            self._order,
            self._count,
            *self._tables,
            self._processing_s,
            NORMAL_TABLE,
            deleted,
        )
        gone = [self._waiting[slot] for slot in deleted[:removed].tolist()]
        reasons = tuple(Deleted(waiting=waiting, reason=reason_of(waiting, now_s)) for waiting in gone)
        if position < 0:
            return None, reasons
        slot = take(self._order, self._count, position)
        self._count -= 1
        return self._waiting[slot], reasons
