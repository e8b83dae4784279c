"""Fitting: parameters come back, fitted moments are the samples', and the right law is chosen."""

import numpy as np
import pytest

from tidings.model.distributions import (
    DEFAULT_LAWS,
    DelayDistribution,
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
    fit_best,
    ks_distance,
    ks_limit,
)

SAMPLES = 20_000

# Margins are relative, at least five standard errors of the estimator at 20,000 samples.
RECOVERED: list[tuple[DelayDistribution, dict[str, float]]] = [
    (Deterministic(value=0.25), {"value": 0.0}),
    (Exponential(scale=0.002), {"scale": 0.036}),
    (Uniform(low=1.0, high=3.0), {"low": 0.002, "high": 0.001}),
    (TruncatedNormal(location=75.0, scale=20.0), {"location": 0.01, "scale": 0.03}),
    (TruncatedNormal(location=1.0, scale=1.0), {"location": 0.15, "scale": 0.08}),
    (ShiftedGamma(shift=0.010, shape=2.0, scale=0.005), {"shift": 0.03, "shape": 0.12, "scale": 0.1}),
    (ShiftedGamma(shift=0.010, shape=0.6, scale=0.005), {"shift": 0.001, "shape": 0.05, "scale": 0.08}),
    (LogNormal(median=0.040, sigma=0.6), {"median": 0.022, "sigma": 0.026}),
    (Weibull(shape=0.7, scale=3600.0), {"shape": 0.03, "scale": 0.055}),
    (Weibull(shape=3.0, scale=2.0), {"shape": 0.03, "scale": 0.013}),
]


@pytest.mark.parametrize(("law", "margins"), RECOVERED, ids=[repr(law) for law, _ in RECOVERED])
def test_fit_recovers_the_parameters(
    law: DelayDistribution, margins: dict[str, float], rng: np.random.Generator
) -> None:
    fitted = type(law).fit(law.sample(rng, SAMPLES))
    for field, margin in margins.items():
        assert getattr(fitted, field) == pytest.approx(getattr(law, field), rel=margin)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_fits_do_not_depend_on_the_unit(unit: float, rng: np.random.Generator) -> None:
    samples = ShiftedGamma(shift=1.0, shape=2.0, scale=0.5).sample(rng, 2000)
    for kind in DEFAULT_LAWS:
        plain, scaled = kind.fit(samples), kind.fit(samples * unit)
        assert scaled.mean() == pytest.approx(plain.mean() * unit, rel=1e-3)
        assert scaled.scv() == pytest.approx(plain.scv(), rel=2e-2, abs=1e-12)


@pytest.mark.parametrize("rates", [(2.0, 9.0), (2.0, 5.0, 5.0), (1.0, 1.0, 1.0, 1.0)])
def test_hypoexponential_fit_follows_the_law(rates: tuple[float, ...], rng: np.random.Generator) -> None:
    """Single rates are hard to tell from samples; the law is not: within .012 (about 1.7 / sqrt(n)) of the truth."""
    law = Hypoexponential(rates=rates)
    x = np.linspace(0.0, law.quantile(0.9999), 500)
    for phases in (None, len(rates)):
        fitted = Hypoexponential.fit(law.sample(rng, SAMPLES), phases=phases)
        assert fitted.mean() == pytest.approx(law.mean(), rel=0.03)
        assert fitted.scv() == pytest.approx(law.scv(), rel=0.1)
        assert np.abs(fitted.cdf(x) - law.cdf(x)).max() < 0.012
        assert phases is None or len(fitted.rates) == phases


def test_hypoexponential_fit_separates_well_separated_rates(rng: np.random.Generator) -> None:
    fitted = Hypoexponential.fit(Hypoexponential(rates=(1.0, 10.0)).sample(rng, 100_000), phases=2)
    assert fitted.rates[0] == pytest.approx(1.0, rel=0.03)
    assert fitted.rates[1] == pytest.approx(10.0, rel=0.15)


def test_hypoexponential_fit_of_what_varies_more_is_nearly_exponential(rng: np.random.Generator) -> None:
    fitted = Hypoexponential.fit(PhaseType.from_moments(mean=2.0, scv=3.0).sample(rng, SAMPLES))
    assert 0.9 < fitted.scv() < 1.0


@pytest.mark.parametrize("scv", [0.15, 0.5, 0.8, 1.0, 4.0])
def test_phase_type_fit_matches_two_moments(scv: float, rng: np.random.Generator) -> None:
    samples = PhaseType.from_moments(mean=2.0, scv=scv).sample(rng, SAMPLES)
    fitted = PhaseType.fit(samples)
    assert fitted.mean() == pytest.approx(samples.mean(), rel=1e-9)
    assert fitted.variance() == pytest.approx(samples.var(), rel=1e-7)


def test_normal_fit_matches_two_moments_or_becomes_half_normal(rng: np.random.Generator) -> None:
    samples = TruncatedNormal(location=1.0, scale=1.0).sample(rng, SAMPLES)
    fitted = TruncatedNormal.fit(samples)
    assert fitted.mean() == pytest.approx(samples.mean(), rel=1e-10)
    assert fitted.variance() == pytest.approx(samples.var(), rel=1e-9)
    wide = rng.exponential(1.0, SAMPLES)
    assert TruncatedNormal.fit(wide) == TruncatedNormal(location=0.0, scale=float(np.sqrt(np.mean(np.sort(wide) ** 2))))


def test_fits_reach_a_higher_likelihood_than_the_truth(rng: np.random.Generator) -> None:
    """That is what maximum likelihood means; it holds for every sample, not on average."""
    for law in (
        Exponential(scale=2.0),
        TruncatedNormal(location=1.0, scale=1.0),
        LogNormal(median=1.0, sigma=0.5),
        Weibull(shape=0.8, scale=1.0),
    ):
        x = law.sample(rng, 500)
        assert np.log(type(law).fit(x).pdf(x)).sum() >= np.log(law.pdf(x)).sum()


def test_empirical_fit_stays_within_one_step_of_the_samples(rng: np.random.Generator) -> None:
    samples = rng.lognormal(0.0, 1.0, SAMPLES)
    for n, margin in ((11, 0.015), (257, 0.002), (1001, 0.001)):
        fitted = Empirical.from_samples(samples, n)
        assert len(fitted.quantiles) == n
        assert ks_distance(fitted, samples) <= 1.0 / (n - 1) + 1.0 / SAMPLES
        assert fitted.mean() == pytest.approx(samples.mean(), rel=margin)
    assert Empirical.fit([0.1, 0.1]).quantiles == (0.1,) * 257


def test_ks_distance_counts_atoms_on_both_sides() -> None:
    assert ks_distance(Deterministic(value=2.0), [2.0, 2.0]) == 0.0
    assert ks_distance(Deterministic(value=2.0), [1.0, 2.0, 3.0]) == pytest.approx(1.0 / 3.0)
    assert ks_distance(Uniform(low=0.0, high=1.0), [0.5]) == 0.5


@pytest.mark.parametrize(
    "law",
    [
        Deterministic(value=0.1),
        Exponential(scale=0.002),
        Uniform(low=0.0, high=3.0),
        TruncatedNormal(location=75.0, scale=20.0),
        ShiftedGamma(shift=0.010, shape=1.5, scale=0.005),
        LogNormal(median=0.040, sigma=0.6),
        Weibull(shape=0.6, scale=3600.0),
        PhaseType.from_moments(mean=2.0, scv=4.0),
    ],
    ids=lambda law: type(law).__name__,
)
def test_fit_best_finds_the_kind(law: DelayDistribution, rng: np.random.Generator) -> None:
    samples = law.sample(rng, SAMPLES)
    fitted, distance, limit = best = fit_best(samples)
    assert type(fitted) is type(law)
    assert best.is_good == (distance <= limit)
    assert limit == ks_limit(SAMPLES)
    assert distance == ks_distance(fitted, samples)
    assert distance * np.sqrt(SAMPLES) < 1.7


def test_fit_best_fits_a_row_of_brokers(rng: np.random.Generator) -> None:
    samples = Hypoexponential(rates=(2.0, 5.0, 5.0)).sample(rng, SAMPLES)
    fitted, distance, _ = fit_best(samples)
    assert distance * np.sqrt(SAMPLES) < 1.7
    assert fitted.mean() == pytest.approx(0.9, rel=0.03)


def test_fit_best_passes_over_laws_that_cannot_be_fitted() -> None:
    fitted, *_ = fit_best([0.0, 1.0, 2.0, 3.0], laws=(LogNormal, Uniform))
    assert type(fitted) is Uniform


def test_fit_best_prefers_the_simpler_of_two_equals(rng: np.random.Generator) -> None:
    fitted, *_ = fit_best(rng.exponential(1.0, 5000), laws=(Weibull, ShiftedGamma, Exponential))
    assert type(fitted) is Exponential


def test_fit_best_says_when_nothing_fits(rng: np.random.Generator) -> None:
    """A link of two speeds: the best of nine distributions is far off, and says so; its own samples are not."""
    two_speeds = np.where(rng.random(2_000) < 0.5, 0.020, 0.060) + rng.exponential(1e-4, 2_000)
    best = fit_best(two_speeds)
    assert not best.is_good
    assert best.distance > 3.0 * best.limit
    # One time in 20 a good fit is called bad: 60 fits, so more than 10 are called so one time in 1,000.
    called_bad = [not fit_best(rng.exponential(2.0, 200), laws=(Exponential,)).is_good for _ in range(60)]
    assert sum(called_bad) <= 10


def test_the_default_laws_leave_the_empirical_out() -> None:
    assert Empirical not in DEFAULT_LAWS
    assert len(set(DEFAULT_LAWS)) == len(DEFAULT_LAWS) == 9
