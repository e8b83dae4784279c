"""A rate that changes over the day: the same publisher is faster at some times than at others.

    day = { factors = [0.2, 0.2, 1.0, 2.0, 1.5, 0.5] }                  # six parts of 4 h each
    day = { factors = [1, 3], period = "10 min" }

The factors hold for equal parts of the period, which repeats, and are scaled to a mean of 1: `rate` stays the mean
rate. Intervals are drawn in *busy time*, which passes `factor` times as fast as the clock; so a Poisson publisher is
Poisson with the rate of the moment, and a regular one ticks regularly in it.
"""

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Day"]


class Day(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Factors of equal parts of a period, with a mean of 1."""

    factors: tuple[float, ...]
    period_s: float

    @cached_property
    def _clock(self) -> "tuple[NDArray[np.float64], NDArray[np.float64]]":
        """Busy time at the ends of the parts, and the clock there; parts with factor 0 are skipped."""
        import numpy as np

        ends = np.linspace(0.0, self.period_s, len(self.factors) + 1)
        busy = np.concatenate(([0.0], np.cumsum(np.array(self.factors) * self.period_s / len(self.factors))))
        busy *= self.period_s / busy[-1]  # rounding errors
        return busy, ends

    def clock_s(self, busy_s: "NDArray[np.float64]") -> "NDArray[np.float64]":
        """The clock after this much busy time."""
        import numpy as np

        busy, ends = self._clock
        whole = np.floor(busy_s / self.period_s)
        rest = busy_s - whole * self.period_s
        # The last part that begins at or before it: a step over a quiet part leads to its end.
        part = np.clip(np.searchsorted(busy, rest, side="right") - 1, 0, len(self.factors) - 1)
        width = busy[part + 1] - busy[part]
        share = np.where(width > 0.0, (rest - busy[part]) / np.where(width > 0.0, width, 1.0), 1.0)
        return np.asarray(whole * self.period_s + ends[part] + share * (ends[part + 1] - ends[part]))
