"""A replay in blocks: what was replayed need not be kept, only what the next block has to know of each stream.

It decides as `replay` over all blocks at once does, for every event, to the nanosecond. A block holds the arrivals of
all streams in a span of time; what is held at its end leaves when its time has come, also if nothing else arrives.

Between blocks a stream takes about 2 kB, with a policy that learns from overtaking 16 bytes more for each of up to
WINDOW numbers that have come, and 32 bytes for each event that is held (at most `max_held`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidings.ordering._kernels import COUNTS, PAIR, STILL_HELD, WINDOW, IntArray, Kept, Out, replay_streams
from tidings.ordering._latches import UNKNOWN_OVERTAKING
from tidings.ordering._policies import Policy
from tidings.ordering._replay import Streams, prepared

__all__ = ["OngoingReplay"]


class OngoingReplay:
    """What one policy does with streams whose arrivals come in blocks; `counts` are those of COUNTS but `hold_ns`.

    `waiting` rows are held at the end of a block.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.waiting = 0
        self.counts = np.zeros((0, len(COUNTS)), np.int64)
        self._pairs = np.zeros(0, PAIR)
        self._pools = np.zeros((0, 2), PAIR)
        self._ring = np.zeros((0, policy.samples), np.int64)
        self._window = np.zeros((0, WINDOW), np.uint8)
        self._first_starts, self._held_starts = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._firsts, self._held = np.zeros((0, 2), np.int64), np.zeros((0, 4), np.int64)

    def insert(self, streams: IntArray, receivers: IntArray) -> None:
        """New streams before those with these numbers, and new receivers likewise, as `np.insert` counts them."""
        pair = np.zeros(1, PAIR)
        for name in ("base", "base_left", "base_came", "frontier", "highest", "opened", "stepped_at", "step_over"):
            pair[name] = -1
        for name, value in zip(UNKNOWN_OVERTAKING._fields, UNKNOWN_OVERTAKING, strict=True):
            pair[name] = value
        self._pairs = np.insert(self._pairs, streams, pair[0])
        self._pools = np.insert(self._pools, receivers, pair[0], axis=0)
        self.counts = np.insert(self.counts, streams, 0, axis=0)
        self._ring = np.insert(self._ring, streams, 0, axis=0)
        self._window = np.insert(self._window, streams, 0, axis=0)
        self._first_starts = np.insert(self._first_starts, streams, 0)
        self._held_starts = np.insert(self._held_starts, streams, 0)

    def go_on(self, streams: Streams, now_ns: int) -> IntArray:
        """The next block: when each of its rows was delivered, and after them each that had been waiting.

        -1 is one that is never delivered, `STILL_HELD` one that waits on; these are the waiting ones of the next block,
        in this order. No later arrival may be before `now_ns`. `streams` are all that were inserted, also those without
        rows.
        """
        rows, count = streams.sequence.size, len(streams)
        assert count == len(self._pairs), "streams are inserted before they have rows"
        columns, groups, memory = prepared(streams, self._policy)
        learns = self._policy.rule().margin > 0.0
        first_starts, held_starts = (np.zeros(count + 1, np.int64) for _ in range(2))
        firsts = np.empty((len(self._firsts) + rows if learns else 0, 2), np.int64)
        held = np.empty((self.waiting + rows, 4), np.int64)
        delivered = np.full(rows + self.waiting, STILL_HELD, np.int64)
        self._held[:, 3] += rows
        kept = Kept(
            now=now_ns,
            pairs=self._pairs,
            pools=self._pools.reshape(-1),
            ring=self._ring.reshape(-1),
            window=self._window.reshape(-1),
            first_starts=self._first_starts,
            firsts=self._firsts,
            held_starts=self._held_starts,
            held=self._held,
            next_first_starts=first_starts,
            next_firsts=firsts,
            next_held_starts=held_starts,
            next_held=held,
        )
        out = Out(delivered, np.empty(rows, np.int64), np.empty(0, np.int64), self.counts)
        replay_streams(self._policy.rule(), columns, groups, memory, out, kept)
        self._first_starts, self._held_starts = first_starts, held_starts
        self._firsts, self._held = _used(firsts, first_starts), _used(held, held_starts)
        still = delivered == STILL_HELD
        self._held[:, 3] = (np.cumsum(still) - 1)[self._held[:, 3]]
        self.waiting = len(self._held)
        assert self.waiting == int(still.sum()), "what is neither delivered nor dropped is held"
        return delivered


def _used(rows: NDArray[Any], starts: IntArray) -> NDArray[Any]:
    return rows[: starts[-1]].copy()
