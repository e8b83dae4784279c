"""Distribution-free bounds on delay differences (paper A, section 3.2): a wait that is long enough for certain.

Each function gives an x with P[D > x] <= p, in the unit of its scales.

- `chebyshev`, `cantelli` need only the variance: D symmetric, P[D > x] = P[|D| > x] / 2 <= v / (2 x²); one-sided,
  without symmetry, P[D > x] <= v / (v + x²).
- `bernstein`, `chernoff` need the scales of the Laplacians that D is the sum of. E|X|^m = m! b^m is Bernstein's
  condition with c = b, so P[D > x] <= exp(-x² / (2 (v + c x))), c the largest scale. Chernoff takes the best
  exponent: x = min over 0 < t < 1/c of (ln(1/p) - Σ ln(1 - b² t²)) / t.

Hoeffding's inequality, which the paper names, needs bounded variables: delays are not.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tidings.errors import InputError
from tidings.ordering._laplace import FloatArray

__all__ = ["bernstein", "cantelli", "chebyshev", "chernoff"]


def chebyshev(variance: ArrayLike, p: ArrayLike) -> FloatArray:
    """For a symmetric difference: sqrt(v / 2p)."""
    return np.sqrt(_positive("variance", variance) / (2.0 * _probability(p)))


def cantelli(variance: ArrayLike, p: ArrayLike) -> FloatArray:
    """For any difference of mean 0: sqrt(v (1 - p) / p)."""
    wanted = _probability(p)
    return np.sqrt(_positive("variance", variance) * (1.0 - wanted) / wanted)


def bernstein(scales: Sequence[float], p: ArrayLike) -> FloatArray:
    """For a sum of Laplacians: L c + sqrt(L² c² + 2 L v), L = ln(1/p)."""
    b = _scales(scales)
    depth = -np.log(_probability(p))
    c, variance = float(b.max()), 2.0 * float((b**2).sum())
    return depth * c + np.sqrt((depth * c) ** 2 + 2.0 * depth * variance)


def chernoff(scales: Sequence[float], p: ArrayLike) -> FloatArray:
    """For a sum of Laplacians: the least that any exponential moment can show; always below Bernstein's."""
    b = _scales(scales)
    wanted = _probability(p)
    flat = [_chernoff(b, -math.log(one)) for one in wanted.ravel()]
    return np.array(flat).reshape(wanted.shape)


def _chernoff(b: FloatArray, depth: float) -> float:
    from scipy.optimize import brentq

    def slope(s: float) -> float:
        """t² times the derivative of the bound, at t = s / c; it rises from -depth to infinity."""
        square = (b * (s / c)) ** 2
        return float((2.0 * square / (1.0 - square) + np.log1p(-square)).sum()) - depth

    c = float(b.max())
    if depth == 0.0:
        return 0.0
    t = float(brentq(slope, 0.0, 1.0 - 1e-15, xtol=1e-15)) / c
    return (depth - float(np.log1p(-((b * t) ** 2)).sum())) / t


def _probability(p: ArrayLike) -> FloatArray:
    wanted = np.asarray(p, np.float64)
    if not ((wanted > 0.0) & (wanted <= 1.0)).all():
        raise InputError("p must be above 0 and at most 1: no bound holds for certain")
    return wanted


def _positive(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, np.float64)
    if not (array >= 0.0).all():
        raise InputError(f"{name} holds a value that is not 0 or more")
    return array


def _scales(scales: Sequence[float]) -> FloatArray:
    b = np.asarray(scales, np.float64)
    if b.ndim != 1 or b.size == 0 or not ((b > 0.0) & np.isfinite(b)).all():
        raise InputError(f"scales are {scales!r}: give one positive number per broker on the path")
    return b
