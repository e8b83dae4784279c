"""One stage of a delay, as a prediction needs it: moments for queues, and a Laplace transform for sums.

The delay along a path is a sum of independent stages, so its transform is a product. A constant part is kept apart as
a shift, and so are the atoms: a jump of the distribution function is then where it belongs, not where a series can best
draw it (`_steps`).

Constant, exponential, phase-type, uniform, (shifted) gamma, discrete and empirical distributions have transforms and
three moments in closed form; any other is replaced by Gauss-Legendre nodes of its quantile function, panel by panel
towards the upper tail.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Discrete,
    Empirical,
    Exponential,
    Hypoexponential,
    PhaseType,
    Replay,
    ShiftedGamma,
    Uniform,
)

__all__ = ["NOTHING", "Atoms", "Stage", "discrete_stage", "nodes_of", "product_stage", "scaled_stage", "stage_of"]

FloatArray = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
Atoms = tuple[FloatArray, FloatArray]
"""Values and their chances; or points and weights that stand for a distribution."""

STEP = 0.01
"""Lighter atoms are left in the transform: drawing one as a slope is off by at most half of it."""

_PANELS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.99999, 1.0)
_NODES_PER_PANEL, _FINE_NODES = 16, 64


@dataclass(frozen=True, eq=False)
class Stage:
    """`shift_s` plus a random part; `transform(s)` is the random part's E[exp(-s X)], `atoms` are the values that it
    has with a chance of their own.

    The mean and the raw second and third moments are those of the whole. `nodes()` are points and weights that stand
    for the whole. `is_closed` says that the transform is quickly evaluated.
    """

    mean_s: float
    second_s2: float
    third_s3: float
    shift_s: float
    atoms: Atoms
    transform: Callable[[ComplexArray], ComplexArray]
    nodes: Callable[[], Atoms]
    is_closed: bool = True

    @property
    def variance_s2(self) -> float:
        return max(0.0, self.second_s2 - self.mean_s**2)

    @property
    def scv(self) -> float:
        return self.variance_s2 / self.mean_s**2 if self.mean_s > 0.0 else 0.0

    @property
    def at_shift(self) -> float:
        """The chance that nothing is added to the shift."""
        points, chances = self.atoms
        return float(chances[0]) if len(points) and points[0] == 0.0 else 0.0

    @property
    def is_discrete(self) -> bool:
        """Whether it has several values and no others."""
        return len(self.atoms[0]) > 1 and self.atoms[1].sum() > 1.0 - 1e-12

    @property
    def has_steps(self) -> bool:
        """Whether its distribution function jumps above the shift."""
        return bool(len(self.atoms[0])) and self.atoms[0][-1] > 0.0

    @property
    def is_exponential(self) -> bool:
        """Whether it is so by its first three moments."""
        wanted = (2.0 * self.mean_s**2, 6.0 * self.mean_s**3)
        return self.mean_s > 0.0 and bool(np.allclose((self.second_s2, self.third_s3), wanted, rtol=1e-9, atol=0.0))


def _one(s: ComplexArray) -> ComplexArray:
    return np.ones_like(s)


_NO_ATOMS: Atoms = (np.zeros(0), np.zeros(0))


def _constant(value: float) -> Stage:
    whole = (np.array([value]), np.ones(1))
    return Stage(value, value**2, value**3, value, (np.zeros(1), np.ones(1)), _one, lambda: whole)


NOTHING = _constant(0.0)
"""The stage that takes no time."""


@lru_cache(maxsize=65_536)
def stage_of(distribution: DelayDistribution) -> Stage:
    """The stage of a distribution; equal ones share a stage."""

    def nodes() -> Atoms:
        return nodes_of(distribution, nodes=_FINE_NODES)

    match distribution:
        case Deterministic(value=value):
            return _constant(value)
        case Exponential(scale=scale):
            second, third = 2.0 * scale**2, 6.0 * scale**3
            return Stage(scale, second, third, 0.0, _NO_ATOMS, lambda s: 1.0 / (1.0 + scale * s), nodes)
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
                _NO_ATOMS,
                lambda s: np.exp(-shape * np.log1p(scale * s)),
                nodes,
            )
        case Hypoexponential(rates=rates):
            return _phases(np.eye(1, len(rates))[0], np.diag(-np.array(rates)) + np.diag(rates[:-1], 1), nodes)
        case PhaseType(alpha=alpha, sub_generator=rows):
            return _phases(np.array(alpha), np.array(rows), nodes)
        case Discrete():
            points, chances = (np.array(column) for column in zip(*distribution.atoms(), strict=True))
            return discrete_stage(points, chances)
        case Empirical(quantiles=quantiles):
            return _empirical(np.array(quantiles))
        case Replay():
            return _empirical(np.array(distribution.distribution.quantiles))
        case _:
            # Panels that end at the jumps give the atoms their own chances.
            edges = {
                float(distribution.cdf(value)) - end for value, chance in distribution.atoms() for end in (0.0, chance)
            }
            panels = tuple(sorted({*_PANELS, *(min(max(edge, 0.0), 1.0) for edge in edges)}))
            points, weights = nodes_of(distribution, panels=panels)
            heavy = [atom for atom in distribution.atoms() if atom[1] >= STEP]
            atoms = (np.array([value for value, _ in heavy]), np.array([chance for _, chance in heavy]))
            mean, second = distribution.mean(), distribution.variance() + distribution.mean() ** 2
            return Stage(
                mean,
                second,
                float(weights @ points**3),
                0.0,
                atoms,
                lambda s: np.asarray(np.exp(-np.multiply.outer(s, points)) @ weights),
                lambda: (points, weights),
                is_closed=False,
            )


def _phases(alpha: FloatArray, moves: FloatArray, nodes: Callable[[], Atoms]) -> Stage:
    """The time until a Markov chain is absorbed: alpha (s - T)^-1 (-T 1)."""
    leaving = -moves.sum(axis=1)
    held = np.linalg.inv(-moves)
    first, second, third = (float(alpha @ np.linalg.matrix_power(held, k).sum(axis=1)) for k in (1, 2, 3))

    def transform(s: ComplexArray) -> ComplexArray:
        flat = np.asarray(s).reshape(-1, 1, 1)
        leave = np.broadcast_to(leaving[:, None], (flat.size, len(alpha), 1))
        solved = np.linalg.solve(flat * np.eye(len(alpha)) - moves, leave)
        return np.asarray((alpha @ solved[:, :, 0].T).reshape(np.shape(s)))

    return Stage(first, 2.0 * second, 6.0 * third, 0.0, _NO_ATOMS, transform, nodes)


def discrete_stage(points: FloatArray, chances: FloatArray) -> Stage:
    """The stage that takes one of these times, in ascending order."""
    if len(points) == 1:
        return _constant(float(points[0]))
    above = points - points[0]
    mean, second, third = (float(chances @ points**power) for power in (1, 2, 3))
    return Stage(
        mean,
        second,
        third,
        float(points[0]),
        (above, chances),
        lambda s: np.asarray(np.exp(-np.multiply.outer(s, above)) @ chances),
        lambda: (points, chances),
        is_closed=False,
    )


def scaled_stage(stage: Stage, factor: float) -> Stage:
    """The stage that takes `factor` times as long."""
    if factor == 1.0:
        return stage
    if factor == 0.0:
        return NOTHING
    inner, nodes = stage.transform, stage.nodes

    def scaled_nodes() -> Atoms:
        points, weights = nodes()
        return factor * points, weights

    return Stage(
        factor * stage.mean_s,
        factor**2 * stage.second_s2,
        factor**3 * stage.third_s3,
        factor * stage.shift_s,
        (factor * stage.atoms[0], stage.atoms[1]),
        lambda s: inner(factor * s),
        scaled_nodes,
        stage.is_closed,
    )


def product_stage(one: DelayDistribution, other: DelayDistribution) -> Stage:
    """The product of two independent ones: a size and a slowness."""
    for constant, distribution in ((one, other), (other, one)):
        if isinstance(constant, Deterministic):
            return scaled_stage(stage_of(distribution), constant.value)
    first, second = stage_of(one), stage_of(other)
    (x, v), (y, w) = (
        stage.nodes() if stage.is_discrete else nodes_of(distribution, panels=(0.0, 0.5, 0.9, 0.999, 1.0), nodes=6)
        for distribution, stage in ((one, first), (other, second))
    )
    points, place = np.unique(np.outer(x, y).ravel(), return_inverse=True)
    weights = np.asarray(np.bincount(place, np.outer(v, w).ravel()), np.float64)
    if first.is_discrete and second.is_discrete:
        return discrete_stage(points, weights)
    return Stage(
        first.mean_s * second.mean_s,
        first.second_s2 * second.second_s2,
        first.third_s3 * second.third_s3,
        0.0,
        _NO_ATOMS,
        lambda s: np.asarray(np.exp(-np.multiply.outer(s, points)) @ weights),
        lambda: (points, weights),
        is_closed=False,
    )


def nodes_of(
    distribution: DelayDistribution,
    *,
    panels: tuple[float, ...] = _PANELS,
    nodes: int = _NODES_PER_PANEL,
    most: int = 256,
) -> Atoms:
    """Points and weights by which E[f(X)] is about sum(weights * f(points)): quantiles at Gauss-Legendre nodes; the
    values themselves if they are discrete, and no more than `most`. Panels that do not end at 1 leave out what is
    above them."""
    if isinstance(distribution, Discrete) and len(distribution.values) <= most:
        values, below = distribution.cumulated()
        chances = np.diff(np.clip(below, panels[0], panels[-1]), prepend=panels[0])
        return values[chances > 0.0], chances[chances > 0.0]
    roots, weights = _gauss(nodes)
    low, high = np.array(panels[:-1])[:, None], np.array(panels[1:])[:, None]
    u = (low + 0.5 * (high - low) * (roots + 1.0)).ravel()
    w = (0.5 * (high - low) * weights).ravel()
    return np.asarray(distribution.quantile(u)), w


@lru_cache(maxsize=16)
def _gauss(nodes: int) -> Atoms:
    return np.polynomial.legendre.leggauss(nodes)


def _uniform(low: float, high: float) -> Stage:
    width = high - low

    def transform(s: ComplexArray) -> ComplexArray:
        return _evenly(s * width)

    second = (low**2 + low * high + high**2) / 3.0
    third = (low + high) * (low**2 + high**2) / 4.0
    whole = Uniform(low=low, high=high)
    return Stage(
        (low + high) / 2.0, second, third, low, _NO_ATOMS, transform, lambda: nodes_of(whole, nodes=_FINE_NODES)
    )


def _evenly(z: ComplexArray) -> ComplexArray:
    """(1 - exp(-z)) / z, the transform of what is uniform from 0 to 1."""
    small = np.abs(z) < 1e-4
    safe = np.where(small, 1.0, z)
    return np.where(small, 1.0 - z / 2.0 + z * z / 6.0, -np.expm1(-safe) / safe)


def _empirical(quantiles: FloatArray) -> Stage:
    """Equally likely pieces, uniform between neighbouring quantiles; equal neighbours are atoms."""
    if quantiles[0] == quantiles[-1]:
        return _constant(float(quantiles[0]))
    low, high = quantiles[:-1], quantiles[1:]
    shift = float(low[0])
    points, counts = np.unique(low[low == high] - shift, return_counts=True)
    heavy = counts >= STEP * len(low)

    def transform(s: ComplexArray) -> ComplexArray:
        from_low = np.exp(-np.multiply.outer(s, low - shift)) * _evenly(np.multiply.outer(s, high - low))
        return np.asarray(from_low.mean(axis=-1))

    second = float(np.mean((low**2 + low * high + high**2) / 3.0))
    third = float(np.mean((low + high) * (low**2 + high**2) / 4.0))
    mean, atoms = float(np.mean((low + high) / 2.0)), (points[heavy], counts[heavy] / len(low))
    # The middle of each piece, with its mean.
    middles = (0.5 * (low + high), np.full(len(low), 1.0 / len(low)))
    return Stage(mean, second, third, shift, atoms, transform, lambda: middles, is_closed=False)
