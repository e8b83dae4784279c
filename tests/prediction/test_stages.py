"""Stages: their moments are the distributions', their transforms are the distributions' expectations."""

import numpy as np
import pytest
from scipy.integrate import quad

from tidings.model.distributions import (
    Deterministic,
    Empirical,
    Exponential,
    Hypoexponential,
    LogNormal,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
)
from tidings.prediction._stages import NOTHING, product_stage, scaled_stage, stage_of

DISTRIBUTIONS = [
    Deterministic(value=0.3),
    Exponential(scale=0.1),
    Uniform(low=0.1, high=0.5),
    Uniform(low=0.0, high=0.2),
    ShiftedGamma(shift=0.02, shape=1.7, scale=0.05),
    LogNormal(median=0.04, sigma=0.6, low=0.005, high=0.2),
    TruncatedNormal(location=0.075, scale=0.02),
    Hypoexponential(rates=(20.0, 50.0)),
    Weibull(shape=0.8, scale=0.1),
    Empirical(quantiles=(0.0, 0.1, 0.1, 0.4)),
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda distribution: type(distribution).__name__)
def test_moments_and_transform(distribution) -> None:
    stage = stage_of(distribution)
    assert stage.mean_s == pytest.approx(distribution.mean(), rel=1e-12)
    assert stage.variance_s2 == pytest.approx(distribution.variance(), rel=1e-9, abs=1e-15)
    s = np.array([0.0 + 0.0j, 3.0 + 0.0j, 2.0 + 9.0j])
    found = np.exp(-s * stage.shift_s) * stage.transform(s)
    top = distribution.quantile(1.0 - 1e-12)
    for point, value in zip(s, found, strict=True):
        wanted = sum(mass * np.exp(-point * at) for at, mass in distribution.atoms())
        for part in (np.real, np.imag):
            inner = quad(lambda x, part=part, p=point: part(np.exp(-p * x)) * distribution.pdf(x), 0.0, top, limit=400)[
                0
            ]
            wanted = wanted + (inner if part is np.real else 1j * inner)
        assert abs(value - wanted) < 2e-4
    third = sum(mass * at**3 for at, mass in distribution.atoms())
    third += quad(lambda x: x**3 * distribution.pdf(x), 0.0, top, limit=400)[0]
    assert stage.third_s3 == pytest.approx(third, rel=5e-3)


def test_equal_distributions_share_a_stage() -> None:
    assert stage_of(Exponential(scale=0.1)) is stage_of(Exponential(scale=0.1))


def test_a_scaled_stage_takes_that_many_times_as_long() -> None:
    one, other = scaled_stage(stage_of(Uniform(low=0.1, high=0.3)), 2.5), stage_of(Uniform(low=0.25, high=0.75))
    for name in ("mean_s", "second_s2", "third_s3", "shift_s"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))
    s = np.array([1.0 + 2.0j])
    assert one.transform(s) == pytest.approx(other.transform(s))
    assert scaled_stage(other, 0.0) is NOTHING
    assert scaled_stage(other, 1.0) is other


def test_a_product_of_two_distributions() -> None:
    size, slow = Uniform(low=0.2, high=0.8), Exponential(scale=0.05)
    stage = product_stage(size, slow)
    assert stage.mean_s == pytest.approx(size.mean() * 0.05)
    assert stage.third_s3 == pytest.approx(stage_of(size).third_s3 * stage_of(slow).third_s3)
    inner = quad(lambda x: 1.0 / (1.0 + 10.0 * x * 0.05) / 0.6, 0.2, 0.8)[0]
    assert stage.transform(np.array([10.0 + 0.0j]))[0].real == pytest.approx(inner, abs=1e-3)
    constant = product_stage(Deterministic(value=2.0), slow)
    assert constant.transform(np.array([1.0 + 0.0j]))[0] == pytest.approx(1.0 / 1.1)
    assert product_stage(slow, Deterministic(value=2.0)).mean_s == pytest.approx(0.1)
