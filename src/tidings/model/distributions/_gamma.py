"""Laws with a shape and a scale: the shifted gamma of one-way Internet delays, and the Weibull."""

import math
from typing import Self

import numpy as np

from tidings.model.distributions._errors import FloatArray, Samples, settle_number, settle_samples
from tidings.model.distributions._law import ContinuousLaw, Shape

# Grouped likelihood: the samples are sorted into at most this many cells of equal share.
_FIT_CELLS = 1_000

# Below this shape a Weibull's variance leaves the doubles.
MIN_WEIBULL_SHAPE = 0.02

# Samples that differ only in their last digits are fitted with this shape: a spread of a millionth of the mean.
MAX_FITTED_SHAPE = 1e6


class ShiftedGamma(ContinuousLaw, frozen=True, kw_only=True, tag="shifted-gamma"):
    """A constant ``shift`` plus a gamma of the given ``shape`` and ``scale`` (mean shift + shape * scale)."""

    shift: float
    shape: float
    scale: float

    def __post_init__(self) -> None:
        settle_number(self, "shift", at_least=0.0, remedy="write the least delay, such as shift = 0.010")
        settle_number(self, "shape", above=0.0, remedy="write the gamma's shape, such as shape = 2.0")
        settle_number(self, "scale", above=0.0, remedy="write the gamma's scale, such as scale = 0.005")

    @classmethod
    def fit(cls, samples: Samples) -> Self:
        """Maximum likelihood of the samples grouped into up to 1,000 cells of equal share.

        The plain likelihood has no maximum (with a shape below 1 it grows without end as the shift nears the smallest
        sample); the probability of a cell never exceeds 1, so the grouped one has, and it tends to the same law.
        The search starts from mean, variance and skewness, and keeps the shift between 0 and the smallest sample.
        """
        from scipy.optimize import minimize
        from scipy.special import gammainc

        values = settle_samples(cls, samples, distinct=3)
        edges, counts = _cells(values)
        least, spread = float(values[0]), float(values.std())

        def cost(parameters: FloatArray) -> float:
            part, log_shape, log_scale = parameters
            z = np.maximum(edges - part * least, 0.0) / math.exp(log_scale)
            below = np.concatenate(([0.0], gammainc(math.exp(log_shape), z), [1.0]))
            return -float(counts @ np.log(np.maximum(np.diff(below), 1e-300))) / values.size

        bounds = [(0.0, 1.0), (math.log(1e-2), math.log(1e6)), (math.log(spread) - 16.0, math.log(spread) + 9.0)]
        best = None
        for start in _starts(values):
            # A simplex needs no gradient, and the cost has none where the shift meets the smallest sample.
            found = minimize(cost, start, method="Nelder-Mead", bounds=bounds, options={"xatol": 1e-7, "fatol": 1e-11})
            best = found if best is None or found.fun < best.fun else best
        assert best is not None
        part, log_shape, log_scale = (float(parameter) for parameter in best.x)
        return cls(shift=part * least, shape=math.exp(log_shape), scale=math.exp(log_scale))

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


def _cells(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Edges of cells that hold about equally many of the sorted values, and how many each holds."""
    cells = min(values.size, _FIT_CELLS)
    picked = values[(np.arange(1, cells) * values.size) // cells]
    edges = np.unique(picked)
    if edges[0] == values[0]:
        # The first cell reaches from the shift to just above the smallest value: no cell may be empty by decree.
        edges = edges[1:] if edges.size > 1 else np.nextafter(edges, np.inf)
    counts = np.diff(np.concatenate(([0], np.searchsorted(values, edges, side="left"), [values.size])))
    return edges, counts.astype(np.float64)


def _starts(values: FloatArray) -> list[tuple[float, float, float]]:
    """Where to start the search, as (share of the least value, ln shape, ln scale): three moments, and no shift."""
    mean, spread, least = float(values.mean()), float(values.std()), float(values[0])
    skewness = float(np.clip(np.mean(((values - mean) / spread) ** 3), 0.05, 10.0))
    starts = []
    for shift in (mean - 2.0 * spread / skewness, 0.9 * least, 0.0):
        kept = min(max(shift, 0.0), 0.99 * least)
        scale = spread**2 / (mean - kept)
        starts.append((kept / least if least > 0.0 else 0.0, math.log((mean - kept) / scale), math.log(scale)))
    return starts


class Weibull(ContinuousLaw, frozen=True, kw_only=True, tag="weibull"):
    """P[X > x] = exp(-(x / scale)**shape): repair and failure times that age (shape > 1) or settle (shape < 1)."""

    shape: float
    scale: float

    def __post_init__(self) -> None:
        settle_number(self, "shape", at_least=MIN_WEIBULL_SHAPE, remedy="write the shape, such as shape = 0.7")
        settle_number(self, "scale", above=0.0, remedy="write the scale, such as scale = 3600.0")

    @classmethod
    def fit(cls, samples: Samples) -> Self:
        """Maximum likelihood: the shape is the only root of its profile equation."""
        from scipy.optimize import brentq

        values = settle_samples(cls, samples, distinct=2, above_zero=True)
        largest = float(values[-1])
        logs = np.log(values / largest)  # <= 0, so no power below overflows
        mean_log = float(logs.mean())

        def slope(shape: float) -> float:
            weights = np.exp(shape * logs)
            return float(weights @ logs / weights.sum()) - mean_log - 1.0 / shape

        low, high = MIN_WEIBULL_SHAPE, MAX_FITTED_SHAPE
        if slope(low) >= 0.0:
            shape = low
        elif slope(high) <= 0.0:
            shape = high
        else:
            shape = float(brentq(slope, low, high, xtol=1e-12, rtol=1e-12, maxiter=200))
        return cls(shape=shape, scale=largest * float(np.mean(np.exp(shape * logs))) ** (1.0 / shape))

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
