"""The compiled samplers against the laws' own distribution functions.

Margin: a Kolmogorov-Smirnov distance above 2.2 / sqrt(n) has a chance of about 1e-4, and seeds are fixed.
"""

import math

import numpy as np
import pytest

from tidings.compiled import lend
from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Discrete,
    Empirical,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
    ks_distance,
)
from tidings.simulation._draws import draw, encode, uniform, whole_ns

COUNT = 20_000
LAWS: list[DelayDistribution] = [
    Deterministic(value=2.5),
    Exponential(scale=0.2),
    Uniform(low=1.0, high=3.0),
    TruncatedNormal(location=0.5, scale=1.0),
    TruncatedNormal(location=75.0, scale=20.0),
    ShiftedGamma(shift=1.0, shape=0.4, scale=2.0),
    ShiftedGamma(shift=0.0, shape=3.5, scale=0.1),
    LogNormal(median=40.0, sigma=0.6),
    LogNormal(median=40.0, sigma=0.6, low=20.0, high=90.0),
    Weibull(shape=0.7, scale=2.0),
    Hypoexponential(rates=(1.0, 5.0, 5.0)),
    PhaseType.from_moments(mean=2.0, scv=4.0),
    PhaseType.from_moments(mean=2.0, scv=0.3),
    PhaseType(alpha=(0.6, 0.4), sub_generator=((-2.0, 1.0), (0.5, -1.0))),
    Empirical(quantiles=(0.0, 1.0, 1.0, 4.0, 9.0)),
    Discrete(values=(5.0, 1.0, 2.0), weights=(1.0, 7.0, 2.0)),
]


@pytest.mark.parametrize("distribution", LAWS, ids=lambda distribution: type(distribution).__name__)
def test_draws_follow_the_distribution(distribution: DelayDistribution) -> None:
    distributions = lend(encode([distribution], seed=3, part=0))
    drawn = np.array([draw(distributions, 0) for _ in range(COUNT)])
    assert ks_distance(distribution, drawn) < 2.2 / math.sqrt(COUNT)


def test_streams_are_their_own() -> None:
    """What one law draws does not depend on the laws beside it, nor on how often they draw."""
    alone = lend(encode([Exponential(scale=1.0)], seed=3, part=0))
    among = lend(encode([Exponential(scale=1.0), Uniform(low=0.0, high=1.0)], seed=3, part=0))
    first = [draw(alone, 0) for _ in range(50)]
    second = []
    for _ in range(50):
        draw(among, 1)
        second.append(draw(among, 0))
    assert first == second
    other = lend(encode([Exponential(scale=1.0)], seed=4, part=0))
    assert draw(other, 0) != first[0]


def test_uniform_numbers_are_uniform_and_uncorrelated() -> None:
    """Margins: 4 standard errors of a mean of n uniforms and of a lag-one correlation."""
    distributions = lend(encode([Uniform(low=0.0, high=1.0)], seed=9, part=1))
    u = np.array([uniform(distributions, 0) for _ in range(COUNT)])
    assert 0.0 <= u.min() <= u.max() < 1.0
    assert abs(u.mean() - 0.5) < 4 * math.sqrt(1 / 12 / COUNT)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4 / math.sqrt(COUNT)


def test_nanoseconds_are_rounded_and_bounded() -> None:
    assert whole_ns(0.1) == 100_000_000
    assert whole_ns(1.4e-9) == 1
    assert 0 < whole_ns(math.inf) < 2**62
