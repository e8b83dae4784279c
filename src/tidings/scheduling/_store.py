"""Queued events in flat arrays: what compiled decisions read, kept up as events come and go.

A slot and its number are reused once its event has left. Pairs of an event are consecutive and appended at the end;
when the end is reached, the pairs still in use move together, or the arrays double if those fill more than half of
them. So the room taken is at most four times the most that ever waited at once.
"""

from typing import Generic, TypeVar, cast

import numpy as np

from tidings.scheduling._chains import Chains
from tidings.scheduling._kernels import FloatArray
from tidings.scheduling._layout import Pairs, Paths, Slots, empty_slots, fill_slot
from tidings.scheduling._waiting import Waiting

__all__ = ["Store"]

T = TypeVar("T")

_FIRST_SLOTS = 16
_FIRST_PAIRS = 64


class Store(Generic[T]):
    """Slots, pairs and paths, in step with the events that wait; every event brings path figures of its own."""

    def __init__(self, *, quantile: float, processing_s: float) -> None:
        self._quantile = quantile
        self._processing_s = processing_s
        self.slots: Slots = empty_slots(_FIRST_SLOTS)
        self._rows: FloatArray = np.zeros((5, _FIRST_PAIRS))
        self.tables = self._tabulate()
        self.chains = Chains()
        self._waiting: dict[int, Waiting[T]] = {}
        self._free = list(range(_FIRST_SLOTS - 1, -1, -1))
        self._end = 0
        self._live = 0
        self._added = 0

    def add(self, waiting: Waiting[T]) -> int:
        """Enter an event; returns its slot."""
        if not self._free:
            self._double_slots()
        slot = self._free.pop()
        count = waiting.rows.shape[1]
        if self._end + count > self._rows.shape[1]:
            self._make_room(count)
        start, stop = self._end, self._end + count
        self._rows[:, start:stop] = waiting.rows
        fill_slot(
            slot,
            float(waiting.published_s),
            float(waiting.size_kb),
            start,
            stop,
            self._added,
            self._quantile,
            *self.tables,
            self._processing_s,
        )
        self._waiting[slot] = waiting
        if waiting.chain is not None:
            self.chains.add(waiting.chain, waiting.place, self._added, slot)
        self._end = stop
        self._live += count
        self._added += 1
        return slot

    def remove(self, slot: int) -> Waiting[T]:
        """Give the slot back; returns its event."""
        waiting = self._waiting.pop(slot)
        self._free.append(slot)
        self._live -= waiting.rows.shape[1]
        if waiting.chain is not None:
            self.chains.remove(waiting.chain, waiting.place, int(self.slots.sequence[slot]))
        return waiting

    def first(self, slot: int) -> int:
        """The slot of the first of its chain; itself, if it has none."""
        chain = self._waiting[slot].chain
        return slot if chain is None else self.chains.first(chain)

    def _double_slots(self) -> None:
        capacity = len(self.slots.start)
        grown = empty_slots(2 * capacity)
        for old, new in zip(self.slots, grown, strict=True):
            new[:capacity] = old
        self.slots = grown
        self.tables = self._tabulate()
        self._free = list(range(2 * capacity - 1, capacity - 1, -1))

    def _make_room(self, count: int) -> None:
        capacity = self._rows.shape[1]
        while capacity < 2 * (self._live + count):
            capacity *= 2
        rows = np.zeros((5, capacity))
        end = 0
        for slot in self._waiting:
            start, stop = self.slots.start[slot], self.slots.stop[slot]
            rows[:, end : end + stop - start] = self._rows[:, start:stop]
            self.slots.start[slot], self.slots.stop[slot] = end, end + stop - start
            end += int(stop - start)
        self._rows, self._end = rows, end
        self.tables = self._tabulate()

    def _tabulate(self) -> tuple[Slots, Pairs, Paths]:
        allowed_s, price, nodes, mean_s_per_kb, sd_s_per_kb = self._rows
        pairs = Pairs(target=np.arange(len(allowed_s)), allowed_s=allowed_s)
        paths = Paths(price=price, nodes=nodes, mean_s_per_kb=mean_s_per_kb, sd_s_per_kb=sd_s_per_kb)
        # Plain tuples in fact, since those are quick to hand over (see `_layout`); the types name what is in them.
        return cast(Slots, tuple(self.slots)), cast(Pairs, tuple(pairs)), cast(Paths, tuple(paths))
