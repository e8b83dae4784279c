"""The Kolmogorov-Smirnov distance of a law from samples of which only quantiles are left.

Given the quantiles q_i at probabilities p_i, the distance is the largest |F(q_i) - p_i|. It falls short of that from
all samples by at most the step of the p_i, and is off by the rank error of a sketch that the quantiles come from.
"""

from typing import Final

import numpy as np

from tidings.statistics._arrays import FloatArray, Numbers, floats

__all__ = ["PROBABILITIES", "distance_from_quantiles"]

PROBABILITIES: Final = (0.01, *(step / 20.0 for step in range(1, 20)), 0.99, 0.999)
"""Where profiles give quantiles of a duration: close enough for a distribution to be drawn through them."""


def distance_from_quantiles(cdf_at_quantiles: Numbers, probabilities: Numbers) -> FloatArray:
    """One distance per row of a law's cdf at the row's quantiles; NaN in a row gives NaN."""
    gaps = np.abs(floats(cdf_at_quantiles) - floats(probabilities))
    return np.asarray(gaps.max(axis=-1))
