"""Distributions with a shape and a scale: the shifted gamma of one-way Internet delays, and the Weibull."""

import math

import numpy as np

from tidings.model.distributions._base import ContinuousDistribution, Shape
from tidings.model.distributions._errors import FloatArray, settle_number

# Below this shape a Weibull's variance leaves the doubles.
MIN_WEIBULL_SHAPE = 0.02


class ShiftedGamma(ContinuousDistribution, frozen=True, kw_only=True, tag="shifted-gamma"):
    """A constant ``shift`` plus a gamma of the given ``shape`` and ``scale`` (mean shift + shape * scale)."""

    shift: float
    shape: float
    scale: float

    def __post_init__(self) -> None:
        settle_number(self, "shift", at_least=0.0, remedy="write the least delay, such as shift = 0.010")
        settle_number(self, "shape", above=0.0, remedy="write the gamma's shape, such as shape = 2.0")
        settle_number(self, "scale", above=0.0, remedy="write the gamma's scale, such as scale = 0.005")

    def mean(self) -> float:
        return self.shift + self.shape * self.scale

    def variance(self) -> float:
        return self.shape * self.scale**2

    def _pdf(self, x: FloatArray) -> FloatArray:
        from scipy.special import gammaln, xlogy

        # So far out there is no density left, and infinity minus infinity is kept away.
        z = np.minimum(np.maximum(x - self.shift, 0.0) / self.scale, 1e300)
        density = np.exp(xlogy(self.shape - 1.0, z) - z - gammaln(self.shape)) / self.scale
        return np.asarray(np.where(x < self.shift, 0.0, density))

    def _cdf(self, x: FloatArray) -> FloatArray:
        from scipy.special import gammainc

        return np.asarray(gammainc(self.shape, np.maximum(x - self.shift, 0.0) / self.scale))

    def _quantile(self, p: FloatArray) -> FloatArray:
        from scipy.special import gammainccinv, gammaincinv

        # Each half is inverted from its own tail, where the doubles are dense.
        z = np.where(p < 0.5, gammaincinv(self.shape, p), gammainccinv(self.shape, 1.0 - p))
        return np.asarray(self.shift + self.scale * z)

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        return self.shift + rng.gamma(self.shape, self.scale, size)


class Weibull(ContinuousDistribution, frozen=True, kw_only=True, tag="weibull"):
    """P[X > x] = exp(-(x / scale)**shape): repair and failure times that age (shape > 1) or settle (shape < 1)."""

    shape: float
    scale: float

    def __post_init__(self) -> None:
        settle_number(self, "shape", at_least=MIN_WEIBULL_SHAPE, remedy="write the shape, such as shape = 0.7")
        settle_number(self, "scale", above=0.0, remedy="write the scale, such as scale = 3600.0")

    def mean(self) -> float:
        return self.scale * math.exp(math.lgamma(1.0 + 1.0 / self.shape))

    def variance(self) -> float:
        excess = math.lgamma(1.0 + 2.0 / self.shape) - 2.0 * math.lgamma(1.0 + 1.0 / self.shape)
        return self.mean() ** 2 * math.expm1(excess)

    def _pdf(self, x: FloatArray) -> FloatArray:
        z = np.maximum(x, 0.0) / self.scale
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            power = z**self.shape
            density = self.shape / self.scale * z ** (self.shape - 1.0) * np.exp(-power)
        # Far out the power may be infinite and the exponential 0: the exponential wins.
        return np.where(np.isnan(x), np.nan, np.where((x < 0.0) | (power > 745.0), 0.0, density))

    def _cdf(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return -np.expm1(-((np.maximum(x, 0.0) / self.scale) ** self.shape))

    def _quantile(self, p: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return self.scale * (-np.log1p(-p)) ** (1.0 / self.shape)

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        return self.scale * rng.weibull(self.shape, size)
