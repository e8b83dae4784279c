"""Quantiles of whole numbers in bounded memory: counts in buckets that grow with the numbers.

Numbers below 2^10 have a bucket each; above, a bucket is 1/1024 of the power of two it lies in, so a quantile is within
.05 % of a number that was added.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["LogHistogram"]

_BITS: Final = 10
_OCTAVES: Final = 63 - _BITS


class LogHistogram:
    """Counts of numbers from 0 to 2^62."""

    def __init__(self) -> None:
        self._counts = np.zeros((_OCTAVES + 1) << _BITS, np.int64)

    def add(self, values: NDArray[Any]) -> None:
        exponent = np.maximum(
            np.frexp(values.astype(np.float64))[1] - 1 - _BITS, -1
        )  # frexp rounds up near 2^53 and on
        shift = np.maximum(exponent, 0)
        bucket = np.where(exponent < 0, values, ((shift + 1) << _BITS) + (values >> shift) - (1 << _BITS))
        self._counts += np.bincount(bucket, minlength=len(self._counts))

    def quantile(self, share: float) -> float:
        """The number below or at which this share of all is: the middle of its bucket; 0 if there is none."""
        total = int(self._counts.sum())
        if total == 0:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self._counts), max(share * total, 1), side="left"))
        octave, within = divmod(bucket, 1 << _BITS)
        if octave == 0:
            return float(within)
        width = 1 << (octave - 1)
        return float(((1 << _BITS) + within) * width + (width - 1) / 2)
