"""The two distributions that stand on the normal: the normal truncated at 0, and the log-normal, clipped if asked.

Truncated means conditioned: a negative draw is drawn again, so no value gathers mass. Clipped means moved: a value
outside the bounds becomes the bound, so the bounds are atoms.
"""

import math

import msgspec
import numpy as np

from tidings.model.distributions._base import ContinuousDistribution, Shape
from tidings.model.distributions._errors import FloatArray, refuse, settle_number

# Beyond this the mean is 10**21 medians and moments soon leave the doubles; nothing measured comes near.
MAX_SIGMA = 10.0


def _phi(z: float) -> float:
    """The standard normal density."""
    return math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def _Phi(z: float) -> float:  # noqa: N802 - the usual name of the standard normal distribution function
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


class TruncatedNormal(ContinuousDistribution, frozen=True, kw_only=True, tag="normal"):
    """A normal conditioned on being >= 0: negative draws are drawn again.

    ``location`` and ``scale`` (in TOML ``mean`` and ``sd``) are those of the normal BEFORE it is truncated, as the
    papers give them; ``mean()`` and ``variance()`` are those of the distribution itself, and differ by less than 2e-4
    of the scale when the location is at least 4 scales above 0. The location may not be negative: such a distribution
    is all tail, and the minus is nearly always a slip.
    """

    location: float = msgspec.field(name="mean")
    scale: float = msgspec.field(name="sd")

    def __post_init__(self) -> None:
        settle_number(
            self, "location", at_least=0.0, remedy="write the mean of the untruncated normal, such as mean = 75.0"
        )
        settle_number(
            self,
            "scale",
            above=0.0,
            remedy="write its standard deviation, such as sd = 20.0, or the deterministic distribution for a constant",
        )

    def _hazard(self) -> tuple[float, float]:
        a = self.location / self.scale
        return a, _phi(a) / _Phi(a)

    def mean(self) -> float:
        return self.location + self.scale * self._hazard()[1]

    def variance(self) -> float:
        a, hazard = self._hazard()
        return self.scale**2 * (1.0 - a * hazard - hazard * hazard)

    def _pdf(self, x: FloatArray) -> FloatArray:
        z = (np.maximum(x, 0.0) - self.location) / self.scale
        mass = self.scale * math.sqrt(2.0 * math.pi) * _Phi(self.location / self.scale)
        with np.errstate(over="ignore"):
            return np.where(x < 0.0, 0.0, np.exp(-0.5 * z * z) / mass)

    def _cdf(self, x: FloatArray) -> FloatArray:
        from scipy.special import ndtr

        a = self.location / self.scale
        z = (np.maximum(x, 0.0) - self.location) / self.scale
        lower = (ndtr(z) - _Phi(-a)) / _Phi(a)
        upper = 1.0 - ndtr(-z) / _Phi(a)
        return np.asarray(np.clip(np.where(z < 0.0, lower, upper), 0.0, 1.0))

    def _quantile(self, p: FloatArray) -> FloatArray:
        from scipy.special import ndtri

        a = self.location / self.scale
        # Each half is inverted from its own tail, where the doubles are dense.
        lower = ndtri(_Phi(-a) + p * _Phi(a))
        upper = -ndtri((1.0 - p) * _Phi(a))
        return np.asarray(np.maximum(self.location + self.scale * np.where(p < 0.5, lower, upper), 0.0))

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        drawn = rng.normal(self.location, self.scale, size)
        negative = drawn < 0.0
        again = int(np.count_nonzero(negative))
        if again:
            # Drawing again until >= 0 is one draw from the truncated distribution; its quantile does that in a single
            # step.
            drawn[negative] = self._quantile(rng.random(again))
        return drawn


class LogNormal(ContinuousDistribution, frozen=True, kw_only=True, tag="log-normal"):
    """exp of a normal with standard deviation ``sigma`` around ln ``median``; clipped to [low, high] if given.

    Clipping moves values outside to the nearer bound: the bounds are atoms. ``median`` is that of the unclipped
    distribution.
    """

    median: float
    sigma: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        settle_number(self, "median", above=0.0, remedy="write the median, such as median = 0.040")
        settle_number(
            self,
            "sigma",
            above=0.0,
            at_most=MAX_SIGMA,
            remedy="write the standard deviation of the logarithm, such as sigma = 0.6",
        )
        if self.low is not None:
            settle_number(
                self, "low", at_least=0.0, remedy="write the lower clip, such as low = 0.005, or leave it out"
            )
        if self.high is not None:
            settle_number(self, "high", above=0.0, remedy="write the upper clip, such as high = 0.2, or leave it out")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise refuse(self, "high", f"above low = {self.low!r}", self.high, "swap the two or leave one out")

    def _bounds(self) -> tuple[float, float]:
        """The clip bounds on the standard normal scale."""
        low = (math.log(self.low / self.median) / self.sigma) if self.low else -math.inf
        high = (math.log(self.high / self.median) / self.sigma) if self.high is not None else math.inf
        return low, high

    def _moment(self, order: int) -> float:
        """E[(X / median)**order]: the part between the bounds in closed form, plus the atoms."""
        low, high = self._bounds()
        shift = order * self.sigma
        # The difference is taken in the tail where both terms are small, so that it does not cancel.
        between = _Phi(shift - low) - _Phi(shift - high) if low > shift else _Phi(high - shift) - _Phi(low - shift)
        moment = math.exp(0.5 * shift * shift) * between
        for value, mass in self.atoms():
            moment += (value / self.median) ** order * mass
        return moment

    def mean(self) -> float:
        mean = self.median * self._moment(1)
        mean = mean if self.low is None else max(mean, self.low)  # a rounding must not put it outside
        return mean if self.high is None else min(mean, self.high)

    def variance(self) -> float:
        if self.low is None and self.high is None:
            return (self.median * self._moment(1)) ** 2 * math.expm1(self.sigma**2)
        return self.median**2 * max(0.0, self._moment(2) - self._moment(1) ** 2)

    def atoms(self) -> tuple[tuple[float, float], ...]:
        low, high = self._bounds()
        found = []
        if self.low is not None:
            found.append((self.low, _Phi(low)))
        if self.high is not None:
            found.append((self.high, _Phi(-high)))
        return tuple((value, mass) for value, mass in found if mass > 0.0)

    def _standard(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(x, 0.0) / self.median) / self.sigma

    def _pdf(self, x: FloatArray) -> FloatArray:
        z = self._standard(x)
        inside = (x > (self.low or 0.0)) & (x < (math.inf if self.high is None else self.high))
        scaled = np.where(inside, x, 1.0) * self.sigma * math.sqrt(2.0 * math.pi)
        return np.where(np.isnan(x), np.nan, np.where(inside, np.exp(-0.5 * z * z) / scaled, 0.0))

    def _cdf(self, x: FloatArray) -> FloatArray:
        from scipy.special import ndtr

        below = np.asarray(ndtr(self._standard(x)))
        if self.low is not None:
            below = np.where(x < self.low, 0.0, below)
        if self.high is not None:
            below = np.where(x >= self.high, 1.0, below)
        return below

    def _quantile(self, p: FloatArray) -> FloatArray:
        from scipy.special import ndtri

        return self._clip(self.median * np.exp(self.sigma * ndtri(p)))

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        return self._clip(rng.lognormal(math.log(self.median), self.sigma, size))

    def _clip(self, x: FloatArray) -> FloatArray:
        return x if self.low is None and self.high is None else np.clip(x, self.low, self.high)
