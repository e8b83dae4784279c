"""The output queues of the live broker: one per link, one compiled call per decision.

FIFO is a list; RL and EB are lazy heaps (their worth never rises); PC, EBPC, the look-ahead, plans and triage scan flat
arrays. All choose exactly as `PlainQueue` does, and hold at most `max_queued` events (`OutputQueue` says what goes
beyond it).
"""

import heapq
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Collection
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.scheduling._chains import Chains
from tidings.scheduling._choosing import choose, purge, take
from tidings.scheduling._dropping import Assessment, Dropping, benefits
from tidings.scheduling._heap import heap_choose, heap_purge, heap_push, heap_take
from tidings.scheduling._kernels import NORMAL_TABLE
from tidings.scheduling._layout import forget
from tidings.scheduling._store import Store
from tidings.scheduling._strategies import Strategy
from tidings.scheduling._twins import plain_benefit, plain_deletion_time_s
from tidings.scheduling._waiting import Deleted, OutputQueue, Waiting, reason_of

__all__ = ["DEFAULT_MAX_QUEUED", "FifoQueue", "HeapQueue", "ScanQueue", "queue_for"]

T = TypeVar("T")

DEFAULT_MAX_QUEUED = 65_536


def queue_for(
    strategy: Strategy, *, turn_s: float, processing_s: float = 0.0, max_queued: int = DEFAULT_MAX_QUEUED
) -> OutputQueue[T]:
    """An empty queue for a link on which one transmission takes `turn_s` (FT: mean size x mean slowness)."""
    if not 0.0 <= turn_s < math.inf or not 0.0 <= processing_s < math.inf:
        raise ConfigurationError(
            f"turn_s and processing_s of a queue must be finite and at least 0, not {turn_s!r} and {processing_s!r}"
        )
    if max_queued < 1:
        raise ConfigurationError(f"a queue must have room for at least one event, not max_queued = {max_queued}")
    if strategy.name == "fifo":
        return FifoQueue(strategy, processing_s=processing_s, max_queued=max_queued)
    if strategy.name in ("rl", "eb"):
        return HeapQueue(strategy, processing_s=processing_s, max_queued=max_queued)
    return ScanQueue(strategy, turn_s=turn_s, processing_s=processing_s, max_queued=max_queued)


class FifoQueue(Generic[T]):
    """First in, first out; a heap of deletion times finds what has to go."""

    def __init__(self, strategy: Strategy, *, processing_s: float = 0.0, max_queued: int = DEFAULT_MAX_QUEUED) -> None:
        self._quantile = strategy.quantile
        self._processing_s = processing_s
        self._max_queued = max_queued
        self._queue: OrderedDict[int, Waiting[T]] = OrderedDict()
        # (deletion time, negative sequence number): the first to go, of equals the last enqueued. Entries of events
        # that were sent stay until they surface, or until they outnumber what waits.
        self._times: list[tuple[float, int]] = []
        self._pushed = 0
        self._chains = Chains()
        self._dropping = Dropping()

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, waiting: Waiting[T], now_s: float) -> tuple[Deleted[T], ...]:
        time_s = self._deletion_time_s(waiting)
        self._queue[self._pushed] = waiting
        if waiting.chain is not None:
            self._chains.add(waiting.chain, waiting.place, self._pushed, self._pushed)
        heapq.heappush(self._times, (time_s, -self._pushed))
        self._pushed += 1
        if len(self._times) > 2 * len(self._queue) + 16:
            self._times = [entry for entry in self._times if -entry[1] in self._queue]
            heapq.heapify(self._times)
        if self._dropping.is_watching:
            self._dropping.note(self._assessed([self._pushed - 1], now_s))
        if len(self._queue) <= self._max_queued:
            return ()
        number = self._dropping.choose(now_s, lambda: self._assessed(self._queue, now_s), self._queue.__contains__)
        return (Deleted(waiting=self._take(number), reason="full"),)

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        gone = []
        while self._times and self._times[0][0] <= now_s:
            number = -heapq.heappop(self._times)[1]
            if number in self._queue:
                gone.append(number)
        waitings = [self._take(number) for number in sorted(gone)]
        deleted = tuple(Deleted(waiting=waiting, reason=reason_of(waiting, now_s)) for waiting in waitings)
        if not self._queue:
            return None, deleted
        number, first = next(iter(self._queue.items()))
        return self._take(number if first.chain is None else self._chains.first(first.chain)), deleted

    def _take(self, number: int) -> Waiting[T]:
        waiting = self._queue.pop(number)
        if waiting.chain is not None:
            self._chains.remove(waiting.chain, waiting.place, number)
        return waiting

    def _deletion_time_s(self, waiting: Waiting[T]) -> float:
        return plain_deletion_time_s(waiting, quantile=self._quantile, processing_s=self._processing_s)

    def _assessed(self, numbers: Collection[int], now_s: float) -> Assessment:
        waitings = [self._queue[number] for number in numbers]
        worths = [plain_benefit(each, now_s, extra_s=0.0, processing_s=self._processing_s) for each in waitings]
        times_s = [self._deletion_time_s(waiting) for waiting in waitings]
        return Assessment(np.array(worths), np.array(times_s), np.array([*numbers], np.int64))


class _CompiledQueue(ABC, Generic[T]):
    """What the compiled queues share: events in slots, an order of slots, and the next deletion time."""

    def __init__(self, strategy: Strategy, *, processing_s: float, max_queued: int) -> None:
        self._strategy = strategy
        self._processing_s = processing_s
        self._max_queued = max_queued
        self._store: Store[T] = Store(quantile=strategy.quantile, processing_s=processing_s)
        self._order = np.zeros(0, np.int64)
        self._count = 0
        self._soonest_s = math.inf
        self._dropping = Dropping()

    def __len__(self) -> int:
        return self._count

    def push(self, waiting: Waiting[T], now_s: float) -> tuple[Deleted[T], ...]:
        slot = self._store.add(waiting)
        if self._count == len(self._order):
            self._order = np.concatenate([self._order, np.zeros(self._count + 16, np.int64)])
        self._enter(slot)
        self._count += 1
        self._soonest_s = min(self._soonest_s, float(self._store.slots.delete_s[slot]))
        if self._dropping.is_watching:
            self._dropping.note(self._assessed(np.array([slot]), now_s))
        if self._count <= self._max_queued:
            return ()
        number = self._dropping.choose(now_s, lambda: self._assessed(self._order[: self._count], now_s), self._waits)
        return (Deleted(waiting=self._remove(int(self._places(number)[0])), reason="full"),)

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        deleted: tuple[Deleted[T], ...] = ()
        if now_s >= self._soonest_s:
            gone = np.empty(self._count, np.int64)
            self._count, removed, self._soonest_s = self._purge(now_s, gone)
            gone = gone[:removed]
            gone = gone[np.argsort(self._store.slots.sequence[gone])]
            waitings = [self._store.remove(slot) for slot in gone.tolist()]
            deleted = tuple(Deleted(waiting=waiting, reason=reason_of(waiting, now_s)) for waiting in waitings)
        if not self._count:
            return None, deleted
        position = self._choose(now_s)
        if self._store.chains:
            chosen = int(self._order[position])
            first = self._store.first(chosen)
            if first != chosen:
                position = int(np.flatnonzero(self._order[: self._count] == first)[0])
        return self._remove(position), deleted

    def _assessed(self, queue: NDArray[np.int64], now_s: float) -> Assessment:
        worth = np.empty(len(queue))
        benefits(now_s, queue, *self._store.tables, self._processing_s, NORMAL_TABLE, worth)
        return Assessment(worth, self._store.slots.delete_s[queue], self._store.slots.sequence[queue])

    def _waits(self, number: int) -> bool:
        return len(self._places(number)) > 0

    def _places(self, number: int) -> NDArray[np.intp]:
        """The position in the order of the event with this number, if it waits."""
        return np.flatnonzero(self._store.slots.sequence[self._order[: self._count]] == number)

    def _remove(self, position: int) -> Waiting[T]:
        slot = self._leave(position)
        self._count -= 1
        return self._store.remove(slot)

    @abstractmethod
    def _enter(self, slot: int) -> None:
        """Put the slot into the order of `_count` slots."""

    @abstractmethod
    def _leave(self, position: int) -> int:
        """Take the slot at this position out of the order."""

    @abstractmethod
    def _purge(self, now_s: float, gone: NDArray[np.int64]) -> tuple[int, int, float]:
        """Take out what is due: how many stay, how many went into `gone`, and the next deletion time."""

    @abstractmethod
    def _choose(self, now_s: float) -> int:
        """The position to send next, of at least one."""


class HeapQueue(_CompiledQueue[T]):
    """RL and EB: the greatest worth known on top, computed again only where it may decide."""

    def __init__(self, strategy: Strategy, *, processing_s: float = 0.0, max_queued: int = DEFAULT_MAX_QUEUED) -> None:
        super().__init__(strategy, processing_s=processing_s, max_queued=max_queued)

    def _enter(self, slot: int) -> None:
        heap_push(self._order, self._count, slot, self._store.tables[0])

    def _leave(self, position: int) -> int:
        return heap_take(self._order, self._count, position, self._store.tables[0])

    def _purge(self, now_s: float, gone: NDArray[np.int64]) -> tuple[int, int, float]:
        return heap_purge(now_s, self._order, self._count, self._store.tables[0], gone)

    def _choose(self, now_s: float) -> int:
        return heap_choose(
            self._strategy.code,
            now_s,
            self._order,
            self._count,
            *self._store.tables,
            self._processing_s,
            NORMAL_TABLE,
        )


class ScanQueue(_CompiledQueue[T]):
    """Any strategy, by scanning the queue in the order in which it was filled; all but FIFO, RL and EB need it."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        turn_s: float,
        processing_s: float = 0.0,
        max_queued: int = DEFAULT_MAX_QUEUED,
    ) -> None:
        super().__init__(strategy, processing_s=processing_s, max_queued=max_queued)
        self._postponed_s = strategy.postponed_s(turn_s)

    def retime(self, turn_s: float) -> None:
        """From now on a transmission takes this long; what earlier decisions learnt is forgotten."""
        self._postponed_s = self._strategy.postponed_s(turn_s)
        forget(self._order, self._count, self._store.slots.known)

    def _enter(self, slot: int) -> None:
        self._order[self._count] = slot

    def _leave(self, position: int) -> int:
        return take(self._order, self._count, position)

    def _purge(self, now_s: float, gone: NDArray[np.int64]) -> tuple[int, int, float]:
        return purge(now_s, self._order, self._count, self._store.slots.delete_s, gone)

    def _choose(self, now_s: float) -> int:
        return choose(
            self._strategy.code,
            self._strategy.r,
            now_s,
            self._postponed_s,
            self._order,
            self._count,
            *self._store.tables,
            self._processing_s,
            NORMAL_TABLE,
        )
