"""A distribution of a few values, each with its own chance: sizes of messages, retransmission delays, classes of
service."""

import numpy as np

from tidings.model.distributions._base import ContinuousDistribution, Shape
from tidings.model.distributions._errors import FloatArray, refuse, settle_numbers


class Discrete(ContinuousDistribution, frozen=True, kw_only=True, tag="discrete"):
    """One of ``values``, in proportion to ``weights`` (equally likely without). All its mass is in atoms."""

    values: tuple[float, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        remedy = "write the values that occur, such as values = [0.001, 0.02]"
        values = np.array(settle_numbers(self, "values", remedy=remedy))
        if values.min() < 0.0:
            raise refuse(self, "values", ">= 0 throughout", float(values.min()), remedy)
        if self.weights:
            remedy = "write one weight for each value, such as weights = [9, 1]"
            weights = np.array(settle_numbers(self, "weights", remedy=remedy))
            if len(weights) != len(values):
                raise refuse(self, "weights", f"{len(values)} numbers, one for each value", len(weights), remedy)
            if weights.min() < 0.0 or weights.sum() <= 0.0:
                raise refuse(self, "weights", ">= 0 and not all 0", weights.tolist(), remedy)

    def atoms(self) -> tuple[tuple[float, float], ...]:
        weights = np.array(self.weights) if self.weights else np.ones(len(self.values))
        chances = weights / weights.sum()
        found: dict[float, float] = {}
        for value, chance in sorted(zip(self.values, chances.tolist(), strict=True)):
            if chance > 0.0:
                found[value] = found.get(value, 0.0) + chance
        return tuple(found.items())

    def cumulated(self) -> tuple[FloatArray, FloatArray]:
        """The values in ascending order, and the chance of each or a smaller one; the last is 1."""
        values, chances = (np.array(column) for column in zip(*self.atoms(), strict=True))
        below = np.cumsum(chances)
        below[-1] = 1.0
        return values, below

    def mean(self) -> float:
        return float(sum(value * chance for value, chance in self.atoms()))

    def variance(self) -> float:
        mean = self.mean()  # from the mean, so that nothing cancels
        return float(sum((value - mean) ** 2 * chance for value, chance in self.atoms()))

    def _pdf(self, x: FloatArray) -> FloatArray:
        return np.where(np.isnan(x), np.nan, 0.0)

    def _cdf(self, x: FloatArray) -> FloatArray:
        values, below = self.cumulated()
        found = np.concatenate(([0.0], below))[np.searchsorted(values, x, side="right")]
        return np.where(np.isnan(x), np.nan, found)

    def _quantile(self, p: FloatArray) -> FloatArray:
        values, below = self.cumulated()
        return np.asarray(values[np.searchsorted(below, p, side="left")])

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        values, below = self.cumulated()
        return np.asarray(values[np.searchsorted(below, rng.random(size), side="right")])
