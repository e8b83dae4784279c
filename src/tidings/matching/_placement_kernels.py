"""Compiled steps that put clauses into partitions: coding, choosing key columns, filling slots and rows of bits.

Which columns a clause is filed under decides how many others have to be looked at with it. Filing it under its three
most selective columns would be best for it alone, but would scatter the clauses over a great many partitions, each
of which every event must ask. Columns are therefore dealt into classes: a clause with k columns that is to be filed
under t of them has, by the pigeonhole principle, at least t in one of ``(k - 1) // (t - 1)`` classes, so only
combinations within a class occur. With 20 columns and clauses of 5, three-column keys come from 2 classes of 10
columns, 240 combinations instead of 1,140.
"""

from typing import Any

import numpy as np

from tidings.compiled import borrowing, borrowing_inner
from tidings.matching._kernels import (
    ALWAYS,
    BLOCK,
    CLAUSE,
    FEW_BLOCKS,
    FIRST,
    FLAGS,
    GROUP,
    INTERVAL,
    INTERVALS,
    KEY,
    KEY_COUNT,
    KEYS,
    MAX_BOUNDARIES,
    MISSING,
    NOT_IN_SET,
    ROW,
    ROWS,
    STRIDE,
    UPPER,
    Array,
    State,
    code_of,
    table_slot,
)  # fmt: skip

MAX_TESTED_COLUMN = 0xFFFF  # the columns beyond are left to the exact test
WORTH_FILING = 0.75  # an atom that accepts more than this share of the codes does not choose a partition


@borrowing
def code_atoms(s: State, atoms: Array) -> None:
    """Code the ends of atoms; a negated set accepts every present value."""
    for a in atoms:
        if s.atom_what[a, 1] == NOT_IN_SET:
            s.atom_code_low[a] = 0
            s.atom_code_high[a] = MAX_BOUNDARIES
        else:
            s.atom_code_low[a] = code_of(s.boundaries, s.atom_what[a, 0], s.atom_ends[a, 0])
            # an open end is +inf, which counts the padding too
            s.atom_code_high[a] = min(MAX_BOUNDARIES, code_of(s.boundaries, s.atom_what[a, 0], s.atom_ends[a, 1]))


@borrowing_inner
def selectivity(s: State, atom: int, codes: Array) -> Any:
    """The share of the column's codes that the atom accepts: how little it tells, from 0 to 1."""
    column = s.atom_what[atom, 0]
    return (float(s.atom_code_high[atom]) - float(s.atom_code_low[atom]) + 1.0) / (codes[column] + 1.0)


@borrowing_inner
def equality_atom(s: State, clause: int, distinct: Array) -> int:
    """The atom ``column = value`` whose column has most different values, or -1."""
    best = -1
    most = -1
    start = s.clause_span[clause, 0]
    for a in range(start, start + s.clause_span[clause, 1]):
        column = s.atom_what[a, 0]
        # distinct < 0 marks columns with too few values to be worth a table (booleans, NULL tests)
        if s.atom_what[a, 1] == INTERVAL and s.atom_ends[a, 0] == s.atom_ends[a, 1] and distinct[column] > most:
            best = a
            most = distinct[column]
    return best


@borrowing
def choose_keys(
    s: State, clauses: Array, depth: int, codes: Array, distinct: Array, column: Array, score: Array,
    out_equality: Array, out_keys: Array,
) -> None:  # fmt: skip
    """For each clause its equality atom (or -1) and up to `depth` key columns in ascending order, padded with -1.

    `column` and `score` are the columns and scores of one clause while it is looked at, at most `len(column)`.
    """
    for i in range(len(clauses)):
        clause = clauses[i]
        equality = equality_atom(s, clause, distinct)
        out_equality[i] = equality
        for k in range(KEYS):
            out_keys[i, k] = -1
        if depth == 0:
            continue
        count = 0
        start = s.clause_span[clause, 0]
        for a in range(start, start + s.clause_span[clause, 1]):
            share = selectivity(s, a, codes)
            if a == equality or s.atom_what[a, 1] == NOT_IN_SET or share > WORTH_FILING or count == len(column):
                continue
            if s.atom_what[a, 0] > MAX_TESTED_COLUMN:
                continue
            repeated = False
            for j in range(count):
                if column[j] == s.atom_what[a, 0]:
                    repeated = True
                    score[j] = min(score[j], np.log(share))
            if not repeated:
                column[count] = s.atom_what[a, 0]
                score[count] = np.log(share)
                count += 1
        classes = 1
        if depth > 1 and count > depth:
            classes = (count - 1) // (depth - 1)
        # the class whose `depth` most selective columns accept least
        best_class = 0
        best_total = 1.0
        for c in range(classes):
            total = pick(column, score, count, classes, c, depth, out_keys, i)
            if total < best_total:
                best_total = total
                best_class = c
        pick(column, score, count, classes, best_class, depth, out_keys, i)


@borrowing_inner
def pick(column: Array, score: Array, count: int, classes: int, wanted: int, depth: int, out: Array, row: int) -> float:
    """The `depth` most selective columns of one class, ascending into a row of `out`; the sum of their scores."""
    for k in range(KEYS):
        out[row, k] = -1
    total = 0.0
    taken = 0
    while taken < depth:
        best = -1
        for j in range(count):
            if column[j] % classes != wanted or (best >= 0 and score[j] >= score[best]):
                continue
            used = False
            for k in range(taken):
                if out[row, k] == column[j]:
                    used = True
            if not used:
                best = j
        if best < 0:
            break
        out[row, taken] = column[best]
        total += score[best]
        taken += 1
    for i in range(1, taken):  # insertion sort of at most three
        key = out[row, i]
        j = i
        while j > 0 and out[row, j - 1] > key:
            out[row, j] = out[row, j - 1]
            j -= 1
        out[row, j] = key
    return total


@borrowing_inner
def code_span(s: State, clause: int, column: int) -> tuple[Any, Any]:
    """The codes of `column` that the clause's atoms accept; (0, MISSING) if it does not constrain the column."""
    low: Any = 0
    high: Any = MISSING
    start = s.clause_span[clause, 0]
    for a in range(start, start + s.clause_span[clause, 1]):
        if s.atom_what[a, 0] == column:
            low = max(low, np.int64(s.atom_code_low[a]))
            high = min(high, np.int64(s.atom_code_high[a]))
    return low, high


@borrowing
def locality(s: State, part: int, clauses: Array, out: Array) -> None:
    """Into `out`, zeros at first, a number per clause that puts neighbours into the same blocks.

    The first key comes in eight bands (so that a tile of sorted events skips most blocks), within a band follows the
    Z-order of the centres of the other keys' intervals.
    """
    keys = s.parts[part, KEY_COUNT]
    for i in range(len(clauses)):
        for k in range(keys):
            low, high = code_span(s, clauses[i], s.parts[part, KEY + k])
            centre = (low + min(high, MAX_BOUNDARIES)) >> 1
            if k == 0 and keys > 1:
                out[i] |= (centre >> 5) << (8 * KEYS)
            for bit in range(8):
                if k > 0 or keys == 1 or bit < 5:
                    out[i] |= ((centre >> bit) & 1) << (bit * KEYS + k)


@borrowing_inner
def note_tests(s: State, part: int, clause: int, slot: int, codes: Array) -> None:
    """Put the codes of the clause's intervals beside its slot: those of key columns first, then the most telling."""
    start = s.clause_span[clause, 0]
    end = min(start + s.clause_span[clause, 1], start + 64)
    keys = s.parts[part, KEY_COUNT]
    used = np.uint64(0)
    for i in range(INTERVALS):
        best = -1
        for a in range(start, end):
            taken = (used >> np.uint64(a - start)) & np.uint64(1) == np.uint64(1)
            column = s.atom_what[a, 0]
            if taken or column > MAX_TESTED_COLUMN or (i < keys and column != s.parts[part, KEY + i]):
                continue
            if best < 0 or selectivity(s, a, codes) < selectivity(s, best, codes):
                best = a
        if best < 0:
            s.slots[slot, i] = 0
            s.slots[slot, INTERVALS + i] = (ALWAYS - 1) << 8
        else:
            used |= np.uint64(1) << np.uint64(best - start)
            s.slots[slot, i] = s.atom_what[best, 0]
            s.slots[slot, INTERVALS + i] = s.atom_code_low[best] | (np.int64(s.atom_code_high[best]) << 8)


@borrowing
def enter_all(
    columns: Array, values: Array, parts: Array, new_columns: Array, new_values: Array, new_parts: Array
) -> int:
    """Enter what an equality table holds into a larger one; how much that is."""
    count = 0
    for i in range(len(columns)):
        if columns[i] >= 0 and parts[i] >= 0:
            at = table_slot(new_columns, new_values, columns[i], values[i])
            new_columns[at], new_values[at], new_parts[at] = columns[i], values[i], parts[i]
            count += 1
    return count


@borrowing
def fill(s: State, parts: Array, locals: Array, clauses: Array, codes: Array, place: Array) -> None:
    """Put clauses into slots of partitions (slot 0 of a partition is its first) and note where each went."""
    for i in range(len(clauses)):
        part, local, clause = parts[i], locals[i], clauses[i]
        keys = s.parts[part, KEY_COUNT]
        stride = np.int64(s.parts[part, STRIDE])
        words = (stride + BLOCK - 1) // BLOCK
        block = local // BLOCK
        bit = np.uint64(1) << np.uint64(local % BLOCK)
        slot = s.block_slot[np.int64(s.parts[part, FIRST]) + block] + local % BLOCK
        s.live[np.int64(s.parts[part, FIRST]) + block] |= bit
        s.slots[slot, FLAGS] = s.clause_flags[clause]
        s.slots[slot, CLAUSE] = clause & 0xFFFF
        s.slots[slot, CLAUSE + 1] = clause >> 16
        place[clause] = np.int64(s.parts[part, FIRST]) * BLOCK + local
        note_tests(s, part, clause, int(slot), codes)
        for k in range(keys):
            low, high = code_span(s, clause, s.parts[part, KEY + k])
            if k == 0:
                at = np.int64(s.parts[part, FIRST]) + block
                s.block_span[at, 0] = min(s.block_span[at, 0], low)
                s.block_span[at, 1] = max(s.block_span[at, 1], high)
            for row in range(low >> GROUP, (high >> GROUP) + 1):
                s.bits[s.parts[part, ROW] + (k * ROWS + row) * stride + block] |= bit
                if stride > FEW_BLOCKS:
                    above = s.parts[part, UPPER] + (k * ROWS + row) * words + block // BLOCK
                    s.upper_bits[above] |= np.uint64(1) << np.uint64(block % BLOCK)
