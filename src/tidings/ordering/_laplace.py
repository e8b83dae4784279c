"""The sum of two Laplacians: how much longer one event travels than the next (paper A, section 3.4, appendix A).

If brokers take exponential times, the difference of two events' delays is a sum of Laplacians, one per broker. The
paper takes two of them, with one scale b, for every path:

    f(x) = (b + |x|) / (4 b²) · exp(-|x| / b)        F(x) = 1 - (2b + x) / (4b) · exp(-x / b)   for x >= 0

The printed quantile has the wrong sign and the wrong branch of Lambert's W. It is, for p >= 1/2,

    F⁻¹(p) = -b · (W₋₁(4 e⁻² (p - 1)) + 2)

because t = x/b + 2 >= 2 solves t e⁻ᵗ = 4 e⁻² (1 - p), and -t <= -1 lies on the lower branch.

The estimate that the paper calls maximum likelihood, b = 2/3 · mean |x|, matches the first absolute moment
(E|x| = 3b/2). The true maximum solves mean|x| + b² · mean(1 / (b + |x|)) = 2b. It has one root: with u = |x| / b the
right side less the left, over b, is 2 - mean(u) - mean(1 / (1 + u)), which rises with b from -inf to 1.

A late event is one whose delay exceeds that of its successor by more than delta, the time between their departures:
`violation_probability` is 1 - F(delta), and `latch_time` is how long the successor must wait for that probability to
fall to the one wanted (Equation 4). Everything is in one unit of time, whatever it is, and broadcasts.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidings.errors import InputError
from tidings.statistics import two_laplace_cdf, two_laplace_scale

__all__ = [
    "FloatArray",
    "fit_likelihood",
    "fit_moment",
    "latch_time",
    "log_likelihood",
    "two_laplacians_cdf",
    "two_laplacians_pdf",
    "two_laplacians_quantile",
    "violation_probability",
]

FloatArray = NDArray[np.float64]

MOMENT_FACTOR: Final = float(two_laplace_scale(1.0))
"""b = MOMENT_FACTOR · mean |x|."""

_MAX_STEPS = 100


def two_laplacians_pdf(x: ArrayLike, scale: ArrayLike) -> FloatArray:
    """The density at x (appendix A.1)."""
    b, size = _scale(scale), np.abs(_numbers("x", x))
    return np.asarray((b + size) / (4.0 * b**2) * np.exp(-size / b))


def two_laplacians_cdf(x: ArrayLike, scale: ArrayLike) -> FloatArray:
    """P[X <= x] (Equation 8)."""
    return two_laplace_cdf(_numbers("x", x), _scale(scale))


def two_laplacians_quantile(p: ArrayLike, scale: ArrayLike) -> FloatArray:
    """The x with P[X <= x] = p, for 0 < p < 1; at 0 and 1 it is infinite."""
    b, wanted = _scale(scale), _numbers("p", p)
    if not ((wanted >= 0.0) & (wanted <= 1.0)).all():
        raise InputError("p holds a value outside 0 to 1; a quantile needs probabilities")
    return np.where(wanted >= 0.5, 1.0, -1.0) * b * _upper_quantile(np.minimum(wanted, 1.0 - wanted))


def violation_probability(scale: ArrayLike, delta: ArrayLike) -> FloatArray:
    """The chance that an event overtakes one that left `delta` before it: 1 - F(delta)."""
    # The distribution is symmetric, and F(-delta) keeps the digits of a small chance. Without any variation of delay
    # (scale 0) nothing overtakes; at delta = 0 order is then a matter of luck.
    return two_laplace_cdf(-_numbers("delta", delta), _scale(scale, least=0.0))


def latch_time(scale: ArrayLike, delta: ArrayLike, violation_probability: ArrayLike) -> FloatArray:
    """How long to hold an event whose missing predecessor left `delta` before it: max(0, F⁻¹(1 - Pt) - delta)."""
    b, gap = _scale(scale, least=0.0), _numbers("delta", delta)
    wanted = _numbers("violation_probability", violation_probability)
    if not ((wanted > 0.0) & (wanted <= 0.5)).all():
        raise InputError("violation_probability must be above 0 and at most 0.5: at 0 the wait would never end")
    return np.maximum(b * _upper_quantile(wanted) - gap, 0.0)


def fit_moment(samples: ArrayLike) -> float:
    """The scale that has the samples' mean |x|: 2/3 of it. About 99 % as efficient as maximum likelihood."""
    return float(two_laplace_scale(np.abs(_samples(samples)).mean()))


def fit_likelihood(samples: ArrayLike) -> float:
    """The scale under which the samples are most likely; 0 if all samples are 0.

    Newton's steps on the increasing function of the module's text, kept inside a bracket: the root lies between 1/2 and
    1 mean |x|, where 2 - m/b - mean(1 / (1 + u)) is at most 0 and at least 0 (1 / (1 + u) lies in 0 to 1).
    """
    size = np.abs(_samples(samples))
    mean = float(size.mean())
    if mean == 0.0:
        return 0.0
    low, high, b = 0.5 * mean, mean, MOMENT_FACTOR * mean
    for _ in range(_MAX_STEPS):
        inverse = b / (b + size)  # 1 / (1 + u)
        excess = 2.0 - mean / b - float(inverse.mean())
        slope = (mean / b - float((inverse * (1.0 - inverse)).mean())) / b
        low, high = (b, high) if excess < 0.0 else (low, b)
        step = b - excess / slope
        step = step if low < step < high else 0.5 * (low + high)
        if abs(step - b) <= 1e-15 * b:
            break
        b = step
    return b


def log_likelihood(samples: ArrayLike, scale: float) -> float:
    """ln of the samples' joint density (Equation 9 with the logarithm it lost in print)."""
    b, size = float(_scale(scale)), np.abs(_samples(samples))
    return float(-size.size * np.log(4.0 * b**2) + np.log(b + size).sum() - size.sum() / b)


def _upper_quantile(tail: FloatArray) -> FloatArray:
    """F⁻¹(1 - tail) in scales, for 0 <= tail <= 1/2."""
    from scipy.special import lambertw

    with np.errstate(divide="ignore", invalid="ignore"):
        found = -(lambertw(-4.0 * np.exp(-2.0) * tail, -1).real + 2.0)
    return np.where(tail == 0.0, np.inf, np.where(tail == 0.5, 0.0, found))


def _scale(scale: ArrayLike, least: float = np.nextafter(0.0, 1.0)) -> FloatArray:
    b = _numbers("scale", scale)
    if (b < least).any():
        raise InputError(f"scale holds {b.min()!r}; a scale is {'positive' if least > 0.0 else '0 or more'}")
    return b


def _samples(samples: ArrayLike) -> FloatArray:
    values = _numbers("samples", samples)
    if values.size == 0 or not np.isfinite(values).all():
        raise InputError("samples must be finite numbers, at least one: delay differences of one publisher's events")
    return values


def _numbers(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, np.float64)
    if np.isnan(array).any():
        raise InputError(f"{name} holds NaN; every value must be a number")
    return array
