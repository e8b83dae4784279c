"""Means, variances and straight lines from sums of whole numbers.

Sums of whole numbers are exact, so they do not depend on the order of adding. The differences that
variances are made of (n Sum x**2 - (Sum x)**2) cancel, so they are taken in whole numbers too, before anything is
rounded: Python's integers have no largest.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.statistics._arrays import FloatArray, floats, ratio
from tidings.statistics._intervals import standard_normal_quantile

__all__ = ["Line", "Moments", "line_from_sums", "moments"]

Whole = Sequence[int] | npt.NDArray[Any]


class Moments(NamedTuple):
    """Arrays: NaN where there are too few samples (one for a mean, two for a variance)."""

    mean: FloatArray
    variance: FloatArray
    scv: FloatArray


class Line(NamedTuple):
    """y = intercept + slope x + an error whose standard deviation is proportional to x.

    `slope_variance` is the variance of the slope from one x to the next, which that error amounts to; `slope_low` and
    `slope_high` bound the mean slope. NaN where x does not vary.
    """

    intercept: FloatArray
    slope: FloatArray
    slope_variance: FloatArray
    slope_low: FloatArray
    slope_high: FloatArray


def _whole(values: Whole) -> npt.NDArray[Any]:
    """An array of Python's own integers."""
    return np.array([int(value) for value in values], dtype=object)


def _spread(count: npt.NDArray[Any], first: npt.NDArray[Any], second: npt.NDArray[Any], product: Any) -> FloatArray:
    """Sum (x - mean x)(y - mean y) from Sum x, Sum y, Sum x y."""
    return ratio(floats(count * product - first * second), floats(count))


def moments(count: Whole, total: Whole, squares: Whole) -> Moments:
    """From the number of samples, their sum and the sum of their squares."""
    n, sum_x, sum_xx = _whole(count), _whole(total), _whole(squares)
    mean = ratio(floats(sum_x), floats(n))
    variance = ratio(_spread(n, sum_x, sum_x, sum_xx), floats(n) - 1.0)
    # A constant has scv 0, also the constant 0 (a queue that is never waited in).
    scv = np.where(variance == 0.0, 0.0, ratio(variance, mean**2))
    return Moments(mean, variance, scv)


def line_from_sums(
    count: Whole, x: Whole, xx: Whole, y: Whole, yy: Whole, xy: Whole, x_most: Whole, *, level: float
) -> Line:
    """Least squares from Sum x, Sum x**2, Sum y, Sum y**2, Sum x y and the largest x.

    Unbiased whatever the errors' variances are. With errors of variance v x**2 the residual sum of squares is on
    average v Sum x**2, which gives v, and the slope's variance is v Sum (x - mean)**2 x**2 / Sxx**2, at most
    v x_most**2 / Sxx, which the interval takes: it is too wide rather than too narrow.
    """
    n, sum_x, sum_xx, sum_y, sum_yy, sum_xy = (_whole(values) for values in (count, x, xx, y, yy, xy))
    s_xx, s_xy, s_yy = (
        _spread(n, sum_x, sum_x, sum_xx),
        _spread(n, sum_x, sum_y, sum_xy),
        _spread(n, sum_y, sum_y, sum_yy),
    )
    slope = ratio(s_xy, s_xx)
    residue = np.maximum(s_yy - slope * s_xy, 0.0)
    freedom = ratio(floats(n), floats(n) - 2.0)
    variance = ratio(residue, floats(sum_xx)) * freedom
    half = standard_normal_quantile(level) * np.sqrt(variance * ratio(floats(_whole(x_most)) ** 2, s_xx))
    return Line(
        intercept=ratio(floats(sum_y), floats(n)) - slope * ratio(floats(sum_x), floats(n)),
        slope=slope,
        slope_variance=variance,
        slope_low=slope - half,
        slope_high=slope + half,
    )
