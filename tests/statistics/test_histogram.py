"""Quantiles from a histogram: within a bucket of those of all numbers."""

import numpy as np
import pytest

from tidings.statistics import LogHistogram


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e7, 1e15])
def test_quantiles_are_within_a_bucket(scale: float) -> None:
    rng = np.random.default_rng(int(scale) % 97)
    values = np.where(rng.random(20_000) < 0.3, 0, scale * rng.lognormal(0.0, 2.0, 20_000)).astype(np.int64)
    found = LogHistogram()
    for part in np.split(values, [1, 5_000, 5_000, 12_345]):
        found.add(part)
    for share in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        exact = np.quantile(values, share, method="inverted_cdf")
        assert found.quantile(share) == pytest.approx(exact, rel=5e-4)


def test_small_numbers_are_exact_and_nothing_is_zero() -> None:
    found = LogHistogram()
    assert found.quantile(0.5) == 0.0
    found.add(np.array([1023, 1024, 1025, 2**61]))
    assert [found.quantile(share) for share in (0.25, 0.5, 0.75)] == [1023.0, 1024.0, 1025.0]
    assert found.quantile(1.0) == pytest.approx(2.0**61, rel=5e-4)
