"""Duplicate suppression at the last hop: delivered events are remembered until no duplicate can exist any more.

Sequence numbers of one publisher are close together, so they are remembered in blocks of BLOCK: one bit for each, and
for the whole block the time when no duplicate of the last of its events can exist. A block is the unit of forgetting,
and of a broker's store; at `max_seen` events the block that expires first is forgotten; in the last block, the lowest
number.
"""

from collections.abc import Hashable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

__all__ = ["BLOCK", "Batch", "Block", "Seen"]

BLOCK: Final = 64
Group = TypeVar("Group", bound=tuple[Hashable, ...])
Block = tuple[Any, int]
"""The owner of the numbers, and the number of the block."""
Batch = dict[Block, list[int]]
"""Numbers to be remembered together: of each block the bits, when the first of them expires, and when the last does."""


class Seen(Generic[Group]):
    """The delivered numbers, by group; groups of one table can be ordered."""

    def __init__(self, max_seen: int) -> None:
        self._max = max_seen
        self._count = 0
        self._blocks: dict[Block, list[int]] = {}  # the bits, and when the block expires
        self._heap: list[tuple[int, Block]] = []  # each block once, with its expiry when it was entered

    def __len__(self) -> int:
        return self._count

    def has(self, group: Group, number: int) -> bool:
        """Whether the number was delivered."""
        block = self._blocks.get((group, number // BLOCK))
        return block is not None and block[0] >> number % BLOCK & 1 == 1

    def add(self, group: Group, number: int, expires_ns: int) -> tuple[Block, ...]:
        """Remember a number; the blocks that were forgotten for it."""
        key = (group, number // BLOCK)
        bit = 1 << number % BLOCK
        block = self._blocks.get(key)
        if block is None:
            self._blocks[key] = [bit, expires_ns]
            heappush(self._heap, (expires_ns, key))
            self._count += 1
        else:
            if not block[0] & bit:
                block[0] |= bit
                self._count += 1
            if expires_ns > block[1]:
                block[1] = expires_ns
        return () if self._count <= self._max else tuple(self._forget_first())

    def has_any(self, batch: Batch) -> bool:
        """Whether one of these numbers was delivered."""
        blocks = self._blocks
        return any(key in blocks and blocks[key][0] & bits for key, (bits, _, _) in batch.items())

    def has_room(self, more: int) -> bool:
        """Whether this many more numbers can be remembered without forgetting others."""
        return self._count + more <= self._max

    def add_all(self, batch: Batch) -> None:
        """Remember numbers for which there is room."""
        for key, (bits, first_ns, last_ns) in batch.items():
            block = self._blocks.get(key)
            if block is None:
                self._blocks[key] = [bits, last_ns]
                heappush(self._heap, (first_ns, key))
                self._count += bits.bit_count()
            else:
                self._count += (bits & ~block[0]).bit_count()
                block[0] |= bits
                block[1] = max(block[1], last_ns)

    def value(self, key: Block) -> tuple[int, int] | None:
        """The bits of a block, and when it expires; None if it is forgotten."""
        block = self._blocks.get(key)
        return None if block is None else (block[0], block[1])

    def restore(self, key: Block, bits: int, expires_ns: int) -> None:
        """Restore a stored block."""
        self._blocks[key] = [bits, expires_ns]
        heappush(self._heap, (expires_ns, key))
        self._count += bits.bit_count()

    @property
    def next_expiry_ns(self) -> int | None:
        """When something may be forgotten."""
        return self._heap[0][0] if self._heap else None

    def forget_old(self, now_ns: int) -> Iterator[Block]:
        """Forget blocks of which no duplicate can exist any more."""
        while self._heap and self._heap[0][0] <= now_ns:
            yield from self._forget_if(now_ns)

    def _forget_first(self) -> Iterator[Block]:
        while self._count > self._max and len(self._heap) > 1:
            yield from self._forget_if(self._heap[0][0])
        if self._count > self._max:
            (block,) = self._blocks.values()
            block[0] &= block[0] - 1
            self._count -= 1

    def _forget_if(self, now_ns: int) -> Iterable[Block]:
        """Forget the block on top of the heap if it expires by then; otherwise move it to its time."""
        key = heappop(self._heap)[1]
        bits, expires_ns = self._blocks[key]
        if expires_ns > now_ns:
            heappush(self._heap, (expires_ns, key))
            return ()
        del self._blocks[key]
        self._count -= bits.bit_count()
        return (key,)
