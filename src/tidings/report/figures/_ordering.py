"""What order at the receiver would cost: the chance of disorder by how long events are held behind a gap (paper A).

A receiver that holds an event for L delivers it too early if the one before is still in transit: 1 - F(gap + L), with F
the distribution of two Laplacians whose scale the pipeline fitted to the pair's delay differences (equation 3). The gap
between a publisher's events that match a subscription is the gap between its events, stretched by the share that
matches; the probability is the mean over its quantiles. The distribution takes delays as independent of gaps. Queues
keep order, so less was measured; the page shows both and, if a replay of the trace is given, the result of each policy.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidings.errors import InputError
from tidings.ordering import violation_probability
from tidings.report.figures._report import Ordering, PolicyPoint
from tidings.statistics import PROBABILITIES

__all__ = ["ordering_of", "read_replay"]

STEPS = 33
"""The number of holds for which probabilities are computed; the first is 0."""
LONGEST_SCALES = 8.0
"""The longest hold, in scales of the pair at the 90th percentile: what is out of order after that is one in 1,000."""
_GAP_SHARES = (np.arange(16) + 0.5) / 16

Floats = NDArray[np.float64]


def ordering_of(
    pairs: pa.Table,
    publishers: Sequence[Mapping[str, Any]],
    scores: pa.Table,
    names: Sequence[str],
    replayed: tuple[PolicyPoint, ...],
) -> Ordering | None:
    """Over all pairs, and by subscription for these names; None if no pair has delay differences."""
    gaps = {row["publisher"]: found for row in publishers if (found := _gaps(row)) is not None}
    events = {row["publisher"]: row["events"] for row in publishers}
    columns = pairs.select(["publisher", "subscription", "matched", "two_laplace_scale_s"]).to_pydict()
    rows = [
        (publisher, name, matched, scale_s)
        for publisher, name, matched, scale_s in zip(*columns.values(), strict=True)
        if scale_s is not None and matched and publisher in gaps
    ]
    if not rows:
        return None
    scales = np.array([row[3] for row in rows])
    stretch = np.array([max(1.0, events[row[0]] / row[2]) for row in rows])
    weights = np.array([row[2] for row in rows], np.float64)
    longest_s = LONGEST_SCALES * float(np.quantile(scales, 0.9))
    holds_s = np.linspace(0.0, longest_s if longest_s > 0.0 else 1e-3, STEPS)
    places: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        places.setdefault(row[1], []).append(number)
    total, curves, wanted = np.zeros(STEPS), {}, set(names)
    for name, own in places.items():
        chances = [_chances(scales[n], gaps[rows[n][0]] * stretch[n], holds_s) for n in own]
        sums = np.sum([weights[n] * chance for n, chance in zip(own, chances, strict=True)], axis=0)
        total += sums
        if name in wanted:
            curves[name] = tuple((sums / weights[own].sum()).tolist())
    columns = scores.select(["on_time", "late", "fifo_violations"]).to_pydict()
    delivered = sum(columns["on_time"]) + sum(columns["late"])
    return Ordering(
        holds_s=tuple(holds_s.tolist()),
        curve=tuple((total / weights.sum()).tolist()),
        curves=curves,
        measured=sum(columns["fifo_violations"]) / delivered if delivered else 0.0,
        replayed=replayed,
    )


def _gaps(row: Mapping[str, Any]) -> Floats | None:
    if not row["gap_count"] or not row["gap_quantiles_ns"]:
        return None
    times = [row["gap_min_ns"], *row["gap_quantiles_ns"], row["gap_max_ns"]]
    return np.asarray(np.interp(_GAP_SHARES, [0.0, *PROBABILITIES, 1.0], np.maximum(times, 0)) / 1e9)


def _chances(scale_s: float, gaps_s: Floats, holds_s: Floats) -> Floats:
    return np.asarray(violation_probability(scale_s, gaps_s[:, None] + holds_s[None, :]).mean(axis=0))


def read_replay(directory: Path) -> tuple[PolicyPoint, ...]:
    """What `tidings order replay --out DIR` wrote, summed over all pairs."""
    place = directory / "pairs" if (directory / "pairs").exists() else directory
    wanted = ["policy", "received", "duplicates", "violations", "hold_ns"]
    try:
        table = pq.read_table(place, columns=wanted)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(
            f"{directory}: is not a replay of orders ({error}); `tidings order replay TRACE --out DIR` makes one"
        ) from None
    sums = table.group_by("policy").aggregate([(name, "sum") for name in wanted[1:]]).to_pylist()
    points = []
    for row in sums:
        delivered = max(1, row["received_sum"] - row["duplicates_sum"])
        points.append(
            PolicyPoint(
                policy=row["policy"],
                received=row["received_sum"],
                disorder=row["violations_sum"] / delivered,
                hold_s=row["hold_ns_sum"] / delivered / 1e9,
            )
        )
    return tuple(sorted(points, key=lambda point: (point.hold_s, point.policy)))
