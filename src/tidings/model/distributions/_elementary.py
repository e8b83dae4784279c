"""The distributions with one-line formulas: deterministic, exponential, uniform."""

import msgspec
import numpy as np

from tidings.model.distributions._base import ContinuousDistribution, Shape
from tidings.model.distributions._errors import FloatArray, refuse, settle_number


class Deterministic(ContinuousDistribution, frozen=True, kw_only=True, tag="deterministic"):
    """Always the same value. All its mass is one atom, so its density is 0 everywhere."""

    value: float

    def __post_init__(self) -> None:
        settle_number(self, "value", at_least=0.0, remedy="write the constant, such as value = 0.002")

    def mean(self) -> float:
        return self.value

    def variance(self) -> float:
        return 0.0

    def atoms(self) -> tuple[tuple[float, float], ...]:
        return ((self.value, 1.0),)

    def _pdf(self, x: FloatArray) -> FloatArray:
        return np.where(np.isnan(x), np.nan, 0.0)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return np.where(np.isnan(x), np.nan, np.where(x >= self.value, 1.0, 0.0))

    def _quantile(self, p: FloatArray) -> FloatArray:
        return np.full(p.shape, self.value)

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:  # noqa: ARG002 - a constant draws nothing
        return np.full(size, self.value)


class Exponential(ContinuousDistribution, frozen=True, kw_only=True, tag="exponential"):
    """Memoryless, with the given mean: ``mean`` in TOML, ``scale`` in Python, where ``mean()`` is the method."""

    scale: float = msgspec.field(name="mean")

    def __post_init__(self) -> None:
        settle_number(self, "scale", above=0.0, remedy="write the mean, such as mean = 0.002 (the rate is 1 / mean)")

    def mean(self) -> float:
        return self.scale

    def variance(self) -> float:
        return self.scale**2

    def _pdf(self, x: FloatArray) -> FloatArray:
        density = np.exp(-np.maximum(x, 0.0) / self.scale) / self.scale
        return np.where(x < 0.0, 0.0, density)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return -np.expm1(-np.maximum(x, 0.0) / self.scale)

    def _quantile(self, p: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return -self.scale * np.log1p(-p)

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        return rng.exponential(self.scale, size)


class Uniform(ContinuousDistribution, frozen=True, kw_only=True, tag="uniform"):
    """Every value between ``low`` and ``high`` alike; U(0, 2m) has a squared coefficient of variation of 1/3."""

    low: float
    high: float

    def __post_init__(self) -> None:
        low = settle_number(self, "low", at_least=0.0, remedy="write the lower end, such as low = 0.0")
        high = settle_number(self, "high", at_least=0.0, remedy="write the upper end, such as high = 0.004")
        if not low < high:
            remedy = "swap the two, or write the deterministic distribution for a constant"
            raise refuse(self, "high", f"above low = {low!r}", high, remedy)

    def mean(self) -> float:
        return self.low + (self.high - self.low) / 2.0

    def variance(self) -> float:
        return (self.high - self.low) ** 2 / 12.0

    def _pdf(self, x: FloatArray) -> FloatArray:
        inside = (x >= self.low) & (x <= self.high)
        return np.where(np.isnan(x), np.nan, np.where(inside, 1.0 / (self.high - self.low), 0.0))

    def _cdf(self, x: FloatArray) -> FloatArray:
        return np.clip((x - self.low) / (self.high - self.low), 0.0, 1.0)

    def _quantile(self, p: FloatArray) -> FloatArray:
        return np.minimum(self.low + p * (self.high - self.low), self.high)

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        return rng.uniform(self.low, self.high, size)
