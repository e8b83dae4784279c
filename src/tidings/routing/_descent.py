"""The compiled local search behind `balance_routes`: one pass over the brokers of one publisher's tree.

A broker's mass is -ln of the chance that nobody in its subtree has a match, per class of events; masses add up, so
hanging a subtree elsewhere takes its mass from the ancestors it leaves and gives it to those it joins, and all others
keep theirs. A certain match has mass `CERTAIN`, a power of two: sums of certain masses are exact.
"""

from typing import NamedTuple

import numpy as np

from tidings.compiled import compiled
from tidings.routing._arrays import FloatArray, IntArray

CERTAIN = 64.0  # 1 - exp(-64) is 1 in doubles
_NEGLIGIBLE_MASS = 1e-12  # what rounding leaves of a mass taken away
# A move must lower the objective by this share more than no move and than the best so far: rounding can then neither
# make the search circle nor choose between equals.
_LEAST_GAIN = 1e-9


class Search(NamedTuple):
    """One publisher's tree under search, and the links; parent, parent_link and utilisation are changed in place.

    `members` are the brokers of the tree, root first. `load` is the utilisation that a link has when all
    of the publisher's events take it, `bound` the slowest path allowed per broker, `mass` and `weight` the demand.
    """

    members: IntArray
    parent: IntArray
    parent_link: IntArray
    utilisation: FloatArray
    in_offsets: IntArray
    in_links: IntArray
    source: IntArray
    slowness: FloatArray
    load: FloatArray
    bound: FloatArray
    mass: FloatArray
    weight: FloatArray


class Measures(NamedTuple):
    """What follows from a tree: per broker its depth (-1 outside), the slowness of its path, how much slower its whole
    subtree may still become, the mass held by its subtree, and the share of events that enter it."""

    depth: IntArray
    reach: FloatArray
    slack: FloatArray
    held: FloatArray
    share: FloatArray


@compiled
def _share(mass: FloatArray, change: FloatArray, sign: float, weight: FloatArray) -> float:
    """The share of events with a match in a subtree of mass + sign * change."""
    total = 0.0
    for j in range(len(weight)):
        held = mass[j] + sign * change[j]
        if held >= 0.5 * CERTAIN:
            total += weight[j]
        elif held > _NEGLIGIBLE_MASS:
            total += weight[j] * -np.expm1(-held)
    return total


@compiled
def _cost(search: Search, link: int, change: float) -> float:
    """What the objective gains when a link's share of this publisher's events changes."""
    now = search.utilisation[link]
    after = now + search.load[link] * change
    return float(after * after * after - now * now * now)


@compiled
def _measure_paths(search: Search, measures: Measures) -> None:
    """Depth, path slowness and slack of every broker; parents in any order."""
    depth, reach, slack = measures.depth, measures.reach, measures.slack
    members, parent = search.members, search.parent
    depth[:] = -1
    depth[members[0]] = 0
    reach[members[0]] = 0.0
    trail = np.empty(len(members), np.int32)
    for broker in members:
        length = 0
        at = broker
        while depth[at] < 0:
            trail[length] = at
            length += 1
            at = parent[at]
        for place in range(length - 1, -1, -1):
            at = trail[place]
            depth[at] = depth[parent[at]] + 1
            reach[at] = reach[parent[at]] + search.slowness[search.parent_link[at]]
    for broker in members:
        slack[broker] = search.bound[broker] - reach[broker]
    for at in _deepest_first(members, depth)[:-1]:
        slack[parent[at]] = min(slack[parent[at]], slack[at])


@compiled
def _deepest_first(members: IntArray, depth: IntArray) -> IntArray:
    """A counting sort: linear, and called after every move."""
    ends = np.zeros(len(members) + 1, np.int64)
    for broker in members:
        ends[len(members) - depth[broker]] += 1
    ends = np.cumsum(ends)
    ordered = np.empty(len(members), np.int32)
    for broker in members[::-1]:
        slot = len(members) - depth[broker]
        ends[slot] -= 1
        ordered[ends[slot]] = broker
    return ordered


@compiled
def _measure(search: Search) -> Measures:
    n = len(search.parent)
    held = search.mass.copy()
    share = np.zeros(n)
    measures = Measures(np.empty(n, np.int32), np.full(n, np.inf), np.full(n, np.inf), held, share)
    _measure_paths(search, measures)
    for broker in _deepest_first(search.members, measures.depth)[:-1]:
        held[search.parent[broker]] += held[broker]
    for broker in search.members:
        share[broker] = _share(held[broker], held[broker], 0.0, search.weight)
    return measures


@compiled
def _price(search: Search, measures: Measures, left: FloatArray, broker: int, link: int) -> float:
    """The change of the objective when `broker` is hung on `link`; infinite where that would cut it off.

    Both paths up are climbed, the deeper end first, until they meet: nothing changes above. `left` holds the share of
    each of the broker's ancestors once it is gone.
    """
    depth, parent, parent_link = measures.depth, search.parent, search.parent_link
    own = measures.share[broker]
    change = _cost(search, parent_link[broker], -own) + _cost(search, link, own)
    leaving = parent[broker]
    joining = search.source[link]
    while leaving != joining:
        if depth[joining] >= depth[leaving]:
            if joining == broker:
                return np.inf
            share = _share(measures.held[joining], measures.held[broker], 1.0, search.weight)
            change += _cost(search, parent_link[joining], share - measures.share[joining])
            joining = parent[joining]
        else:
            change += _cost(search, parent_link[leaving], left[leaving] - measures.share[leaving])
            leaving = parent[leaving]
    return change


@compiled
def _rehang(search: Search, measures: Measures, broker: int, link: int) -> None:
    load, utilisation = search.load, search.utilisation
    held, share = measures.held, measures.share
    old_link = search.parent_link[broker]
    utilisation[old_link] -= load[old_link] * share[broker]
    utilisation[link] += load[link] * share[broker]
    for sign in (-1.0, 1.0):
        at = search.parent[broker] if sign < 0 else search.source[link]
        while at != search.members[0]:
            held[at] += sign * held[broker]
            now = _share(held[at], held[at], 0.0, search.weight)
            utilisation[search.parent_link[at]] += load[search.parent_link[at]] * (now - share[at])
            share[at] = now
            at = search.parent[at]
    search.parent[broker] = search.source[link]
    search.parent_link[broker] = link
    _measure_paths(search, measures)


@compiled
def improve_tree(search: Search) -> int:
    """Hang each broker where it does most good, once; gives the number of moves made."""
    measures = _measure(search)
    root = search.members[0]
    left = np.empty(len(search.parent))
    objective = (search.utilisation**3).sum()
    moves = 0
    for broker in search.members[1:]:
        if measures.share[broker] == 0.0:
            continue
        above = search.parent[broker]
        while above != root:
            left[above] = _share(measures.held[above], measures.held[broker], -1.0, search.weight)
            above = search.parent[above]
        least_gain = _LEAST_GAIN * objective
        best_change = 0.0
        best_link = -1
        for slot in range(search.in_offsets[broker], search.in_offsets[broker + 1]):
            link = search.in_links[slot]
            candidate = search.source[link]
            if link == search.parent_link[broker] or measures.depth[candidate] < 0:
                continue
            slower = measures.reach[candidate] + search.slowness[link] - measures.reach[broker]
            if slower > measures.slack[broker]:
                continue
            change = _price(search, measures, left, broker, link)
            if change < best_change - least_gain:
                best_change = change
                best_link = link
        if best_link >= 0:
            _rehang(search, measures, broker, best_link)
            objective += best_change
            moves += 1
    return moves
