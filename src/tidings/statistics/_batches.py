"""Shares of events that are not independent: by batches of time.

Late events come together: in a queue, in an outage. So a run is cut into batches of equal length, and the share is the
ratio of two sums over them, hits h and trials n. With the residuals e = h - R n its standard error is
sqrt(K / (K - 1) sum e^2) / sum n, and the interval is Student's with K - 1 degrees (the ratio estimator by batch means;
good where batches are longer than what makes events alike). The same holds for the difference of two shares over the
same trials, with h the difference of the hits: what the two have in common cancels.
"""

import math
from typing import NamedTuple

import numpy as np

from tidings.statistics._arrays import Numbers, floats

__all__ = ["BATCHES_LEAST", "BatchEstimate", "batch_share", "student_quantile"]

BATCHES_LEAST = 4
"""With fewer batches that have any trials there is no telling how far they differ."""


class BatchEstimate(NamedTuple):
    """A share, or a difference of shares, and its standard error (NaN where there is none) over so many batches."""

    value: float
    error: float
    batches: int

    def half_width(self, level: float) -> float:
        """Half of the interval of this level."""
        return self.error * student_quantile(level, self.batches - 1) if self.batches > 1 else math.nan


def batch_share(hits: Numbers, trials: Numbers) -> BatchEstimate:
    """The share of hits among trials, by batch; batches without trials do not count."""
    n = floats(trials)
    h, n = floats(hits)[n > 0.0], n[n > 0.0]
    if not len(n):
        return BatchEstimate(math.nan, math.nan, 0)
    share = float(h.sum() / n.sum())
    if len(n) < BATCHES_LEAST:
        return BatchEstimate(share, math.nan, len(n))
    residuals = h - share * n
    error = math.sqrt(len(n) / (len(n) - 1) * float(np.square(residuals).sum())) / float(n.sum())
    return BatchEstimate(share, error, len(n))


def student_quantile(level: float, degrees: int) -> float:
    """t with P[|T| <= t] = level for Student's T of so many degrees."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2.0))
