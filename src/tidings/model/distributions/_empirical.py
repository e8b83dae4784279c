"""A distribution given by measured quantiles: values at equally spaced probabilities, straight lines between them.

With n values the i-th is the quantile of i / (n - 1); the first and last are the ends of the distribution. The mean is
then the trapezoid sum, and on a piece from a to b the second moment is (a^2 + ab + b^2) / 3: both exact, no sampling
involved. Equal neighbours make an atom.
"""

from typing import Self

import numpy as np

from tidings.model.distributions._base import ContinuousDistribution, Shape
from tidings.model.distributions._errors import (
    FloatArray,
    Samples,
    check_whole,
    refuse,
    settle_numbers,
    settle_samples,
)

DEFAULT_QUANTILES = 257


class Empirical(ContinuousDistribution, frozen=True, kw_only=True, tag="empirical"):
    """Piecewise linear between ``quantiles``, the values at probabilities 0, 1/(n-1), ..., 1."""

    quantiles: tuple[float, ...]

    def __post_init__(self) -> None:
        remedy = "write values at equally spaced probabilities from 0 to 1, such as quantiles = [0.001, 0.002, 0.009]"
        values = np.array(settle_numbers(self, "quantiles", remedy=remedy, minimum_length=2))
        if values[0] < 0.0:
            raise refuse(self, "quantiles", ">= 0 throughout", float(values[0]), remedy)
        falls = np.flatnonzero(np.diff(values) < 0.0)
        if falls.size:
            at = int(falls[0])
            pair = [float(values[at]), float(values[at + 1])]
            raise refuse(
                self, "quantiles", f"in ascending order (positions {at} and {at + 1})", pair, "sort the values"
            )

    @classmethod
    def from_samples(cls, samples: Samples, n: int = DEFAULT_QUANTILES) -> Self:
        """The distribution through `n` quantiles of the samples; at most 1 / (n - 1) away from them in any probability.

        The two ends are not the extreme samples but lie where the first and last piece get the mean of the samples
        they stand for: a straight line to the largest sample would give a long tail far too much weight. The mean is
        then right to a few parts in 10,000 at 257 quantiles of a log-normal with sigma 1; the variance, which lives in
        the tail, comes out some 4 % low there, and right within 1 % for sigma .6.
        """
        check_whole("empirical: the number of quantiles", n, at_least=2)
        values = settle_samples(cls, samples)
        points = np.quantile(values, np.linspace(0.0, 1.0, n))
        if n > 2:
            sums = np.concatenate(([0.0], np.cumsum(values)))
            inner = np.interp([1.0 / (n - 1), 1.0 - 1.0 / (n - 1)], np.linspace(0.0, 1.0, sums.size), sums)
            first, last = inner[0] * (n - 1) / values.size, (sums[-1] - inner[1]) * (n - 1) / values.size
            points[0] = np.clip(2.0 * first - points[1], values[0], points[1])
            points[-1] = np.clip(2.0 * last - points[-2], points[-2], values[-1])
        # Interpolation between equal samples may round down by an ulp.
        return cls(quantiles=tuple(np.maximum.accumulate(points).tolist()))

    def _values(self) -> FloatArray:
        return np.array(self.quantiles)

    def mean(self) -> float:
        values = self._values()
        return float(np.mean(0.5 * (values[:-1] + values[1:])))

    def variance(self) -> float:
        away = self._values() - self.mean()  # from the mean, so that nothing cancels
        return float(np.mean((away[:-1] ** 2 + away[:-1] * away[1:] + away[1:] ** 2) / 3.0))

    def atoms(self) -> tuple[tuple[float, float], ...]:
        values = self._values()
        level, counts = np.unique(values[1:][values[1:] == values[:-1]], return_counts=True)
        pieces = values.size - 1
        return tuple((float(value), int(count) / pieces) for value, count in zip(level, counts, strict=True))

    def _pdf(self, x: FloatArray) -> FloatArray:
        values = np.unique(self.quantiles)
        if values.size == 1:
            return np.where(np.isnan(x), np.nan, 0.0)
        piece = np.clip(np.searchsorted(values, x, side="right") - 1, 0, values.size - 2)
        density = 1.0 / ((len(self.quantiles) - 1) * np.diff(values))[piece]
        inside = (x >= values[0]) & (x <= values[-1])
        return np.where(np.isnan(x), np.nan, np.where(inside, density, 0.0))

    def _cdf(self, x: FloatArray) -> FloatArray:
        values = self._values()
        last = values.size - 1
        # The last position whose value is <= x: at an atom this is its upper end, which makes P[X <= x] of it.
        at = np.clip(np.searchsorted(values, x, side="right") - 1, 0, last - 1)
        width = values[at + 1] - values[at]
        share = np.clip((x - values[at]) / np.where(width > 0.0, width, 1.0), 0.0, 1.0)
        below = np.where(x >= values[-1], 1.0, np.where(x < values[0], 0.0, (at + share) / last))
        return np.where(np.isnan(x), np.nan, below)

    def _quantile(self, p: FloatArray) -> FloatArray:
        values = self._values()
        place = p * (values.size - 1)
        at = np.minimum(place.astype(np.int64), values.size - 2)
        return np.asarray(values[at] + (place - at) * (values[at + 1] - values[at]))

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        return self._quantile(np.asarray(rng.random(size)))
