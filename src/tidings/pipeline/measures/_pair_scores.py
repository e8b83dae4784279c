"""Scores of pairs of an event and a subscription that it matches, from the partials of measures/_pairs.py.

Rules:

- matched = on_time + late + lost; `lost` (a false negative) was never delivered as far as the trace goes, whatever the
  reason: lost on a link, dropped, or still in transit at the end.
- On-time reliability R is on_time / matched (papers B and D); over all subscriptions it is paper C's delivery rate
  (equation 1). Its interval goes by how much R differs between batches of time, since events are late together
  (statistics/_batches.py); `effective_events` is for how many independent ones they count, and where those are few, or
  the batches, the interval `is_rough`. `delivered_share` counts what came late as well. Earnings are the prices of
  what came on time (equation 2), added as decimals so that they do not depend on the order.
- Where clocks were corrected, delays are known up to an error, and so is what was on time: between `on_time_least` and
  `on_time_most`. The interval of R is wider by the shares of what is between them and `on_time`.
- A FIFO violation is an event that is delivered after a later event of the same publisher to the same subscription.
  Inside a chunk every one is found. Across the border of a chunk the last BORDER_EVENTS sequence numbers before it are
  held against everything after it; an event that is overtaken from the next chunk although it is further from the
  border is not counted.
- Delays are arrived_ns - departure_ns; their quantiles come from a KLL sketch (measures/_sums.py says how exact).
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidings.pipeline.measures._batch_sums import shares_of
from tidings.pipeline.measures._estimates import LEVEL, floats
from tidings.pipeline.measures._pair_sums import COUNTS
from tidings.statistics import ratio

__all__ = ["QUANTILES", "SCORES", "finish_scores"]

QUANTILES: Final = (0.5, 0.9, 0.99)

SCORES: Final = (
    "matched bigint, on_time bigint, late bigint, lost bigint, on_time_least bigint, on_time_most bigint, "
    "on_time_reliability double, reliability_low double, "
    "reliability_high double, effective_events double, is_rough boolean, delivered_share double, earnings double, "
    "duplicates bigint, fifo_violations bigint, "
    "delay_min_ns bigint, delay_mean_ns double, delay_max_ns bigint, delay_p50_ns bigint, delay_p90_ns bigint, "
    "delay_p99_ns bigint, delay_sketch binary"
)
"""The columns of every table of scores, after those that say whose they are."""


def finish_scores(batch: pa.RecordBatch, *, level: float = LEVEL) -> dict[str, Any]:
    matched, on_time, least, most, late = (batch.column(name).to_numpy() for name in COUNTS[:5])
    found = shares_of(batch, "on_time", level=level)
    return {
        "lost": matched - on_time - late,
        "on_time_reliability": ratio(on_time, matched),
        "reliability_low": np.maximum(found.interval.low - ratio(on_time - least, matched), 0.0),
        "reliability_high": np.minimum(found.interval.high + ratio(most - on_time, matched), 1.0),
        "effective_events": found.effective,
        "is_rough": found.is_rough,
        "delivered_share": ratio(on_time + late, matched),
        "delay_mean_ns": ratio(floats(batch, "delay_sum"), on_time + late),
    }
