"""From pairs (event, clause) as the kernels find them to the matches of each event, every subscription once."""

import numpy as np

from tidings.compiled import compiled
from tidings.matching._kernels import Array


@compiled
def by_event(events: Array, clauses: Array, count: int) -> tuple[Array, Array]:
    """The pairs' clauses grouped by event, and how many each event has."""
    ends = np.zeros(count + 1, np.int64)
    for i in range(len(events)):
        ends[events[i] + 1] += 1
    for e in range(count):
        ends[e + 1] += ends[e]
    grouped = np.empty(len(events), np.int64)
    cursor = ends[:-1].copy()
    for i in range(len(events)):
        grouped[cursor[events[i]]] = clauses[i]
        cursor[events[i]] += 1
    return grouped, ends[1:] - ends[:-1]


@compiled
def each_once(grouped: Array, counts: Array, first: Array) -> tuple[Array, Array]:
    """The same where subscriptions may have several clauses: each is represented by the first one that was found.

    Apart, because sorting takes long to compile and most sets of subscriptions do not need it.
    """
    kept = start = 0
    kept_counts = np.empty_like(counts)
    for e in range(len(counts)):
        begin = kept
        # the few matches of an event are compared in sorted order of their subscription
        group = grouped[start : start + counts[e]].copy()
        start += counts[e]
        order = np.argsort(first[group])
        previous = -1
        for i in range(len(order)):
            clause = group[order[i]]
            if first[clause] != previous:
                grouped[kept] = clause
                kept += 1
                previous = first[clause]
        kept_counts[e] = kept - begin
    return grouped[:kept], kept_counts
