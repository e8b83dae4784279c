"""The Zipf distribution over ranks 1 .. count, for content: P[rank = r] is proportional to r ** -exponent.

Discrete, so it has ``pmf`` where the other distributions have ``pdf``; ranks are whole numbers. Everything is a sum
over the ranks (an exponent of 1 or less has no limit distribution to lean on); the running sums are computed once per
(count, exponent). Raising every probability to the power a and normalising, the "skewness" of paper B, is exactly
Zipf(a * exponent).
"""

from functools import lru_cache
from typing import Any, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.model.distributions._base import BaseDistribution, Shape, apply_flat, check_probabilities
from tidings.model.distributions._errors import (
    FloatArray,
    Samples,
    refuse,
    settle_number,
)

IntArray = NDArray[np.int64]
Ranks = Samples | NDArray[Any]

# 10 million running sums are 80 MB; content spaces beyond that are described by attributes, not by one rank.
MAX_COUNT = 10_000_000
MAX_EXPONENT = 100.0


@lru_cache(maxsize=16)
def _running_sums(count: int, exponent: float) -> FloatArray:
    """P[rank <= r] for r = 1 .. count, ending in exactly 1; read-only because it is shared."""
    sums = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    sums /= sums[-1]
    sums.flags.writeable = False
    return sums


class Zipf(BaseDistribution, frozen=True, kw_only=True, tag="zipf"):
    """Ranks 1 .. ``count``, rank r with probability proportional to r ** -``exponent``; exponent 0 is uniform."""

    count: int
    exponent: float

    def __post_init__(self) -> None:
        remedy = "write the number of ranks, such as count = 10"
        value = settle_number(self, "count", at_least=1.0, at_most=float(MAX_COUNT), remedy=remedy)
        if value != int(value):
            raise refuse(self, "count", "a whole number", value, remedy)
        msgspec.structs.force_setattr(self, "count", int(value))
        settle_number(
            self, "exponent", at_least=0.0, at_most=MAX_EXPONENT, remedy="write the exponent, such as exponent = 1.0"
        )

    def _masses(self) -> FloatArray:
        weights = np.arange(1, self.count + 1, dtype=np.float64) ** -self.exponent
        return np.asarray(weights / weights.sum())

    def mean(self) -> float:
        return float(self._masses() @ np.arange(1, self.count + 1))

    def variance(self) -> float:
        away = np.arange(1, self.count + 1) - self.mean()
        return float(self._masses() @ away**2)

    @overload
    def pmf(self, x: float) -> float: ...
    @overload
    def pmf(self, x: Ranks) -> FloatArray: ...
    def pmf(self, x: float | Ranks) -> float | FloatArray:
        """P[rank = x]; 0 for what is not a rank."""
        return apply_flat(self._pmf, x)

    def _pmf(self, x: FloatArray) -> FloatArray:
        is_rank = (x >= 1.0) & (x <= self.count) & (x == np.floor(x))
        return np.where(is_rank, self._masses()[np.where(is_rank, x, 1.0).astype(np.int64) - 1], 0.0)

    @overload
    def cdf(self, x: float) -> float: ...
    @overload
    def cdf(self, x: Ranks) -> FloatArray: ...
    def cdf(self, x: float | Ranks) -> float | FloatArray:
        """P[rank <= x]."""
        return apply_flat(self._cdf, x)

    def _cdf(self, x: FloatArray) -> FloatArray:
        sums = np.concatenate(([0.0], _running_sums(self.count, self.exponent)))
        below = sums[np.clip(np.nan_to_num(np.floor(x)), 0, self.count).astype(np.int64)]
        return np.where(np.isnan(x), np.nan, below)

    @overload
    def quantile(self, p: float) -> int: ...
    @overload
    def quantile(self, p: Samples) -> IntArray: ...
    def quantile(self, p: float | Samples) -> int | IntArray:
        """The smallest rank with P[rank <= r] >= p."""
        check_probabilities(self, p)
        values = np.asarray(p, dtype=np.float64)
        ranks = np.searchsorted(_running_sums(self.count, self.exponent), values, side="left") + 1
        return int(ranks) if values.ndim == 0 else ranks.astype(np.int64)

    @overload
    def sample(self, rng: np.random.Generator, size: None = None) -> int: ...
    @overload
    def sample(self, rng: np.random.Generator, size: Shape) -> IntArray: ...
    def sample(self, rng: np.random.Generator, size: Shape | None = None) -> int | IntArray:
        """Independent ranks: one int, or an array of the given size."""
        # A draw lies in [0, 1), so the first sum ABOVE it is the rank; quantile's >= would give a draw of 0 to nobody.
        ranks = np.searchsorted(_running_sums(self.count, self.exponent), rng.random(size), side="right") + 1
        return int(ranks) if size is None else ranks.astype(np.int64)
