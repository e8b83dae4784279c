"""Distributions of delays, for many rows at once, and their distance from measured quantiles.

**Stages.** A hypoexponential distribution from a smallest value, a mean and a variance. A delay is a constant part
(propagation: the smallest delay seen) and stages that take an exponential time each. The fewest phases that can have
the scv c2 of the rest are k = ceil(1 / c2); of those, one long stage and k - 1 equal short ones have its mean m and
variance exactly:

    long = m (1 + sqrt((k - 1)(k c2 - 1))) / k,   short = (m - long) / (k - 1).

With c2 >= 1 no sum of exponentials fits: the nearest is one phase of the same mean. With more than MOST_PHASES phases
the constant part grows instead, until MOST_PHASES equal phases have the variance.

The cdf, with m = k - 1 short stages of rate r and a long one of rate s <= r (P is the regularised gamma function):

    F(t) = P(m, r t) - exp(-s t) (r / (r - s))**m P(m, (r - s) t)
         = P(m, r t) - exp(-r t) (r t)**m / m! M(1, m + 1, (r - s) t)

by Kummer's M, which also holds for equal rates; the first form is used where M would overflow.

**Two Laplace variables** (probabilistic FIFO ordering, equations 3 and 8). The delays of consecutive events that travel
independently differ by the sum of two Laplace variables of scale b:

    F(x) = 1 - (2 + x/b) exp(-x/b) / 4   for x >= 0,   F(x) = 1 - F(-x) otherwise.

E|X| = 3 b / 2, so b = (2/3) mean |x|. The paper calls that maximum likelihood; it is the moment estimator, and about as
good (99 % efficient).

**Distance.** Given the quantiles q_i at probabilities p_i, the distance is the largest |F(q_i) - p_i|. It falls short
of that from all samples by at most the step of the p_i, and is off by the rank error of a sketch that the quantiles
come from.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.statistics._arrays import FloatArray, Numbers, floats, ratio

__all__ = [
    "MOST_PHASES",
    "PROBABILITIES",
    "Stages",
    "distance_from_quantiles",
    "stages_cdf",
    "stages_from_moments",
    "two_laplace_cdf",
    "two_laplace_scale",
]

PROBABILITIES: Final = (0.01, *(step / 20.0 for step in range(1, 20)), 0.99, 0.999)
"""The probabilities of the quantiles in profiles: close enough together for a distribution through them."""

MOST_PHASES: Final = 64
_KUMMER_MOST: Final = 40.0
# Nearer to 1 than this an scv is taken for 1: the second phase would be too short to leave a trace.
_NEAR_ONE: Final = 1e-9


class Stages(NamedTuple):
    """shift + Exp(long) + (phases - 1) times Exp(short), by their means; without phases the constant `shift`."""

    shift: FloatArray
    phases: npt.NDArray[np.int64]
    long: FloatArray
    short: FloatArray


def stages_from_moments(least: Numbers, mean: Numbers, variance: Numbers) -> Stages:
    """The distribution of fewest phases with this smallest value, mean and variance; see the module."""
    low, average, spread = np.broadcast_arrays(floats(least), floats(mean), floats(variance))
    rest = average - low
    scv = ratio(spread, rest**2)
    constant = ~(scv > 0.0)
    wanted = np.ceil(ratio(1.0, np.where(constant, 1.0, scv)) - 1e-9)
    k = np.clip(wanted, 1, MOST_PHASES)
    k = np.where(scv >= 1.0 - _NEAR_ONE, 1.0, k)
    # Too little variance even for so many phases: only as much of the mean is theirs as has this variance.
    rest = np.where(wanted > MOST_PHASES, np.sqrt(MOST_PHASES * spread), rest)
    root = np.sqrt(np.maximum((k - 1.0) * (k * np.where(constant, 1.0, scv) - 1.0), 0.0))
    long = np.where(k == 1.0, rest, rest * (1.0 + root) / k)
    short = np.where(k > 1.0, ratio(rest - long, k - 1.0), 0.0)
    nothing = np.isnan(average) | np.isnan(spread)
    return Stages(
        shift=np.where(nothing, np.nan, np.where(constant, average, average - rest)),
        phases=np.where(constant, 0, k).astype(np.int64),
        long=np.where(constant, 0.0, long),
        short=np.where(constant, 0.0, short),
    )


def stages_cdf(x: Numbers, stages: Stages) -> FloatArray:
    """P[X <= x] by rows: x has a row of points for each distribution."""
    from scipy.special import gammainc

    points = floats(x)
    shift, phases, long, short = (np.asarray(part)[:, None] for part in stages)
    t = np.maximum(points - shift, 0.0)
    m = np.maximum(phases - 1, 1)
    fast, slow = ratio(1.0, short), ratio(1.0, long)
    with np.errstate(invalid="ignore"):
        one = -np.expm1(-slow * t)
        several = gammainc(m, fast * t) - _overlap(t, m, fast, slow)
    distribution = np.where(phases == 0, (points >= shift).astype(np.float64), np.where(phases == 1, one, several))
    return np.where(np.isnan(points) | np.isnan(shift), np.nan, np.clip(distribution, 0.0, 1.0))


def _overlap(t: FloatArray, m: npt.NDArray[np.int64], fast: FloatArray, slow: FloatArray) -> FloatArray:
    """P[the short stages are over by t, and the long one is not]."""
    from scipy.special import gammainc, gammaln, hyp1f1, xlogy

    z = np.maximum(fast - slow, 0.0) * t
    near = np.exp(-fast * t + xlogy(m, fast * t) - gammaln(m + 1.0)) * hyp1f1(1.0, m + 1.0, np.minimum(z, _KUMMER_MOST))
    with np.errstate(divide="ignore"):
        logarithm = m * (np.log(fast) - np.log(np.maximum(fast - slow, 0.0))) - slow * t
    # Far out P(m, z) is not small, so the product cannot overflow.
    far = np.exp(np.where(z > _KUMMER_MOST, logarithm, 0.0) + np.log(np.where(z > _KUMMER_MOST, gammainc(m, z), 1.0)))
    return np.where(z > _KUMMER_MOST, far, near)


def two_laplace_scale(mean_absolute_difference: Numbers) -> FloatArray:
    """The scale b from the mean of the absolute delay differences."""
    return np.asarray(floats(mean_absolute_difference) * (2.0 / 3.0))


def two_laplace_cdf(x: Numbers, scale: Numbers) -> FloatArray:
    """P[X <= x]; of scale 0 all differences are 0."""
    values, b = np.broadcast_arrays(floats(x), floats(scale))
    u = np.where(b > 0.0, ratio(np.abs(values), b), np.where(values == 0.0, 0.0, np.inf))
    u = np.where(np.isnan(values) | np.isnan(b), np.nan, u)
    with np.errstate(invalid="ignore"):
        tail = np.where(np.isinf(u), 0.0, (2.0 + u) * np.exp(-u) / 4.0)
    return np.where(values >= 0.0, 1.0 - tail, tail)


def distance_from_quantiles(cdf_at_quantiles: Numbers, probabilities: Numbers) -> FloatArray:
    """One distance per row of a distribution's cdf at the row's quantiles; NaN in a row gives NaN."""
    gaps = np.abs(floats(cdf_at_quantiles) - floats(probabilities))
    return np.asarray(gaps.max(axis=-1))
