"""Where clauses live: partitions that grow, split and are rebuilt one at a time.

A partition's key is ``(equality column, equality value, key columns)``. A clause starts in the partition without key
columns; when that one has grown past `SPLIT_AT`, its clauses are filed anew one level deeper, under one, two and at
last three key columns. Depth is a property of the partition, so a change touches the clauses of one partition only;
where they go is a function of the clause and of which partitions have been split, never of the order of arrival. To
file a few clauses takes nearly as long as to file many, so what is new waits in a partition of its own (NURSERY).

Amortised cost: a slot is written once, and again when its partition doubles, is compacted after removals, is split
(at most three times), or when columns are learned anew (`MatchingIndex`), which happens while an index is young.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.compiled import lend
from tidings.matching._kernels import (
    BLOCK,
    CLAUSE,
    FEW_BLOCKS,
    FIRST,
    KEY,
    KEY_COUNT,
    KEYS,
    NEXT,
    ROW,
    ROWS,
    STRIDE,
    TILE,
    UPPER,
    USED,
    Array,
    State,
    table_slot,
)  # fmt: skip
from tidings.matching._placement_kernels import choose_keys, enter_all, fill, locality

SPLIT_AT = (64, 256, 4096)  # clauses in a partition before it is split, by number of key columns asked for
MIN_CLAUSES_PER_PART = 4  # a split that would leave fewer clauses than this per new partition is put off
UNSORTED_SHARE = 0.5  # clauses appended since the last sort, as a share of all, before a partition is sorted again
MIN_SORTED = 4 * BLOCK  # below this, order does not matter
MIN_CAPACITY = 2  # slots of the smallest partition under an equality

MOST_KEYED = 64  # columns of a clause among which its keys are chosen
CACHE_LINE = 64  # bytes
SLOT_WIDTH = 16  # numbers of 16 bits
PART_WIDTH = 16  # numbers of 32 bits: a cache line
MIN_WORTH_SORTING = 4096  # slots under one first key column before events are sorted by it for them

SORTED_SHARE = 0.4  # of the slots, those that a tile of sorted events meets
TABLE_NS = 10.0  # rough cost of a column of the table, for one event of a tile
TILED_SLOT_NS = 35.0  # rough cost of testing a slot against a whole tile

Key = tuple[int, float, tuple[int, ...]]
NURSERY: Key = (-2, 0.0, ())
"""The partition of new clauses: every event tests all of them."""


class Part:
    """The bookkeeping of one partition; its content is in the arenas."""

    __slots__ = ("block_capacity", "capacity", "depth", "index", "key", "live", "slots", "sorted_slots", "split_at")

    def __init__(self, index: int, key: Key, depth: int) -> None:
        self.index = index
        self.key = key
        self.depth = depth
        self.slots = 0  # written, dead ones included
        self.live = 0
        self.sorted_slots = 0
        self.block_capacity = 0
        self.capacity = 0  # how many slots it can hold
        self.split_at = SPLIT_AT[depth] if depth < KEYS else 0  # 0: never


class Arena:
    """A growing array whose freed pieces are handed out again by size."""

    def __init__(self, width: tuple[int, ...] = (), dtype: npt.DTypeLike = np.uint64) -> None:
        self.array = aligned(1024, width, dtype)
        self.used = 0
        self._free: dict[int, list[int]] = defaultdict(list)

    def __getstate__(self) -> dict[str, object]:
        """For a pickle: without the room to grow."""
        return {**vars(self), "array": self.array[: self.used]}

    def take(self, size: int) -> int:
        if size == 0:
            return 0
        if self._free[size]:
            start = self._free[size].pop()
            self.array[start : start + size] = 0
            return start
        start = self.used
        self.used += size
        self.array = grown(self.array, self.used)
        return start

    def give(self, start: int, size: int) -> None:
        if size:
            self._free[size].append(start)


def grown(array: Array, size: int) -> Array:
    """The same array, or a copy of at least twice the length (zeros behind) if `size` does not fit."""
    if size <= len(array):
        return array
    larger = aligned(max(size, 2 * len(array)), array.shape[1:], array.dtype)
    larger[: len(array)] = array
    return larger


def aligned(length: int, width: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Zeros that begin at the start of a cache line, so that what is meant to share a line does."""
    size = length * int(np.prod(width, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size].view(dtype).reshape(length, *width)


class Group(NamedTuple):
    """Partitions with the same first key column (-1: a mixture, too few under each), to be matched with tiles."""

    column: int
    parts: Array
    columns: Array  # all columns that their clauses read
    tiled_ns: float  # rough cost for one event of a full tile


class PartitionPlan(NamedTuple):
    """Which partitions an event has to be matched against beside what its values find in the equality table."""

    every: Array  # all partitions without an equality key: for events that come alone
    plain: Array  # those of them without key columns, and ...
    tiled: list[Group]  # ... those with


class Partitions:
    """All partitions of an index. The caller passes `clauses`, the State holding clauses and columns."""

    def __init__(self) -> None:
        self.parts: dict[Key, Part] = {}
        self._lent: State | None = None
        self._split: set[Key] = set()
        self._free_parts: list[int] = []
        self._count = 0
        self._blocks = Arena()  # live words
        self._bits = Arena()
        self._upper = Arena()
        self._slots = Arena((SLOT_WIDTH,), np.uint16)
        self._block_slot = np.zeros(0, np.int64)
        # what `fill` has to write: the partition, the first place in it, the clauses
        self._unwritten: list[tuple[Part, int, Array]] = []
        self._dirty: set[int] = set()  # those partitions
        self._about = aligned(16, (PART_WIDTH,), np.int32)
        self._by_index: list[Part | None] = []
        self._owner = np.zeros(0, np.int64)  # partition by block
        self._block_span = np.zeros((0, 2), np.uint8)
        # the equality table, rebuilt at twice the size when half full; `table_part` is -1 where a list ran empty
        self._table_column = np.full(64, -1, np.int64)
        self._table_value = np.zeros(64)
        self._table_part = np.full(64, -1, np.int64)
        self._table_used = 0
        self._equality_columns = np.zeros(0, np.int64)
        self._tabled: set[int] = set()  # the same columns
        self._ranges: dict[int, None] = {}  # partitions without an equality key, in order of creation
        self._read: dict[int, set[int]] = defaultdict(set)  # columns that the clauses under a first key column read
        self._plan: PartitionPlan | None = None
        self.slot_of = np.full(16, -1, np.int64)  # by clause

    def __getstate__(self) -> dict[str, object]:
        """For a pickle: without the room to grow, and without what can be worked out again."""
        assert not self._unwritten, "what was placed is not in the arrays yet"
        used = {"_about": self._count}
        used.update(dict.fromkeys(("_owner", "_block_span", "_block_slot"), self._blocks.used))
        trimmed = {name: getattr(self, name)[:length] for name, length in used.items()}
        return {**vars(self), **trimmed, "_plan": None, "_lent": None}

    def state(self, clauses: State) -> State:
        """`clauses` completed with the arrays of the partitions as they are now."""
        return clauses._replace(
            parts=self._about, live=self._blocks.array, block_slot=self._block_slot,
            block_span=self._block_span, slots=self._slots.array,
            bits=self._bits.array, upper_bits=self._upper.array,
            equality_columns=self._equality_columns,
            table_column=self._table_column, table_value=self._table_value, table_part=self._table_part,
        )  # fmt: skip

    def plan(self) -> "PartitionPlan":
        """Who has to be asked, refreshed after a change."""
        if self._plan is None:
            plain = [index for index in self._ranges if not self._about[index, KEY_COUNT]]
            by_column: dict[int, list[int]] = defaultdict(list)
            for index in self._ranges:
                if self._about[index, KEY_COUNT]:
                    by_column[int(self._about[index, KEY])].append(index)
            tiled, scattered, read = [], [], set()
            for column, parts in sorted(by_column.items()):
                if self._about[parts, USED].sum() * BLOCK >= MIN_WORTH_SORTING:
                    tiled.append(self._group(column, parts, self._read[column]))
                else:
                    scattered += parts
                    read |= self._read[column]
            if scattered:
                tiled.append(self._group(-1, scattered, read))
            self._plan = PartitionPlan(
                np.fromiter(self._ranges, np.int64, len(self._ranges)), np.array(plain, np.int64), tiled
            )
        return self._plan

    def _group(self, column: int, parts: list[int], columns: set[int]) -> Group:
        visited = int(self._about[parts, USED].sum()) * BLOCK * (SORTED_SHARE if column >= 0 else 1.0)
        cost_ns = len(columns) * TABLE_NS + visited * TILED_SLOT_NS / TILE
        return Group(column, np.array(parts), np.array(sorted(columns)), cost_ns)

    @property
    def nbytes(self) -> int:
        arrays = (
            self._blocks.array, self._bits.array, self._upper.array, self._slots.array, self.slot_of,
            self._block_slot, self._block_span, self._owner,
            self._about, self._table_column, self._table_value, self._table_part,
        )  # fmt: skip
        return sum(array.nbytes for array in arrays)

    def add(self, clauses: State, new: Array, codes: Array, distinct: Array, enough: int) -> None:
        """Enter the clauses `new`: into the nursery, or with all that is there into partitions if that is enough."""
        nursery = self.parts.get(NURSERY)
        if len(new) + (nursery.live if nursery else 0) < enough:
            self._append(clauses, nursery or self._new_part(NURSERY, 0), new, codes)
            self._write_all(clauses, codes)
            return
        if nursery:
            new = np.concatenate([self.members(nursery), new])
            self._dissolve(nursery)
        self._place(clauses, new, codes, distinct)

    def _place(self, clauses: State, new: Array, codes: Array, distinct: Array) -> None:
        """File the clauses `new`; partitions that have grown too large are split."""
        pending: list[tuple[int, Array]] = [(0, new)] if len(new) else []
        while pending:
            depth, members = pending.pop()
            for key, group in self._by_key(clauses, members, depth, codes, distinct):
                if key in self._split:
                    can = chosen(clauses, group, depth + 1, codes, distinct)[1][:, depth] >= 0
                    if can.any():
                        pending.append((depth + 1, group[can]))
                    group = group[~can]  # no further column to be filed under
                    if not len(group):
                        continue
                part = self.parts.get(key)
                size = len(group) + (part.live if part else 0)
                limit = (part.split_at if part else SPLIT_AT[depth]) if depth < KEYS else 0
                if depth < KEYS and key not in self._split and size > limit:
                    everyone = np.concatenate([self._members(clauses, part, codes), group]) if part else group
                    if self._worth_splitting(clauses, everyone, depth, codes, distinct):
                        self._split.add(key)
                        if part:
                            self._dissolve(part)
                        pending.append((depth, everyone))
                        continue
                    part = part or self._new_part(key, depth)
                    part.split_at = 2 * size
                self._append(clauses, part or self._new_part(key, depth), group, codes)
        self._write_all(clauses, codes)

    def remove(self, clauses: State, gone: Iterable[int], codes: Array) -> None:
        """Take clauses out; a partition three quarters empty is rebuilt smaller."""
        touched = set()
        for clause in gone:
            slot = int(self.slot_of[clause])
            block, bit = divmod(slot, BLOCK)
            part = self._part_of_block(block)
            rest = ~(np.uint64(1) << np.uint64(bit))
            self._blocks.array[block] &= rest
            if part.key[2]:  # the rows of the first key alone keep the slot from being looked at
                base, stride = int(self._about[part.index, ROW]), part.block_capacity
                word = base + block - int(self._about[part.index, FIRST])
                self._bits.array[word : base + ROWS * stride : stride] &= rest
            self.slot_of[clause] = -1
            part.live -= 1
            touched.add(part)
        for part in touched:
            if part.live == 0:
                self._dissolve(part)
            elif part.slots > BLOCK and part.live < part.slots // 4:
                self._rebuild(clauses, part, self.members(part))
        self._write_all(clauses, codes)

    def _members(self, clauses: State, part: Part, codes: Array) -> Array:
        if part.index in self._dirty:
            self._write_all(clauses, codes)
        return self.members(part)

    def members(self, part: Part) -> Array:
        """The clauses alive in a partition, in slot order."""
        first = int(self._about[part.index, FIRST])
        words = self._blocks.array[first : first + part.block_capacity]
        alive = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
        halves = self._slots.array[int(self._block_slot[first]) + np.flatnonzero(alive), CLAUSE : CLAUSE + 2]
        return halves[:, 0].astype(np.int64) | (halves[:, 1].astype(np.int64) << 16)

    # -- filing ----------------------------------------------------------------------------------------------------

    def _by_key(
        self, clauses: State, members: Array, depth: int, codes: Array, distinct: Array
    ) -> list[tuple[Key, Array]]:
        equality, keys = chosen(clauses, members, depth, codes, distinct)
        column = np.where(equality >= 0, clauses.atom_what[equality, 0], -1)
        value = np.where(equality >= 0, clauses.atom_ends[equality, 0], 0.0)
        order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0], value, column))
        stacked = np.column_stack([column, value, keys])[order]
        starts = np.flatnonzero(np.r_[True, (stacked[1:] != stacked[:-1]).any(axis=1)])
        groups = np.split(members[order], starts[1:])
        return [
            ((int(row[0]), float(row[1]), tuple(int(c) for c in row[2:] if c >= 0)), group)
            for row, group in zip(stacked[starts], groups, strict=True)
        ]

    def _worth_splitting(self, clauses: State, everyone: Array, depth: int, codes: Array, distinct: Array) -> bool:
        deeper = chosen(clauses, everyone, depth + 1, codes, distinct)[1]
        can = deeper[deeper[:, depth] >= 0]
        if 2 * len(can) < len(everyone):
            return False
        return len(np.unique(can, axis=0)) * MIN_CLAUSES_PER_PART <= len(can)

    # -- partitions ------------------------------------------------------------------------------------------------

    def _new_part(self, key: Key, depth: int) -> Part:
        if self._free_parts:
            index = self._free_parts.pop()
        else:
            index = self._count
            self._count += 1
            self._by_index.append(None)
            self._about = grown(self._about, self._count)
        part = Part(index, key, depth)
        self.parts[key] = part
        self._by_index[index] = part
        column, value, keys = key
        self._about[index] = 0
        self._about[index, KEY_COUNT] = len(keys)
        self._about[index, KEY : KEY + len(keys)] = keys
        if column < 0:
            self._ranges[index] = None
            self._plan = None
            self._about[index, NEXT] = -1
        else:
            self._enter_table(column, value, index)
        return part

    def _enter_table(self, column: int, value: float, index: int) -> None:
        if 2 * (self._table_used + 1) > len(self._table_column):
            old = (self._table_column, self._table_value, self._table_part)
            size = 2 * len(self._table_column)
            self._table_column, self._table_value = np.full(size, -1, np.int64), np.zeros(size)
            self._table_part = np.full(size, -1, np.int64)
            self._table_used = enter_all(*old, self._table_column, self._table_value, self._table_part)
        at = table_slot(self._table_column, self._table_value, column, value)
        if self._table_column[at] == -1:
            self._table_used += 1
        self._table_column[at], self._table_value[at] = column, value
        self._about[index, NEXT] = self._table_part[at]
        self._table_part[at] = index
        if column not in self._tabled:
            self._tabled.add(column)
            self._equality_columns = np.append(self._equality_columns, column)

    def _leave_table(self, column: int, value: float, index: int) -> None:
        at = table_slot(self._table_column, self._table_value, column, value)
        here = int(self._table_part[at])
        if here == index:
            self._table_part[at] = self._about[index, NEXT]
            return
        while self._about[here, NEXT] != index:
            here = int(self._about[here, NEXT])
        self._about[here, NEXT] = self._about[index, NEXT]

    def _dissolve(self, part: Part) -> None:
        self._free_storage(part)
        column, value, _ = part.key
        if column < 0:
            del self._ranges[part.index]
            self._plan = None
        else:
            self._leave_table(column, value, part.index)
        del self.parts[part.key]
        self._by_index[part.index] = None
        self._free_parts.append(part.index)

    def _free_storage(self, part: Part) -> None:
        if part.block_capacity:
            self._slots.give(int(self._block_slot[self._about[part.index, FIRST]]), part.capacity)
            self._blocks.give(int(self._about[part.index, FIRST]), part.block_capacity)
            rows = int(self._about[part.index, KEY_COUNT]) * ROWS
            self._bits.give(int(self._about[part.index, ROW]), rows * part.block_capacity)
            self._upper.give(int(self._about[part.index, UPPER]), rows * upper_words(part.block_capacity))
        part.block_capacity = part.capacity = part.slots = part.live = part.sorted_slots = 0
        self._about[part.index, USED] = 0

    def _part_of_block(self, block: int) -> Part:
        owner = self._by_index[int(self._owner[block])]
        assert owner is not None
        return owner

    def _append(self, clauses: State, part: Part, group: Array, codes: Array) -> None:
        slots = part.slots + len(group)
        unsorted = slots - part.sorted_slots
        full = slots > part.capacity
        if full or (slots > MIN_SORTED and unsorted > UNSORTED_SHARE * slots):
            everyone = np.concatenate([self._members(clauses, part, codes), group]) if part.live else group
            self._rebuild(clauses, part, everyone)
            return
        self._write(part, group)

    def _rebuild(self, clauses: State, part: Part, everyone: Array) -> None:
        """Lay a partition out anew in a piece of its own with room to grow, neighbours in the same blocks."""
        self._free_storage(part)
        index = part.index
        # Events meet one of very many partitions under an equality at a time, so those may be small; the others are
        # asked by every event, and tiles go through whole blocks of them.
        part.capacity = MIN_CAPACITY if part.key[0] >= 0 else BLOCK
        while part.capacity < len(everyone) + len(everyone) // 8:
            part.capacity *= 2
        blocks = part.block_capacity = -(-part.capacity // BLOCK)
        first = self._about[index, FIRST] = self._blocks.take(blocks)
        end = self._blocks.used
        self._owner = grown(self._owner, end)
        self._block_span = grown(self._block_span, end)
        self._block_slot = grown(self._block_slot, end)
        slot = self._slots.take(part.capacity)
        for block in range(blocks):  # nearly always one
            self._block_span[first + block] = (255, 0)
            self._owner[first + block] = index
            self._block_slot[first + block] = slot + block * BLOCK
        rows = int(self._about[index, KEY_COUNT]) * ROWS
        self._about[index, STRIDE] = blocks
        self._about[index, ROW] = self._bits.take(rows * blocks)
        self._about[index, UPPER] = self._upper.take(rows * upper_words(blocks))
        if self._about[index, KEY_COUNT] and len(everyone) > BLOCK:
            near = np.zeros(len(everyone), np.int64)
            locality(lend(self.state(clauses)), index, everyone, near)
            everyone = everyone[np.argsort(near, kind="stable")]
        self._write(part, everyone)
        part.sorted_slots = part.slots

    def _write(self, part: Part, group: Array) -> None:
        self._unwritten.append((part, part.slots, group))
        self._dirty.add(part.index)
        part.slots += len(group)
        part.live += len(group)
        self._about[part.index, USED] = -(-part.slots // BLOCK)

    def _write_all(self, clauses: State, codes: Array) -> None:
        """Write what was placed: one call for all partitions, which are often many with few clauses each."""
        if not self._unwritten:
            return
        parts, firsts, groups = zip(*self._unwritten, strict=True)
        self._unwritten.clear()
        self._dirty.clear()
        lengths = np.fromiter(map(len, groups), np.int64, len(groups))
        members = np.concatenate(groups)
        locals = np.arange(len(members)) - np.repeat(np.cumsum(lengths) - lengths - np.array(firsts), lengths)
        self.slot_of = grown(self.slot_of, len(clauses.clause_span))
        indices = np.repeat([p.index for p in parts], lengths)
        self._lent = lend(self.state(clauses), self._lent)
        fill(self._lent, indices, locals, members, codes, self.slot_of)
        keyed = np.repeat([p.key[2][0] if p.key[0] < 0 and p.key[2] else -1 for p in parts], lengths)
        if (keyed >= 0).any():
            self._plan = None
            for key, column in columns_of(clauses, members[keyed >= 0], keyed[keyed >= 0]).tolist():
                self._read[key].add(column)


def chosen(clauses: State, members: Array, depth: int, codes: Array, distinct: Array) -> tuple[Array, Array]:
    """Equality atom and key columns of each clause, see `choose_keys`."""
    equality = np.empty(len(members), np.int64)
    keys = np.empty((len(members), KEYS), np.int64)
    scratch = (np.empty(MOST_KEYED, np.int64), np.empty(MOST_KEYED, np.float64))
    choose_keys(lend(clauses), members, depth, codes, distinct, *scratch, equality, keys)
    return equality, keys


def upper_words(blocks: int) -> int:
    """Words of the upper level per row of bits."""
    return -(-blocks // BLOCK) if blocks > FEW_BLOCKS else 0


def columns_of(clauses: State, members: Array, keys: Array) -> Array:
    """Pairs of a key and of a column that an atom of a clause with this key is on."""
    starts, lengths = clauses.clause_span[members].T
    ends = np.cumsum(lengths)
    atoms = np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])
    pairs = np.unique((np.repeat(keys, lengths) << 32) + clauses.atom_what[atoms, 0])
    return np.column_stack([pairs >> 32, pairs & 0xFFFFFFFF])
