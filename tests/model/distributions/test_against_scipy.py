"""The distributions that scipy.stats has too must agree with it."""

from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from tidings.model.distributions import (
    DelayDistribution,
    Exponential,
    Hypoexponential,
    LogNormal,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
    Zipf,
    ks_distance,
)

PAIRS: list[tuple[DelayDistribution, Any]] = [
    (Exponential(scale=0.002), stats.expon(scale=0.002)),
    (Uniform(low=1.0, high=3.0), stats.uniform(loc=1.0, scale=2.0)),
    (TruncatedNormal(location=75.0, scale=20.0), stats.truncnorm(a=-3.75, b=np.inf, loc=75.0, scale=20.0)),
    (TruncatedNormal(location=0.5, scale=1.0), stats.truncnorm(a=-0.5, b=np.inf, loc=0.5, scale=1.0)),
    (TruncatedNormal(location=0.0, scale=2.0), stats.halfnorm(scale=2.0)),
    (ShiftedGamma(shift=0.01, shape=2.5, scale=0.004), stats.gamma(2.5, loc=0.01, scale=0.004)),
    (ShiftedGamma(shift=0.5, shape=0.7, scale=2.0), stats.gamma(0.7, loc=0.5, scale=2.0)),
    (LogNormal(median=0.01, sigma=0.6), stats.lognorm(0.6, scale=0.01)),
    (Weibull(shape=1.7, scale=3600.0), stats.weibull_min(1.7, scale=3600.0)),
    (Weibull(shape=0.7, scale=10.0), stats.weibull_min(0.7, scale=10.0)),
    (Hypoexponential.erlang(phases=4, rate=3.0), stats.erlang(4, scale=1.0 / 3.0)),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=[repr(ours) for ours, _ in PAIRS])
def test_agrees_with_scipy(ours: DelayDistribution, theirs: Any) -> None:
    p = np.concatenate(([1e-9, 1e-6], np.linspace(0.001, 0.999, 100), [1.0 - 1e-9]))
    x = np.concatenate(([-1.0], theirs.ppf(p)))
    assert ours.mean() == pytest.approx(theirs.mean(), rel=1e-12)
    assert ours.variance() == pytest.approx(theirs.var(), rel=1e-9)
    np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(ours.pdf(x), theirs.pdf(x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.quantile(p[1:]), theirs.ppf(p[1:]), rtol=1e-8)


def test_hypoexponential_agrees_with_a_numerical_convolution() -> None:
    rates = (5.0, 2.0)
    for x in (0.1, 0.7, 2.5):
        expected, _ = integrate.quad(
            lambda t, x=x: stats.expon.pdf(t, scale=0.2) * stats.expon.cdf(x - t, scale=0.5), 0, x
        )
        assert Hypoexponential(rates=rates).cdf(x) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("count", "exponent"), [(10, 1.0), (1000, 0.8), (50, 0.0), (7, 2.5)])
def test_zipf_agrees_with_scipy(count: int, exponent: float) -> None:
    ours, theirs = Zipf(count=count, exponent=exponent), stats.zipfian(exponent, count)
    ranks = np.arange(0, count + 2)
    np.testing.assert_allclose(ours.pmf(ranks), theirs.pmf(ranks), rtol=1e-11)
    np.testing.assert_allclose(ours.cdf(ranks), theirs.cdf(ranks), rtol=1e-11)
    assert ours.mean() == pytest.approx(theirs.mean(), rel=1e-11)
    assert ours.variance() == pytest.approx(theirs.var(), rel=1e-9)


def test_ks_distance_agrees_with_scipy(rng: np.random.Generator) -> None:
    x = rng.exponential(1.1, 500)
    assert ks_distance(Exponential(scale=1.0), x) == pytest.approx(stats.kstest(x, "expon").statistic, rel=1e-12)
