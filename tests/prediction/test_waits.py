"""Waits at one station against closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.prediction._waits import (
    gg1_wait,
    mm1_wait,
    poisson_wait,
    residual_mean,
    sigma_of_wait,
    wait_of_sigma,
)


def one(value: float):
    return np.array([value])


def test_check_value_of_equation_5() -> None:
    assert mm1_wait(one(5.0), one(0.1))[0] == pytest.approx(0.1, abs=1e-12)


def test_overload_waits_without_end() -> None:
    assert np.isinf(mm1_wait(one(10.0), one(0.1)))[0]
    assert np.isinf(gg1_wait(one(11.0), one(0.1), one(0.5), one(0.5)))[0]
    assert np.isinf(poisson_wait(one(10.0), one(0.1), one(0.02)))[0]


@given(st.floats(0.01, 0.99), st.floats(0.001, 10.0))
def test_gg1_with_exponential_everything_is_mm1(load, mean_s) -> None:
    rate = one(load / mean_s)
    assert gg1_wait(rate, one(mean_s), one(1.0), one(1.0)) == pytest.approx(mm1_wait(rate, one(mean_s)), rel=1e-12)


def test_gg1_of_periodic_arrivals_is_near_the_exact_queue() -> None:
    """D/M/1 at load .5: sigma solves sigma = exp(-2 (1 - sigma)), .20319; Whitt's approximation is known to 2 %."""
    assert gg1_wait(one(5.0), one(0.1), one(0.0), one(1.0))[0] == pytest.approx(0.1 * 0.20319 / 0.79681, rel=0.02)
    assert gg1_wait(one(5.0), one(0.1), one(0.0), one(0.0))[0] == 0.0


def test_poisson_wait_is_pollaczek_khinchine() -> None:
    assert poisson_wait(one(5.0), one(0.1), one(0.02))[0] == pytest.approx(0.1)
    assert poisson_wait(one(5.0), one(0.1), one(0.01))[0] == pytest.approx(0.05)


@given(st.floats(0.0, 0.999), st.floats(0.01, 2.0))
def test_sigma_and_wait_are_each_others_inverse(sigma, residual_s) -> None:
    wait_s = wait_of_sigma(one(sigma), one(residual_s))
    assert sigma_of_wait(wait_s, one(residual_s))[0] == pytest.approx(sigma, abs=1e-12)


def test_the_residual_of_a_constant_is_half_of_it() -> None:
    assert residual_mean(one(0.2), one(0.04))[0] == pytest.approx(0.1)
    assert residual_mean(one(0.0), one(0.0))[0] == 0.0
