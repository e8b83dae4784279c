"""Check values of the errata, to 1e-9, and the laws against draws and against each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.ordering import (
    LaplaceSum,
    bernstein,
    cantelli,
    chebyshev,
    chernoff,
    fit_likelihood,
    fit_moment,
    latch_time,
    log_likelihood,
    two_laplacians_cdf,
    two_laplacians_pdf,
    two_laplacians_quantile,
    violation_probability,
)

X = [0.5, -1.0, 2.0, -3.5, 0.25]
scales = st.floats(1e-6, 1e6)


def close(value: object, wanted: float, within: float = 1e-9) -> bool:
    return abs(float(np.asarray(value)) - wanted) < within


@pytest.mark.parametrize(("p", "wanted"), [(0.8, 1.466203435), (0.95, 3.271812060), (0.99, 5.191820109)])
def test_the_quantile_is_on_the_lower_branch(p: float, wanted: float) -> None:
    assert close(two_laplacians_quantile(p, 1.0), wanted)
    assert close(two_laplacians_quantile(1.0 - p, 1.0), -wanted)
    assert close(two_laplacians_cdf(wanted, 1.0), p)


def test_the_upper_branch_would_be_wrong() -> None:
    """What the printed sign with the other branch gives at p = .95 has a tail of .138186."""
    assert close(violation_probability(1.0, 1.972169061), 0.138186, 1e-6)


def test_latch_and_violation() -> None:
    assert close(latch_time(2.0, 1.0, 0.05), 5.543624121)
    assert close(latch_time(2.0, 1.0, 0.2), 1.932406871)
    assert close(violation_probability(2.0, 1.0), 0.379081662)
    assert latch_time(2.0, [1.0, 100.0], 0.05).tolist() == [latch_time(2.0, 1.0, 0.05).item(), 0.0]
    assert latch_time([[1.0], [2.0]], [1.0, 2.0, 3.0], 0.05).shape == (2, 3)


def test_without_any_variation_nothing_overtakes() -> None:
    assert violation_probability(0.0, [0.0, 1.0, -1.0]).tolist() == [0.5, 0.0, 1.0]
    assert latch_time(0.0, 1.0, 0.05) == 0.0


@pytest.mark.parametrize("probability", [0.0, 0.6, -0.1])
def test_a_probability_that_no_latch_can_meet_is_refused(probability: float) -> None:
    with pytest.raises(InputError, match="violation_probability"):
        latch_time(1.0, 1.0, probability)


@pytest.mark.parametrize("scale", [-1.0, float("nan")])
def test_a_scale_is_a_number_and_not_negative(scale: float) -> None:
    with pytest.raises(InputError, match="scale"):
        violation_probability(scale, 1.0)


def test_estimators() -> None:
    assert close(fit_moment(X), 0.9666666667, 1e-9)
    assert close(fit_likelihood(X), 0.9647885, 1e-7)
    assert close(log_likelihood(X, 0.966667), -10.252928, 1e-6)
    assert fit_likelihood([0.0, 0.0]) == 0.0
    with pytest.raises(InputError, match="at least one"):
        fit_moment([])


@settings(deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30).filter(lambda xs: any(abs(x) > 1e-3 for x in xs)))
def test_no_scale_is_more_likely_than_the_most_likely(samples: list[float]) -> None:
    best = fit_likelihood(samples)
    for other in (0.99 * best, 1.01 * best, fit_moment(samples)):
        assert log_likelihood(samples, best) >= log_likelihood(samples, other) - 1e-9 * abs(
            log_likelihood(samples, other)
        )


@settings(deadline=None)
@given(scales, st.floats(0.001, 0.5))
def test_the_latch_brings_the_probability_down_to_what_is_wanted(scale: float, wanted: float) -> None:
    latch = latch_time(scale, 0.0, wanted)
    assert violation_probability(scale, latch) == pytest.approx(wanted, rel=1e-9)


def test_density_is_the_slope_of_the_cdf() -> None:
    x = np.linspace(-6.0, 6.0, 41)
    slope = (two_laplacians_cdf(x + 1e-5, 0.7) - two_laplacians_cdf(x - 1e-5, 0.7)) / 2e-5
    assert np.abs(slope - two_laplacians_pdf(x, 0.7)).max() < 1e-9


def test_two_equal_scales_are_the_closed_form() -> None:
    x = np.linspace(-8.0, 8.0, 33)
    distribution = LaplaceSum.equal(count=2, scale=0.7)
    assert np.abs(distribution.pdf(x) - two_laplacians_pdf(x, 0.7)).max() < 1e-12
    assert np.abs(distribution.cdf(x) - two_laplacians_cdf(x, 0.7)).max() < 1e-12
    assert close(distribution.quantile(0.95), 0.7 * 3.271812060356293)


def test_different_scales_against_partial_fractions() -> None:
    """For distinct scales the characteristic function splits: a signed mixture of Laplacians."""
    scales = np.array([1.0, 2.0, 0.3])
    x = np.array([0.1, 1.0, 5.0])
    weights = [b**4 / np.prod([b**2 - c**2 for c in scales if c != b]) for b in scales]
    tail = sum(w * 0.5 * np.exp(-x / b) for w, b in zip(weights, scales, strict=True))
    assert np.abs(1.0 - LaplaceSum(scales=tuple(scales.tolist())).cdf(x) - tail).max() < 1e-12


def test_sums_against_draws() -> None:
    distribution = LaplaceSum(scales=(1.0, 1.0, 2.0, 0.5, 1.0))
    draws = distribution.sample(np.random.default_rng(4), 200_000)
    assert abs(draws.var() / distribution.variance() - 1.0) < 0.03  # four standard errors are .023
    for x in (-3.0, 0.0, 2.0, 6.0):
        assert abs((draws <= x).mean() - float(distribution.cdf(x))) < 0.005  # four standard errors
    with pytest.raises(InputError, match="positive"):
        LaplaceSum(scales=(1.0, 0.0))


def test_bounds() -> None:
    assert close(chebyshev(4.0, 0.05), 6.324555320)
    assert close(cantelli(4.0, 0.05), 8.717797887)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5), st.floats(1e-4, 0.4))
def test_every_bound_is_one_and_chernoff_is_the_best_exponential(scales: list[float], p: float) -> None:
    distribution = LaplaceSum(scales=tuple(scales))
    exact = float(distribution.quantile(1.0 - p))
    found = [bound(distribution.variance(), p).item() for bound in (chebyshev, cantelli)]
    found += [bound(scales, p).item() for bound in (bernstein, chernoff)]
    assert min(found) > exact * (1.0 - 1e-9)
    assert found[3] <= found[2] * (1.0 + 1e-9)
