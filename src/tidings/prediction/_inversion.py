"""From the transform of a delay to P[delay < t]: the accelerated Fourier series of de Hoog, Knight and Stokes (1982).

The transform is known at s_k = decay + i pi k / span, k = 0 .. 2 ORDER; the same points serve every t from a sixteenth
of `span` to half of it. A continued fraction, by the quotient-difference algorithm, sums the series beyond its last
term. For sums of a few stages it is accurate to about 1e-8, and near a kink (a path that is almost constant) to about
1e-3.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import compiled

__all__ = ["ORDER", "contour", "fraction_of", "invert", "value_at"]

Array = NDArray[Any]

ORDER = 16
"""Half the number of terms."""

_ACCURACY = 1e-10
_TINY = 1e-300


def contour(t_max: float, growth_per_s: float = 0.0) -> tuple[Array, float, float]:
    """Where the transform has to be known for all t up to `t_max`: points, decay and span; the function may grow like
    exp(growth t)."""
    span = 2.0 * t_max
    decay = growth_per_s - math.log(_ACCURACY) / (2.0 * span)
    return decay + 1j * math.pi / span * np.arange(2 * ORDER + 1), decay, span


@compiled
def fraction_of(values: Array, fraction: Array, quotients: Array, differences: Array) -> None:
    """The continued fraction of the power series with these coefficients, into `fraction`; the others are scratch."""
    terms = len(values)
    order = (terms - 1) // 2
    fraction[0] = 0.5 * values[0]
    for k in range(terms - 1):
        below = 0.5 * values[0] if k == 0 else values[k]
        if abs(below) < 1e-290:  # the series has ended
            below = 1e-290 + 0.0j
        quotients[k] = values[k + 1] / below
        differences[k] = 0.0
    fraction[1] = -quotients[0]
    for r in range(1, order + 1):
        width = terms - 1 - 2 * r
        for k in range(width + 1):
            differences[k] = quotients[k + 1] - quotients[k] + differences[k + 1] if k + 1 < terms - 1 else 0.0
        fraction[2 * r] = -differences[0]
        if r < order:
            for k in range(width):
                divisor = differences[k]
                if abs(divisor) < 1e-290:
                    divisor = 1e-290 + 0.0j
                quotients[k] = quotients[k + 1] * differences[k + 1] / divisor
            fraction[2 * r + 1] = -quotients[0]


@compiled
def value_at(t: float, fraction: Array, decay: float, span: float) -> float:
    """The function at t, by the fraction's recurrence with the improved remainder."""
    terms = len(fraction)
    z = complex(math.cos(math.pi * t / span), math.sin(math.pi * t / span))
    before_a, a = 0.0 + 0.0j, fraction[0]
    before_b, b = 1.0 + 0.0j, 1.0 + 0.0j
    for k in range(1, terms - 1):
        step = fraction[k] * z
        a, before_a = a + step * before_a, a
        b, before_b = b + step * before_b, b
    last = fraction[terms - 1]
    half = 0.5 * (1.0 + (fraction[terms - 2] - last) * z)
    rest = -half * (1.0 - np.sqrt(1.0 + last * z / (half * half)))
    a = a + rest * before_a
    b = b + rest * before_b
    ratio = a / b
    return math.exp(decay * t) / span * float(ratio.real)


def invert(values: Array, t: Array, decay: float, span: float) -> Array:
    """The function at several t, from its transform at the contour's points."""
    fraction = np.zeros(len(values), np.complex128)
    scratch = np.zeros((2, len(values)), np.complex128)
    fraction_of(np.asarray(values, np.complex128), fraction, scratch[0], scratch[1])
    return np.array([value_at(float(each), fraction, decay, span) for each in t])
