import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from tidings.scheduling import (
    HOPELESS_QUANTILE,
    NORMAL_TABLE,
    NORMAL_TABLE_ERROR,
    benefit,
    deletion_time,
    expiry_time,
    normal_cdf,
    remaining_lifetime,
    tabulated_benefit,
    tabulated_normal_cdf,
)

TARGET = np.array([2, 0, 1])
ALLOWED_S = np.array([10.0, 30.0, 10.0])
PRICE = np.array([2.0, 3.0, 3.0])
NODES = np.array([2.0, 2.0, 1.0])
MEAN = np.array([0.15, 0.15, 0.075])
SD = np.array([0.02 * math.sqrt(2.0), 0.02 * math.sqrt(2.0), 0.02])
PATHS = (PRICE, NODES, MEAN, SD)


def test_the_table_is_within_its_stated_error_of_the_normal_cdf() -> None:
    points = np.concatenate([np.linspace(-9.0, 9.0, 100_001), [-40.0, 40.0, -math.inf, math.inf]])
    looked_up = np.array([tabulated_normal_cdf(z, NORMAL_TABLE) for z in points])
    assert np.abs(looked_up - ndtr(points)).max() < NORMAL_TABLE_ERROR < 1e-6
    assert (np.diff(looked_up[:-4]) >= 0).all()
    # Near saturation, where ties are common, it is far closer still.
    far = (np.abs(points) > 5) & np.isfinite(points)
    assert np.abs(looked_up - ndtr(points))[far].max() < 1e-13


def test_normal_cdf_at_known_points() -> None:
    assert normal_cdf(0.0) == 0.5
    assert normal_cdf(1.0) == pytest.approx(0.8413447460685429, abs=1e-15)
    assert normal_cdf(-3.0) == pytest.approx(0.0013498980316300933, rel=1e-12)


def test_benefit_of_a_case_worked_by_hand() -> None:
    # 50 kB published 5 s ago; processing .25 s a broker. Positions in order:
    # target 2: 10 - 5 - .25 - 3.75 = 1 s of slack, spread 1 s: z = 1;
    # target 0: 30 - 5 - .5 - 7.5 = 17 s, spread 1.414 s: certain;
    # target 1: 10 - 5 - .5 - 7.5 = -3 s, spread 1.414 s: z = -2.1213.
    expected = 3 * 0.8413447460685429 + 2 * 1.0 + 3 * 0.016947426762344636
    assert benefit(105.0, 100.0, 50.0, 0, 3, TARGET, ALLOWED_S, *PATHS, 0.25, 0.0) == pytest.approx(expected, abs=1e-12)
    # Two seconds later: z = -1, certain, -3.5355.
    later = 3 * 0.15865525393145707 + 2 * 1.0 + 3 * 0.00020347600872247637
    assert benefit(105.0, 100.0, 50.0, 0, 3, TARGET, ALLOWED_S, *PATHS, 0.25, 2.0) == pytest.approx(later, abs=1e-12)
    assert benefit(105.0, 100.0, 50.0, 1, 2, TARGET, ALLOWED_S, *PATHS, 0.25, 0.0) == 2.0


def test_a_path_without_spread_is_a_step_that_includes_the_deadline() -> None:
    one, allowed, zero = np.ones(1), np.array([10.0]), np.zeros(1)
    target, mean = np.zeros(1, np.int64), np.full(1, 0.125)
    for now_s, expected in ((1.75, 1.0), (1.7500001, 0.0)):
        assert benefit(now_s, 0.0, 64.0, 0, 1, target, allowed, one, one, mean, zero, 0.25, 0.0) == expected
        table = NORMAL_TABLE
        assert (
            tabulated_benefit(now_s, 0.0, 64.0, 0, 1, target, allowed, one, one, mean, zero, 0.25, 0.0, table)
            == expected
        )


def test_without_a_deadline_success_is_certain_forever() -> None:
    allowed = np.full(3, math.inf)
    assert benefit(1e9, 0.0, 50.0, 0, 3, TARGET, allowed, *PATHS, 0.25, 1e9) == PRICE.sum()
    assert deletion_time(0.0, 50.0, 0, 3, TARGET, allowed, NODES, MEAN, SD, 0.25, HOPELESS_QUANTILE) == math.inf
    assert expiry_time(0.0, 0, 3, allowed) == math.inf
    assert remaining_lifetime(5.0, 0.0, 0, 3, allowed) == math.inf


def test_remaining_lifetime_is_the_mean_over_what_has_not_expired() -> None:
    allowed = np.array([10.0, 30.0, math.inf, 60.0])
    assert remaining_lifetime(105.0, 100.0, 0, 4, allowed) == pytest.approx((5 + 25 + 55) / 3)
    assert remaining_lifetime(115.0, 100.0, 0, 4, allowed) == pytest.approx((15 + 45) / 2)
    assert remaining_lifetime(161.0, 100.0, 0, 4, allowed) == math.inf


def test_without_subscriptions_an_event_is_due_for_deletion_at_once() -> None:
    nothing = np.zeros(0)
    none = np.zeros(0, np.int64)
    assert deletion_time(5.0, 50.0, 0, 0, none, nothing, nothing, nothing, nothing, 0.0, 3.0) == -math.inf
    assert expiry_time(5.0, 0, 0, nothing) == -math.inf


@given(
    allowed=st.lists(st.floats(5.0, 60.0), min_size=1, max_size=5),
    size_kb=st.floats(1.0, 80.0),
    mean=st.floats(0.01, 0.3),
    sd=st.floats(0.001, 0.05),
    epsilon=st.sampled_from([0.0005, 0.01, 0.2]),
)
def test_deletion_time_against_solving_equation_11(
    allowed: list[float], size_kb: float, mean: float, sd: float, epsilon: float
) -> None:
    count = len(allowed)
    deadlines, target = np.array(allowed), np.arange(count)
    nodes, ones = np.arange(1.0, count + 1.0), np.ones(count)
    means, sds = mean * nodes, sd * np.sqrt(nodes)
    quantile = float(norm.isf(epsilon))

    def greatest_success(now_s: float) -> float:
        return max(
            benefit(now_s, 0.0, size_kb, i, i + 1, target, deadlines, ones, nodes, means, sds, 0.002, 0.0)
            for i in range(count)
        )

    key_s = deletion_time(0.0, size_kb, 0, count, target, deadlines, nodes, means, sds, 0.002, quantile)
    expiry_s = expiry_time(0.0, 0, count, deadlines)
    hopeless_s = brentq(lambda now_s: greatest_success(now_s) - epsilon, -200.0, 200.0, xtol=1e-10)
    assert key_s == pytest.approx(min(hopeless_s, expiry_s), abs=1e-6)


def test_a_fast_last_hop_is_deleted_at_its_expiry_although_the_normal_distribution_still_hopes() -> None:
    one, target = np.ones(1), np.zeros(1, np.int64)
    allowed, mean, sd = np.array([10.0]), np.array([0.05]), np.array([0.02])
    args = (50.0, 0, 1, target, allowed, one, mean, sd, 0.002, HOPELESS_QUANTILE)
    assert deletion_time(3.0, *args) == 13.0
    assert benefit(13.0, 3.0, 50.0, 0, 1, target, allowed, one, one, mean, sd, 0.002, 0.0) > 0.0005


def test_an_infinite_quantile_deletes_only_what_is_expired() -> None:
    args = (50.0, 0, 3, TARGET, ALLOWED_S, NODES, MEAN, np.zeros(3), 0.25, math.inf)
    assert deletion_time(100.0, *args) == expiry_time(100.0, 0, 3, ALLOWED_S) == 130.0


def test_the_hopeless_quantile_is_paper_cs() -> None:
    assert pytest.approx(norm.isf(0.0005), abs=1e-12) == HOPELESS_QUANTILE


@given(st.floats(0.0, 40.0), st.floats(0.0, 10.0), st.floats(0.0, 5.0))
def test_the_tabulated_benefit_is_the_benefit(now_s: float, size_kb: float, extra_s: float) -> None:
    args = (now_s, 0.0, size_kb, 0, 3, TARGET, ALLOWED_S, *PATHS, 0.25, extra_s)
    assert tabulated_benefit(*args, NORMAL_TABLE) == pytest.approx(benefit(*args), abs=8 * NORMAL_TABLE_ERROR)
