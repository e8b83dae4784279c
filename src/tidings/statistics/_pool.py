"""Shares of rows that were seen too rarely to know them by themselves, with the help of the rows beside them.

Each row has an independent expectation (`expected`), with about the same error for all rows of a group. So the mean
difference of a group is added to the expectation. The deviation of rows from it, beyond chance, is measured over all
rows: that is `spread`, the standard deviation between rows. A row of which its own events know less
than the group does becomes the mean of both, weighted by their precision (Fay and Herriot's small area estimates);
all others stay as they are, so a group that does not fit does no harm.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.statistics._batches import LEVEL
from tidings.statistics._intervals import standard_normal_quantile

__all__ = ["PooledShares", "pooled_shares"]

_LEAST_VARIANCE: Final = 1e-4
"""Of one event: a share of exactly 0 or 1 is never certain."""
_TRUST: Final = 1e-3
"""Added to the variances of rows where their deviations are averaged, so that a few rows do not decide alone."""


class PooledShares(NamedTuple):
    """By row; `half_width` (of an interval of `LEVEL`) is of those that are pooled. `effective` is for how many
    independent events of its own all that is known of a row counts."""

    share: NDArray[np.float64]
    half_width: NDArray[np.float64]
    effective: NDArray[np.float64]
    is_pooled: NDArray[np.bool_]
    spread: float


def pooled_shares(
    share: NDArray[np.float64],
    events: NDArray[np.float64],
    effective: NDArray[np.float64],
    expected: NDArray[np.float64],
    group: NDArray[np.integer],
) -> PooledShares:
    """`events` were seen of each row, which count for `effective` independent ones; `group` is a number from 0 on."""
    seen = ~(np.isnan(share) | np.isnan(expected)) & (events > 0.0) & (effective > 0.0)
    weight = np.where(seen, events, 0.0)
    total = np.maximum(np.bincount(group, weight), 1.0)
    apart = np.bincount(group, weight * np.where(seen, share - expected, 0.0)) / total
    target = np.clip(np.where(seen, expected, 0.0) + apart[group], 0.0, 1.0)
    single = np.maximum(target * (1.0 - target), _LEAST_VARIANCE)
    variance = single / np.maximum(events, 1.0)
    trust = np.where(seen, (variance + _TRUST) ** -2.0, 0.0)
    beyond = np.where(seen, (share - target) ** 2 - variance, 0.0)
    spread2 = max(0.0, float((trust * beyond).sum() / max(trust.sum(), np.finfo(float).tiny)))
    is_pooled = seen & (variance > spread2)
    own = spread2 / (spread2 + variance)
    # Rows of a group share events, so the group knows no more than the row with the most of them, at least.
    most = np.ones(len(total))
    np.maximum.at(most, group, np.where(seen, effective, 1.0))
    common = single / most[group]
    left = own * variance + (1.0 - own) ** 2 * common
    return PooledShares(
        share=np.where(is_pooled, own * share + (1.0 - own) * target, share),
        half_width=standard_normal_quantile(LEVEL) * np.sqrt(left),
        effective=np.where(is_pooled, np.maximum(effective, single / left), effective),
        is_pooled=is_pooled,
        spread=float(np.sqrt(spread2)),
    )
