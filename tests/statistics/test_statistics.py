"""The estimators against closed forms, other implementations and simulated samples.

Random tests have fixed seeds; where a margin is statistical, a right formula is outside it with a chance below 1e-6.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tidings.errors import InputError
from tidings.model.distributions import Hypoexponential
from tidings.statistics import (
    MOST_PHASES,
    Stages,
    censored_rates,
    distance_from_quantiles,
    events_interval,
    exponentiality,
    line_from_sums,
    moments,
    periods,
    poisson_interval,
    scv_interval,
    stages_cdf,
    stages_from_moments,
    standard_normal_quantile,
    two_laplace_cdf,
    two_laplace_scale,
    wilson_interval,
)

SECOND = 10**9


class TestIntervals:
    @pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (123, 1000)])
    def test_wilson_against_scipy(self, hits: int, trials: int) -> None:
        low, high = wilson_interval([hits], [trials], level=0.95)
        reference = stats.binomtest(hits, trials).proportion_ci(0.95, method="wilson")
        assert low[0] == pytest.approx(reference.low, abs=1e-12)
        assert high[0] == pytest.approx(reference.high, abs=1e-12)

    @pytest.mark.parametrize(("load", "covered"), [(0.3, 0.74), (0.5, 0.51), (0.7, 0.30), (0.9, 0.12)])
    def test_wilson_covers_less_than_it_says_where_events_queue(self, load: float, covered: float) -> None:
        """A queue with Poisson arrivals and exponential service, from its steady state on; on time is below ten mean
        services. The figures are those of docs/reference/pipeline.md, within four standard errors of 1,000 runs."""
        generator, runs, events, deadline = np.random.default_rng(1), 1_000, 10_000, 10.0
        waiting = generator.random(runs) < load
        wait = np.where(waiting, generator.exponential(1.0 / (1.0 - load), runs), 0.0)
        on_time = np.zeros(runs)
        for _ in range(events):
            left = wait + generator.exponential(1.0, runs)
            on_time += left < deadline
            wait = np.maximum(0.0, left - generator.exponential(1.0 / load, runs))
        low, high = wilson_interval(on_time, np.full(runs, events), level=0.95)
        truth = 1.0 - math.exp(-(1.0 - load) * deadline)
        found = np.mean((low <= truth) & (truth <= high))
        assert found == pytest.approx(covered, abs=4.0 * math.sqrt(covered * (1.0 - covered) / runs))

    @pytest.mark.parametrize(("events", "exposure_s"), [(0, 5.0), (1, 5.0), (40, 3.0), (100_000, 7.0)])
    def test_poisson_interval_leaves_the_tails_it_should(self, events: int, exposure_s: float) -> None:
        low, high = poisson_interval([events], [exposure_s], level=0.9)
        assert stats.poisson.cdf(events, high[0] * exposure_s) == pytest.approx(0.05, rel=1e-6)
        if events == 0:
            assert low[0] == 0.0
        else:
            assert stats.poisson.sf(events - 1, low[0] * exposure_s) == pytest.approx(0.05, rel=1e-6)

    def test_renewal_interval_of_scv_one_is_near_the_poisson_one(self) -> None:
        renewal = events_interval([10.0], [1000], [1.0], level=0.95)
        poisson = poisson_interval([1000], [100.0], level=0.95)
        assert renewal.low[0] == pytest.approx(poisson.low[0], rel=2e-3)
        assert renewal.high[0] == pytest.approx(poisson.high[0], rel=2e-3)
        constant = events_interval([10.0], [1000], [0.0], level=0.95)
        assert (constant.low[0], constant.high[0]) == (10.0, 10.0)

    @pytest.mark.parametrize(("shape", "least", "most"), [(1.0, 0.92, 0.975), (4.0, 0.92, 0.975), (0.5, 0.9, 0.975)])
    def test_scv_interval_holds_the_truth_as_often_as_it_says(self, shape: float, least: float, most: float) -> None:
        samples = np.random.default_rng(1).gamma(shape, size=(4000, 2000))
        scv = samples.var(axis=1, ddof=1) / samples.mean(axis=1) ** 2
        low, high = scv_interval(scv, np.full(4000, 2000), level=0.95)
        assert least < np.mean((low < 1 / shape) & (1 / shape < high)) < most

    def test_nothing_observed_gives_no_interval(self) -> None:
        assert np.isnan(wilson_interval([0], [0], level=0.95).low[0])
        assert np.isnan(poisson_interval([0], [0.0], level=0.95).high[0])

    @pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
    def test_a_level_is_a_share(self, level: float) -> None:
        with pytest.raises(InputError, match=r"write 0\.95"):
            standard_normal_quantile(level)


class TestMoments:
    @given(st.lists(st.integers(-(2**45), 2**45), min_size=2, max_size=50))
    def test_exact_for_whole_numbers(self, values: list[int]) -> None:
        found = moments([len(values)], [sum(values)], [sum(v * v for v in values)])
        exact = (len(values) * sum(v * v for v in values) - sum(values) ** 2) / (len(values) * (len(values) - 1))
        assert found.variance[0] == pytest.approx(exact, rel=1e-14)

    def test_no_digits_are_lost_on_a_large_mean(self) -> None:
        values = [10**12 + k for k in (1, 2, 3, 4)]
        found = moments([4], [sum(values)], [sum(v * v for v in values)])
        assert found.variance[0] == pytest.approx(5 / 3, rel=1e-12)

    def test_too_few_samples(self) -> None:
        found = moments([0, 1, 2], [0, 5, 0], [0, 25, 0])
        assert np.isnan(found.mean[0])
        assert np.isnan(found.variance[:2]).all()
        assert found.scv[2] == 0.0  # a constant 0

    def test_line_recovers_slowness_and_propagation(self) -> None:
        rng = np.random.default_rng(2)
        size = rng.integers(200, 1800, 20_000)
        delay = np.rint(3e6 + size * rng.normal(20_000.0, 4_000.0, 20_000)).astype(np.int64)
        line = line_from_sums(*_sums(size, delay), level=1 - 1e-7)
        assert line.slope_low[0] < 20_000.0 < line.slope_high[0]
        assert line.slope_high[0] - line.slope_low[0] < 0.1 * line.slope[0]
        assert math.sqrt(line.slope_variance[0]) == pytest.approx(4_000.0, rel=0.05)
        assert line.slope[0] == pytest.approx(np.polyfit(size, delay, 1)[0], rel=1e-9)
        assert line.intercept[0] == pytest.approx(np.polyfit(size, delay, 1)[1], rel=1e-6)

    def test_equal_sizes_have_no_line(self) -> None:
        size, delay = np.full(10, 500), np.arange(10)
        assert np.isnan(line_from_sums(*_sums(size, delay), level=0.95).slope[0])


def _sums(x: np.ndarray, y: np.ndarray) -> tuple[list[int], ...]:
    xs, ys = [int(v) for v in x], [int(v) for v in y]
    pairs = list(zip(xs, ys, strict=True))
    totals = (
        len(xs),
        sum(xs),
        sum(a * a for a in xs),
        sum(ys),
        sum(b * b for b in ys),
        sum(a * b for a, b in pairs),
        max(xs),
    )
    return tuple([total] for total in totals)


class TestTwoLaplace:
    def test_check_values_of_the_paper(self) -> None:
        # Quantiles at .8, .95 and .99 for scale 1; the chance of a violation at 1 ms for scale 2 ms.
        found = two_laplace_cdf([1.466203435, 3.271812060, 5.191820109], 1.0)
        assert found == pytest.approx([0.8, 0.95, 0.99], abs=1e-9)
        assert two_laplace_cdf([-1.0], 2.0)[0] == pytest.approx(0.379081662, abs=1e-9)

    def test_moment_estimator(self) -> None:
        x = np.array([0.5, -1, 2, -3.5, 0.25])
        assert two_laplace_scale(np.abs(x).mean()) == pytest.approx(0.9666667, abs=1e-7)

    def test_against_samples(self) -> None:
        rng = np.random.default_rng(3)
        x = rng.laplace(scale=2.0, size=(2, 200_000)).sum(axis=0)
        assert two_laplace_scale(np.abs(x).mean()) == pytest.approx(2.0, rel=0.02)
        assert stats.ks_1samp(x, lambda v: two_laplace_cdf(v, 2.0)).pvalue > 1e-6

    def test_of_no_scale(self) -> None:
        assert two_laplace_cdf([-1.0, 0.0, 1.0], 0.0).tolist() == [0.0, 0.5, 1.0]


class TestStages:
    @given(
        least=st.floats(0, 1e3),
        mean=st.floats(1e-3, 1e3),
        scv=st.floats(1e-4, 0.999),
    )
    def test_mean_and_variance_are_kept(self, least: float, mean: float, scv: float) -> None:
        distribution = stages_from_moments([least], [least + mean], [scv * mean**2])
        k, long, short = int(distribution.phases[0]), distribution.long[0], distribution.short[0]
        assert k <= MOST_PHASES
        assert distribution.shift[0] >= least - 1e-9 * (1 + least)
        assert distribution.shift[0] + long + (k - 1) * short == pytest.approx(least + mean, rel=1e-9)
        # The mean is rounded to the least and the mean together, so the scv is only as good as that.
        assert long**2 + (k - 1) * short**2 == pytest.approx(scv * mean**2, rel=1e-6 + 1e-12 * (1 + least / mean) / scv)

    @pytest.mark.parametrize("scv", [0.02, 0.1, 0.125, 1 / 3, 0.34, 0.5, 0.5000001, 0.7, 0.9999, 1.0])
    def test_cdf_against_the_exact_distribution(self, scv: float) -> None:
        distribution = stages_from_moments([2.0], [5.0], [scv * 9.0])
        k = int(distribution.phases[0])
        rates = (
            (1 / distribution.long[0],) + (1 / distribution.short[0],) * (k - 1)
            if k > 1
            else (1 / distribution.long[0],)
        )
        points = np.concatenate(([0.0, 2.0], np.geomspace(2.01, 60.0, 60)))
        exact = Hypoexponential(rates=rates).cdf(np.maximum(points - distribution.shift[0], 0.0))
        assert stages_cdf(points[None, :], distribution)[0] == pytest.approx(exact, abs=1e-9)

    def test_one_phase_where_no_sum_of_exponentials_fits(self) -> None:
        distribution = stages_from_moments([1.0], [3.0], [40.0])
        assert (distribution.shift[0], distribution.phases[0], distribution.long[0]) == (1.0, 1, 2.0)

    def test_a_constant_and_nothing(self) -> None:
        distribution = stages_from_moments([4.0, np.nan], [4.0, np.nan], [0.0, np.nan])
        assert distribution.phases.tolist() == [0, 0]
        assert stages_cdf(np.array([[3.9, 4.0], [1.0, 2.0]]), distribution)[0].tolist() == [0.0, 1.0]
        assert np.isnan(stages_cdf(np.array([[3.9, 4.0], [1.0, 2.0]]), distribution)[1]).all()

    def test_distance(self) -> None:
        middles = (np.arange(1000) + 0.5) / 1000
        exact = stats.expon.ppf(middles)
        right = Stages(np.zeros(1), np.ones(1, np.int64), np.ones(1), np.zeros(1))
        assert distance_from_quantiles(stages_cdf(exact[None, :], right), middles)[0] < 1e-12
        # Against twice the mean the largest difference of exp(-x/2) and exp(-x) is 1/4.
        wrong = right._replace(long=np.array([2.0]))
        assert distance_from_quantiles(stages_cdf(exact[None, :], wrong), middles)[0] == pytest.approx(0.25, abs=1e-3)


class TestComponents:
    def test_periods_of_each_kind(self) -> None:
        # One that never moves; one that fails and is repaired, told twice; one that is down at the start.
        at_s = np.array([10, 11, 30, 5, 40])
        found = periods(
            np.array([0, 0, 3, 5]),
            at_s * SECOND,
            np.array([False, False, True, True, False]),
            np.zeros(3, np.int64),
            np.full(3, 100 * SECOND),
        )
        rows = list(zip(*(part.tolist() for part in found), strict=True))
        assert rows == [
            (0, True, 100.0, False, False),
            (1, True, 10.0, False, True),
            (1, False, 20.0, True, True),
            (1, True, 70.0, True, False),
            (2, False, 5.0, False, True),
            (2, True, 35.0, True, True),
            (2, False, 60.0, True, False),
        ]
        up = censored_rates(found, 3, up=True, level=0.95)
        assert up.events.tolist() == [0, 1, 1]
        assert up.exposure_s.tolist() == [100.0, 80.0, 35.0]
        assert up.rate_per_s.tolist() == [0.0, 1 / 80, 1 / 35]
        assert up.low_per_s[0] == 0.0 < up.high_per_s[0]

    def test_no_components(self) -> None:
        nothing = np.zeros(0, np.int64)
        found = periods(np.zeros(1, np.int64), nothing, np.zeros(0, np.bool_), nothing, nothing)
        assert len(found.up) == 0
        assert exponentiality(found, 0, up=True).p_value.shape == (0,)

    def test_rates_are_unbiased_under_censoring(self) -> None:
        """Most up periods are cut by the end of the watch; taking only the whole ones would be off by far."""
        found = _watched(components=4000, up=lambda rng, n: rng.exponential(100.0, n), end_s=150.0)
        up = censored_rates(found, 4000, up=True, level=0.95)
        events, exposure = up.events.sum(), up.exposure_s.sum()
        low, high = poisson_interval([events], [exposure], level=1 - 1e-7)
        assert low[0] < 0.01 < high[0]
        whole = found.length_s[found.up & found.began & found.ended]
        assert 1 / whole.mean() > high[0]

    # 800 intervals: the standard error of a share of .95 is .0077, so .93 to .97 of the long run are .907 to .993 here,
    # 3 standard errors further out. Intervals of a Poisson process cover .66, .83, .75 and 1.0 of these.
    @pytest.mark.parametrize(
        ("name", "up"),
        [
            ("weibull .5", lambda rng, n: 50.0 * rng.weibull(0.5, n)),
            ("weibull .7", lambda rng, n: 79.0 * rng.weibull(0.7, n)),
            ("log-normal", lambda rng, n: rng.lognormal(math.log(100.0) - 0.72, 1.2, n)),
            ("gamma", lambda rng, n: rng.gamma(4.0, 25.0, n)),
        ],
    )
    def test_intervals_of_failure_rates_cover_whatever_the_times(self, name: str, up: Any) -> None:
        mean_s = float(up(np.random.default_rng(1), 4_000_000).mean())
        found = _watched(components=800, up=up, end_s=10_000.0)
        rates = censored_rates(found, 800, up=True, level=0.95)
        covers = (rates.low_per_s <= 1.0 / mean_s) & (rates.high_per_s >= 1.0 / mean_s)
        assert 0.907 <= covers.mean() <= 0.993, name
        assert rates.is_rough.mean() < 0.2
        low, high = poisson_interval(rates.events, rates.exposure_s, level=0.95)
        as_poisson = ((low <= 1.0 / mean_s) & (high >= 1.0 / mean_s)).mean()
        assert not 0.907 <= as_poisson <= 0.993, "the distribution is no test if they are good enough"

    def test_few_failures_are_rough_and_none_have_an_upper_bound(self) -> None:
        found = _watched(components=200, up=lambda rng, n: rng.exponential(100.0, n), end_s=150.0)
        rates = censored_rates(found, 200, up=True, level=0.95)
        assert rates.is_rough.all()
        never = rates.events == 0
        np.testing.assert_allclose(rates.high_per_s[never], -math.log(0.025) / rates.exposure_s[never])

    @pytest.mark.parametrize("end_s", [3_000.0, 20_000.0])
    def test_exponential_times_pass_as_often_as_they_should(self, end_s: float) -> None:
        found = _watched(components=3000, up=lambda rng, n: rng.exponential(100.0, n), end_s=end_s)
        p = exponentiality(found, 3000, up=True).p_value
        # Within 5 standard errors of 5 %, and a little for the normal approximation.
        assert abs(np.mean(p < 0.05) - 0.05) < 5 * math.sqrt(0.05 * 0.95 / 3000) + 0.01
        assert abs(np.mean(p < 0.5) - 0.5) < 5 * math.sqrt(0.25 / 3000) + 0.02

    def test_other_times_do_not(self) -> None:
        regular = _watched(components=200, up=lambda rng, n: rng.gamma(4.0, 25.0, n), end_s=20_000.0)
        bursty = _watched(components=200, up=lambda rng, n: 50.0 * rng.weibull(0.5, n), end_s=20_000.0)
        assert np.mean(exponentiality(regular, 200, up=True).p_value < 1e-6) > 0.99
        assert (exponentiality(regular, 200, up=True).score > 0).all()
        assert np.mean(exponentiality(bursty, 200, up=True).p_value < 1e-6) > 0.99
        assert (exponentiality(bursty, 200, up=True).score < 0).all()

    def test_too_few_events_have_no_test(self) -> None:
        found = _watched(components=5, up=lambda rng, n: rng.exponential(100.0, n), end_s=300.0)
        assert np.isnan(exponentiality(found, 5, up=True).p_value).all()


def _watched(*, components: int, up, end_s: float):  # type: ignore[no-untyped-def]
    """Components that alternate between up times of a distribution and exponential down times of mean 10 s."""
    rng = np.random.default_rng(4)
    at, offsets = [], [0]
    for _ in range(components):
        n = int(end_s / 20) + 50
        times = np.cumsum(np.column_stack((up(rng, n), rng.exponential(10.0, n))).ravel())
        kept = times[times < end_s]
        at.append(kept)
        offsets.append(offsets[-1] + len(kept))
    states = np.concatenate([np.arange(len(times)) % 2 == 1 for times in at])
    at_ns = np.rint(np.concatenate(at) * SECOND).astype(np.int64)
    zeros = np.zeros(components, np.int64)
    return periods(np.array(offsets), at_ns, states, zeros, zeros + int(end_s * SECOND))
