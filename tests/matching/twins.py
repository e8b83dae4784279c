"""Plain-Python twins of the compiled kernels: the same results, computed as simply as possible."""

from bisect import bisect_right
from math import isnan

from tidings.matching._kernels import IN_SET, MISSING, NOT_IN_SET, Array, State


def encode(boundaries: Array, values: Array) -> list[list[int]]:
    """Codes of all values: how many boundaries of the column are <= the value."""
    rows = boundaries.tolist()
    return [
        [MISSING if isnan(value) else bisect_right(rows[column], value) for column, value in enumerate(row)]
        for row in values.tolist()
    ]


def clause_holds(s: State, clause: int, row: list[float]) -> bool:
    """Whether all atoms of a clause hold on a row of values."""
    start, length = s.clause_span[clause].tolist()
    return all(_atom_holds(s, atom, row) for atom in range(start, start + length))


def _atom_holds(s: State, atom: int, row: list[float]) -> bool:
    column, kind = s.atom_what[atom].tolist()
    value = row[column]
    if isnan(value):
        return False
    if kind in (IN_SET, NOT_IN_SET):
        start = int(s.atom_set[atom])
        members = s.sets[start + 1 : start + 1 + int(s.sets[start])].tolist()
        return bool((value in members) == (kind == IN_SET))
    low, high = s.atom_ends[atom].tolist()
    return bool(low <= value <= high)


def match(s: State, clauses: list[int], values: Array) -> list[tuple[int, int]]:
    """Pairs (event, clause) among the given clauses, in order: no partitions, no codes, no bits."""
    return [
        (event, clause)
        for event, row in enumerate(values.tolist())
        for clause in clauses
        if clause_holds(s, clause, row)
    ]


def by_event(pairs: list[tuple[int, int]], count: int, first: Array) -> list[list[int]]:
    """For each event the subscriptions (by their first clause) that it satisfies, ascending."""
    found: list[set[int]] = [set() for _ in range(count)]
    for event, clause in pairs:
        found[event].add(int(first[clause]))
    return [sorted(clauses) for clauses in found]
