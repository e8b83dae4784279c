"""Two-terminal connectivity of a small block, exactly, for all pairs at once: a sum over sets of brokers.

A broker's component is S if all of S is up and joined by connections that are up inside S, and every neighbour w of S
is down or cut off from S: with c_w the product of 1 - a over the connections from w to S,

    P[component = S] = prod over S of a_b  f(S)  prod over w outside S of (1 - a_w + a_w c_w),
    f(S) = 1 - sum over T in S with S's first broker, T not S, of f(T) prod over connections T to S - T of (1 - a),

and two brokers are connected with the sum over all S that hold both. All of it is a polynomial in the availabilities,
so the frequency with which the two lose each other is its derivative in the direction da_x = frequency of x failing
(every value below is carried with that derivative):

    frequency = sum over x of frequency_x (P[connected | x up] - P[connected | x down]).

3**n steps, n at most BLOCK_MAX brokers. What is given back is for both brokers up, with only the others failing.
"""

import numpy as np

from tidings.compiled import compiled
from tidings.faults._graph import Array, FloatArray

__all__ = ["BLOCK_MAX", "connect_all_pairs", "joined_chances"]

BLOCK_MAX = 12


def connect_all_pairs(
    availability: FloatArray,
    frequency: FloatArray,
    ends: Array,
    link_availability: FloatArray,
    link_frequency: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """By [one, other], given both are up: the chance that they are connected, and how often they stop being so."""
    n = len(availability)
    cut, cut_change = _cuts(n, ends, link_availability, link_frequency)
    joined, joined_change = joined_chances(n, cut, cut_change)
    return _pairs(n, availability, frequency, cut, cut_change, joined, joined_change)


@compiled
def _cuts(n: int, ends: Array, availability: Array, frequency: Array) -> tuple[Array, Array]:
    """[broker, set]: the chance that all connections from the broker to the set are down, and its derivative."""
    size = 1 << n
    down, change = np.ones((n, n)), np.zeros((n, n))
    for link in range(len(ends)):
        u, v = ends[link, 0], ends[link, 1]
        down[u, v] = down[v, u] = 1.0 - availability[link]
        change[u, v] = change[v, u] = -frequency[link]
    cut, cut_change = np.ones((n, size)), np.zeros((n, size))
    for v in range(n):
        for members in range(1, size):
            low = 0
            while not (members >> low) & 1:
                low += 1
            rest = members & (members - 1)
            cut[v, members] = cut[v, rest] * down[v, low]
            cut_change[v, members] = cut_change[v, rest] * down[v, low] + cut[v, rest] * change[v, low]
    return cut, cut_change


@compiled
def joined_chances(n: int, cut: Array, cut_change: Array) -> tuple[Array, Array]:
    """[set]: the chance f that a set of brokers, all up, is joined by connections inside it, and its derivative."""
    size = 1 << n
    joined, change = np.zeros(size), np.zeros(size)
    for members in range(1, size):
        low = members & -members
        others = members ^ low
        total, total_change = 1.0, 0.0
        part = (others - 1) & others if others else 0
        # Every proper subset with the lowest broker: `part` runs through the subsets of the others.
        while others:
            some = part | low
            rest = members ^ some
            value, slope = joined[some], change[some]
            for v in range(n):
                if (some >> v) & 1:
                    slope = slope * cut[v, rest] + value * cut_change[v, rest]
                    value *= cut[v, rest]
            total -= value
            total_change -= slope
            if part == 0:
                break
            part = (part - 1) & others
        joined[members], change[members] = total, total_change
    return joined, change


@compiled
def _pairs(
    n: int,
    availability: Array,
    frequency: Array,
    cut: Array,
    cut_change: Array,
    joined: Array,
    joined_change: Array,
) -> tuple[Array, Array]:
    connected, rate = np.zeros((n, n)), np.zeros((n, n))
    for members in range(1, 1 << n):
        value, slope = joined[members], joined_change[members]
        for v in range(n):
            if (members >> v) & 1:
                factor, change = availability[v], frequency[v]
            else:
                c = cut[v, members]
                factor = 1.0 - availability[v] + availability[v] * c
                change = -frequency[v] * (1.0 - c) + availability[v] * cut_change[v, members]
            slope = slope * factor + value * change
            value *= factor
        for u in range(n):
            if not (members >> u) & 1:
                continue
            for v in range(u + 1, n):
                if (members >> v) & 1:
                    both = availability[u] * availability[v]
                    own = frequency[u] / availability[u] + frequency[v] / availability[v]
                    connected[u, v] += value / both
                    rate[u, v] += (slope - value * own) / both
    for u in range(n):
        connected[u, u] = 1.0
        for v in range(u):
            connected[u, v], rate[u, v] = connected[v, u], rate[v, u]
    return connected, rate
