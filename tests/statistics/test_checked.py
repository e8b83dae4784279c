"""Distributions of times that were found by checks: the right distribution and its parameters come back, the naive ones
do not."""

import numpy as np
import pytest

from tidings.errors import InputError
from tidings.model.distributions import Exponential, LogNormal, Weibull
from tidings.statistics import fit_durations

CHECK_S = 600.0


def checked(distribution, count, rng):
    """Times as regular checks at a random phase see them; those that no check falls into are not seen."""
    seen = np.floor(distribution.sample(rng, count) / CHECK_S + rng.random(count)) * CHECK_S
    return seen[seen > 0.0]


@pytest.mark.parametrize(
    "distribution",
    [Exponential(scale=1_500.0), LogNormal(median=1_000.0, sigma=0.95), Weibull(shape=0.7, scale=2_000.0)],
)
def test_the_distribution_behind_checks(distribution):
    rng = np.random.default_rng(3)
    seen = checked(distribution, 3_000, rng)
    assert len(seen) < 2_800  # a tenth and more is missed
    best, *_ = fit_durations(seen, np.ones(len(seen), bool), check_s=CHECK_S)
    assert type(best.distribution) is type(distribution)
    # Standard errors of a few per cent: about 2,500 times, blurred by the checks.
    assert best.distribution.quantile(0.5) == pytest.approx(distribution.quantile(0.5), rel=0.1)
    assert best.distribution.mean() == pytest.approx(distribution.mean(), rel=0.1)
    naive, *_ = fit_durations(seen, np.ones(len(seen), bool))
    assert naive.distribution.quantile(0.5) > 1.1 * distribution.quantile(0.5)


def test_exact_times_and_times_that_go_on():
    rng = np.random.default_rng(4)
    distribution = Weibull(shape=0.6, scale=3.0)
    times, watch = distribution.sample(rng, 4_000), rng.exponential(4.0, 4_000)
    fits = fit_durations(np.minimum(times, watch), times <= watch)
    assert isinstance(fits[0].distribution, Weibull)
    assert fits[0].distribution.shape == pytest.approx(0.6, rel=0.06)
    assert fits[0].distribution.scale == pytest.approx(3.0, rel=0.12)
    assert [fit.criterion for fit in fits] == sorted(fit.criterion for fit in fits)
    exponential = next(fit for fit in fits if isinstance(fit.distribution, Exponential))
    # The maximum is known in closed form: all time over all events.
    assert exponential.distribution.scale == pytest.approx(
        np.minimum(times, watch).sum() / (times <= watch).sum(), rel=1e-4
    )


def test_a_single_long_time_does_not_break_the_fit():
    """Far out only survival is known to many digits; its logarithm has to stay finite."""
    seen = np.concatenate((np.full(50, 1_200.0), [3e6]))
    fits = fit_durations(seen, np.ones(51, bool), check_s=300.0)
    assert all(np.isfinite(fit.log_likelihood) for fit in fits)
    assert isinstance(fits[0].distribution, LogNormal)


@pytest.mark.parametrize(
    ("seen", "ended", "check_s", "message"),
    [
        ([1.0], [True, False], 0.0, "as many marks"),
        ([1.0, 2.0], [False, False], 0.0, "no period ended"),
        ([1.0, 0.0], [True, True], 0.0, "above 0"),
        ([1.0, np.inf], [True, True], 0.0, "finite"),
        ([1.0], [True], -1.0, "0 or more"),
    ],
)
def test_bad_input(seen, ended, check_s, message):
    with pytest.raises(InputError, match=message):
        fit_durations(seen, ended, check_s=check_s)
