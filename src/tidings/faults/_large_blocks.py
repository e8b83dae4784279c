"""Two-terminal connectivity of a block too large for sums over all sets: small components exactly, the rest sampled.

In a network that is mostly up, two brokers lose each other because one of them is caught in a small component. Those
are few, and their chances are known exactly (see `_subsets`; c_w and F_w = 1 - a_w + a_w c_w as there):

    P[component = S] = prod over S of a_b  f(S)  prod over neighbours w of S of F_w.

Listed are the connected sets that are found by growing from every broker for as long as the chance of its neighbours
being cut off is at least GROW. For brokers s and t, both up, that lose each other because of listed sets,

    P[lost] = D(s, t) + D(t, s) - J(s, t):
    D(s, t) = P[s in a listed set without t],   J(s, t) = P[s and t in two different listed sets].

D comes from one pass over the list: t up changes F_t to c_t where t is a neighbour of S. J is the product of the two
where the sets cannot feel each other, and is put right for the pairs of sets that share brokers or neighbours:

    P[S and T] / (P[S] P[T]) = prod over t in T next to S of c_S(t) / F_S(t)  prod over s in S next to T of 1 / F_T(s)
                               prod over common neighbours w of (1 - a_w + a_w c_S(w) c_T(w)) / (F_S(w) F_T(w)).

What remains is that both are in components that are not listed, and not in the same: rare where the list does its work,
so few samples do. Whole networks are drawn, and only the pairs that remain are counted. So the sum is right for any
network, rings and bottlenecks too; how near, depends on how much is left to samples.

Every value is carried with its derivative in the direction of the failure frequencies, as in `_subsets`; for the
samples the derivative of an expectation E[g] is E[g (sum of gamma of components up - sum of sigma of components down)].
"""

import numpy as np

from tidings.compiled import compiled, compiled_inline
from tidings.faults._cut_sets import border_of, list_sets, marks_of
from tidings.faults._graph import Array, FaultGraph, FloatArray

__all__ = ["SAMPLES", "connect_large_block"]

GROW = 1e-7
LIST = 1e-9  # sets that are less likely are left to the samples, which will hardly see them
MEET = 1e-6  # pairs of sets are put right if both are at least this likely
VISITS_MAX = 3_000  # sets that are looked at, growing from one broker
SETS_MAX = 4_000  # sets that are listed: the most likely; the others are left to the samples too
SAMPLES = 40_000
_CHUNK = 1_000


def connect_large_block(
    graph: FaultGraph, generator: np.random.Generator, *, samples: int = SAMPLES
) -> tuple[FloatArray, FloatArray]:
    """By [one, other], given both are up: the chance that they are connected, and how often they stop being so."""
    n = graph.broker_count
    offsets, neighbours, connections = graph.adjacency
    a, f = graph.broker_availability, graph.broker_frequency_per_s
    down, down_change = 1.0 - graph.link_availability, -graph.link_frequency_per_s
    marks = generator.integers(1, 2**62, size=n, dtype=np.int64)
    sets, set_offsets, chance, change = list_sets(
        offsets, neighbours, connections, a, f, down, down_change, marks, GROW, LIST, VISITS_MAX
    )
    if len(chance) > SETS_MAX:
        sets, set_offsets, chance, change = _most_likely(sets, set_offsets, chance, change)
    lost, lost_change = _losses(
        offsets, neighbours, connections, a, f, down, down_change, sets, set_offsets, chance, change, MEET
    )
    listed = np.sort(marks_of(sets, set_offsets, marks))
    rest, rest_change = _sampled(graph, marks, listed, generator, samples)
    connected = np.clip(1.0 - lost - rest, 0.0, 1.0)
    rate = np.maximum(-(lost_change + rest_change), 0.0)
    np.fill_diagonal(connected, 1.0)
    np.fill_diagonal(rate, 0.0)
    return connected, rate


def _most_likely(sets: Array, set_offsets: Array, chance: Array, change: Array) -> tuple[Array, Array, Array, Array]:
    kept = np.sort(np.argsort(-chance, kind="stable")[:SETS_MAX])
    sizes = np.diff(set_offsets)
    inside = np.zeros(len(sizes), np.bool_)
    inside[kept] = True
    offsets = np.concatenate(([0], np.cumsum(sizes[kept]))).astype(np.int64)
    return sets[np.repeat(inside, sizes)], offsets, chance[kept], change[kept]


def _sampled(
    graph: FaultGraph, marks: Array, listed: Array, generator: np.random.Generator, samples: int
) -> tuple[FloatArray, FloatArray]:
    n, m = graph.broker_count, len(graph.ends)
    a = np.concatenate((graph.broker_availability, graph.link_availability))
    frequency = np.concatenate((graph.broker_frequency_per_s, graph.link_frequency_per_s))
    fails, repairs = frequency / a, np.where(a < 1.0, frequency / np.maximum(1.0 - a, 1e-300), 0.0)
    count, score = np.zeros((n, n)), np.zeros((n, n))
    offsets, neighbours, connections = graph.adjacency
    for start in range(0, samples, _CHUNK):
        up = generator.random((min(_CHUNK, samples - start), n + m)) < a
        scores = np.where(up, fails, -repairs).sum(axis=1)
        _count_rest(offsets, neighbours, connections, up, scores, fails, marks, listed, count, score)
    both = np.outer(a[:n], a[:n]) * samples
    return (count + count.T) / both, (score + score.T) / both


@compiled
def _count_rest(
    offsets: Array,
    neighbours: Array,
    connections: Array,
    up: Array,
    scores: Array,
    fails: Array,
    marks: Array,
    listed: Array,
    count: Array,
    score: Array,
) -> None:
    """Adds the pairs of brokers that are up in different components, neither of them listed."""
    n = len(offsets) - 1
    label, waiting, mark = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    member = np.empty(n, np.int64)
    for sample in range(len(up)):
        label[:] = -1
        components, left = 0, 0
        for start in range(n):
            if label[start] >= 0 or not up[sample, start]:
                continue
            label[start] = components
            waiting[0], size, at = start, 1, 0
            mark[components] = 0
            while at < size:
                v = waiting[at]
                at += 1
                mark[components] ^= marks[v]
                for place in range(offsets[v], offsets[v + 1]):
                    w = neighbours[place]
                    if label[w] < 0 and up[sample, w] and up[sample, n + connections[place]]:
                        label[w] = components
                        waiting[size] = w
                        size += 1
            found = np.searchsorted(listed, mark[components])
            if found < len(listed) and listed[found] == mark[components]:
                mark[components] = 0
            else:
                mark[components] = 1
                left += 1
            components += 1
        if left < 2:
            continue
        members = 0
        for v in range(n):
            if label[v] >= 0 and mark[label[v]] == 1:
                member[members] = v
                members += 1
        for i in range(members):
            v = member[i]
            for j in range(i + 1, members):
                w = member[j]
                if label[v] != label[w]:
                    count[v, w] += 1.0
                    score[v, w] += scores[sample] - fails[v] - fails[w]


@compiled_inline
def _apart(a: float, f: float, c: float, dc: float) -> tuple[float, float]:
    """F of a neighbour and its derivative."""
    return 1.0 - a + a * c, -f * (1.0 - c) + a * dc


@compiled
def _losses(
    offsets: Array,
    neighbours: Array,
    connections: Array,
    a: Array,
    f: Array,
    down: Array,
    down_change: Array,
    sets: Array,
    set_offsets: Array,
    chance: Array,
    change: Array,
    meet: float,
) -> tuple[Array, Array]:
    """D(s, t) + D(t, s) - J(s, t), and its derivative."""
    n, count = len(a), len(chance)
    total, total_change = np.zeros(n), np.zeros(n)
    lost, lost_change = np.zeros((n, n)), np.zeros((n, n))
    where = np.full(n, -1, np.int64)
    cut, cut_change, edge = np.ones(n), np.zeros(n), np.empty(n, np.int64)
    borders = [np.int64(0) for _ in range(0)]
    border_cut, border_change = [0.0 for _ in range(0)], [0.0 for _ in range(0)]
    border_offsets = np.zeros(count + 1, np.int64)
    for number in range(count):
        members = sets[set_offsets[number] : set_offsets[number + 1]]
        size = len(members)
        for i in range(size):
            where[members[i]] = i
        border = border_of(
            offsets, neighbours, connections, members, size, where, down, down_change, cut, cut_change, edge
        )
        p, dp = chance[number], change[number]
        for i in range(size):
            s = members[i]
            q, dq = p / a[s], (dp - p * f[s] / a[s]) / a[s]
            total[s] += q
            total_change[s] += dq
            for j in range(size):
                lost[s, members[j]] -= q
                lost_change[s, members[j]] -= dq
            for place in range(border):
                # Given that it is up, w is a neighbour that must be cut off: F becomes c.
                w = edge[place]
                factor, slope = _apart(a[w], f[w], cut[w], cut_change[w])
                kept = q / factor * cut[w]
                kept_change = (dq - q * slope / factor) / factor * cut[w] + q / factor * cut_change[w]
                lost[s, w] -= q - kept
                lost_change[s, w] -= dq - kept_change
        for i in range(size):
            where[members[i]] = -1
        for place in range(border):
            borders.append(edge[place])
            border_cut.append(cut[edge[place]])
            border_change.append(cut_change[edge[place]])
        border_offsets[number + 1] = len(borders)
    for s in range(n):
        for t in range(n):
            lost[s, t] += total[s]
            lost_change[s, t] += total_change[s]
    both, both_change = np.zeros((n, n)), np.zeros((n, n))
    for s in range(n):
        for t in range(s):
            one, other = lost[s, t] + lost[t, s], lost_change[s, t] + lost_change[t, s]
            both[s, t] = both[t, s] = one - total[s] * total[t]
            value = other - total_change[s] * total[t] - total[s] * total_change[t]
            both_change[s, t] = both_change[t, s] = value
    _put_right(
        a,
        f,
        sets,
        set_offsets,
        chance,
        change,
        np.array(borders),
        border_offsets,
        np.array(border_cut),
        np.array(border_change),
        meet,
        both,
        both_change,
    )
    return both, both_change


@compiled
def _put_right(
    a: Array,
    f: Array,
    sets: Array,
    set_offsets: Array,
    chance: Array,
    change: Array,
    borders: Array,
    border_offsets: Array,
    border_cut: Array,
    border_change: Array,
    meet: float,
    both: Array,
    both_change: Array,
) -> None:
    """Takes P[S and T] - P[S] P[T] off for each pair of listed sets that feel each other."""
    n, count = len(a), len(chance)
    # By broker: the sets that have it inside or next to them.
    near = np.zeros(n + 1, np.int64)
    for number in range(count):
        if chance[number] >= meet:
            for place in range(set_offsets[number], set_offsets[number + 1]):
                near[sets[place] + 1] += 1
            for place in range(border_offsets[number], border_offsets[number + 1]):
                near[borders[place] + 1] += 1
    for v in range(n):
        near[v + 1] += near[v]
    sets_near, fill = np.empty(near[n], np.int64), near[:-1].copy()
    for number in range(count):
        if chance[number] >= meet:
            for place in range(set_offsets[number], set_offsets[number + 1]):
                sets_near[fill[sets[place]]] = number
                fill[sets[place]] += 1
            for place in range(border_offsets[number], border_offsets[number + 1]):
                sets_near[fill[borders[place]]] = number
                fill[borders[place]] += 1
    role = np.zeros(n, np.int64)  # 1: in S, 2: next to S
    cut, cut_change = np.ones(n), np.zeros(n)
    done = np.full(count, -1, np.int64)
    for one in range(count):
        if chance[one] < meet:
            continue
        for place in range(set_offsets[one], set_offsets[one + 1]):
            role[sets[place]] = 1
        for place in range(border_offsets[one], border_offsets[one + 1]):
            w = borders[place]
            role[w], cut[w], cut_change[w] = 2, border_cut[place], border_change[place]
        for v in range(n):
            if role[v] == 0:
                continue
            for place in range(near[v], near[v + 1]):
                other = sets_near[place]
                if done[other] == one:
                    continue
                done[other] = one
                _put_pair_right(
                    a, f, sets, set_offsets, chance, change, borders, border_offsets, border_cut, border_change,
                    one, other, role, cut, cut_change, both, both_change,
                )  # fmt: skip
        for place in range(set_offsets[one], set_offsets[one + 1]):
            role[sets[place]] = 0
        for place in range(border_offsets[one], border_offsets[one + 1]):
            role[borders[place]] = 0


@compiled
def _put_pair_right(
    a: Array,
    f: Array,
    sets: Array,
    set_offsets: Array,
    chance: Array,
    change: Array,
    borders: Array,
    border_offsets: Array,
    border_cut: Array,
    border_change: Array,
    one: int,
    other: int,
    role: Array,
    cut: Array,
    cut_change: Array,
    both: Array,
    both_change: Array,
) -> None:
    product = chance[one] * chance[other]
    product_change = change[one] * chance[other] + chance[one] * change[other]
    value, slope = product, product_change
    for place in range(set_offsets[other], set_offsets[other + 1]):
        t = sets[place]
        if role[t] == 1:  # they overlap: never both components
            value = slope = 0.0
            break
        if role[t] == 2:
            factor, factor_change = _apart(a[t], f[t], cut[t], cut_change[t])
            slope = (slope - value * factor_change / factor) / factor
            value /= factor
            slope = slope * cut[t] + value * cut_change[t]
            value *= cut[t]
    if value > 0.0:
        for place in range(border_offsets[other], border_offsets[other + 1]):
            w = borders[place]
            c, dc = border_cut[place], border_change[place]
            if role[w] == 0:
                continue
            factor, factor_change = _apart(a[w], f[w], c, dc)
            slope = (slope - value * factor_change / factor) / factor
            value /= factor
            if role[w] == 2:
                factor, factor_change = _apart(a[w], f[w], cut[w], cut_change[w])
                slope = (slope - value * factor_change / factor) / factor
                value /= factor
                factor, factor_change = _apart(a[w], f[w], c * cut[w], dc * cut[w] + c * cut_change[w])
                slope = slope * factor + value * factor_change
                value *= factor
    extra, extra_change = value - product, slope - product_change
    for i in range(set_offsets[one], set_offsets[one + 1]):
        s = sets[i]
        for j in range(set_offsets[other], set_offsets[other + 1]):
            t = sets[j]
            if s != t:
                scale = 1.0 / (a[s] * a[t])
                both[s, t] -= extra * scale
                both_change[s, t] -= (extra_change - extra * (f[s] / a[s] + f[t] / a[t])) * scale
