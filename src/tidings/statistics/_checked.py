"""Distributions of up and down times that were found by periodic checks: the most likely kind and its parameters.

A component that is looked at every c seconds is seen down from the first check that fails to the first that succeeds. A
time x in a state is then seen as d = j c, j the number of checks that fell into it. With checks at a random phase, j c
is x rounded up or down at random, so that the mean is kept; a time shorter than c is missed with chance 1 - x / c:

    P[seen as d] = integral of f(x) (1 - |x - d| / c) dx  over |x - d| < c  =  (H(d - c, d) - H(d, d + c)) / c,
    P[seen at all] = H(0, c) / c,   H(a, b) = integral of P[X > x] over a..b.

The likelihood of the times seen is the product of their quotients: interval censoring at both ends, and truncation of
what was too short, in one. A period that goes on at the end of the watch counts with P[X > d]. One that had begun
before the watch has an unknown age and does not count: leave it out. With c = 0 times are exact.

Candidates are exponential, Weibull and log-normal distributions, each at its maximum of likelihood; the best has the
smallest criterion of Akaike, 2 (parameters - log-likelihood).
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tidings.errors import InputError
from tidings.statistics._arrays import FloatArray, Numbers, floats

if TYPE_CHECKING:
    from tidings.model.distributions import DelayDistribution

__all__ = ["DurationFit", "fit_durations"]

_NODES: Final = 16
_LEAST: Final = 1e-300


class DurationFit(NamedTuple):
    """A distribution with its log-likelihood and Akaike's criterion."""

    distribution: "DelayDistribution"
    log_likelihood: float
    criterion: float


def fit_durations(seen_s: Numbers, ended: Numbers, *, check_s: float = 0.0) -> tuple[DurationFit, ...]:
    """Exponential, Weibull and log-normal distributions for these times, the most credible first.

    `ended` marks the times that ended; `check_s` is the interval of the checks, 0 if times are exact.
    """
    from tidings.model.distributions import Exponential, LogNormal, Weibull

    seen, is_over = floats(seen_s), np.asarray(ended, np.bool_)
    if seen.shape != is_over.shape or seen.ndim != 1:
        raise InputError(f"{seen.size} times need as many marks of having ended, not {is_over.size}")
    if not is_over.any():
        raise InputError("no period ended, so no distribution can be fitted: use a longer trace")
    if not (np.isfinite(seen).all() and (seen > 0.0).all()):
        raise InputError("times must be finite and above 0 seconds; drop those that were cut to nothing")
    if not 0.0 <= check_s < math.inf:
        raise InputError(f"checks lie {check_s!r} s apart, but that must be 0 or more, and finite")
    logs = np.log(seen[is_over])
    middle, spread = float(logs.mean()), max(0.1, float(logs.std()))
    level = math.log(float(seen.sum()) / int(is_over.sum()))
    candidates: list[tuple[Callable[[FloatArray], DelayDistribution], list[list[float]]]] = [
        (lambda p: Exponential(scale=math.exp(p[0])), [[level]]),
        (lambda p: Weibull(scale=math.exp(p[0]), shape=math.exp(p[1])), [[level, 0.0], [level, -math.log(spread)]]),
        (lambda p: LogNormal(median=math.exp(p[0]), sigma=math.exp(p[1])), [[middle, math.log(spread)]]),
    ]
    fits = [_best(make, starts, seen, is_over, check_s) for make, starts in candidates]
    return tuple(sorted(fits, key=lambda fit: fit.criterion))


def _best(
    make: "Callable[[FloatArray], DelayDistribution]",
    starts: list[list[float]],
    seen: FloatArray,
    is_over: np.ndarray,
    check_s: float,
) -> DurationFit:
    from scipy.optimize import minimize

    bounds = [(start - 12.0, start + 12.0) if place == 0 else (-3.5, 2.3) for place, start in enumerate(starts[0])]

    def cost(parameters: FloatArray) -> float:
        return -_log_likelihood(make(parameters), seen, is_over, check_s)

    found = [
        minimize(cost, start, method="Nelder-Mead", bounds=bounds, options={"xatol": 1e-5, "fatol": 1e-6})
        for start in starts
    ]
    best = min(found, key=lambda each: float(each.fun))
    return DurationFit(make(best.x), -float(best.fun), 2.0 * (len(starts[0]) + float(best.fun)))


def _log_likelihood(distribution: "DelayDistribution", seen: FloatArray, is_over: np.ndarray, check_s: float) -> float:
    going = np.log(np.maximum(_survival(distribution, seen[~is_over]), _LEAST)).sum()
    over = seen[is_over]
    if check_s == 0.0:
        return float(np.log(np.maximum(distribution.pdf(over), _LEAST)).sum() + going)
    # Integrals of 1 - F, not of F: far out only the former is known to many digits.
    near = (_integral(distribution, over - check_s, check_s) - _integral(distribution, over, check_s)) / check_s
    found = float(_integral(distribution, np.zeros(1), check_s)[0]) / check_s
    return float(np.log(np.maximum(near, _LEAST)).sum() + going - len(seen) * math.log(max(found, _LEAST)))


def _integral(distribution: "DelayDistribution", low: FloatArray, width: float) -> FloatArray:
    """The integral of P[X > x] over low..low + width."""
    roots, weights = np.polynomial.legendre.leggauss(_NODES)
    start = np.maximum(low, 0.0)
    span = np.maximum(low + width, 0.0) - start
    points = start[:, None] + 0.5 * span[:, None] * (roots + 1.0)
    return np.asarray(start - low + 0.5 * span * (_survival(distribution, points) @ weights))


def _survival(distribution: "DelayDistribution", x: FloatArray) -> FloatArray:
    """P[X > x], to full precision far out as well."""
    from scipy.special import ndtr

    from tidings.model.distributions import Exponential, LogNormal, Weibull

    match distribution:
        case Exponential(scale=scale):
            return np.exp(-x / scale)
        case Weibull(scale=scale, shape=shape):
            return np.exp(-((x / scale) ** shape))
        case LogNormal(median=median, sigma=sigma):
            return np.asarray(ndtr(-np.log(np.maximum(x, _LEAST) / median) / sigma))
        case _:
            return np.asarray(1.0 - distribution.cdf(x))
