"""Estimators: from counts, sums and quantiles to parameters, with intervals and distances (docs/reference/profiles.md).

Pure functions over arrays, one entry per estimate. An impossible estimate (no events, a single sample) is NaN.
"""

from tidings.statistics._arrays import ratio
from tidings.statistics._batches import (
    BATCHES,
    BATCHES_LEAST,
    LEVEL,
    BatchEstimate,
    BatchSums,
    ReliabilityInterval,
    Shares,
    batch_share,
    pooled_interval,
    reliability_intervals,
    shares_of_batches,
    shares_of_sums,
    student_quantile,
    student_quantiles,
)
from tidings.statistics._checked import DurationFit, fit_durations
from tidings.statistics._clocks import (
    RATE_MAX,
    UNBOUNDED_NS,
    ClockEstimate,
    clock_bounds,
    clock_estimate,
    clock_rates,
)
from tidings.statistics._components import (
    FEWEST_EVENTS,
    Exponentiality,
    Periods,
    Rates,
    censored_rates,
    exponentiality,
    periods,
)
from tidings.statistics._delays import (
    MOST_PHASES,
    PROBABILITIES,
    Stages,
    distance_from_quantiles,
    stages_cdf,
    stages_from_moments,
    two_laplace_cdf,
    two_laplace_scale,
)
from tidings.statistics._histogram import LogHistogram
from tidings.statistics._intervals import (
    Interval,
    events_interval,
    poisson_interval,
    scv_interval,
    standard_normal_quantile,
    wilson_interval,
)
from tidings.statistics._moments import Line, Moments, line_from_sums, moments
from tidings.statistics._pool import PooledShares, pooled_shares

__all__ = [
    "BATCHES",
    "BATCHES_LEAST",
    "FEWEST_EVENTS",
    "LEVEL",
    "MOST_PHASES",
    "PROBABILITIES",
    "RATE_MAX",
    "UNBOUNDED_NS",
    "BatchEstimate",
    "BatchSums",
    "ClockEstimate",
    "DurationFit",
    "Exponentiality",
    "Interval",
    "Line",
    "LogHistogram",
    "Moments",
    "Periods",
    "PooledShares",
    "Rates",
    "ReliabilityInterval",
    "Shares",
    "Stages",
    "batch_share",
    "censored_rates",
    "clock_bounds",
    "clock_estimate",
    "clock_rates",
    "distance_from_quantiles",
    "events_interval",
    "exponentiality",
    "fit_durations",
    "line_from_sums",
    "moments",
    "periods",
    "poisson_interval",
    "pooled_interval",
    "pooled_shares",
    "ratio",
    "reliability_intervals",
    "scv_interval",
    "shares_of_batches",
    "shares_of_sums",
    "stages_cdf",
    "stages_from_moments",
    "standard_normal_quantile",
    "student_quantile",
    "student_quantiles",
    "two_laplace_cdf",
    "two_laplace_scale",
    "wilson_interval",
]
