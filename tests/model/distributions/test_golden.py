"""Figures known from elsewhere: textbook values, the papers' check values, high-precision arithmetic."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from tidings.model.distributions import (
    Deterministic,
    Empirical,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
    Zipf,
)


def test_squared_coefficients_of_variation() -> None:
    assert Deterministic(value=3.0).scv() == 0.0
    assert Deterministic(value=0.0).scv() == 0.0
    assert Uniform(low=0.0, high=2.0).scv() == pytest.approx(1.0 / 3.0, rel=1e-15)
    assert Exponential(scale=7.0).scv() == pytest.approx(1.0, rel=1e-15)
    assert Hypoexponential.erlang(phases=4, rate=2.0).scv() == pytest.approx(0.25, rel=1e-15)
    assert LogNormal(median=1.0, sigma=0.6).scv() == pytest.approx(math.expm1(0.36), rel=1e-14)
    assert TruncatedNormal(location=0.0, scale=5.0).scv() == pytest.approx(math.pi / 2.0 - 1.0, rel=1e-14)


def test_two_brokers_in_tandem() -> None:
    """Sojourn through two M/M/1 brokers, lambda = 5/s and mu = 10/s, within 1 s: Erlang-2 of rate 5."""
    assert Hypoexponential.erlang(phases=2, rate=5.0).cdf(1.0) == pytest.approx(0.959572318, abs=5e-10)
    assert 1.0 - 6.0 * math.exp(-5.0) == pytest.approx(0.959572318, abs=5e-10)


def test_share_of_a_slow_link_below_zero() -> None:
    """Slowness 50 to 100 ms/kB with sd 20: at mean 50 the untruncated normal is negative in .62 % of cases."""
    distribution = TruncatedNormal(location=50.0, scale=20.0)
    below = 0.5 * math.erfc(2.5 / math.sqrt(2.0))
    assert below == pytest.approx(0.0062, abs=1e-4)
    assert distribution.cdf(50.0) == pytest.approx((0.5 - below) / (1.0 - below), rel=1e-14)


def survival_in_60_digits(rates: tuple[float, ...], x: float) -> float:
    """The textbook partial fractions, with digits enough to survive their own cancellation."""
    with localcontext() as context:
        context.prec = 60
        exact = [Decimal(rate) for rate in rates]
        total = Decimal(0)
        for i, rate in enumerate(exact):
            weight = Decimal(1)
            for j, other in enumerate(exact):
                weight *= other / (other - rate) if j != i else 1
            total += weight * (-rate * Decimal(x)).exp()
        return float(total)


@pytest.mark.parametrize(
    "rates",
    [(3.0, 3.0000001), (1000.0, 3.0, 3.0000001, 7.0, 2.0), (1e6, 1.0, 1.0000000001), (3.0, 3.0 + 1e-12, 3.0 - 1e-12)],
)
def test_nearly_equal_rates_lose_no_digits(rates: tuple[float, ...]) -> None:
    distribution = Hypoexponential(rates=rates)
    x = [0.1, 1.0, 5.0]
    expected = np.array([1.0 - survival_in_60_digits(rates, point) for point in x])
    np.testing.assert_allclose(distribution.cdf(x), expected, rtol=0.0, atol=2e-15)
    # Above 64 points another way of computing is taken; it must say the same.
    np.testing.assert_allclose(distribution.cdf(np.repeat(x, 50)), np.repeat(expected, 50), rtol=0.0, atol=1e-14)


def test_a_very_fast_stage_only_adds_its_mean() -> None:
    distribution = Hypoexponential(rates=(1e6, 1.0))
    assert distribution.quantile(0.5) == pytest.approx(math.log(2.0) + 1e-6, rel=1e-9)


def test_phase_type_moments() -> None:
    for scv in (1.0 / 64.0, 0.1, 0.25, 0.37, 0.5, 0.99, 1.0, 2.5, 40.0):
        distribution = PhaseType.from_moments(mean=0.3, scv=scv)
        assert distribution.mean() == pytest.approx(0.3, rel=1e-10)
        assert distribution.scv() == pytest.approx(scv, rel=1e-8)
    assert PhaseType.from_moments(mean=0.3, scv=0.0).scv() == pytest.approx(1.0 / 64.0, rel=1e-10)
    assert len(PhaseType.from_moments(mean=1.0, scv=0.37).alpha) == 3


def test_repair_of_a_two_state_component() -> None:
    """Absorption of a cyclic chain, by hand: m1 = 1/3 + 2/3 m2, m2 = 2/3 + 2/3 m1, so m1 = 1.4, m2 = 1.6."""
    distribution = PhaseType(alpha=(0.7, 0.3), sub_generator=((-3.0, 2.0), (1.0, -1.5)))
    assert distribution.mean() == pytest.approx(0.7 * 1.4 + 0.3 * 1.6, rel=1e-14)


def test_clipped_link_delay() -> None:
    """The one-way link of the timeliness experiments: median 40 ms, sigma .6, clipped to 5-200 ms."""
    distribution = LogNormal(median=0.040, sigma=0.6, low=0.005, high=0.200)
    upper = 0.5 * math.erfc(math.log(5.0) / 0.6 / math.sqrt(2.0))
    lower = 0.5 * math.erfc(math.log(8.0) / 0.6 / math.sqrt(2.0))
    assert distribution.atoms() == ((0.005, pytest.approx(lower)), (0.200, pytest.approx(upper)))
    assert distribution.cdf(0.2) == 1.0
    assert distribution.cdf(0.2 - 1e-12) == pytest.approx(1.0 - upper, abs=1e-9)
    assert distribution.cdf(0.005) == pytest.approx(lower, rel=1e-9)
    assert distribution.cdf(0.005 - 1e-12) == 0.0
    assert distribution.quantile([0.0, 0.5, 1.0]).tolist() == [0.005, pytest.approx(0.040), 0.200]
    assert distribution.mean() < LogNormal(median=0.040, sigma=0.6).mean()


def test_clips_beyond_all_mass_change_nothing() -> None:
    plain = LogNormal(median=1.0, sigma=0.5)
    clipped = LogNormal(median=1.0, sigma=0.5, low=1e-9, high=1e9)
    assert clipped.mean() == pytest.approx(plain.mean(), rel=1e-13)
    assert clipped.variance() == pytest.approx(plain.variance(), rel=1e-12)


def test_empirical_moments_by_hand() -> None:
    """Half of the mass uniform on [0, 1], half on [1, 3]: mean 1.25, E X^2 = (1/3 + 13/3) / 2."""
    distribution = Empirical(quantiles=(0.0, 1.0, 3.0))
    assert distribution.mean() == pytest.approx(1.25, rel=1e-15)
    assert distribution.variance() == pytest.approx(14.0 / 6.0 - 1.25**2, rel=1e-14)
    assert distribution.cdf([0.5, 1.0, 2.0]).tolist() == [0.25, 0.5, 0.75]
    assert distribution.pdf([0.5, 2.0, 3.5]).tolist() == [0.5, 0.25, 0.0]


def test_empirical_atoms() -> None:
    distribution = Empirical(quantiles=(0.0, 1.0, 1.0, 1.0, 2.0, 5.0))
    assert distribution.atoms() == ((1.0, pytest.approx(0.4)),)
    assert distribution.cdf([np.nextafter(1.0, 0.0), 1.0]).tolist() == pytest.approx([0.2, 0.6])
    assert Empirical(quantiles=(2.0, 2.0)).variance() == 0.0
    assert Empirical(quantiles=(2.0, 2.0)).cdf([1.9, 2.0]).tolist() == [0.0, 1.0]


def test_weibull_and_gamma_contain_the_exponential() -> None:
    x = np.linspace(0.0, 10.0, 50)
    expected = Exponential(scale=2.0).cdf(x)
    np.testing.assert_allclose(Weibull(shape=1.0, scale=2.0).cdf(x), expected, rtol=1e-14)
    np.testing.assert_allclose(ShiftedGamma(shift=0.0, shape=1.0, scale=2.0).cdf(x), expected, rtol=1e-13)
    np.testing.assert_allclose(Hypoexponential(rates=(0.5,)).cdf(x), expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(PhaseType.from_moments(mean=2.0, scv=1.0).cdf(x), expected, rtol=1e-13, atol=1e-15)


def test_weibull_far_out_has_no_density() -> None:
    assert Weibull(shape=3.0, scale=1.0).pdf([1e200, 1e3]).tolist() == [0.0, 0.0]
    assert Weibull(shape=0.5, scale=1.0).pdf(0.0) == np.inf


def test_zipf_by_hand() -> None:
    distribution = Zipf(count=3, exponent=1.0)
    assert distribution.pmf([1, 2, 3, 4, 0, 1.5]).tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11, 0.0, 0.0, 0.0])
    assert distribution.mean() == pytest.approx(18 / 11)
    assert distribution.variance() == pytest.approx(36 / 11 - (18 / 11) ** 2)
    assert Zipf(count=10, exponent=0.0).scv() == pytest.approx((99 / 12) / 5.5**2)
