"""The unions of all distributions, and functions that take any of them: scaling, and the distance from samples.

In machine formats the key ``law`` names the member of a union; scenarios write ``distribution``.
"""

import math
from typing import Any

import msgspec
import numpy as np

from tidings.model.distributions._discrete import Discrete
from tidings.model.distributions._elementary import Deterministic, Exponential, Uniform
from tidings.model.distributions._empirical import Empirical
from tidings.model.distributions._errors import Samples, settle_samples
from tidings.model.distributions._gamma import ShiftedGamma, Weibull
from tidings.model.distributions._normal import LogNormal, TruncatedNormal
from tidings.model.distributions._phase_type import Hypoexponential, PhaseType
from tidings.model.distributions._replay import Replay
from tidings.model.distributions._zipf import Zipf

__all__ = ["DelayDistribution", "Distribution", "ks_distance", "ks_limit", "scaled"]

# Distributions of durations, intervals and sizes, for links, brokers and publishers.
DelayDistribution = (
    Deterministic
    | Exponential
    | Uniform
    | TruncatedNormal
    | ShiftedGamma
    | LogNormal
    | Hypoexponential
    | PhaseType
    | Empirical
    | Weibull
    | Discrete
    | Replay
)

# Every distribution, including that of content.
Distribution = DelayDistribution | Zipf

# The Kolmogorov-Smirnov distance that n samples of the distribution itself exceed one time in 20, times sqrt(n).
CRITICAL = 1.358

_LIKE_THE_VARIABLE = frozenset({"value", "scale", "low", "high", "location", "shift", "median", "quantiles", "values"})
_PER_VARIABLE = frozenset({"rates", "sub_generator"})  # the others are shapes and do not scale


def scaled(distribution: DelayDistribution, factor: float) -> DelayDistribution:
    """The distribution of `factor` times the variable, of the same kind."""
    changed = {}
    for field in msgspec.structs.fields(distribution):
        value = getattr(distribution, field.name)
        if field.name in _LIKE_THE_VARIABLE:
            changed[field.name] = _times(value, factor)
        elif field.name in _PER_VARIABLE:
            changed[field.name] = _times(value, 1.0 / factor)
    return msgspec.structs.replace(distribution, **changed)


def _times(value: Any, factor: float) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(_times(item, factor) for item in value)
    return value * factor


def ks_limit(count: int) -> float:
    """The distance from which this many samples are evidence against a distribution, at the 5 % level."""
    return CRITICAL / math.sqrt(max(count, 1))


def ks_distance(distribution: Distribution, samples: Samples) -> float:
    """Kolmogorov-Smirnov distance: the largest gap between the distribution's cdf and the samples'.

    At each sample the two are compared both at it and just below it, so that atoms count correctly.
    """
    values = settle_samples(type(distribution), samples)
    points, counts = np.unique(values, return_counts=True)
    up_to = np.cumsum(counts) / values.size
    before = np.concatenate(([0.0], up_to[:-1]))
    at = distribution.cdf(points)
    just_below = distribution.cdf(np.nextafter(points, -np.inf))
    return float(max(np.abs(at - up_to).max(), np.abs(just_below - before).max()))
