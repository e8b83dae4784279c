"""The objective and its margin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import ConfigurationError
from tidings.planning import Objective
from tidings.planning._objective import DISPERSION, RISK

SHARES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


@given(shares=SHARES, low=st.floats(0.05, 0.95), gap=st.floats(0.0, 0.04), share=st.floats(0.05, 1.0))
def test_a_looser_objective_is_met_by_whatever_meets_a_tighter_one(
    shares: list[float], low: float, gap: float, share: float
) -> None:
    reliability = np.array(shares)
    loose, tight = Objective(reliability=low, share=share), Objective(reliability=low + gap, share=share)
    assert loose.shortfall(reliability) <= tight.shortfall(reliability)
    assert Objective(reliability=low, share=share / 2.0).shortfall(reliability) <= loose.shortfall(reliability)


@given(matched=st.floats(1.0, 1e7), reliability=st.floats(0.5, 0.999))
def test_the_margin_narrows_with_events(matched: float, reliability: float) -> None:
    objective = Objective(reliability=reliability)
    few, many = objective.needed(np.array([matched])), objective.needed(np.array([2.0 * matched]))
    assert reliability < many[0] < few[0] <= 1.0


def test_with_the_margin_a_run_seldom_misses() -> None:
    """10,000 runs of 800 events that come in pairs, late or not together: the risk is what it is said to be."""
    objective = Objective(reliability=0.97)
    needed = float(objective.needed(np.array([800.0]))[0])
    pairs = np.random.default_rng(7).binomial(int(800 / DISPERSION), needed, size=10_000)
    missed = float((pairs / (800 / DISPERSION) < 0.97).mean())
    assert missed < 1.5 * RISK  # margin: the normal approximation of a binomial distribution
    assert missed > 0.2 * RISK


def test_those_without_events_do_not_count() -> None:
    objective = Objective(reliability=0.9, share=0.5)
    assert objective.is_met(np.array([0.95, 0.2, np.nan, np.nan]))
    assert not objective.is_met(np.array([0.8, 0.2, np.nan, np.nan]))
    assert objective.count(3) == 2


@pytest.mark.parametrize("wrong", [0.0, 1.0, -1.0, float("nan"), 99.0])
def test_an_objective_is_a_share(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match=r"such as 0\.99"):
        Objective(reliability=wrong)


@pytest.mark.parametrize("wrong", [0.0, 1.1, float("nan")])
def test_so_is_the_share_of_subscribers(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match="at most 1"):
        Objective(share=wrong)
