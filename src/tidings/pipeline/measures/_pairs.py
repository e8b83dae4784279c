"""Pairs of a publisher and a subscription: what became of events, how long they take, and two fitted distributions.

The scores (_pair_scores.py) are computed from the same partials, by topic and window of departure: fates are sorted
and counted once for both.

- Delays are those from departure to arrival, of the events that arrived.
- Delay differences are those of events that arrived and follow each other in the publisher's order, inside a chunk (the
  one that crosses from a chunk to the next is left out). Their two-Laplace scale is what receivers latch by
  (probabilistic FIFO ordering).
- The hypoexponential distribution has the smallest delay as its constant part, and the delays' mean and variance.
- The distance of a distribution is Kolmogorov and Smirnov's at GRID quantiles of the sketch. It includes the sketch's
  rank error of 1.33 %, so only distances well above that speak against a distribution.
- An event is overtaken if a later one of the publisher was delivered to the subscription before it. Those that a later
  event of the same chunk overtakes are counted; of those in the last BORDER_EVENTS sequence numbers before the end of
  the chunk that are not, `border_ns` keeps when they were delivered, to be held against the next chunks.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.compiled import compiled
from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.measures._batch_sums import shares_of
from tidings.pipeline.measures._estimates import (
    duration,
    duration_columns,
    floats,
    moments_of,
    partial_columns,
)
from tidings.pipeline.rows import (
    LONGEST,
    Audience,
    FateRows,
    Values,
    batch_columns,
    grouped,
    grouped_batches,
    grouped_value,
    packed,
    sketches,
    stable_order,
    table_of,
)
from tidings.statistics import (
    Stages,
    distance_from_quantiles,
    ratio,
    stages_cdf,
    stages_from_moments,
    two_laplace_cdf,
    two_laplace_scale,
)

__all__ = [
    "BORDER_EVENTS",
    "GRID",
    "MIDDLES",
    "PAIRS",
    "PARTIAL_PAIRS",
    "WINDOW_NS",
    "finish_pairs",
    "pairs_of",
]

WINDOW_NS: Final = 60_000_000_000
"""Length of the windows of departure, unless another is asked for."""
BORDER_EVENTS: Final = 256
"""How many sequence numbers before the end of a chunk are remembered, to be held against the next ones."""

GRID: Final = 64
"""Quantiles that a distance is taken at, in the middle of as many equal shares."""
_NEVER: Final = (1 << 63) - 1
MIDDLES: Final = tuple((i + 0.5) / GRID for i in range(GRID))

PAIRS = (
    "publisher string, subscription string, matched bigint, arrived double, arrived_low double, arrived_high double, "
    "arrived_effective double, "
    f"{duration_columns('delay')}, hypoexponential_shift_s double, hypoexponential_rates_per_s array<double>, "
    "hypoexponential_distance double, difference_count bigint, difference_mean_absolute_s double, "
    "difference_quantiles_ns array<bigint>, difference_sketch binary, two_laplace_scale_s double, "
    "two_laplace_distance double"
)


PARTIAL_PAIRS: Final = (
    "publisher string, chunk bigint, subscription string, subscriber string, price double, topic string, "
    "window_ns bigint, matched bigint, on_time bigint, on_time_least bigint, on_time_most bigint, late bigint, "
    "duplicates bigint, overtaken bigint, "
    f"first_delivered_ns bigint, border_ns array<bigint>, {partial_columns('delay')}, difference_count bigint, "
    f"difference_absolute_sum bigint, difference_sketch binary, {batch_columns('matched', 'on_time', 'arrived')}"
)


def pairs_of(fates: FateRows, audience: Audience, *, window_ns: int) -> pa.Table:
    """The partials (PARTIAL_PAIRS) of these fates."""
    lane = packed(fates.publisher.codes, fates.chunk, fates.number)
    order = _by_lane(fates, lane)
    lane, sequence = lane[order], fates.sequence[order]
    delay, delivered = fates.delay_ns.at(order), fates.delivered_ns.at(order)
    difference, is_overtaken = followed(lane, delay, delivered)
    window = fates.departure_ns[order] // window_ns
    groups = grouped(lane, fates.topic.codes[order], window)
    is_near = sequence % CHUNK_EVENTS >= CHUNK_EVENTS - BORDER_EVENTS
    kept = np.clip(difference.values, -LONGEST, LONGEST)
    counts = groups.sums(difference.known)
    firsts = order[groups.firsts]
    number = pa.array(fates.number[firsts])
    columns = {
        "publisher": fates.publisher.at(firsts),
        "chunk": fates.chunk[firsts],
        "subscription": audience.subscriptions.take(number),
        "subscriber": audience.subscribers.take(number),
        "price": audience.prices.take(number),
        "topic": fates.topic.at(firsts),
        "window_ns": window[groups.firsts] * window_ns,
        "matched": groups.counts(),
        "on_time": groups.sums(fates.is_on_time[order]),
        "on_time_least": groups.sums(fates.is_surely_on_time[order]),
        "on_time_most": groups.sums(fates.is_maybe_on_time[order]),
        "late": groups.sums(fates.is_late[order]),
        "duplicates": groups.sums(fates.duplicates[order]),
        "overtaken": groups.sums(is_overtaken),
        "first_delivered_ns": groups.least(delivered),
        "border_ns": groups.lists(delivered.values, delivered.known & is_near & ~is_overtaken),
        **grouped_value("delay", groups, delay),
        "difference_count": counts,
        "difference_absolute_sum": groups.sums(np.abs(kept)),
        "difference_sketch": sketches(kept[groups.order][difference.known[groups.order]], counts),
        **grouped_batches(
            groups,
            fates.departure_ns[order],
            {"matched": np.ones(len(order)), "on_time": fates.is_on_time[order], "arrived": delay.known},
        ),
    }
    return table_of(columns, PARTIAL_PAIRS)


def _by_lane(fates: FateRows, lane: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The order by lane, and in each by event; fates of a partition are by event already, as a rule."""
    events = packed(fates.publisher.codes, fates.chunk, fates.sequence)
    is_by_event = bool((events[1:] >= events[:-1]).all())
    return stable_order(lane if is_by_event else packed(lane, fates.sequence))


def followed(lane: npt.NDArray[Any], delay: Values, delivered: Values) -> tuple[Values, npt.NDArray[np.bool_]]:
    """For rows in the order of their lanes, and in these of their events: the delay of the next event that arrived
    less that of the row, and whether a later event was delivered before the row's."""
    values, known, overtaken = _followed(lane, delay.values, delay.known, delivered.values, delivered.known)
    return Values(values, known), overtaken


@compiled
def _followed(
    lane: npt.NDArray[Any],
    delay: npt.NDArray[Any],
    has_arrived: npt.NDArray[Any],
    delivered: npt.NDArray[Any],
    is_delivered: npt.NDArray[Any],
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    rows = len(lane)
    difference, known, overtaken = np.zeros(rows, np.int64), np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    later, earliest = -1, _NEVER
    for row in range(rows - 1, -1, -1):
        if row == rows - 1 or lane[row] != lane[row + 1]:
            later, earliest = -1, _NEVER
        if not has_arrived[row]:
            continue
        if later >= 0:
            difference[row] = delay[later] - delay[row]
            known[row] = True
        later = row
        if is_delivered[row]:
            overtaken[row] = earliest < delivered[row]
            earliest = min(earliest, delivered[row])
    return difference, known, overtaken


def finish_pairs(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    arrived = shares_of(batch, "arrived", level=level)
    delays = moments_of(batch, "delay")
    distribution = stages_from_moments(floats(batch, "delay_min"), delays.mean, delays.variance)
    absolute = ratio(floats(batch, "difference_absolute_sum"), floats(batch, "difference_count"))
    scale = two_laplace_scale(absolute)
    return {
        **duration(batch, "delay"),
        "arrived": arrived.share,
        "arrived_low": arrived.interval.low,
        "arrived_high": arrived.interval.high,
        "arrived_effective": arrived.effective,
        "hypoexponential_shift_s": distribution.shift / 1e9,
        "hypoexponential_rates_per_s": _rates(distribution),
        "hypoexponential_distance": _distance(
            stages_cdf(_grid(batch, "delay"), distribution), distribution.phases == 0
        ),
        "difference_mean_absolute_s": absolute / 1e9,
        "two_laplace_scale_s": scale / 1e9,
        "two_laplace_distance": _distance(two_laplace_cdf(_grid(batch, "difference"), scale[:, None]), scale == 0.0),
    }


def _rates(distribution: Stages) -> list[list[float] | None]:
    """Rates per second, ascending; none where there is no fit, no phases where all delays are equal."""
    return [
        None if np.isnan(shift) else [1e9 / mean for mean in [long] * min(phases, 1) + [short] * (phases - 1)]
        for shift, phases, long, short in zip(*(part.tolist() for part in distribution), strict=True)
    ]


def _distance(cdf: npt.NDArray[np.float64], constant: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """A constant fits a constant exactly, which quantiles of a step would not show."""
    distances = distance_from_quantiles(cdf, MIDDLES)
    return np.where(constant & ~np.isnan(distances), 0.0, distances)


def _grid(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float64]:
    """The quantiles as rows of GRID values; a row of NaN where the sketch is empty."""
    lists = batch.column(f"{name}_grid")
    grid = np.full((batch.num_rows, GRID), np.nan)
    known = lists.is_valid().to_numpy(zero_copy_only=False)
    grid[known] = lists.flatten().to_numpy().astype(np.float64).reshape(-1, GRID)
    return grid
