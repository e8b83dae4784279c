"""Predicted against measured: how far R' of the profiles is from R of the same run.

A share measured of events that count for n independent ones (`effective_events` of the scores) scatters; with nothing
but that, the mean absolute difference would be sqrt(2 / pi) sqrt(R (1 - R) / n) on average (`noise`), so that is what
an error is to be held against.
"""

import numpy as np
from numpy.typing import NDArray

from tidings.prediction import Unmodelled
from tidings.report.figures._report import BINS, Comparison

__all__ = ["bins_of", "compare"]

POINTS_MAX = 1000
"""More subscriptions than that are counted by cell."""
CELLS = 25

Floats = NDArray[np.float64]


def bins_of(shares: Floats) -> tuple[int, ...]:
    """How many shares there are in each of BINS equal steps from 0 to 1; NaN counts nowhere."""
    known = shares[~np.isnan(shares)]
    return tuple(int(count) for count in np.histogram(known, bins=BINS, range=(0.0, 1.0))[0])


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
    seen, told = measured[known], np.clip(predicted[known], 0.0, 1.0)
    spread = np.sqrt(2.0 / np.pi * seen * (1.0 - seen) / np.maximum(effective[known], 1.0))
    counts = np.histogram2d(seen, told, bins=CELLS, range=((0.0, 1.0), (0.0, 1.0)))[0].astype(int)
    points = None
    if known.sum() <= POINTS_MAX:
        shown = [name for name, is_known in zip(names, known, strict=True) if is_known]
        points = tuple(zip(seen.tolist(), told.tolist(), shown, strict=True))
    return Comparison(
        scheme=scheme,
        unmodelled=unmodelled,
        compared=int(known.sum()),
        inside=int(((told >= low[known]) & (told <= high[known])).sum()),
        error=float(np.abs(seen - told).mean()),
        noise=float(spread.mean()),
        counts=tuple(tuple(row) for row in counts.tolist()),
        points=points,
    )
