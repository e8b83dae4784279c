"""The output queue of the live broker: one per link, one compiled call for each push and each decision.

Events are rows of flat arrays (`_lane`), decisions ask tournaments over them (`_tournament`), so the cost of a push
and a pop hardly grows with what waits. Every choice is the one of the plain scan that computes everything (its twins
are in the tests). A queue holds at most `max_queued` events (`OutputQueue` says what goes beyond it).
"""

import math
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from tidings.errors import ConfigurationError
from tidings.scheduling._chains import Chains
from tidings.scheduling._entry import Deleted, OutputQueue, Waiting, reason_of
from tidings.scheduling._eviction import SHARE, Dropping, Entry, assess
from tidings.scheduling._kernels import NORMAL_TABLE
from tidings.scheduling._lane import DELETE, NUMBER, TURNS, WORTHS, Lane, compact, empty_lane
from tidings.scheduling._strategies import PLAN, TRIAGE, Strategy
from tidings.scheduling._tournament import LATER, RULE, choose, forget, push_all, take, take_all
from tidings.scheduling._urgency import Urgency, empty_urgency, grown
from tidings.scheduling._urgency import retime as retime_urgency

__all__ = ["DEFAULT_MAX_QUEUED", "LinkQueue", "prepare", "queue_for"]

T = TypeVar("T")

DEFAULT_MAX_QUEUED = 65_536
_FIRST_WIDTH = 16
_FIRST_COLUMNS = 64
_MOST_AT_ONCE = 64
"""So many are entered by one compiled call."""


def queue_for(
    strategy: Strategy, *, turn_s: float, processing_s: float = 0.0, max_queued: int = DEFAULT_MAX_QUEUED
) -> OutputQueue[T]:
    """An empty queue for a link on which one transmission takes `turn_s` (FT: mean size x mean slowness)."""
    return LinkQueue(strategy, turn_s=turn_s, processing_s=processing_s, max_queued=max_queued)


def prepare(strategy: Strategy) -> None:
    """Have all kernels of such queues loaded, or compiled if they have never been: the first use may take seconds."""
    queue: LinkQueue[None] = LinkQueue(strategy, turn_s=1.0, max_queued=_FIRST_WIDTH)
    for place in range(2 * _FIRST_WIDTH):
        queue.push(Waiting(None, 0.0, 1.0, np.ones((5, 1)), "chain", place), 0.0)
    queue.retime(2.0)
    while queue.pop(0.0)[0] is not None:
        pass


class LinkQueue(Generic[T]):
    """The events that wait for one link, by any strategy.

    The room taken is at most four times the most that ever waited at once.
    """

    def __init__(
        self, strategy: Strategy, *, turn_s: float, processing_s: float = 0.0, max_queued: int = DEFAULT_MAX_QUEUED
    ) -> None:
        if not 0.0 <= turn_s < math.inf or not 0.0 <= processing_s < math.inf:
            raise ConfigurationError(
                f"turn_s and processing_s of a queue must be finite and at least 0, not {turn_s!r} and {processing_s!r}"
            )
        if max_queued < 1:
            raise ConfigurationError(f"a queue must have room for at least one event, not max_queued = {max_queued}")
        self._strategy = strategy
        self._max_queued = max_queued
        later_s = strategy.postponed_s(turn_s)
        self._rule = np.array([strategy.code, strategy.r, later_s, processing_s, strategy.quantile])
        assert len(self._rule) == RULE
        self._tournaments = WORTHS + (TURNS if strategy.code == PLAN else 1)
        # Plain tuples in fact, since those are quick to hand over (see `Lane`).
        self._lane: Lane = tuple(empty_lane(_FIRST_WIDTH, _FIRST_COLUMNS, self._tournaments))  # type: ignore[assignment]
        self._urgency: Urgency = tuple(empty_urgency(_FIRST_WIDTH if strategy.code == TRIAGE else 0))  # type: ignore[assignment]
        self._width, self._columns = _FIRST_WIDTH, _FIRST_COLUMNS
        self._tail = 0  # the next position
        self._end = 0  # the next column
        self._live = 0  # columns in use
        self._pushed = 0
        self._waiting: dict[int, Waiting[T]] = {}
        self._chains = Chains(self._waiting.__contains__)
        self._dropping = Dropping()
        self._arrivals = np.empty((3, _MOST_AT_ONCE))

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, waiting: Waiting[T], now_s: float) -> tuple[Deleted[T], ...]:
        """Enqueue; returns what had to go because the queue was full."""
        return self.push_all((waiting,), now_s)

    def push_all(self, events: Sequence[Waiting[T]], now_s: float) -> tuple[Deleted[T], ...]:
        """Enqueue events that have come together, in this order; returns what had to go because the queue was full.

        What is kept is what pushing one after the other would have kept: those that are worth most of all.
        """
        begin = 0
        for place in range(1, len(events) + 1):
            is_run = place < len(events) and events[place].rows is events[begin].rows
            if not is_run or place - begin == _MOST_AT_ONCE:
                self._enter(events[begin:place], now_s)
                begin = place
        return self.drop(len(self._waiting) - self._max_queued, now_s)

    def drop(self, many: int, now_s: float) -> tuple[Deleted[T], ...]:
        """Give up so many, those with the least expected benefit; none if `many` is not positive."""
        if many <= 0:
            return ()
        tail = self._tail
        gone: list[Deleted[T]] = []
        while len(gone) < many and self._waiting:
            numbers = self._dropping.choose(many - len(gone), now_s, self._waiting) or self._dropping.begin(
                self._least(now_s), now_s
            )
            self._lane[5][: len(numbers)] = numbers
            take_all(self._rule, self._lane, self._urgency, tail, len(numbers))
            gone += [Deleted(waiting=waiting, reason="full") for waiting in self._left(numbers)]
        return tuple(gone)

    def _enter(self, events: Sequence[Waiting[T]], now_s: float) -> None:
        """Enqueue events of equal rows."""
        rows, many = events[0].rows, len(events)
        count = rows.shape[1]
        if self._tail + many > self._width or self._end + many * count > self._columns:
            self._make_room(many, many * count)
        first, position, arrivals = self._pushed, self._tail, self._arrivals
        for place, waiting in enumerate(events):
            arrivals[0, place] = waiting.published_s
            arrivals[1, place] = waiting.size_kb
            self._waiting[first + place] = waiting
            if waiting.chain is not None:
                self._chains.add(waiting.chain, waiting.place, first + place)
        facts = (position, self._end, rows, arrivals, many, first, now_s)
        push_all(self._rule, self._lane, self._urgency, NORMAL_TABLE, *facts)
        self._pushed = first + many
        self._tail = position + many
        self._end += many * count
        self._live += many * count
        if self._dropping.is_watching:
            due_s = self._lane[0][position : position + many, DELETE].tolist()
            self._dropping.note(arrivals[2, :many].tolist(), due_s, first)

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        """What to send now, if anything, and what was deleted at this moment, in the order it was enqueued."""
        if not self._waiting:
            return None, ()
        is_free = not self._chains
        number, removed = choose(
            self._rule, self._lane, self._urgency, NORMAL_TABLE, self._tail, len(self._waiting), now_s, is_free
        )
        deleted: tuple[Deleted[T], ...] = ()
        if removed:
            gone = self._left(sorted(self._lane[5][:removed].tolist()))
            deleted = tuple(Deleted(waiting=waiting, reason=reason_of(waiting, now_s)) for waiting in gone)
        if number < 0:
            return None, deleted
        if not is_free:
            chain = self._waiting[number].chain
            if chain is not None:
                number = self._chains.first(chain)
            take(self._rule, self._lane, self._urgency, self._tail, number)
        return self._left((number,))[0], deleted

    def retime(self, turn_s: float) -> None:
        """From now on a transmission takes this long; what earlier decisions learnt is forgotten."""
        self._rule[LATER] = self._strategy.postponed_s(turn_s)
        forget(self._rule, self._lane, self._tail)
        retime_urgency(self._rule[LATER], self._urgency)

    def _left(self, numbers: Sequence[int]) -> list[Waiting[T]]:
        left = [self._waiting.pop(number) for number in numbers]
        for waiting in left:
            self._live -= waiting.rows.shape[1]
            if waiting.chain is not None:
                self._chains.remove(waiting.chain)
        if not self._waiting:
            self._tail = self._end = 0
        return left

    def _least(self, now_s: float) -> list[Entry]:
        """A share of what waits, the least worth first."""
        worths = np.empty(self._tail)
        least = np.empty(max(len(self._waiting) // SHARE, 1), np.int64)
        assess(self._rule, self._lane, NORMAL_TABLE, self._tail, now_s, worths, least)
        facts, spans = self._lane[0], self._lane[1]
        columns = (worths[least], facts[least, DELETE], -spans[least, NUMBER])
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    def _make_room(self, many: int, count: int) -> None:
        """Move what waits together, in wider arrays if it and so many more fill more than half of them."""
        width, columns = self._width, self._columns
        while width < 2 * len(self._waiting) or width < len(self._waiting) + many:
            width *= 2
        while columns < 2 * (self._live + count):
            columns *= 2
        lane = self._lane
        if (width, columns) != (self._width, self._columns):
            lane = tuple(empty_lane(width, columns, self._tournaments))  # type: ignore[assignment]
            if self._strategy.code == TRIAGE and width > self._width:
                self._urgency = tuple(grown(self._urgency, width))  # type: ignore[assignment]
        self._tail, self._end = compact(self._lane, self._tail, lane)
        self._lane, self._width, self._columns = lane, width, columns
