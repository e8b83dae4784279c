"""The common interface of all distributions.

- A distribution is a frozen value on [0, inf): a delay, an interval, a size. Parameters carry no unit; the mean, the
  samples and the bounds are in whatever unit the parameters are in.
- ``cdf(x)`` is P[X <= x]; ``quantile(p)`` is the smallest x with ``cdf(x) >= p``, so a distribution without an upper
  bound has ``quantile(1) = inf``.
- ``pdf(x)`` is the density of the continuous part. Atoms (single values with a probability of their own: a
  constant, the bounds of a clipped distribution) carry no density: ``atoms()`` lists them, and the density integrates
  to one minus their sum.
- Scalars give floats, arrays give arrays of the same shape. NaN gives NaN in ``pdf`` and ``cdf``.
- ``sample(rng, size)`` draws with the generator it is given and nothing else: same seed, same numbers.

A distribution writes ``_pdf``, ``_cdf``, ``_quantile`` and ``_sample`` on flat arrays; the public methods here deal
with shapes, scalars and bad probabilities once, for all distributions.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import overload

import msgspec
import numpy as np

from tidings.model.distributions._errors import DistributionError, FloatArray, Samples, name_of

Shape = int | tuple[int, ...]


def apply_flat(function: Callable[[FloatArray], FloatArray], points: float | Samples) -> float | FloatArray:
    """Apply a function of flat arrays to a scalar or an array of any shape."""
    values = np.asarray(points, dtype=np.float64)
    result = function(values.ravel())
    return float(result[0]) if values.ndim == 0 else result.reshape(values.shape)


def check_probabilities(distribution: msgspec.Struct, p: float | Samples) -> None:
    values = np.asarray(p, dtype=np.float64)
    bad = values[~((values >= 0.0) & (values <= 1.0))]
    if bad.size:
        first = float(bad.flat[0])
        raise DistributionError(f"{name_of(distribution)}: quantile needs probabilities from 0 to 1, not {first!r}")


class BaseDistribution(msgspec.Struct, frozen=True, kw_only=True, tag_field="law", forbid_unknown_fields=True):
    """The part that all distributions share, discrete ones too."""

    @abstractmethod
    def mean(self) -> float:
        """Defined by each distribution."""

    @abstractmethod
    def variance(self) -> float:
        """Defined by each distribution."""

    def scv(self) -> float:
        """Squared coefficient of variation, variance / mean**2: 0 for a constant (also the constant 0)."""
        variance = self.variance()
        return variance / self.mean() ** 2 if variance > 0.0 else 0.0


class ContinuousDistribution(BaseDistribution, frozen=True, kw_only=True):
    """A distribution of durations or sizes: a density, perhaps with atoms."""

    def atoms(self) -> tuple[tuple[float, float], ...]:
        """Values that have a probability of their own, as (value, probability), in order of value."""
        return ()

    @abstractmethod
    def _pdf(self, x: FloatArray) -> FloatArray:
        """Defined by each distribution."""

    @abstractmethod
    def _cdf(self, x: FloatArray) -> FloatArray:
        """Defined by each distribution."""

    @abstractmethod
    def _quantile(self, p: FloatArray) -> FloatArray:
        """Defined by each distribution."""

    @abstractmethod
    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        """Defined by each distribution."""

    @overload
    def pdf(self, x: float) -> float: ...
    @overload
    def pdf(self, x: Samples) -> FloatArray: ...
    def pdf(self, x: float | Samples) -> float | FloatArray:
        """Density of the continuous part at x; atoms are not in it."""
        return apply_flat(self._pdf, x)

    @overload
    def cdf(self, x: float) -> float: ...
    @overload
    def cdf(self, x: Samples) -> FloatArray: ...
    def cdf(self, x: float | Samples) -> float | FloatArray:
        """P[X <= x]."""
        return apply_flat(self._cdf, x)

    @overload
    def quantile(self, p: float) -> float: ...
    @overload
    def quantile(self, p: Samples) -> FloatArray: ...
    def quantile(self, p: float | Samples) -> float | FloatArray:
        """The smallest x with P[X <= x] >= p."""
        check_probabilities(self, p)
        return apply_flat(self._quantile, p)

    @overload
    def sample(self, rng: np.random.Generator, size: None = None) -> float: ...
    @overload
    def sample(self, rng: np.random.Generator, size: Shape) -> FloatArray: ...
    def sample(self, rng: np.random.Generator, size: Shape | None = None) -> float | FloatArray:
        """Independent draws: one float, or an array of the given size."""
        return float(self._sample(rng, 1)[0]) if size is None else self._sample(rng, size)
