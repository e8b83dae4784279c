"""What one queued event is worth, and until when: compiled scalar functions over flat arrays (paper C, section 5).

The layout, shared by the live broker's queues and the simulator's loop:

- A queue position i in start..stop-1 is one (event, subscription) pair behind the link that the queue feeds. Its
  subscription is k = target[i]; allowed_s[i] is the tighter of the publisher's and the subscriber's deadline, counted
  from publication, and infinite where neither set one.
- price, nodes, mean_s_per_kb and sd_s_per_kb belong to the subscription: what an on-time delivery pays, the brokers
  still to be entered, and the slowness of the path that is left. `nodes` times `processing_s` is the fixed part of
  the path's delay; paths with propagation delays give that part in seconds as `nodes`, with processing_s = 1.

Theory of operation:

- Equation 5: success = P{hdl + NN PD + size TR + extra <= allowed} with TR normal and hdl = now - published. A path
  without spread (sd 0, or size 0) is a step: 1 up to and including the deadline. Without a deadline success is 1.
- Equation 3: EB = `benefit` with extra_s = 0. Equation 8: EB' = `benefit` with extra_s = FT. PC = EB - EB', and
  EBPC(r) = r EB + (1 - r) PC = EB - (1 - r) EB'.
- Equation 11, "hopeless": every success is at most epsilon. Each success falls with time, so this holds from one
  moment on, which is known when the event arrives: a static key (`deletion_time`). The normal distribution lets a
  path take negative time, so on a fast last hop that moment may lie beyond the deadline itself: the key is
  capped by the expiry.
- The tabulated cdf is piecewise cubic, with the value and slope of the normal cdf at the knots, 64 a unit, up to 7.5
  either side. It is off by less than 1e-10, and by far less where success saturates and ties are common, so decisions
  by the table are those by the exact cdf. A look-up costs a fraction of an erfc.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tidings.compiled import borrowing

__all__ = [
    "HOPELESS_QUANTILE",
    "NORMAL_TABLE",
    "NORMAL_TABLE_ERROR",
    "benefit",
    "deletion_time",
    "expiry_time",
    "normal_cdf",
    "remaining_lifetime",
    "tabulated_benefit",
    "tabulated_normal_cdf",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]

HOPELESS_QUANTILE = 3.2905267314918945
"""The normal quantile at 1 - .05 %: paper C's epsilon."""

NORMAL_TABLE_ERROR = 1e-10
_TABLE_END = 7.5
_KNOTS_PER_UNIT = 64.0
_ROOT_HALF = math.sqrt(0.5)


def _normal_table() -> FloatArray:
    """For each cell the coefficients of the cubic in u in 0..1 that has the cdf's value and slope at both knots."""
    knots = np.arange(-_TABLE_END, _TABLE_END + 0.5 / _KNOTS_PER_UNIT, 1.0 / _KNOTS_PER_UNIT)
    value = ndtr(knots)
    slope = np.exp(-0.5 * knots**2) / math.sqrt(2.0 * math.pi) / _KNOTS_PER_UNIT
    rise = np.diff(value)
    first, last = slope[:-1], slope[1:]
    table = np.stack([value[:-1], first, 3.0 * rise - 2.0 * first - last, first + last - 2.0 * rise], axis=1)
    table = np.ascontiguousarray(table)
    table.flags.writeable = False
    return table


NORMAL_TABLE = _normal_table()


@borrowing
def normal_cdf(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z * _ROOT_HALF)


@borrowing
def tabulated_normal_cdf(z: float, table: FloatArray) -> float:
    """As `normal_cdf`, from NORMAL_TABLE; within NORMAL_TABLE_ERROR of it, 0 and 1 beyond the table's ends."""
    chance = 0.0
    if z >= _TABLE_END:
        chance = 1.0
    elif z > -_TABLE_END:
        position = (z + _TABLE_END) * _KNOTS_PER_UNIT
        cell = int(position)
        u = position - cell
        chance = table[cell, 0] + u * (table[cell, 1] + u * (table[cell, 2] + u * table[cell, 3]))
    return chance


@borrowing
def benefit(
    now_s: float,
    published_s: float,
    size_kb: float,
    start: int,
    stop: int,
    target: IntArray,
    allowed_s: FloatArray,
    price: FloatArray,
    nodes: FloatArray,
    mean_s_per_kb: FloatArray,
    sd_s_per_kb: FloatArray,
    processing_s: float,
    extra_s: float,
) -> float:
    """The expected benefit of sending the event `extra_s` from now: the sum of price times success."""
    total = 0.0
    elapsed_s = now_s - published_s + extra_s
    for i in range(start, stop):
        k = target[i]
        slack_s = allowed_s[i] - elapsed_s - nodes[k] * processing_s - size_kb * mean_s_per_kb[k]
        spread_s = size_kb * sd_s_per_kb[k]
        if spread_s > 0.0:
            total += price[k] * (0.5 * math.erfc(-(slack_s / spread_s) * _ROOT_HALF))
        elif slack_s >= 0.0:
            total += price[k]
    return total


@borrowing
def tabulated_benefit(
    now_s: float,
    published_s: float,
    size_kb: float,
    start: int,
    stop: int,
    target: IntArray,
    allowed_s: FloatArray,
    price: FloatArray,
    nodes: FloatArray,
    mean_s_per_kb: FloatArray,
    sd_s_per_kb: FloatArray,
    processing_s: float,
    extra_s: float,
    table: FloatArray,
) -> float:
    """As `benefit`, with the tabulated normal cdf."""
    total = 0.0
    elapsed_s = now_s - published_s + extra_s
    for i in range(start, stop):
        k = target[i]
        slack_s = allowed_s[i] - elapsed_s - nodes[k] * processing_s - size_kb * mean_s_per_kb[k]
        spread_s = size_kb * sd_s_per_kb[k]
        if spread_s > 0.0:
            z = slack_s / spread_s
            if z >= _TABLE_END:
                total += price[k]
            elif z > -_TABLE_END:
                position = (z + _TABLE_END) * _KNOTS_PER_UNIT
                cell = int(position)
                u = position - cell
                total += price[k] * (table[cell, 0] + u * (table[cell, 1] + u * (table[cell, 2] + u * table[cell, 3])))
        elif slack_s >= 0.0:
            total += price[k]
    return total


@borrowing
def remaining_lifetime(now_s: float, published_s: float, start: int, stop: int, allowed_s: FloatArray) -> float:
    """The mean lifetime left over the subscriptions that have not expired and have a deadline (the RL strategy).

    Infinite where no subscription has a deadline that is still ahead: such an event is in no hurry.
    """
    elapsed_s = now_s - published_s
    total_s = 0.0
    count = 0
    for i in range(start, stop):
        left_s = allowed_s[i] - elapsed_s
        if 0.0 < left_s < math.inf:
            total_s += left_s
            count += 1
    mean_s = math.inf
    if count > 0:
        mean_s = total_s / count
    return mean_s


@borrowing
def expiry_time(published_s: float, start: int, stop: int, allowed_s: FloatArray) -> float:
    """When the last deadline passes; an event is expired from then on. Without subscriptions: always was."""
    last_s = -math.inf
    for i in range(start, stop):
        if allowed_s[i] > last_s:
            last_s = allowed_s[i]
    return published_s + last_s


@borrowing
def deletion_time(
    published_s: float,
    size_kb: float,
    start: int,
    stop: int,
    target: IntArray,
    allowed_s: FloatArray,
    nodes: FloatArray,
    mean_s_per_kb: FloatArray,
    sd_s_per_kb: FloatArray,
    processing_s: float,
    quantile: float,
) -> float:
    """When the event becomes hopeless or expires, whichever is first; it is deleted from then on.

    `quantile` is the normal quantile at 1 - epsilon, HOPELESS_QUANTILE for paper C's .05 %; infinite (epsilon 0) lets
    events expire but calls none hopeless.
    """
    last_s = -math.inf
    hopeless_s = -math.inf
    for i in range(start, stop):
        k = target[i]
        if allowed_s[i] > last_s:
            last_s = allowed_s[i]
        latest_s = allowed_s[i]
        if quantile < math.inf:
            latest_s += size_kb * (quantile * sd_s_per_kb[k] - mean_s_per_kb[k]) - nodes[k] * processing_s
        if latest_s > hopeless_s:
            hopeless_s = latest_s
    return published_s + min(last_s, hopeless_s)
