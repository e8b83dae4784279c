"""Clocks of different machines, from the least delays between them.

Theory of operation. A message from machine a to machine b seems to take its delay plus the lead of b's clock over a's.
No delay is negative, so b is ahead of a by no more than the least that any message seemed to take: a bound that is
sure. Traffic in the other direction bounds the same difference from below. Of two machines, half the difference
of the two least delays is the middle of the possible range, half their sum is the largest error.

Of many machines each bound is an edge of a graph, b - a <= least, and the tightest bound that they make together is the
length of the shortest path. So machines that never talk to each other are bounded through those that they both talk to,
and a declared bound on a clock is one more edge. Whole nanoseconds throughout: SciPy's shortest paths go by
floating point, and take an edge of length 0 for none.

Clocks that run at different speeds bend this: `clock_rates` finds how fast they drift apart, by the line below all
delays of a pair that is nearest to them (Moon, Skelly and Towsley, 1999), for all pairs at once.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["RATE_MAX", "UNBOUNDED_NS", "ClockEstimate", "clock_bounds", "clock_estimate", "clock_rates"]

Array = npt.NDArray[Any]

UNBOUNDED_NS: Final = 1 << 61
"""More than any clock can be ahead: nothing is known."""
RATE_MAX: Final = 500e-6
"""Crystals drift by up to 100 parts in a million; whatever seems to drift by more than this is something else."""


class ClockEstimate(NamedTuple):
    """How far each clock is ahead of the reference, and the ends between which the truth is."""

    ahead_ns: Array
    low_ns: Array
    high_ns: Array


def clock_bounds(clocks: int, source: Array, target: Array, most_ns: Array) -> Array:
    """Entry [a, b]: the largest lead of clock b over clock a (UNBOUNDED_NS: unknown), from bounds on pairs.

    An entry on the diagonal is negative where bounds contradict each other: something arrived before it was sent,
    whatever the clocks.
    """
    most = np.full((clocks, clocks), UNBOUNDED_NS, np.int64)
    np.fill_diagonal(most, 0)
    np.minimum.at(most, (source, target), np.clip(most_ns, -UNBOUNDED_NS, UNBOUNDED_NS))
    for through in range(clocks):
        first, second = most[:, through, None], most[None, through, :]
        is_path = (first < UNBOUNDED_NS) & (second < UNBOUNDED_NS)
        # Contradictions in a cycle grow without end: stop at the largest possible lag of a clock.
        most = np.where(is_path, np.maximum(np.minimum(most, first + second), -UNBOUNDED_NS), most)
    return most


def clock_estimate(most_ns: Array, reference: int) -> ClockEstimate:
    """The middle of the possible range of each clock: together they keep every bound, so no delay becomes negative."""
    high, low = most_ns[reference], -most_ns[:, reference]
    is_known = (high < UNBOUNDED_NS) & (low > -UNBOUNDED_NS)
    return ClockEstimate(np.where(is_known, (high + low) // 2, 0), low, high)


def clock_rates(clocks: int, source: Array, target: Array, at_ns: Array, least_ns: Array) -> Array:
    """How much each clock gains per unit of time on the first of those that it is connected with, by delays at times.

    For every pair one line lies below all of its delays, whose slope is the difference of two clocks' rates. Of all
    such lines those are taken that are nearest to the delays in sum.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = len(at_ns)
    span = float(np.ptp(at_ns)) if rows else 0.0
    if span == 0.0:
        return np.zeros(clocks)
    when = (at_ns - at_ns.min()) / span
    pairs, pair = np.unique(source * clocks + target, return_inverse=True)
    floor = np.full(len(pairs), np.iinfo(np.int64).max)
    np.minimum.at(floor, pair, least_ns)
    reach = RATE_MAX * span
    above = (least_ns - floor[pair]) / reach  # in units of the largest gain of a clock
    each = np.arange(rows)
    entries = np.concatenate((when, -when, np.ones(rows)))
    columns = np.concatenate((target, source, clocks + pair))
    line = coo_array((entries, (np.tile(each, 3), columns)), shape=(rows, clocks + len(pairs))).tocsr()
    talks = coo_array((np.ones(rows), (source, target)), shape=(clocks, clocks))
    firsts = np.unique(connected_components(talks, directed=False)[1], return_index=True)[1]
    limits = [(0.0, 0.0) if clock in firsts else (-1.0, 1.0) for clock in range(clocks)]
    found: Any = linprog(  # type: ignore[call-overload]  # the stubs know no sparse matrices
        -line.sum(axis=0), A_ub=line, b_ub=above, bounds=[*limits, *[(None, None)] * len(pairs)]
    )
    return np.asarray(found.x[:clocks] * RATE_MAX) if found.success else np.zeros(clocks)
