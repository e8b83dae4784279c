"""The compiled heart of the matching index.

Theory of operation
-------------------
An event is a vector of doubles, one per *column* (an attribute as a number, as a string, as a boolean, or its being
NULL); a missing value is NaN. A clause is a short list of *atoms*, intervals on columns. Every column has up to 250
learned boundaries that turn a value into a one-byte *code*; coding is monotone, so ``low <= v <= high`` implies
``code(low) <= code(v) <= code(high)``: codes can be tested first. That test may accept too much, never too little, and
the exact test follows it.

Clauses live in *partitions* by the columns they constrain (see `_partitions`), in blocks of 64 slots; the only block of
a small partition under an equality has room for fewer. A slot holds the codes of up to six of its clause's intervals.
A partition is searched in one of two directions:

- One event at a time. For each of up to three key columns a partition has 64 rows of bits, one per four codes (the last
  for a missing value): which slots accept a value with one of them; above them, large partitions have a second level
  with a bit per block. AND three words per block, test the codes in each slot that is left, and at last the atoms of
  the few that survive; an event whose codes lie strictly within all of a clause's intervals needs not even that.
- Many events at once, the transpose of it: for a tile of 512 events, a table says for every column and code which of
  the events have a code below it. A slot is then tested against all 512 events by AND-ing two rows per interval, with
  nothing to mispredict. Tiles are cut from the events *sorted* by the partition's first key column, so a block is
  tested only against the tiles that its slots' intervals meet.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tidings.compiled import borrowing, compiled, compiled_inline

Array = npt.NDArray[Any]

BLOCK = 64  # slots per block: the bits of one word
GROUP = 2  # codes that differ in this many of their lowest bits share a row of bits
ROWS = 256 >> GROUP  # rows of bits per key column, the last one for a missing value
KEYS = 3  # key columns of a partition, at most
INTERVALS = 6  # intervals whose codes stand beside each slot, key columns first
MAX_BOUNDARIES = 250  # codes 0..250; 255 means missing, so 251..254 stay unused and row 63 is for missing values alone
MISSING = 255
FLAGS, CLAUSE = 12, 14  # places in a slot after the intervals
ALWAYS = 255  # the row of the table that all events of a tile are in (column 0); row 0 has none
TILE = 512  # events worked off together
WORDS = TILE // 64
FEW_BLOCKS = 8  # up to here there is no upper level: a row is one cache line
FIRST_DOUBTS = 2 * BLOCK * TILE  # pairs that need the exact test before the list of them is doubled: two blocks' worth
SLOTS_AT_ONCE = 4096  # slots tested together for one event: bounds the list of them

# places in the description of a partition
FIRST = 0  # its first block
USED = 1  # blocks in use
STRIDE = 2  # blocks there is room for, which is the length of a row of bits in words
ROW = 3  # where its rows begin in `bits`
UPPER = 4  # where the rows of the upper level begin in `upper_bits`; none for FEW_BLOCKS or less
NEXT = 5  # the next partition of the same equality key, or -1
KEY_COUNT = 6  # number of key columns ...
KEY = 7  # ... and where they stand

INTERVAL, IN_SET, NOT_IN_SET = 0, 1, 2  # kinds of atom
RESIDUAL = 1  # clause flag: the filter itself has to confirm
PLAIN = 2  # clause flag: nothing but intervals, all of which stand beside the slot


class State(NamedTuple):
    """The arrays of an index, by reference; arenas are larger than their content."""

    boundaries: Array  # f64[columns, 255], padded with +inf
    # clauses and their atoms
    clause_span: Array  # i64[clauses, 2]: first atom, number of atoms
    clause_flags: Array  # u8
    atom_what: Array  # i32[atoms, 2]: column, kind
    atom_ends: Array  # f64[atoms, 2]: low, high
    atom_set: Array  # i64: where the atom's set begins in `sets`
    atom_code_low: Array  # u8
    atom_code_high: Array  # u8
    sets: Array  # f64: length, then sorted members
    # partitions
    parts: Array  # i32[partitions, 16], a cache line each: see FIRST and the places after it
    live: Array  # u64 per block
    block_slot: Array  # i64[blocks]: the first slot of each block
    block_span: Array  # u8[blocks, 2]: lowest and highest code of the first key column that slots of the block accept
    slots: Array  # u16[slots, 16]: all that is first asked about a slot, 32 bytes so that it lies in one cache line:
    # the columns of six intervals; the codes of their ends, the high one in the upper byte; the clause's flags; 0; its
    # number in two halves
    bits: Array  # u64
    upper_bits: Array  # u64
    # the equality table: partitions found by an event's values
    equality_columns: Array  # i64
    table_column: Array  # i64: open addressing, -1 = empty
    table_value: Array  # f64
    table_part: Array  # i64


def _lowest_bit(typingctx: Any, word: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


lowest_bit: Any = intrinsic(_lowest_bit)
"""Position of the lowest set bit of a non-zero word (one machine instruction)."""


@compiled_inline
def first_bits(count: int) -> Any:
    """A word with the lowest `count` bits set (all of them from 64 on)."""
    if count >= BLOCK:
        return ~np.uint64(0)
    return (np.uint64(1) << np.uint64(count)) - np.uint64(1)


@borrowing
def code_of(boundaries: Array, column: int, value: float) -> int:
    """How many boundaries of the column are <= value; MISSING for NaN."""
    if np.isnan(value):
        return MISSING
    position = 0
    step = 128
    while step > 0:
        if boundaries[column, position + step - 1] <= value:
            position += step
        step >>= 1
    return position


@borrowing
def encode(boundaries: Array, values: Array, codes: Array) -> None:
    for e in range(values.shape[0]):
        for c in range(values.shape[1]):
            codes[e, c] = code_of(boundaries, c, values[e, c])


@borrowing
def table_slot(table_column: Array, table_value: Array, column: int, value: float) -> Any:
    """Where (column, value) is in the equality table, or the empty place where it would go."""
    mask = len(table_column) - 1
    # 32-bit mixing of the value's integer part and fraction: values are dense string numbers or plain numbers
    mixed = np.int64(np.floor(value) % 2147483647.0) * 2654435761 + np.int64((value % 1.0) * 1048576.0) * 40503
    place: Any = (mixed ^ (mixed >> 15) ^ (column * 7919)) & mask
    while table_column[place] != -1 and not (table_column[place] == column and table_value[place] == value):
        place = (place + 1) & mask
    return place


@borrowing
def member(sets: Array, start: int, value: float) -> bool:
    low: Any = start + 1
    end: Any = low + np.int64(sets[start])
    high = end
    while low < high:
        middle = (low + high) >> 1
        if sets[middle] < value:
            low = middle + 1
        else:
            high = middle
    return bool(low < end and sets[low] == value)


@borrowing
def clause_holds(
    clause_span: Array, atom_what: Array, atom_ends: Array, atom_set: Array, sets: Array,
    clause: int, values: Array, event: int,
) -> bool:  # fmt: skip
    """The exact test of every atom of the clause on one event."""
    start = clause_span[clause, 0]
    for a in range(start, start + clause_span[clause, 1]):
        value = values[event, atom_what[a, 0]]
        kind = atom_what[a, 1]
        if kind == NOT_IN_SET:
            if np.isnan(value) or member(sets, atom_set[a], value):
                return False
        elif not (atom_ends[a, 0] <= value <= atom_ends[a, 1]) or (
            kind == IN_SET and not member(sets, atom_set[a], value)
        ):
            return False
    return True


@borrowing
def clause_of(slots: Array, slot: int) -> Any:
    """The number of the clause in a slot."""
    return np.int64(slots[slot, CLAUSE]) | (np.int64(slots[slot, CLAUSE + 1]) << 16)


class Scratch(NamedTuple):
    """The short lists of `match_each`, which does not allocate."""

    block_at: Array
    mask_at: Array
    slot_at: Array
    sure_at: Array

    @classmethod
    def for_blocks(cls, blocks: int) -> "Scratch":
        slots = SLOTS_AT_ONCE + BLOCK
        return cls(
            np.empty(blocks + 1, np.int64), np.empty(blocks + 1, np.uint64), np.empty(slots, np.int64),
            np.empty(slots, np.bool_),
        )  # fmt: skip


@borrowing
def match_each(
    s: State, scratch: Scratch, ranges: Array, equality_columns: Array, values: Array, codes: Array, first_event: int,
    out_event: Array, out_clause: Array, found: int,
) -> tuple[int, int]:  # fmt: skip
    """Pairs (event, clause), event by event from the given one on, from partitions and from the equality table.

    Works in passes over short lists (blocks, slots, survivors), so that the memory accesses of one pass do not wait for
    each other. Returns how many pairs there are now, `found` of them being there already, even if the output was too
    short for them, and how many slots had to be looked at.

    In one piece: cut into inlined functions for the blocks of a partition and for the slots, it took 1.3 times as long.
    """
    parts, live, bits, upper_bits, slots, block_slot = s.parts, s.live, s.bits, s.upper_bits, s.slots, s.block_slot
    clause_span, atom_what, atom_ends, atom_set, sets = s.clause_span, s.atom_what, s.atom_ends, s.atom_set, s.sets
    table_column, table_value, table_part = s.table_column, s.table_value, s.table_part
    block_at, mask_at, slot_at, sure_at = scratch.block_at, scratch.mask_at, scratch.slot_at, scratch.sure_at
    looked = 0
    for event in range(first_event, values.shape[0]):
        noted = 0
        for visit in range(len(ranges) + len(equality_columns)):
            if visit < len(ranges):
                part = ranges[visit]
            else:
                column = equality_columns[visit - len(ranges)]
                value = values[event, column]
                if np.isnan(value):
                    continue
                place = table_slot(table_column, table_value, column, value)
                if table_column[place] == -1:
                    continue
                part = table_part[place]
            while part >= 0:
                first, blocks = np.int64(parts[part, FIRST]), np.int64(parts[part, USED])
                keys = parts[part, KEY_COUNT]
                if keys == 0:
                    for b in range(blocks):
                        block_at[noted] = first + b
                        mask_at[noted] = live[first + b]
                        noted += live[first + b] != np.uint64(0)
                elif codes[event, parts[part, KEY]] != MISSING:
                    # fewer than three keys: ask the first one again, its words are at hand
                    at0 = np.int64(codes[event, parts[part, KEY]] >> GROUP)
                    at1 = at0 if keys < 2 else np.int64(ROWS + (codes[event, parts[part, KEY + 1]] >> GROUP))
                    at2 = at0 if keys < 3 else np.int64(2 * ROWS + (codes[event, parts[part, KEY + 2]] >> GROUP))
                    stride = np.int64(parts[part, STRIDE])
                    row0 = parts[part, ROW] + at0 * stride
                    row1 = parts[part, ROW] + at1 * stride
                    row2 = parts[part, ROW] + at2 * stride
                    if stride <= FEW_BLOCKS:
                        for b in range(blocks):
                            mask = bits[row0 + b] & bits[row1 + b] & bits[row2 + b]
                            block_at[noted] = first + b
                            mask_at[noted] = mask
                            noted += mask != np.uint64(0)
                    else:
                        words = (stride + BLOCK - 1) // BLOCK
                        upper = np.int64(parts[part, UPPER])
                        for w in range(words):
                            above = upper_bits[upper + at0 * words + w] & upper_bits[upper + at1 * words + w]
                            above &= upper_bits[upper + at2 * words + w]
                            while above != np.uint64(0):
                                b = w * BLOCK + lowest_bit(above)
                                above &= above - np.uint64(1)
                                mask = bits[row0 + b] & bits[row1 + b] & bits[row2 + b]
                                block_at[noted] = first + b
                                mask_at[noted] = mask
                                noted += mask != np.uint64(0)
                part = np.int64(parts[part, NEXT])
        candidates = 0
        asked = 0
        for i in range(noted):
            mask = mask_at[i]
            while mask != np.uint64(0):
                slot = block_slot[block_at[i]] + lowest_bit(mask)
                slot_at[candidates] = slot
                asked += slots[slot, 0]  # has the slot fetched long before it is needed
                candidates += 1
                mask &= mask - np.uint64(1)
            if candidates < SLOTS_AT_ONCE and i + 1 < noted:
                continue
            if asked < 0:
                return found, looked  # never: the sum only keeps the compiler from removing the fetch
            looked += candidates
            # First the intervals behind the first two keys, of which the rows of bits know least; no branch on which
            # of them fails first: that is unpredictable, that some does is the rule.
            left = 0
            for j in range(candidates):
                slot = slot_at[j]
                holds: Any = True
                for k in range(2, 5):
                    ends = np.int32(slots[slot, INTERVALS + k])
                    code = np.int32(codes[event, np.int64(slots[slot, k])])
                    holds &= (code >= (ends & 255)) & (code <= (ends >> 8))
                slot_at[left] = slot
                left += holds
            survivors = 0
            for j in range(left):
                slot = slot_at[j]
                holds = True
                sure: Any = slots[slot, FLAGS] & PLAIN != 0
                for k in range(INTERVALS):
                    ends = np.int32(slots[slot, INTERVALS + k])
                    code = np.int32(codes[event, np.int64(slots[slot, k])])
                    holds &= (code >= (ends & 255)) & (code <= (ends >> 8))
                    sure &= (code > (ends & 255)) & (code < (ends >> 8))
                slot_at[survivors] = slot
                sure_at[survivors] = sure
                survivors += holds
            for j in range(survivors):
                clause = clause_of(slots, slot_at[j])
                if sure_at[j] or clause_holds(clause_span, atom_what, atom_ends, atom_set, sets, clause, values, event):
                    if found < len(out_event):
                        out_event[found] = event
                        out_clause[found] = clause
                    found += 1
            candidates = 0
    return found, looked


@compiled
def fill_table(table: Array, columns: Array, codes: Array, order: Array, start: int, count: int) -> None:
    """Row ``column * 256 + k``: which of the events order[start : start + count] have a code below k in the column."""
    for c in range(len(columns)):
        first = columns[c] * 256
        for k in range(MISSING):
            for w in range(WORDS):
                table[first + k, w] = 0
        for i in range(count):
            code = np.int64(codes[order[start + i], columns[c]])
            if code != MISSING:
                table[first + code + 1, i >> 6] |= np.uint64(1) << np.uint64(i & 63)
        for k in range(1, MISSING):
            for w in range(WORDS):
                table[first + k, w] |= table[first + k - 1, w]
    for w in range(WORDS):
        table[0, w] = 0
        table[ALWAYS, w] = first_bits(count - w * BLOCK)


@compiled_inline
def upper_row(slots: Array, slot: int, i: int) -> Any:
    """The row of events whose code is at most that of the interval's high end."""
    return (np.int64(slots[slot, i]) << 8) + (np.int64(slots[slot, INTERVALS + i]) >> 8) + 1


@compiled_inline
def lower_row(slots: Array, slot: int, i: int) -> Any:
    """The row of events whose code is below that of the interval's low end."""
    return (np.int64(slots[slot, i]) << 8) + (np.int64(slots[slot, INTERVALS + i]) & 255)


@compiled_inline
def in_all(table: Array, u: tuple[int, ...], l: tuple[int, ...], w: int) -> Any:  # noqa: E741 (lower, beside upper)
    """The events of a word whose codes lie within all six intervals."""
    inside = table[u[0], w] & table[u[1], w] & table[u[2], w] & table[u[3], w] & table[u[4], w] & table[u[5], w]
    below = table[l[0], w] | table[l[1], w] | table[l[2], w] | table[l[3], w] | table[l[4], w] | table[l[5], w]
    return inside & ~below


@compiled_inline
def within(table: Array, upper: int, lower: int, word: int) -> Any:
    """The events whose codes lie strictly between those of an interval's ends; all of them for an unused place."""
    if upper == ALWAYS:
        return ~np.uint64(0)
    return table[upper - 1, word] & ~table[lower + 1, word]


@compiled_inline
def match_block(
    slots: Array, live: Any, first_slot: int, table: Array, order: Array, start: int,
    out_event: Array, out_clause: Array, found: int, doubt_event: Array, doubt_clause: Array, doubts: int,
) -> tuple[int, int]:  # fmt: skip
    """One block against one tile: pairs that are sure go to the output, the others to the doubts; how many of each."""
    for slot in range(first_slot, first_slot + BLOCK):
        u = (
            upper_row(slots, slot, 0), upper_row(slots, slot, 1), upper_row(slots, slot, 2),
            upper_row(slots, slot, 3), upper_row(slots, slot, 4), upper_row(slots, slot, 5),
        )  # fmt: skip
        l = (  # noqa: E741
            lower_row(slots, slot, 0), lower_row(slots, slot, 1), lower_row(slots, slot, 2),
            lower_row(slots, slot, 3), lower_row(slots, slot, 4), lower_row(slots, slot, 5),
        )  # fmt: skip
        some = np.uint64(0)
        if u[3] == ALWAYS:
            for w in range(WORDS):
                inside = table[u[0], w] & table[u[1], w] & table[u[2], w]
                some |= inside & ~(table[l[0], w] | table[l[1], w] | table[l[2], w])
        else:
            for w in range(WORDS):
                some |= in_all(table, u, l, w)
        if some == np.uint64(0) or (live >> np.uint64(slot - first_slot)) & np.uint64(1) == np.uint64(0):
            continue
        clause = clause_of(slots, slot)
        plain = slots[slot, FLAGS] & PLAIN
        for w in range(WORDS):
            mask = in_all(table, u, l, w)
            if mask == np.uint64(0):
                continue
            # strictly between the codes of the ends: inside the interval, whatever the exact values are
            sure = np.uint64(0)
            if plain:
                sure = within(table, u[0], l[0], w) & within(table, u[1], l[1], w) & within(table, u[2], l[2], w)
                sure &= within(table, u[3], l[3], w) & within(table, u[4], l[4], w) & within(table, u[5], l[5], w)
            while mask != np.uint64(0):
                bit = mask & (~mask + np.uint64(1))
                event = order[start + w * BLOCK + lowest_bit(mask)]
                mask ^= bit
                is_sure = sure & bit != np.uint64(0)
                if found < len(out_event):
                    out_event[found] = event
                    out_clause[found] = clause
                doubt_event[doubts] = event
                doubt_clause[doubts] = clause
                found += is_sure
                doubts += not is_sure
    return found, doubts


@compiled
def match_tiles(
    s: State, chosen: Array, column: int, columns: Array, values: Array, codes: Array, order: Array, table: Array,
    out_event: Array, out_clause: Array, found: int,
) -> int:  # fmt: skip
    """Pairs (event, clause) from partitions with the same first key `column`; `order` sorts the events by its code.

    Without a common column (-1) the events come in any order. `columns` are all columns that the partitions' clauses
    read. Returns as `match_each` does.
    """
    parts, block_span, live, slots, block_slot = s.parts, s.block_span, s.live, s.slots, s.block_slot
    clause_span, atom_what, atom_ends, atom_set, sets = s.clause_span, s.atom_what, s.atom_ends, s.atom_set, s.sets
    doubt_event = np.empty(FIRST_DOUBTS, np.int64)
    doubt_clause = np.empty(FIRST_DOUBTS, np.int64)
    for start in range(0, len(order), TILE):
        count = min(TILE, len(order) - start)
        lowest: Any = 0
        highest: Any = MISSING
        if column >= 0:
            lowest = np.int64(codes[order[start], column])
            highest = np.int64(codes[order[start + count - 1], column])
        fill_table(table, columns, codes, order, start, count)
        doubts = 0
        for p in range(len(chosen)):
            first = np.int64(parts[chosen[p], FIRST])
            for block in range(first, first + parts[chosen[p], USED]):
                if block_span[block, 0] > highest or block_span[block, 1] < lowest:
                    continue
                if doubts + BLOCK * TILE > len(doubt_event):
                    doubt_event = np.concatenate((doubt_event, doubt_event))
                    doubt_clause = np.concatenate((doubt_clause, doubt_clause))
                found, doubts = match_block(
                    slots, live[block], block_slot[block], table, order, start,
                    out_event, out_clause, found, doubt_event, doubt_clause, doubts,
                )  # fmt: skip
        # what is in doubt is tested in a pass of its own, so that its memory accesses do not wait for each other
        for d in range(doubts):
            if clause_holds(clause_span, atom_what, atom_ends, atom_set, sets, doubt_clause[d], values, doubt_event[d]):
                if found < len(out_event):
                    out_event[found] = doubt_event[d]
                    out_clause[found] = doubt_clause[d]
                found += 1
    return found
