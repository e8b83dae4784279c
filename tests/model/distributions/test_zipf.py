"""Zipf's law: exact quantiles, the right frequencies, the exponent back from samples."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.model.distributions import Distribution, Zipf

MARGIN_Z = 5.0


@given(count=st.integers(1, 300), exponent=st.floats(0.0, 4.0), p=st.floats(0.0, 1.0))
def test_quantile_is_the_smallest_rank_that_reaches_p(count: int, exponent: float, p: float) -> None:
    law = Zipf(count=count, exponent=exponent)
    rank = law.quantile(p)
    assert 1 <= rank <= count
    assert law.cdf(rank) >= p
    assert rank == 1 or law.cdf(rank - 1) < p


@given(count=st.integers(1, 300), exponent=st.floats(0.0, 4.0))
def test_probabilities_sum_to_one_and_fall(count: int, exponent: float) -> None:
    law = Zipf(count=count, exponent=exponent)
    masses = law.pmf(np.arange(1, count + 1))
    assert masses.sum() == pytest.approx(1.0, rel=1e-12)
    assert (np.diff(masses) <= 0.0).all()
    np.testing.assert_allclose(law.cdf(np.arange(1, count + 1)), np.cumsum(masses), rtol=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 2.2])
def test_frequencies_and_moments_of_samples(exponent: float, rng: np.random.Generator) -> None:
    law = Zipf(count=50, exponent=exponent)
    ranks = law.sample(rng, 200_000)
    assert ranks.dtype == np.int64
    shares = np.bincount(ranks, minlength=51)[1:] / ranks.size
    masses = law.pmf(np.arange(1, 51))
    assert (np.abs(shares - masses) < MARGIN_Z * np.sqrt(masses / ranks.size)).all()
    assert abs(ranks.mean() - law.mean()) < MARGIN_Z * np.sqrt(law.variance() / ranks.size)


@pytest.mark.parametrize("exponent", [0.4, 1.0, 1.8])
def test_fit_recovers_the_exponent(exponent: float, rng: np.random.Generator) -> None:
    # The information per sample is the variance of ln rank, so five standard errors are stated exactly.
    law = Zipf(count=100, exponent=exponent)
    logs = np.log(np.arange(1, 101))
    masses = law.pmf(np.arange(1, 101))
    information = masses @ logs**2 - (masses @ logs) ** 2
    fitted = Zipf.fit(law.sample(rng, 20_000), count=100)
    assert fitted.count == 100
    assert abs(fitted.exponent - exponent) < MARGIN_Z / np.sqrt(20_000 * information)


def test_fit_at_the_ends() -> None:
    assert Zipf.fit([1, 2, 3, 3, 3]).exponent == 0.0
    assert Zipf.fit([1, 1, 1], count=5).exponent == 100.0
    assert Zipf.fit([1]).count == 1


def test_raising_probabilities_to_a_power_multiplies_the_exponent() -> None:
    ranks = np.arange(1, 11)
    raised = Zipf(count=10, exponent=1.0).pmf(ranks) ** 1.7
    np.testing.assert_allclose(raised / raised.sum(), Zipf(count=10, exponent=1.7).pmf(ranks), rtol=1e-13)


def test_scalars_shapes_seed_and_round_trip(rng: np.random.Generator) -> None:
    law = Zipf(count=9, exponent=1.1)
    assert type(law.quantile(0.5)) is int
    assert type(law.sample(rng)) is int
    assert type(law.cdf(2.5)) is float
    assert law.sample(rng, (2, 3)).shape == (2, 3)
    assert law.quantile([[0.1], [0.9]]).shape == (2, 1)
    assert law.cdf([0.5, 1.0, 1.5, 99.0])[[0, 3]].tolist() == [0.0, 1.0]
    assert np.isnan(law.cdf(np.nan))
    first, second = (law.sample(np.random.default_rng(3), 100) for _ in range(2))
    assert (first == second).all()
    assert msgspec.convert(msgspec.to_builtins(law), Distribution) == law
    assert hash(law) == hash(Zipf(count=np.int64(9), exponent=1.1))
