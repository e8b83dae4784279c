"""Recorded values in the order in which they were recorded.

The simulator takes the k-th value for the k-th draw of a link or broker; a user of the distribution (a strategy, a
prediction, a storm's draws) gets that of the values, in any order.
"""

from functools import cached_property
from typing import Final, Literal

import numpy as np

from tidings.model.distributions._base import ContinuousDistribution, Shape
from tidings.model.distributions._empirical import DEFAULT_QUANTILES, Empirical
from tidings.model.distributions._errors import FloatArray, refuse, settle_numbers

REPLAYED_MAX: Final = 1_000_000
"""A recording with more values is refused: a run holds all of them in memory."""


class Replay(ContinuousDistribution, frozen=True, kw_only=True, dict=True, tag="replay"):
    """``values`` one after the other; ``then`` they begin again (``"repeat"``) or the ``"last"`` one stays."""

    values: tuple[float, ...]
    then: Literal["repeat", "last"] = "repeat"

    def __post_init__(self) -> None:
        remedy = "write the values in the order in which they are to occur, such as values = [0.02, 0.03, 0.02]"
        values = np.array(settle_numbers(self, "values", remedy=remedy))
        if values.min() < 0.0:
            raise refuse(self, "values", ">= 0 throughout", float(values.min()), remedy)
        if len(values) > REPLAYED_MAX:
            raise refuse(self, "values", f"at most {REPLAYED_MAX:,} numbers", len(values), "record fewer")
        if self.then not in ("repeat", "last"):
            raise refuse(self, "then", '"repeat" or "last"', self.then, 'write then = "repeat" to begin again')

    @cached_property
    def distribution(self) -> Empirical:
        """The distribution of the values, whatever their order."""
        return Empirical.from_samples(self.values, n=min(DEFAULT_QUANTILES, max(2, len(self.values))))

    def mean(self) -> float:
        return self.distribution.mean()

    def variance(self) -> float:
        return self.distribution.variance()

    def atoms(self) -> tuple[tuple[float, float], ...]:
        return self.distribution.atoms()

    def _pdf(self, x: FloatArray) -> FloatArray:
        return self.distribution._pdf(x)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.distribution._cdf(x)

    def _quantile(self, p: FloatArray) -> FloatArray:
        return self.distribution._quantile(p)

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        return self.distribution._sample(rng, size)
