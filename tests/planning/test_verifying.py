"""Runs under fresh seeds, and what they are taken for."""

import numpy as np
import pytest

from tidings.model.scenario import Network
from tidings.planning import Objective, SpeedUpLink, apply, verify
from tidings.planning._objective import LEVEL, _next_low


def test_runs_have_seeds_of_their_own(overloaded: Network) -> None:
    well = apply(overloaded, [SpeedUpLink(source="b", target="c", factor=4.0)])
    shown = verify(well, Objective(reliability=0.99), runs=2)
    assert overloaded.seed not in shown.seeds
    assert shown.met == (True, True)
    assert shown.is_met
    assert shown.is_met_at_low_ends
    assert (shown.low <= shown.reliability).all()
    assert (shown.reliability <= shown.high).all()


def test_an_overload_is_not_met(overloaded: Network) -> None:
    shown = verify(overloaded, Objective(reliability=0.99), runs=2)
    assert shown.met == (False, False)
    assert not shown.is_met_at_low_ends
    assert verify(overloaded, Objective(reliability=0.99, share=0.5), runs=2).is_met


def test_a_further_run_is_above_with_the_confidence_stated() -> None:
    """4,000 times five runs and a sixth: the sixth is above in 95 % of them, within three standard errors."""
    drawn = np.random.default_rng(3).normal(0.9, 0.01, size=(6, 4_000))
    above = float((drawn[5] >= _next_low(drawn[:5])).mean())
    assert above == pytest.approx(LEVEL, abs=3.0 * np.sqrt(LEVEL * (1.0 - LEVEL) / 4_000))


def test_runs_in_which_nothing_matched_say_nothing() -> None:
    found = _next_low(np.array([[0.9, np.nan], [0.9, np.nan]]))
    assert found[0] == pytest.approx(0.9)
    assert np.isnan(found[1])
    assert _next_low(np.array([[0.7]]))[0] == pytest.approx(0.7)
