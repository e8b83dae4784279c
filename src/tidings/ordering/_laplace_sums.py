"""The exact sum of k Laplacians, with equal or different scales.

The paper calls the case of different scales open and takes two Laplacians instead. It has a closed form in phases. A
Laplacian of scale b is E - E', two exponentials of mean b, so the sum of k is A - B, where A and B are independent
hypoexponential times with the same rates 1/b₁ … 1/b_k. Let both run at once. When B ends first, A is in some phase i,
with a probability v_i, and by lack of memory what is left of it is a chain that starts in phase i:

    P[A - B > x] = v exp(S x) 1   for x >= 0,   S the sub-generator of A

so |A - B| is phase-type with initial distribution 2v (the sum is symmetric: v sums to 1/2). v follows phase by phase:
from (i, j) A moves on with probability a_i / (a_i + a_j), else B does. Only sums and products of positive numbers
occur, so equal and nearly equal scales need no care.
"""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from tidings.errors import InputError
from tidings.model.distributions import PhaseType
from tidings.ordering._laplace import FloatArray

__all__ = ["LaplaceSum"]


class LaplaceSum(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of independent Laplacians around 0, one per scale: the delay difference of two events on a path."""

    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.scales or not all(0.0 < b < math.inf for b in self.scales):
            raise InputError(f"scales are {self.scales!r}: give one positive number per broker on the path")

    @classmethod
    def equal(cls, *, count: int, scale: float) -> "LaplaceSum":
        """`count` Laplacians of one scale."""
        return cls(scales=(scale,) * count)

    @property
    def size(self) -> PhaseType:
        """The distribution of the absolute value."""
        rates = 1.0 / np.array(self.scales)
        start = _phase_when_the_other_ends(rates)
        generator = np.diag(-rates) + np.diag(rates[:-1], 1)
        return PhaseType(
            alpha=tuple((start / start.sum()).tolist()), sub_generator=tuple(tuple(row) for row in generator.tolist())
        )

    def variance(self) -> float:
        """2 Σ b²."""
        return 2.0 * math.fsum(b * b for b in self.scales)

    def pdf(self, x: ArrayLike) -> FloatArray:
        """The density at x."""
        return 0.5 * np.asarray(self.size.pdf(np.abs(np.asarray(x, np.float64))))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P[X <= x]."""
        points = np.asarray(x, np.float64)
        return 0.5 + 0.5 * np.sign(points) * np.asarray(self.size.cdf(np.abs(points)))

    def quantile(self, p: ArrayLike) -> FloatArray:
        """The x with P[X <= x] = p."""
        wanted = np.asarray(p, np.float64)
        return np.sign(wanted - 0.5) * np.asarray(self.size.quantile(np.abs(2.0 * wanted - 1.0)))

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Independent draws."""
        total = np.zeros(size)
        for b in self.scales:
            total += rng.laplace(0.0, b, size)
        return total


def _phase_when_the_other_ends(rates: FloatArray) -> FloatArray:
    """v_i = P[A is in phase i when B ends], for two chains through the same rates, started together."""
    count = rates.size
    reached = np.zeros((count + 1, count + 1))  # [A's phase, B's phase]; phase `count` is the end
    reached[0, 0] = 1.0
    for i in range(count):
        for j in range(count):
            moves = rates[i] / (rates[i] + rates[j])
            reached[i + 1, j] += reached[i, j] * moves
            reached[i, j + 1] += reached[i, j] * (1.0 - moves)
    return np.asarray(reached[:count, count])
