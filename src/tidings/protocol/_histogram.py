"""Durations counted by size, in buckets that are an eighth of an octave wide: a quantile is right within 6 %.

A histogram is a plain mapping from bucket to count, so that histograms can be added, sent in part and compared. Times
below 16 units of 1.024 us have a bucket per unit. Every power of two is the lower edge of a bucket, so coarser
histograms (Prometheus) follow from these exactly.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

__all__ = ["MAX_BUCKET", "Histogram", "add_up", "at_most", "bucket_of", "lower_edge_ns", "quantile_ns", "sum_ns"]

Histogram = Mapping[int, int]
"""By bucket: how many."""

_UNIT_BITS: Final = 10
_STEP_BITS: Final = 3
_STEPS: Final = 1 << _STEP_BITS
MAX_BUCKET: Final = 8 * 64
"""No duration of 64 bits has a higher bucket."""


def bucket_of(duration_ns: int) -> int:
    """The bucket of a duration; one below 0 counts as 0."""
    units = duration_ns >> _UNIT_BITS
    if units < 2 * _STEPS:
        return units if units > 0 else 0
    shift = units.bit_length() - _STEP_BITS - 1
    return (shift << _STEP_BITS) + (units >> shift)


def lower_edge_ns(bucket: int) -> int:
    """The shortest duration of a bucket; that of the next one is its end."""
    if bucket < 2 * _STEPS:
        return bucket << _UNIT_BITS
    shift = (bucket >> _STEP_BITS) - 1
    return (bucket - (shift << _STEP_BITS)) << shift << _UNIT_BITS


def quantile_ns(histogram: Histogram, share: float) -> float | None:
    """The duration that this share of all is below, with the durations of a bucket spread evenly over it; None if there
    are none."""
    total = sum(histogram.values())
    if not total:
        return None
    wanted, below = share * total, 0
    for bucket in sorted(histogram):
        count = histogram[bucket]
        if count and below + count >= wanted:
            low_ns, high_ns = lower_edge_ns(bucket), lower_edge_ns(bucket + 1)
            return low_ns + (high_ns - low_ns) * max(wanted - below, 0.0) / count
        below += count
    raise AssertionError("the last bucket ends the sum")


def at_most(histogram: Histogram, edges_ns: Iterable[int]) -> list[int]:
    """How many durations are below each of these edges, which are lower edges of buckets."""
    buckets = sorted(histogram)
    sums = [0, *accumulate(histogram[bucket] for bucket in buckets)]
    return [sums[bisect_left(buckets, bucket_of(edge))] for edge in edges_ns]


def sum_ns(histogram: Histogram) -> float:
    """The sum of all durations, with each in the middle of its bucket: right within 6 %."""
    return sum(many * (lower_edge_ns(each) + lower_edge_ns(each + 1)) for each, many in histogram.items()) / 2


def add_up(total: dict[int, int], more: Histogram) -> None:
    """Add a histogram to another."""
    for bucket, count in more.items():
        total[bucket] = total.get(bucket, 0) + count
