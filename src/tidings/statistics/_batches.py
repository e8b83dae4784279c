"""Intervals for a share of events that are not independent: those of a queue are late together.

The run is cut into batches, long enough to be all but independent of each other. The share is that of all events, and
the spread of the batches gives the number of independent events that they count for (`effective`):

    Var[R] = K / (K - 1) sum over batches of (on_time - R matched)^2 / matched_total^2,   effective = R (1 - R) / Var[R]

and never more than there are. The interval is Wilson's with that many trials, and Student's quantile of K - 1 degrees
in place of the normal one: K batches know their own spread only so well. Batches in which nothing matched do not count.

Callers that add up thousands of batches need not keep them: with h on time and l not, h - R n = (1 - R) h - R l, so K
and the sums of h, l, h^2, h l and l^2 are enough (`shares_of_sums`), and none is large where the result is small.

Batches without a late event carry no information about clustering, and a single row of them would pass for
independent. So the rows of one network share their information: no row counts as less clustered than the median of
those that have seen at least one event of each kind for every batch. Where there are fewer than FEW effective events
the spread itself is a guess; `is_rough` marks it. With Poisson arrivals at loads of .3 to .9 intervals of 95 % that are
not rough cover 93 to 97 % of the time (tests/statistics/test_batches.py).

The difference of two shares over the same trials has no Wilson's interval: `batch_share` gives the standard error of
the ratio estimator itself, with hits the difference of the hits; common effects cancel.
"""

import math
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.errors import InputError
from tidings.statistics._arrays import FloatArray, Numbers, floats, ratio
from tidings.statistics._intervals import Interval, standard_normal_quantile, wilson_bounds

__all__ = [
    "BATCHES",
    "BATCHES_LEAST",
    "FEW",
    "LEVEL",
    "BatchEstimate",
    "BatchSums",
    "ReliabilityInterval",
    "Shares",
    "batch_share",
    "pooled_interval",
    "reliability_intervals",
    "shares_of_batches",
    "shares_of_sums",
    "student_quantile",
    "student_quantiles",
]

BATCHES: Final = 10
"""How many batches a run is cut into: more of them follow each other too closely under load, fewer know less."""

LEVEL: Final = 0.95
"""That of the intervals that are shown for an on-time share."""

FEW: Final = 100.0

BATCHES_LEAST: Final = 4
"""With fewer batches that have any trials there is no telling how far they differ."""


class Shares(NamedTuple):
    """By row: the share, its interval, for how many independent events it counts, and whether those are too few."""

    share: FloatArray
    interval: Interval
    effective: FloatArray
    is_rough: npt.NDArray[np.bool_]


class ReliabilityInterval(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription's interval for its on-time share, for documents and tables.

    `effective_events` is for how many independent events its events count; where they are few, the interval is rough.
    """

    low: float
    high: float
    effective_events: float
    is_rough: bool


def reliability_intervals(
    on_time: Numbers, matched: Numbers, *, level: float = LEVEL
) -> list[ReliabilityInterval | None]:
    """By row of [batch, row] counts; None where nothing matched."""
    found = shares_of_batches(on_time, matched, level=level)
    columns = (found.interval.low, found.interval.high, found.effective, found.is_rough)
    return [
        ReliabilityInterval(low=low, high=high, effective_events=effective, is_rough=is_rough)
        if effective > 0.0
        else None
        for low, high, effective, is_rough in zip(*(column.tolist() for column in columns), strict=True)
    ]


def shares_of_batches(successes: Numbers, trials: Numbers, *, level: float) -> Shares:
    """The share of each row of [batch, row] counts."""
    hits, n = floats(successes), floats(trials)
    if hits.ndim != 2 or hits.shape != n.shape or len(hits) < 2:
        raise InputError(f"counts of shape {hits.shape} and {n.shape}: give both by [batch, row], two batches or more")
    misses = n - hits
    return shares_of_sums(
        BatchSums(
            batches=(n > 0.0).sum(axis=0).astype(np.float64),
            hits=hits.sum(axis=0),
            misses=misses.sum(axis=0),
            hit_squares=np.square(hits).sum(axis=0),
            products=(hits * misses).sum(axis=0),
            miss_squares=np.square(misses).sum(axis=0),
        ),
        level=level,
    )


class BatchSums(NamedTuple):
    """By row, over its batches with trials: their number, and their sums."""

    batches: FloatArray
    hits: FloatArray
    misses: FloatArray
    hit_squares: FloatArray
    products: FloatArray
    miss_squares: FloatArray


def shares_of_sums(sums: BatchSums, *, level: float, usual: Numbers | None = None) -> Shares:
    """The share of each row. `usual` is how clustered a row counts as at least that has seen little; the median of
    those that have seen enough, unless it is given. With less than BATCHES_LEAST batches a row is rough."""
    count, hits, misses = sums.batches, sums.hits, sums.misses
    total = hits + misses
    share = ratio(hits, total)
    known = np.where(total > 0.0, share, 0.0)
    rest = np.where(total > 0.0, ratio(misses, total), 0.0)
    squares = rest**2 * sums.hit_squares - 2.0 * known * rest * sums.products + known**2 * sums.miss_squares
    spread = np.maximum(0.0, squares) * np.nan_to_num(ratio(count, count - 1.0))
    clustering = np.fmax(ratio(spread, known * rest * total), 1.0)  # relative to independent events
    knows = (count >= BATCHES_LEAST) & (np.minimum(hits, misses) >= count)
    if usual is None:
        usual = float(np.median(clustering[knows])) if knows.any() else 1.0
    clustering = np.where(knows, clustering, np.maximum(clustering, usual))
    effective = ratio(total, clustering)
    quantile = student_quantiles(level, np.maximum(count - 1.0, 1.0))
    is_rough = ~(effective >= FEW) | (count < BATCHES_LEAST)
    return Shares(share, wilson_bounds(share, effective, quantile), effective, is_rough)


def pooled_interval(shares: Numbers, effective: Numbers, *, level: float) -> Interval:
    """The interval of a share over runs of BATCHES batches each, by [run, row] the share of each and the independent
    events that its events count for; runs that know nothing (NaN) are left out."""
    known = np.isfinite(floats(effective))
    events = np.where(known, floats(effective), 0.0)
    total = events.sum(axis=0)
    share = ratio((events * np.where(known, floats(shares), 0.0)).sum(axis=0), total)
    return wilson_bounds(share, total, student_quantile(level, len(events) * (BATCHES - 1)))


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
    return float(student_quantiles(level, degrees))


def student_quantiles(level: float, degrees: Numbers) -> FloatArray:
    """The same for each of many degrees."""
    from scipy.special import stdtrit

    standard_normal_quantile(level)  # refuses a bad level
    return floats(stdtrit(floats(degrees), 0.5 + level / 2.0))
