"""Inversion against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammainc

from tidings.prediction._inversion import ORDER, contour, fraction_of, invert, value_at

T = np.array([0.26, 0.4, 0.6, 0.8, 1.0])


def inverted(transform, t=T, t_max=1.0):
    s, decay, span = contour(t_max)
    return invert(transform(s) / s, t, decay, span)


@pytest.mark.parametrize("shape", [0.7, 1.0, 2.0, 8.0, 60.0])
def test_gamma_distributions(shape) -> None:
    scale = 0.5 / shape
    found = inverted(lambda s: np.exp(-shape * np.log1p(scale * s)))
    assert found == pytest.approx(gammainc(shape, T / scale), abs=3e-6 if shape == 60.0 else 3e-8)


def test_a_distribution_with_an_atom_taken_out() -> None:
    found = inverted(lambda s: 0.2 / (1.0 + 0.2 * s))
    assert found == pytest.approx(0.2 * (1.0 - np.exp(-5.0 * T)), abs=1e-8)


@settings(deadline=None)
@given(
    # Rates that differ by less than that are equal: SciPy's exponential of a triangular matrix fails between the two.
    rates=st.lists(st.floats(2.0, 200.0).map(lambda rate: round(rate, 2)), min_size=1, max_size=8),
    t=st.floats(0.25, 1.0),
)
def test_sums_of_exponentials(rates, t) -> None:
    """A convolution by another road: partial fractions fail for close rates, so a fine matrix exponential decides."""
    from scipy.linalg import expm

    n = len(rates)
    generator = np.diag([-r for r in rates]) + np.diag(rates[:-1], 1)
    wanted = 1.0 - expm(generator * t)[0].sum()
    found = inverted(lambda s: np.prod([r / (r + s) for r in rates], axis=0), np.array([t]))[0]
    assert found == pytest.approx(wanted, abs=2e-6), n


def test_compiled_and_plain_agree() -> None:
    s, decay, span = contour(1.0)
    values = (5.0 / (5.0 + s)) ** 3 / s
    found = []
    for kernel, evaluate in ((fraction_of, value_at), (fraction_of.py_func, value_at.py_func)):
        fraction, one, other = (np.zeros(2 * ORDER + 1, np.complex128) for _ in range(3))
        kernel(values, fraction, one, other)
        found.append([evaluate(float(t), fraction, decay, span) for t in T])
    # The quotient-difference scheme cancels digits: the fractions differ in the sixth, what they stand for does not.
    assert found[0] == pytest.approx(found[1], abs=1e-9)
