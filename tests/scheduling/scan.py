"""A queue over the plain linear scan: the twin of the tournament that live brokers decide by.

The scan is the simulator's (`tidings.scheduling._scan`): at every decision it purges and then looks at all that waits.
"""

from typing import Generic, TypeVar

import numpy as np

from tidings.compiled import lend
from tidings.scheduling import Deleted, Strategy, Waiting
from tidings.scheduling._entry import reason_of
from tidings.scheduling._layout import empty_board, fill_slot
from tidings.scheduling._scan import decide

T = TypeVar("T")


class ScanQueue(Generic[T]):
    """An output queue of any strategy, without chains and without a bound on what waits, for so many events in all."""

    def __init__(
        self, strategy: Strategy, *, turn_s: float = 0.0, processing_s: float = 0.0, events: int = 1_000, pairs: int = 8
    ) -> None:
        self._strategy = strategy
        self._postponed_s = strategy.postponed_s(turn_s)
        self._processing_s = processing_s
        self._board = empty_board(events, events * pairs)
        self._lent = lend(self._board)
        self._end = 0
        self._count = 0
        self._waiting: list[Waiting[T]] = []

    def __len__(self) -> int:
        return self._count

    def push(self, waiting: Waiting[T], now_s: float) -> tuple[Deleted[T], ...]:  # noqa: ARG002
        slot, count = len(self._waiting), waiting.rows.shape[1]
        start, stop = self._end, self._end + count
        for array, row in zip((self._board.pairs.allowed_s, *self._board.paths), waiting.rows, strict=True):
            array[start:stop] = row
        figures = (float(waiting.published_s), float(waiting.size_kb), start, stop, self._strategy.quantile)
        fill_slot(self._lent, slot, *figures, self._processing_s)
        self._waiting.append(waiting)
        self._end = stop
        self._board.queue[self._count] = slot
        self._count += 1
        return ()

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        deleted = np.empty(self._count, np.int64)
        strategy = self._strategy
        decision = (strategy.code, strategy.r, now_s, self._postponed_s, self._count, self._processing_s)
        position, self._count, removed = decide(self._lent, *decision, deleted)
        gone = [self._waiting[slot] for slot in deleted[:removed].tolist()]
        reasons = tuple(Deleted(waiting=waiting, reason=reason_of(waiting, now_s)) for waiting in gone)
        if position < 0:
            return None, reasons
        queue = self._board.queue
        slot = int(queue[position])
        self._count -= 1
        queue[position : self._count] = queue[position + 1 : self._count + 1]
        return self._waiting[slot], reasons
