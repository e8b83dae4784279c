"""Components as chains: phases that keep means, follow distributions, and settle where they should."""

import numpy as np
import pytest
from scipy.linalg import expm

from tidings.faults import PHASES_MAX, phases_of
from tidings.faults._chains import chains_of
from tidings.model.distributions import (
    Deterministic,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    Uniform,
    Weibull,
)
from tidings.model.failures import Failures


def rest_of(start, sub, times):
    """P[what is left of a time met at random <= t], by its phases."""
    lasting = np.linalg.solve(-sub.T, start)
    lasting /= lasting.sum()
    return np.array([1.0 - float((lasting @ expm(sub * t)).sum()) for t in times])


@pytest.mark.parametrize(
    ("distribution", "margin"),
    [
        (LogNormal(median=1_000.0, sigma=1.2), 0.01),
        (LogNormal(median=18.0, sigma=2.5), 0.01),
        (LogNormal(median=10.0, sigma=0.4), 0.012),
        (Weibull(shape=0.6, scale=100.0), 0.005),
        (Weibull(shape=2.0, scale=100.0), 0.005),
        (Uniform(low=1.0, high=5.0), 0.03),
        (Deterministic(value=3.0), 0.15),  # a jump, with eight phases
    ],
)
def test_fits(distribution, margin):
    start, sub = phases_of(distribution)
    assert len(start) <= PHASES_MAX
    assert start.sum() == pytest.approx(1.0)
    mean = distribution.mean()
    assert float(start @ np.linalg.solve(-sub, np.ones(len(start)))) == pytest.approx(mean, rel=1e-9)
    times = mean * np.array([0.03, 0.1, 0.3, 0.6, 1.0, 2.0, 4.0])
    fine = np.linspace(0.0, times[-1], 200_001)
    survival = 1.0 - np.asarray(distribution.cdf(fine))
    whole = np.concatenate(([0.0], np.cumsum(0.5 * (survival[1:] + survival[:-1]) * np.diff(fine)))) / mean
    assert np.abs(rest_of(start, sub, times) - np.interp(times, fine, whole)).max() < margin


def test_phase_type_distributions_come_as_they_are():
    for distribution in (
        Exponential(scale=3.0),
        Hypoexponential(rates=(1.0, 2.0)),
        PhaseType(alpha=(0.3, 0.7), sub_generator=((-1.0, 0.5), (0.0, -2.0))),
    ):
        start, sub = phases_of(distribution)
        for t in (0.2, 1.0, 4.0):
            assert 1.0 - float((start @ expm(sub * t)).sum()) == pytest.approx(distribution.cdf(t), abs=1e-12)


def test_the_long_run():
    broker = Failures(up=Weibull(shape=0.8, scale=100.0), down=LogNormal(median=5.0, sigma=1.0))
    chains = chains_of([broker, None, Failures.exponential(availability=0.9, period_s=60.0)])
    up = (chains.stationary * chains.ready).sum(axis=1)
    assert up == pytest.approx([broker.availability, 1.0, 0.9], rel=1e-9)
    assert (chains.holds == chains.ready).all()
    lagging = chains_of([Failures.exponential(availability=0.9, period_s=60_000.0)], lag_s=600.0)
    holds = float((lagging.stationary * lagging.holds).sum())
    ready = float((lagging.stationary * lagging.ready).sum())
    assert holds == pytest.approx(0.9, rel=1e-9)
    assert holds - ready == pytest.approx(300.0 / 60_000.0, rel=0.02)  # half an interval in every cycle
