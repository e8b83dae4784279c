"""Listing the small sets of brokers that may be cut off from the rest, with the chance of each (see `_large_blocks`).

A set is grown from every broker by adding neighbours, each set once, for as long as the chance that all neighbours
are cut off is large enough. A set is known by its mark, the exclusive or of a random number for each member.
"""

import numpy as np

from tidings.compiled import compiled
from tidings.faults._graph import Array
from tidings.faults._subsets import joined_chances

__all__ = ["CYCLIC_MAX", "SIZE_MAX", "border_of", "list_sets", "marks_of"]

SIZE_MAX = 12
CYCLIC_MAX = 7  # the largest set whose f is summed over its subsets; trees are products


@compiled
def marks_of(sets: Array, set_offsets: Array, marks: Array) -> Array:
    out = np.zeros(len(set_offsets) - 1, np.int64)
    for number in range(len(out)):
        for place in range(set_offsets[number], set_offsets[number + 1]):
            out[number] ^= marks[sets[place]]
    return out


@compiled
def list_sets(
    offsets: Array,
    neighbours: Array,
    connections: Array,
    a: Array,
    f: Array,
    down: Array,
    down_change: Array,
    marks: Array,
    grow: float,
    least: float,
    visits_max: int,
) -> tuple[Array, Array, Array, Array]:
    """Connected sets with the chance of being a component, and its derivative; each once, by its mark."""
    n = len(a)
    sets, set_offsets = [np.int64(0) for _ in range(0)], [np.int64(0)]
    chances, changes = [0.0 for _ in range(0)], [0.0 for _ in range(0)]
    seen = {np.int64(0)}
    cut, cut_change, where = np.ones(n), np.zeros(n), np.full(n, -1, np.int64)
    members, edge = np.empty(SIZE_MAX, np.int64), np.empty(n, np.int64)
    # The growing set as a stack: which candidates each level still has, and who is shut out on this branch.
    candidates = np.empty((SIZE_MAX + 1, n), np.int64)
    counts, nexts = np.zeros(SIZE_MAX + 1, np.int64), np.zeros(SIZE_MAX + 1, np.int64)
    shut = np.zeros(n, np.int64)
    for source in range(n):
        visits = 0
        size, mark = 1, marks[source]
        members[0], where[source] = source, 0
        shut[source] = 1
        level = 0
        entering = True
        while level >= 0:
            if entering:
                entering = False
                visits += 1
                border = border_of(
                    offsets, neighbours, connections, members, size, where, down, down_change, cut, cut_change, edge
                )
                outside, outside_change = 1.0, 0.0
                for place in range(border):
                    w = edge[place]
                    factor = 1.0 - a[w] + a[w] * cut[w]
                    slope = -f[w] * (1.0 - cut[w]) + a[w] * cut_change[w]
                    outside_change = outside_change * factor + outside * slope
                    outside *= factor
                if mark not in seen:
                    known, value, slope = _inside(
                        offsets, neighbours, connections, members, size, where, a, f, down, down_change
                    )
                    chance = value * outside
                    if known and chance >= least:
                        seen.add(mark)
                        for place in range(size):
                            sets.append(members[place])  # noqa: PERF401 (compiled)
                        set_offsets.append(np.int64(len(sets)))
                        chances.append(chance)
                        changes.append(slope * outside + value * outside_change)
                counts[level] = nexts[level] = 0
                if size < SIZE_MAX and outside >= grow and size + border < n and visits < visits_max:
                    for place in range(border):
                        if not shut[edge[place]]:
                            candidates[level, counts[level]] = edge[place]
                            counts[level] += 1
            if nexts[level] < counts[level]:
                w = candidates[level, nexts[level]]
                nexts[level] += 1
                shut[w] = 1  # after this branch, w stays out for the later ones of this level
                members[size], where[w] = w, size
                size += 1
                mark ^= marks[w]
                level += 1
                entering = True
            else:
                for place in range(counts[level]):
                    shut[candidates[level, place]] = 0
                size -= 1
                mark ^= marks[members[size]]
                where[members[size]] = -1
                level -= 1
        shut[source] = 0
    return np.array(sets), np.array(set_offsets), np.array(chances), np.array(changes)


@compiled
def border_of(
    offsets: Array,
    neighbours: Array,
    connections: Array,
    members: Array,
    size: int,
    where: Array,
    down: Array,
    down_change: Array,
    cut: Array,
    cut_change: Array,
    edge: Array,
) -> int:
    """Lists the neighbours of the set into `edge`, with c and its derivative; the number of them."""
    border = 0
    for i in range(size):
        v = members[i]
        for place in range(offsets[v], offsets[v + 1]):
            cut[neighbours[place]] = -1.0
    for i in range(size):
        v = members[i]
        for place in range(offsets[v], offsets[v + 1]):
            w, link = neighbours[place], connections[place]
            if where[w] >= 0:
                continue
            if cut[w] < 0.0:
                cut[w], cut_change[w] = 1.0, 0.0
                edge[border] = w
                border += 1
            cut_change[w] = cut_change[w] * down[link] + cut[w] * down_change[link]
            cut[w] *= down[link]
    return border


@compiled
def _inside(
    offsets: Array,
    neighbours: Array,
    connections: Array,
    members: Array,
    size: int,
    where: Array,
    a: Array,
    f: Array,
    down: Array,
    down_change: Array,
) -> tuple[bool, float, float]:
    """The chance that the set is up and joined, with its derivative; not known for a large set with cycles."""
    value, slope = 1.0, 0.0
    links = 0
    for i in range(size):
        v = members[i]
        slope = slope * a[v] + value * f[v]
        value *= a[v]
        for place in range(offsets[v], offsets[v + 1]):
            if where[neighbours[place]] > i:
                links += 1
    if links == size - 1:
        for i in range(size):
            v = members[i]
            for place in range(offsets[v], offsets[v + 1]):
                if where[neighbours[place]] > i:
                    link = connections[place]
                    slope = slope * (1.0 - down[link]) - value * down_change[link]
                    value *= 1.0 - down[link]
        return True, value, slope
    if size > CYCLIC_MAX:
        return False, 0.0, 0.0
    all_sets = 1 << size
    cut, change = np.ones((size, all_sets)), np.zeros((size, all_sets))
    for i in range(size):
        v = members[i]
        for some in range(all_sets):
            for place in range(offsets[v], offsets[v + 1]):
                j = where[neighbours[place]]
                if j >= 0 and (some >> j) & 1:
                    link = connections[place]
                    change[i, some] = change[i, some] * down[link] + cut[i, some] * down_change[link]
                    cut[i, some] *= down[link]
    joined, joined_change = joined_chances(size, cut, change)
    return True, value * joined[all_sets - 1], slope * joined[all_sets - 1] + value * joined_change[all_sets - 1]
