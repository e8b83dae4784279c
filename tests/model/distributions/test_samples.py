"""Distributions made from samples, and their distance from samples."""

import numpy as np
import pytest

from tidings.model.distributions import (
    Deterministic,
    Empirical,
    Hypoexponential,
    PhaseType,
    Uniform,
    ks_distance,
)

SAMPLES = 20_000


@pytest.mark.parametrize("rates", [(2.0, 9.0), (2.0, 5.0, 5.0), (1.0, 1.0, 1.0, 1.0)])
def test_hypoexponential_fit_follows_the_distribution(rates: tuple[float, ...], rng: np.random.Generator) -> None:
    """Single rates are hard to tell from samples; the distribution is not: within .012 (about 1.7 / sqrt(n)) of the
    truth."""
    distribution = Hypoexponential(rates=rates)
    x = np.linspace(0.0, distribution.quantile(0.9999), 500)
    for phases in (None, len(rates)):
        fitted = Hypoexponential.fit(distribution.sample(rng, SAMPLES), phases=phases)
        assert fitted.mean() == pytest.approx(distribution.mean(), rel=0.03)
        assert fitted.scv() == pytest.approx(distribution.scv(), rel=0.1)
        assert np.abs(fitted.cdf(x) - distribution.cdf(x)).max() < 0.012
        assert phases is None or len(fitted.rates) == phases


def test_hypoexponential_fit_separates_well_separated_rates(rng: np.random.Generator) -> None:
    fitted = Hypoexponential.fit(Hypoexponential(rates=(1.0, 10.0)).sample(rng, 100_000), phases=2)
    assert fitted.rates[0] == pytest.approx(1.0, rel=0.03)
    assert fitted.rates[1] == pytest.approx(10.0, rel=0.15)


def test_hypoexponential_fit_of_what_varies_more_is_nearly_exponential(rng: np.random.Generator) -> None:
    fitted = Hypoexponential.fit(PhaseType.from_moments(mean=2.0, scv=3.0).sample(rng, SAMPLES))
    assert 0.9 < fitted.scv() < 1.0


def test_empirical_fit_stays_within_one_step_of_the_samples(rng: np.random.Generator) -> None:
    samples = rng.lognormal(0.0, 1.0, SAMPLES)
    for n, margin in ((11, 0.015), (257, 0.002), (1001, 0.001)):
        fitted = Empirical.from_samples(samples, n)
        assert len(fitted.quantiles) == n
        assert ks_distance(fitted, samples) <= 1.0 / (n - 1) + 1.0 / SAMPLES
        assert fitted.mean() == pytest.approx(samples.mean(), rel=margin)
    assert Empirical.from_samples([0.1, 0.1]).quantiles == (0.1,) * 257


def test_ks_distance_counts_atoms_on_both_sides() -> None:
    assert ks_distance(Deterministic(value=2.0), [2.0, 2.0]) == 0.0
    assert ks_distance(Deterministic(value=2.0), [1.0, 2.0, 3.0]) == pytest.approx(1.0 / 3.0)
    assert ks_distance(Uniform(low=0.0, high=1.0), [0.5]) == 0.5
