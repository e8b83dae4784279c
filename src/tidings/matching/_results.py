"""From pairs (event, clause) as the kernels find them to the matches of each event, every subscription once."""

import numpy as np

from tidings.compiled import borrowing, compiled
from tidings.matching._kernels import Array

_CLAUSE_BITS = 32  # slots number clauses with so many bits, and no memory holds half as many: two fit into 64
_CLAUSES = (1 << _CLAUSE_BITS) - 1


def by_event(events: Array, clauses: Array, count: int) -> tuple[Array, Array]:
    """The pairs' clauses grouped by event, and how many each event has."""
    counts = np.bincount(events, minlength=count)
    grouped = np.empty(len(events), np.int64)
    _group(events, clauses, np.cumsum(counts) - counts, grouped)
    return grouped, counts


@borrowing
def _group(events: Array, clauses: Array, places: Array, grouped: Array) -> None:
    for i in range(len(events)):
        grouped[places[events[i]]] = clauses[i]
        places[events[i]] += 1


@compiled
def sort(values: Array) -> None:
    """Shell's sort with Knuth's gaps, in place: for a few values as fast as NumPy's, which takes 2 s to compile."""
    gap = 1
    while 3 * gap + 1 < len(values):
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, len(values)):
            value, place = values[i], i
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
        gap //= 3


@compiled
def each_once(grouped: Array, counts: Array, first: Array) -> tuple[Array, Array]:
    """The same where subscriptions may have several clauses: each is represented by one that was found.

    Apart, because most sets of subscriptions do not need it.
    """
    kept = start = 0
    kept_counts = np.empty_like(counts)
    for e in range(len(counts)):
        begin = kept
        # the few matches of an event are compared in sorted order of their subscription
        group = np.empty(counts[e], np.int64)
        for i in range(counts[e]):
            clause = grouped[start + i]
            group[i] = first[clause] << _CLAUSE_BITS | clause
        start += counts[e]
        sort(group)
        previous = -1
        for i in range(len(group)):
            if group[i] >> _CLAUSE_BITS != previous:
                previous = group[i] >> _CLAUSE_BITS
                grouped[kept] = group[i] & _CLAUSES
                kept += 1
        kept_counts[e] = kept - begin
    return grouped[:kept], kept_counts
