"""One example of every distribution, and of every branch a distribution has, for the tests that hold for all of
them."""

import numpy as np
import pytest

from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Discrete,
    Empirical,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    Replay,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
)

EXAMPLES: dict[str, DelayDistribution] = {
    "deterministic": Deterministic(value=0.25),
    "exponential": Exponential(scale=0.002),
    "uniform": Uniform(low=1.0, high=3.0),
    "normal": TruncatedNormal(location=75.0, scale=20.0),
    "normal-cut-deep": TruncatedNormal(location=0.5, scale=1.0),
    "half-normal": TruncatedNormal(location=0.0, scale=2.0),
    "shifted-gamma": ShiftedGamma(shift=0.010, shape=2.5, scale=0.004),
    "shifted-gamma-peaked": ShiftedGamma(shift=0.0, shape=0.7, scale=2.0),
    "log-normal": LogNormal(median=0.010, sigma=0.6),
    "log-normal-clipped": LogNormal(median=0.040, sigma=0.6, low=0.005, high=0.200),
    "log-normal-clipped-hard": LogNormal(median=1.0, sigma=1.0, low=0.8, high=1.5),
    "log-normal-clipped-below": LogNormal(median=1.0, sigma=0.5, low=0.5),
    "hypoexponential": Hypoexponential(rates=(5.0, 2.0, 9.0)),
    "hypoexponential-equal": Hypoexponential.erlang(phases=4, rate=3.0),
    "hypoexponential-nearly-equal": Hypoexponential(rates=(3.0, 3.0000001, 700.0)),
    "phase-type-mixture": PhaseType.from_moments(mean=2.0, scv=0.4),
    "phase-type-hyper": PhaseType.from_moments(mean=2.0, scv=3.0),
    "phase-type-cyclic": PhaseType(alpha=(0.7, 0.3), sub_generator=((-3.0, 2.0), (1.0, -1.5))),
    "empirical": Empirical(quantiles=(0.1, 0.2, 0.25, 0.5, 2.0)),
    "empirical-with-atom": Empirical(quantiles=(0.0, 1.0, 1.0, 1.0, 2.0, 5.0)),
    "discrete": Discrete(values=(0.5, 0.1, 2.0), weights=(1.0, 6.0, 3.0)),
    "discrete-even": Discrete(values=(3.0, 1.0, 8.0)),
    "replay": Replay(values=(0.3, 0.1, 0.2, 0.1)),
    "weibull": Weibull(shape=1.7, scale=3600.0),
    "weibull-heavy": Weibull(shape=0.7, scale=10.0),
}


@pytest.fixture(params=EXAMPLES, ids=list(EXAMPLES))
def distribution(request: pytest.FixtureRequest) -> DelayDistribution:
    return EXAMPLES[request.param]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20_240_611)
