"""Confidence intervals: for shares, rates and variability, each of a stated level.

- A share (of a number of independent trials): Wilson's, which is good down to no successes at all. Events that wait in
  one queue are not independent: late ones come together, and for R it covers far less than its level. That of
  `_batches.py` is for those.
- A rate of a Poisson process from the number of events in a time: exact (Garwood), through chi-square quantiles.
- A rate of a renewal process from the number of intervals and their scv c2: rate exp(-+ z sqrt(c2 / n)), since the mean
  of n intervals has relative variance c2 / n. Of no width for a constant interval, of the Poisson one's for c2 = 1.
- An scv: c2 exp(-+ z sqrt(2 (1 + c2) / n)). The delta method gives n Var[c2_hat] = c2**2 (kurtosis - 1 - 4 skewness c +
  4 c2), which for a gamma distribution of any shape is 2 c2**2 (1 + c2): 4 for the exponential. It is too wide for a
  uniform distribution (by 12 % in the interval) and too narrow for tails heavier than a gamma's.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tidings.errors import InputError
from tidings.statistics._arrays import FloatArray, Numbers, floats, ratio

__all__ = [
    "Interval",
    "events_interval",
    "poisson_interval",
    "scv_interval",
    "standard_normal_quantile",
    "wilson_bounds",
    "wilson_interval",
]


class Interval(NamedTuple):
    """Arrays of the lower and upper ends; NaN where there is no estimate."""

    low: FloatArray
    high: FloatArray


def standard_normal_quantile(level: float) -> float:
    """z with P[|Z| <= z] = level for a standard normal Z."""
    if not 0.0 < level < 1.0:
        raise InputError(f"a confidence level lies between 0 and 1, and {level!r} does not; write 0.95 for 95 %")
    return NormalDist().inv_cdf(0.5 + level / 2.0)


def wilson_interval(successes: Numbers, trials: Numbers, *, level: float) -> Interval:
    """Wilson's interval for a share: successes out of so many trials, assuming that these are independent."""
    n = floats(trials)
    return wilson_bounds(ratio(floats(successes), n), n, standard_normal_quantile(level))


def wilson_bounds(share: Numbers, trials: Numbers, z: Numbers) -> Interval:
    """Wilson's interval for a share seen in so many trials, whole or not, z standard errors wide."""
    p, n, z = floats(share), floats(trials), floats(z)
    centre = (n * p + z * z / 2.0) / (n + z * z)
    half = z * np.sqrt(n * p * (1.0 - p) + z * z / 4.0) / (n + z * z)
    return Interval(np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0))


def poisson_interval(events: Numbers, exposure: Numbers, *, level: float) -> Interval:
    """The exact interval for the rate of a Poisson process that had so many events, whole or not, in this much time."""
    from scipy.special import chdtri

    standard_normal_quantile(level)  # refuses a bad level
    tail = (1.0 - level) / 2.0
    count = floats(events)
    # chdtri(v, p) is the point above which a chi-square variable of v degrees lies with probability p.
    least = np.where(count > 0, chdtri(np.maximum(2.0 * count, 1e-3), 1.0 - tail) / 2.0, 0.0)
    most = chdtri(2.0 * count + 2.0, tail) / 2.0
    return Interval(ratio(least, exposure), ratio(most, exposure))


def events_interval(rate: Numbers, intervals: Numbers, scv: Numbers, *, level: float) -> Interval:
    """For the rate of a renewal process, estimated from so many intervals whose scv is known."""
    width = standard_normal_quantile(level) * np.sqrt(ratio(scv, intervals))
    return Interval(floats(rate) * np.exp(-width), floats(rate) * np.exp(width))


def scv_interval(scv: Numbers, count: Numbers, *, level: float) -> Interval:
    """For an scv that was estimated from so many independent samples of a distribution with a gamma's tail, or a
    lighter one."""
    value = floats(scv)
    width = standard_normal_quantile(level) * np.sqrt(ratio(2.0 * (1.0 + value), count))
    return Interval(value * np.exp(-width), value * np.exp(width))
