"""Sums of exponential stages and their generalisation: hypoexponential and phase-type distributions.

Hypoexponential: the sum of independent exponentials with the given rates, the delay through a row of brokers (paper A,
section 3.3; two M/M/1 brokers in tandem are Erlang-2 of rate mu - lambda). Phase-type: the time until a finite Markov
chain is absorbed; dense among all distributions on [0, inf), which is why two moments of anything can be matched by
one.
"""

import math
from abc import abstractmethod
from typing import Self

import msgspec
import numpy as np

from tidings.model.distributions import _phases
from tidings.model.distributions._base import ContinuousDistribution, Shape
from tidings.model.distributions._errors import (
    DistributionError,
    FloatArray,
    Samples,
    check_whole,
    refuse,
    settle_numbers,
    settle_samples,
)
from tidings.model.distributions._stages import fit_rates

# The most phases that a fit will use; a smaller scv than 1 / MAX_FITTED_PHASES is met with that one instead.
MAX_FITTED_PHASES = 64
_TOLERANCE = 1e-9


class _PhaseTypeBase(ContinuousDistribution, frozen=True, kw_only=True):
    """The common part of both distributions: an initial vector and a sub-generator."""

    @abstractmethod
    def _chain(self) -> tuple[FloatArray, FloatArray]:
        """Defined by each distribution."""

    def _pdf(self, x: FloatArray) -> FloatArray:
        return _phases.survival_and_density(*self._chain(), x)[1]

    def _cdf(self, x: FloatArray) -> FloatArray:
        return 1.0 - _phases.survival_and_density(*self._chain(), x)[0]

    def _quantile(self, p: FloatArray) -> FloatArray:
        return _phases.quantiles(*self._chain(), p)


class Hypoexponential(_PhaseTypeBase, frozen=True, kw_only=True, tag="hypoexponential"):
    """The sum of independent exponentials, one per rate; equal and nearly equal rates are fine."""

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        remedy = "write one rate per stage, such as rates = [500.0, 200.0]"
        for position, rate in enumerate(settle_numbers(self, "rates", remedy=remedy)):
            if rate <= 0.0:
                raise refuse(self, "rates", f"above 0 throughout (position {position})", rate, remedy)

    @classmethod
    def erlang(cls, *, phases: int, rate: float) -> Self:
        """The sum of `phases` exponentials of the same rate: mean phases / rate, scv 1 / phases."""
        check_whole("hypoexponential: `phases`", phases, at_least=1)
        return cls(rates=(rate,) * phases)

    @classmethod
    def fit(cls, samples: Samples, *, phases: int | None = None) -> Self:
        """Maximum likelihood of the samples counted in equal cells, started from mean and variance.

        Without `phases`, stages are added from 2 on (to 8 at most) for as long as that lowers the AIC. A stage much
        shorter than the rest may come out with a very high rate: the samples do not show it.
        """
        if phases is not None:
            check_whole("hypoexponential: `phases`", phases, at_least=1)
        return cls(rates=fit_rates(settle_samples(cls, samples, distinct=2), phases))

    def mean(self) -> float:
        return math.fsum(1.0 / rate for rate in self.rates)

    def variance(self) -> float:
        return math.fsum(1.0 / rate**2 for rate in self.rates)

    def _chain(self) -> tuple[FloatArray, FloatArray]:
        rates = np.array(self.rates)
        alpha = np.zeros(rates.size)
        alpha[0] = 1.0
        return alpha, np.diag(-rates) + np.diag(rates[:-1], 1)

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        total = np.zeros(size)
        for rate in self.rates:
            total += rng.exponential(1.0 / rate, size)
        return total


class PhaseType(_PhaseTypeBase, frozen=True, kw_only=True, tag="phase-type"):
    """Time to absorption of a Markov chain: ``alpha`` is its initial vector, ``sub_generator`` holds its rates.

    Row i of the sub-generator holds minus the total rate of leaving phase i on the diagonal and the rates to the other
    phases beside it; the missing part of a row sum of 0 is the rate of absorption. Absorption must be certain.
    """

    alpha: tuple[float, ...]
    sub_generator: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        remedy = "write one starting probability per phase, such as alpha = [1.0, 0.0]"
        alpha = np.array(settle_numbers(self, "alpha", remedy=remedy))
        if (alpha < 0.0).any() or abs(alpha.sum() - 1.0) > _TOLERANCE:
            raise refuse(self, "alpha", "probabilities that sum to 1", list(self.alpha), remedy)
        self._settle_rows()
        self._check_generator(np.array(self.sub_generator))

    def _settle_rows(self) -> None:
        remedy = "write one row per phase, such as sub_generator = [[-2.0, 2.0], [0.0, -1.0]]"
        size = len(self.alpha)
        try:
            matrix = np.array(self.sub_generator, dtype=np.float64)
        except (TypeError, ValueError):
            matrix = np.empty(0)
        if matrix.shape != (size, size) or not np.isfinite(matrix).all():
            rule = f"a {size} x {size} matrix of finite numbers, as `alpha` has {size} phases"
            raise refuse(self, "sub_generator", rule, self.sub_generator, remedy)
        msgspec.structs.force_setattr(self, "sub_generator", tuple(tuple(row) for row in matrix.tolist()))

    def _check_generator(self, matrix: FloatArray) -> None:
        leaving = -np.diag(matrix)
        for row, total in enumerate(leaving):
            if total <= 0.0:
                raise refuse(
                    self,
                    "sub_generator",
                    f"negative on the diagonal (row {row})",
                    -float(total),
                    "write minus the total rate of leaving the phase",
                )
            others = np.delete(matrix[row], row)
            if (others < 0.0).any():
                raise refuse(
                    self,
                    "sub_generator",
                    f">= 0 off the diagonal (row {row})",
                    float(others.min()),
                    "write rates to other phases as positive numbers",
                )
            if others.sum() > total * (1.0 + _TOLERANCE):
                raise refuse(
                    self,
                    "sub_generator",
                    f"of row sums <= 0 (row {row})",
                    float(matrix[row].sum()),
                    "lower the rates to other phases or make the diagonal more negative",
                )
        absorbs = -matrix.sum(axis=1) > _TOLERANCE * leaving
        for _ in range(leaving.size):
            absorbs |= (matrix[:, absorbs] > 0.0).any(axis=1)
        if not absorbs.all():
            stuck = [int(row) for row in np.flatnonzero(~absorbs)]
            raise refuse(
                self,
                "sub_generator",
                f"left by every phase in the end (rows {stuck} never do)",
                [self.sub_generator[row] for row in stuck],
                "let a row sum be below 0 there",
            )

    @classmethod
    def from_moments(cls, *, mean: float, scv: float) -> Self:
        """The smallest well-known distribution with this mean and squared coefficient of variation.

        scv < 1: with probability p an Erlang of k - 1 stages, else of k, all of one rate, where 1/k <= scv <= 1/(k-1).
        scv >= 1: a mixture of two exponentials that contribute half of the mean each (balanced means).
        An scv below 1/64 would need more than 64 phases and is met with 1/64.
        """
        for name, value, least in (("mean", mean, "> 0"), ("scv", scv, ">= 0")):
            if not math.isfinite(value) or value < 0.0 or (name == "mean" and value == 0.0):
                raise DistributionError(f"phase-type: `{name}` must be a finite number {least}, not {value!r}")
        if scv >= 1.0:
            share = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
            rates = (2.0 * share / mean, 2.0 * (1.0 - share) / mean)
            return cls(alpha=(share, 1.0 - share), sub_generator=((-rates[0], 0.0), (0.0, -rates[1])))
        scv = max(scv, 1.0 / MAX_FITTED_PHASES)
        k = min(math.ceil(1.0 / scv), MAX_FITTED_PHASES)
        root = math.sqrt(max(0.0, k * (1.0 + scv) - k * k * scv))
        skip = min(max((k * scv - root) / (1.0 + scv), 0.0), 1.0)
        rate = (k - skip) / mean
        sub = np.diag(np.full(k, -rate)) + np.diag(np.full(k - 1, rate), 1)
        alpha = (1.0 - skip, skip, *([0.0] * (k - 2)))
        return cls(alpha=alpha, sub_generator=tuple(tuple(row) for row in sub.tolist()))

    def mean(self) -> float:
        return _phases.moments(*self._chain())[0]

    def variance(self) -> float:
        return _phases.moments(*self._chain())[1]

    def _chain(self) -> tuple[FloatArray, FloatArray]:
        return np.array(self.alpha), np.array(self.sub_generator)

    def _sample(self, rng: np.random.Generator, size: Shape) -> FloatArray:
        count = math.prod(size) if isinstance(size, tuple) else size
        return _phases.sample_chain(*self._chain(), rng, count).reshape(size)
