"""Predicted against measured: how far R' of the profiles is from R of the same run.

A share measured over n effective events (`effective_events` of the scores) has sampling noise. By itself it causes a
mean absolute difference of sqrt(2 / pi) sqrt(R (1 - R) / n): the `noise` that an error is compared with.
"""

import numpy as np
from numpy.typing import NDArray

from tidings.prediction import Unmodelled
from tidings.report.figures._report import BINS, LATENESS_STEPS, Comparison

__all__ = ["bins_of", "compare", "lateness_of"]

POINTS_MAX = 1000
"""With more subscriptions, points are counted by cell."""
CELLS = 25

Floats = NDArray[np.float64]


def bins_of(shares: Floats) -> tuple[int, ...]:
    """The number of shares in each of BINS equal steps from 0 to 1; NaN counts nowhere."""
    known = shares[~np.isnan(shares)]
    return tuple(int(count) for count in np.histogram(known, bins=BINS, range=(0.0, 1.0))[0])


def lateness_of(shares: Floats) -> tuple[int, ...]:
    """The number of shares in each step of the scale of lateness; NaN counts nowhere."""
    known = shares[~np.isnan(shares)]
    steps = (known[:, None] < np.array(LATENESS_STEPS)).sum(axis=1)
    return tuple(np.bincount(steps, minlength=len(LATENESS_STEPS) + 1).tolist())


def compare(
    names: list[str],
    measured: Floats,
    predicted: Floats,
    *,
    effective: Floats,
    low: Floats,
    high: Floats,
    scheme: str | None = None,
    unmodelled: tuple[Unmodelled, ...] = (),
) -> Comparison | None:
    """None if no subscription has both; `low` and `high` are the ends of what was measured."""
    known = ~(np.isnan(measured) | np.isnan(predicted))
    if not known.any():
        return None
    seen, expected = measured[known], np.clip(predicted[known], 0.0, 1.0)
    spread = np.sqrt(2.0 / np.pi * seen * (1.0 - seen) / np.maximum(effective[known], 1.0))
    counts = np.histogram2d(seen, expected, bins=CELLS, range=((0.0, 1.0), (0.0, 1.0)))[0].astype(int)
    points = None
    if known.sum() <= POINTS_MAX:
        shown = [name for name, is_known in zip(names, known, strict=True) if is_known]
        points = tuple(zip(seen.tolist(), expected.tolist(), shown, strict=True))
    return Comparison(
        scheme=scheme,
        unmodelled=unmodelled,
        compared=int(known.sum()),
        inside=int(((expected >= low[known]) & (expected <= high[known])).sum()),
        error=float(np.abs(seen - expected).mean()),
        noise=float(spread.mean()),
        counts=tuple(tuple(row) for row in counts.tolist()),
        points=points,
    )
