"""The two-Laplace law of delay differences (probabilistic FIFO ordering, equations 3 and 8).

The delays of consecutive events that travel independently differ by the sum of two Laplace variables of scale b:

    F(x) = 1 - (2 + x/b) exp(-x/b) / 4   for x >= 0,   F(x) = 1 - F(-x) otherwise.

E|X| = 3 b / 2, so b = (2/3) mean |x|. The paper calls that maximum likelihood; it is the moment estimator, and about as
good (99 % efficient).
"""

import numpy as np

from tidings.statistics._arrays import FloatArray, Numbers, floats, ratio

__all__ = ["two_laplace_cdf", "two_laplace_scale"]


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
