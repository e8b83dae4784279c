"""Shares by batches: the ratio estimator, its interval, and what happens with little to go by."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.statistics import BATCHES_LEAST, batch_share, student_quantile


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=40))
def test_the_share_is_that_of_all_trials(batches: list[tuple[int, int]]) -> None:
    hits, trials = [a for a, _ in batches], [a + b for a, b in batches]
    found = batch_share(hits, trials)
    used = sum(n > 0 for n in trials)
    assert found.batches == used
    if not used:
        assert math.isnan(found.value)
        return
    assert found.value == pytest.approx(sum(hits) / sum(trials))
    assert math.isnan(found.error) == (used < BATCHES_LEAST)


def test_equal_batches_have_the_usual_standard_error() -> None:
    shares = np.array([0.5, 0.7, 0.6, 0.8, 0.4])
    found = batch_share(100 * shares, np.full(5, 100))
    assert found.value == pytest.approx(0.6)
    assert found.error == pytest.approx(float(shares.std(ddof=1)) / math.sqrt(5))
    assert found.half_width(0.95) == pytest.approx(2.776445 * found.error, rel=1e-5)
    assert student_quantile(0.95, 4) == pytest.approx(2.776445, rel=1e-5)


def test_the_interval_covers_where_events_come_late_together() -> None:
    """Outages of a fifth of a batch: Wilson's interval would cover the truth about half of the time."""
    generator = np.random.default_rng(4)
    runs, batches, trials = 400, 20, 200
    covered = 0
    for _ in range(runs):
        outages = generator.poisson(1.0, batches)
        hits = trials - np.minimum(40 * outages, trials)
        found = batch_share(hits, np.full(batches, trials))
        truth = 1.0 - 0.2
        covered += abs(found.value - truth) <= found.half_width(0.95)
    assert 0.90 < covered / runs < 0.99
