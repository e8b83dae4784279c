"""Choosing a law for samples, judging the choice, and turning a law into a table."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tidings.model.distributions._discrete import Discrete
from tidings.model.distributions._elementary import Deterministic, Exponential, Uniform
from tidings.model.distributions._empirical import Empirical
from tidings.model.distributions._errors import DistributionError, FloatArray, Samples, check_whole, settle_samples
from tidings.model.distributions._gamma import ShiftedGamma, Weibull
from tidings.model.distributions._normal import LogNormal, TruncatedNormal
from tidings.model.distributions._phase_type import Hypoexponential, PhaseType
from tidings.model.distributions._replay import Replay
from tidings.model.distributions._union import DelayDistribution, Distribution

# Empirical is not among them: it follows any samples, so it would always win and explain nothing.
DEFAULT_LAWS: tuple[type[DelayDistribution], ...] = (
    Deterministic,
    Exponential,
    Uniform,
    TruncatedNormal,
    LogNormal,
    Weibull,
    PhaseType,
    ShiftedGamma,
    Hypoexponential,
)

# Two Kolmogorov-Smirnov distances closer than this many 1 / sqrt(n) are the same as far as n samples can tell.
INDIFFERENCE = 0.5


# The Kolmogorov-Smirnov distance that n samples of the distribution itself exceed one time in 20, times sqrt(n).
CRITICAL = 1.358


class Fitted(NamedTuple):
    """A distribution, how far it is from the samples (Kolmogorov and Smirnov), and from which distance on they speak
    against it: one time in 20 samples of the distribution itself are farther away."""

    distribution: DelayDistribution
    distance: float
    limit: float

    @property
    def is_good(self) -> bool:
        """Whether the samples may be of this distribution; if not, `Empirical.fit` follows them."""
        return self.distance <= self.limit


def ks_limit(count: int) -> float:
    """The distance from which on so many samples speak against a distribution."""
    return CRITICAL / math.sqrt(max(count, 1))


def ks_distance(distribution: Distribution, samples: Samples) -> float:
    """Kolmogorov-Smirnov distance: the largest gap between the law's cdf and the samples'.

    Atoms are treated rightly: at each sample the two are compared both at it and just below it.
    """
    values = settle_samples(type(distribution), samples)
    points, counts = np.unique(values, return_counts=True)
    up_to = np.cumsum(counts) / values.size
    before = np.concatenate(([0.0], up_to[:-1]))
    at = distribution.cdf(points)
    just_below = distribution.cdf(np.nextafter(points, -np.inf))
    return float(max(np.abs(at - up_to).max(), np.abs(just_below - before).max()))


def _parameters(distribution: DelayDistribution) -> int:
    """How many numbers were free in the fit."""
    match distribution:
        case Deterministic() | Exponential():
            return 1
        case ShiftedGamma():
            return 3
        case Hypoexponential():
            return len(distribution.rates)
        case PhaseType():
            return 2  # mean and scv decide all the rest
        case LogNormal() | TruncatedNormal() | Uniform() | Weibull():
            return 2
        case Discrete():
            return 2 * len(distribution.values)
        case Empirical():
            return len(distribution.quantiles)
        case Replay():
            return len(distribution.values)


def fit_best(samples: Samples, laws: Sequence[type[DelayDistribution]] = DEFAULT_LAWS) -> Fitted:
    """Fit every law and return the best with its Kolmogorov-Smirnov distance, and whether that is good enough.

    The rule: the smallest distance wins, except that laws within .5 / sqrt(n) of it, which n samples cannot tell
    apart, are decided by the fewest parameters, then by the distance. Laws that cannot be fitted to these samples
    (a log-normal to zeros) are passed over; if none can, the error says why for each.
    """
    if np.size(samples) == 0:
        raise DistributionError("fit_best: there are no samples to fit; give at least one")
    candidates: list[tuple[DelayDistribution, float]] = []
    reasons: list[str] = []
    for law in laws:
        fit: Callable[[Samples], DelayDistribution] = law.fit
        try:
            fitted = fit(samples)
            candidates.append((fitted, ks_distance(fitted, samples)))
        except DistributionError as error:
            reasons.append(str(error))
    if not candidates:
        raise DistributionError("no law fits these samples: " + ("; ".join(reasons) or "no laws were given"))
    margin = INDIFFERENCE / math.sqrt(np.size(samples))
    limit = min(distance for _, distance in candidates) + margin
    near = [candidate for candidate in candidates if candidate[1] <= limit]
    distribution, distance = min(near, key=lambda candidate: (_parameters(candidate[0]), candidate[1]))
    return Fitted(distribution, distance, ks_limit(np.size(samples)))


def tabulate(distribution: DelayDistribution, points: int = 4096) -> FloatArray:
    """The inverse cdf at the middles of `points` equal cells of probability: p = (i + .5) / points, ascending.

    A compiled sampler draws an entry at random (index = int(u * points), u uniform in [0, 1)). The law of the entries
    is within 1 / (2 * points) of the true one in every probability (Kolmogorov-Smirnov), 1.2e-4 at the default. What
    it loses is the tail beyond p = 1 - 1 / (2 * points): an exponential's mean comes out lower by a share of
    ln 2 / (2 * points) (8.5e-5 at the default), its variance by about 1 part in 600 there; laws with
    heavier tails lose more. Every entry is finite.
    """
    check_whole("tabulate: `points`", points, at_least=1)
    return distribution.quantile((np.arange(points) + 0.5) / points)
