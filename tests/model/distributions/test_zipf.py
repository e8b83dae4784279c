"""Zipf's law: exact quantiles, the right frequencies."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.model.distributions import Distribution, Zipf

MARGIN_Z = 5.0


@given(count=st.integers(1, 300), exponent=st.floats(0.0, 4.0), p=st.floats(0.0, 1.0))
def test_quantile_is_the_smallest_rank_that_reaches_p(count: int, exponent: float, p: float) -> None:
    distribution = Zipf(count=count, exponent=exponent)
    rank = distribution.quantile(p)
    assert 1 <= rank <= count
    assert distribution.cdf(rank) >= p
    assert rank == 1 or distribution.cdf(rank - 1) < p


@given(count=st.integers(1, 300), exponent=st.floats(0.0, 4.0))
def test_probabilities_sum_to_one_and_fall(count: int, exponent: float) -> None:
    distribution = Zipf(count=count, exponent=exponent)
    masses = distribution.pmf(np.arange(1, count + 1))
    assert masses.sum() == pytest.approx(1.0, rel=1e-12)
    assert (np.diff(masses) <= 0.0).all()
    np.testing.assert_allclose(distribution.cdf(np.arange(1, count + 1)), np.cumsum(masses), rtol=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 2.2])
def test_frequencies_and_moments_of_samples(exponent: float, rng: np.random.Generator) -> None:
    distribution = Zipf(count=50, exponent=exponent)
    ranks = distribution.sample(rng, 200_000)
    assert ranks.dtype == np.int64
    shares = np.bincount(ranks, minlength=51)[1:] / ranks.size
    masses = distribution.pmf(np.arange(1, 51))
    assert (np.abs(shares - masses) < MARGIN_Z * np.sqrt(masses / ranks.size)).all()
    assert abs(ranks.mean() - distribution.mean()) < MARGIN_Z * np.sqrt(distribution.variance() / ranks.size)


def test_raising_probabilities_to_a_power_multiplies_the_exponent() -> None:
    ranks = np.arange(1, 11)
    raised = Zipf(count=10, exponent=1.0).pmf(ranks) ** 1.7
    np.testing.assert_allclose(raised / raised.sum(), Zipf(count=10, exponent=1.7).pmf(ranks), rtol=1e-13)


def test_scalars_shapes_seed_and_round_trip(rng: np.random.Generator) -> None:
    distribution = Zipf(count=9, exponent=1.1)
    assert type(distribution.quantile(0.5)) is int
    assert type(distribution.sample(rng)) is int
    assert type(distribution.cdf(2.5)) is float
    assert distribution.sample(rng, (2, 3)).shape == (2, 3)
    assert distribution.quantile([[0.1], [0.9]]).shape == (2, 1)
    assert distribution.cdf([0.5, 1.0, 1.5, 99.0])[[0, 3]].tolist() == [0.0, 1.0]
    assert np.isnan(distribution.cdf(np.nan))
    first, second = (distribution.sample(np.random.default_rng(3), 100) for _ in range(2))
    assert (first == second).all()
    assert msgspec.convert(msgspec.to_builtins(distribution), Distribution) == distribution
    assert hash(distribution) == hash(Zipf(count=np.int64(9), exponent=1.1))
