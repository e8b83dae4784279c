"""One stage of a delay, as a prediction needs it: moments for queues, and a Laplace transform for sums.

The delay along a path is a sum of independent stages, so its transform is a product. A constant part is kept apart as
a shift: a jump of the distribution function is then where it belongs, not where a series can best draw it.

Constant, exponential, uniform, (shifted) gamma and empirical laws have transforms and three moments in closed form; any
other law is replaced by Gauss-Legendre nodes of its quantile function, panel by panel towards the upper tail.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Discrete,
    Empirical,
    Exponential,
    ShiftedGamma,
    Uniform,
)

__all__ = ["NOTHING", "Stage", "nodes_of", "product_stage", "scaled_stage", "stage_of"]

FloatArray = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]

_PANELS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.99999, 1.0)
_NODES_PER_PANEL = 16


@dataclass(frozen=True, eq=False)
class Stage:
    """`shift_s` plus a random part; `transform(s)` is the random part's E[exp(-s X)], and `at_shift` its mass at 0.

    The mean and the raw second and third moments are those of the whole. `is_closed` says that the transform is quickly
    evaluated.
    """

    mean_s: float
    second_s2: float
    third_s3: float
    shift_s: float
    at_shift: float
    transform: Callable[[ComplexArray], ComplexArray]
    is_closed: bool = True

    @property
    def variance_s2(self) -> float:
        return max(0.0, self.second_s2 - self.mean_s**2)

    @property
    def scv(self) -> float:
        return self.variance_s2 / self.mean_s**2 if self.mean_s > 0.0 else 0.0


def _one(s: ComplexArray) -> ComplexArray:
    return np.ones_like(s)


NOTHING = Stage(0.0, 0.0, 0.0, 0.0, 1.0, _one)
"""The stage that takes no time."""


@lru_cache(maxsize=65_536)
def stage_of(law: DelayDistribution) -> Stage:
    """The stage of a law; equal laws share one."""
    match law:
        case Deterministic(value=value):
            return Stage(value, value**2, value**3, value, 1.0, _one)
        case Exponential(scale=scale):
            return Stage(scale, 2.0 * scale**2, 6.0 * scale**3, 0.0, 0.0, lambda s: 1.0 / (1.0 + scale * s))
        case Uniform(low=low, high=high):
            return _uniform(low, high)
        case ShiftedGamma(shift=shift, shape=shape, scale=scale):
            first, second = shape * scale, shape * (shape + 1.0) * scale**2
            third = shape * (shape + 1.0) * (shape + 2.0) * scale**3
            return Stage(
                shift + first,
                shift**2 + 2.0 * shift * first + second,
                shift**3 + 3.0 * shift**2 * first + 3.0 * shift * second + third,
                shift,
                0.0,
                lambda s: np.exp(-shape * np.log1p(scale * s)),
            )
        case Discrete():
            points, weights = (np.array(column) for column in zip(*law.atoms(), strict=True))
            return _of_nodes(points, weights, law.mean(), law.variance() + law.mean() ** 2)
        case Empirical(quantiles=quantiles):
            return _empirical(np.array(quantiles))
        case _:
            points, weights = nodes_of(law)
            return _of_nodes(points, weights, law.mean(), law.variance() + law.mean() ** 2)


def scaled_stage(stage: Stage, factor: float) -> Stage:
    """The stage that takes `factor` times as long."""
    if factor == 1.0:
        return stage
    if factor == 0.0:
        return NOTHING
    inner = stage.transform
    return Stage(
        factor * stage.mean_s,
        factor**2 * stage.second_s2,
        factor**3 * stage.third_s3,
        factor * stage.shift_s,
        stage.at_shift,
        lambda s: inner(factor * s),
        stage.is_closed,
    )


def product_stage(one: DelayDistribution, other: DelayDistribution) -> Stage:
    """The product of two independent laws: a size and a slowness."""
    for constant, law in ((one, other), (other, one)):
        if isinstance(constant, Deterministic):
            return scaled_stage(stage_of(law), constant.value)
    first, second = stage_of(one), stage_of(other)
    (x, v), (y, w) = (nodes_of(law, panels=(0.0, 0.5, 0.9, 0.999, 1.0), nodes=6) for law in (one, other))
    return _of_nodes(
        np.outer(x, y).ravel(),
        np.outer(v, w).ravel(),
        first.mean_s * second.mean_s,
        first.second_s2 * second.second_s2,
        first.third_s3 * second.third_s3,
    )


def nodes_of(
    law: Any, *, panels: tuple[float, ...] = _PANELS, nodes: int = _NODES_PER_PANEL
) -> tuple[FloatArray, FloatArray]:
    """Points and weights by which E[f(X)] is about sum(weights * f(points)): quantiles at Gauss-Legendre nodes."""
    roots, weights = np.polynomial.legendre.leggauss(nodes)
    low, high = np.array(panels[:-1])[:, None], np.array(panels[1:])[:, None]
    u = (low + 0.5 * (high - low) * (roots + 1.0)).ravel()
    w = (0.5 * (high - low) * weights).ravel()
    return np.asarray(law.quantile(u)), w


def _uniform(low: float, high: float) -> Stage:
    width = high - low

    def transform(s: ComplexArray) -> ComplexArray:
        return _evenly(s * width)

    second = (low**2 + low * high + high**2) / 3.0
    third = (low + high) * (low**2 + high**2) / 4.0
    return Stage((low + high) / 2.0, second, third, low, 0.0, transform)


def _evenly(z: ComplexArray) -> ComplexArray:
    """(1 - exp(-z)) / z, the transform of what is uniform from 0 to 1."""
    small = np.abs(z) < 1e-4
    safe = np.where(small, 1.0, z)
    return np.where(small, 1.0 - z / 2.0 + z * z / 6.0, -np.expm1(-safe) / safe)


def _empirical(quantiles: FloatArray) -> Stage:
    """Equally likely pieces, uniform between neighbouring quantiles."""
    low, high = quantiles[:-1], quantiles[1:]
    if low[0] == high[-1]:
        return stage_of(Deterministic(value=float(low[0])))

    def transform(s: ComplexArray) -> ComplexArray:
        from_low = np.exp(-np.multiply.outer(s, low)) * _evenly(np.multiply.outer(s, high - low))
        return np.asarray(from_low.mean(axis=-1))

    second = float(np.mean((low**2 + low * high + high**2) / 3.0))
    third = float(np.mean((low + high) * (low**2 + high**2) / 4.0))
    return Stage(float(np.mean((low + high) / 2.0)), second, third, 0.0, 0.0, transform, is_closed=False)


def _of_nodes(points: FloatArray, weights: FloatArray, mean: float, second: float, third: float | None = None) -> Stage:
    if np.ptp(points) == 0.0:
        value = float(points[0])
        return Stage(value, value**2, value**3, value, 1.0, _one)

    def transform(s: ComplexArray) -> ComplexArray:
        return np.asarray(np.exp(-np.multiply.outer(s, points)) @ weights)

    raw = float(weights @ points**3) if third is None else third
    return Stage(mean, second, raw, 0.0, 0.0, transform, is_closed=False)
