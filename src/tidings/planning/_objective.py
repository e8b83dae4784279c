"""The objective, and the margin above it that keeps a single run from missing it by chance.

**Margin.** A run shows a share that differs from the true on-time share R of a subscription, by more if fewer events
match. So R has to exceed the objective r by a margin. By Wilson's interval, a run of n events is at least at r with the
requested confidence if R is the upper end of the interval around r. Late events come in bursts, so n events count as
n / DISPERSION independent ones, which is still too many under load. The confidence holds for all subscriptions
together: each gets an equal part of the allowed risk (Bonferroni).

**Verification.** Runs of the changed network under seeds that no estimate has used. A plan holds if every run meets the
objective and the next run is expected to. Under heavy load late events come in long bursts and runs differ by more than
independent events would; comparing the runs shows by how much. So the lower ends of the prediction interval for a
further run, mean - t s sqrt(1 + 1 / runs) with s from these runs, have to meet the objective too.

The verification also states whether the lower ends of the subscriptions' intervals over all runs together meet it. In
these intervals events that are late together count for less than independent ones (`statistics.shares_of_batches`).
"""

import math
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network
from tidings.planning._estimator import Report
from tidings.simulation import simulate
from tidings.statistics import pooled_interval, wilson_interval

__all__ = ["DISPERSION", "EVENTS_PER_RUN_MAX", "LEVEL", "RISK", "RUNS", "Objective", "Verification", "verify"]


RUNS: Final = 5
LEVEL: Final = 0.95
EVENTS_PER_RUN_MAX: Final = 1_000_000
DISPERSION: Final = 2.0
RISK: Final = 0.05
"""The largest chance that a fresh run of a network with the margin misses the objective for any subscription, assuming
independent events, late ones in pairs."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A share `share` of the subscriptions has an on-time share of at least `reliability`."""

    reliability: float = 0.99
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.reliability < 1.0:
            raise ConfigurationError(
                f"the objective is {self.reliability!r}, but must be a share above 0 and below 1, such as 0.99"
            )
        if not 0.0 < self.share <= 1.0:
            raise ConfigurationError(
                f"the share of subscribers is {self.share!r}, but must be above 0 and at most 1 (all of them)"
            )

    def needed(self, matched: FloatArray) -> FloatArray:
        """The R that each subscription needs so that a run with this many matching events does not miss by chance."""
        counted = max(1, int((matched > 0.0).sum()))
        trials = np.maximum(matched, 1e-9) / DISPERSION
        return wilson_interval(self.reliability * trials, trials, level=1.0 - 2.0 * RISK / counted).high

    def shortfall(self, reliability: FloatArray, needed: FloatArray | None = None) -> float:
        """The shortfall, added up over as many subscriptions as the objective requires, the nearest first; 0 if it is
        met.

        Subscriptions without matching events (NaN) do not count.
        """
        wanted = np.full(len(reliability), self.reliability) if needed is None else needed
        known = ~np.isnan(reliability)
        missing = np.sort(np.maximum(0.0, wanted[known] - reliability[known]))
        return float(missing[: self.count(int(known.sum()))].sum())

    def is_met(self, reliability: FloatArray, needed: FloatArray | None = None) -> bool:
        return self.shortfall(reliability, needed) <= 1e-12

    def count(self, subscriptions: int) -> int:
        """How many of `count` subscriptions have to meet it."""
        return math.ceil(self.share * subscriptions - 1e-9)


@dataclass(frozen=True, kw_only=True, eq=False)
class Verification:
    """The result of the runs: `reliability` over all of them with its interval; `met` for each run; `next_low`, the
    value that a further run should exceed; and whether the lower ends of the intervals meet the objective too."""

    seeds: tuple[int, ...]
    duration_s: float
    met: tuple[bool, ...]
    reliability: FloatArray
    low: FloatArray
    high: FloatArray
    next_low: FloatArray
    is_expected: bool
    is_met_together: bool
    is_met_at_low_ends: bool

    @property
    def is_met(self) -> bool:
        """Whether every run meets the objective, and a further one is expected to."""
        return all(self.met) and self.is_expected


def verify(network: Network, objective: Objective, *, runs: int = RUNS, report: Report | None = None) -> Verification:
    """Simulate the network under `runs` seeds other than its own, for its own duration."""
    rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
    duration_s = min(network.duration_s, network.warmup_s + EVENTS_PER_RUN_MAX / rate_per_s)
    seeds = tuple(network.seed + 1 + number for number in range(runs))
    count = len(network.subscriptions)
    matched, on_time, met, each, effective = np.zeros(count), np.zeros(count), [], [], []
    for number, seed in enumerate(seeds):
        if report is not None:
            report(f"verifying by simulation, run {number + 1} of {runs}")
        result = simulate(msgspec.structs.replace(network, seed=seed, duration_s=duration_s))
        rows = list(result.subscribers.values())
        here = np.array([row.matched for row in rows], np.float64)
        good = np.array([row.on_time for row in rows], np.float64)
        each.append(_shares(good, here))
        effective.append([np.nan if row.interval is None else row.interval.effective_events for row in rows])
        met.append(objective.is_met(each[-1]))
        matched, on_time = matched + here, on_time + good
    low, high = pooled_interval(each, effective, level=LEVEL)
    together, next_low = _shares(on_time, matched), _next_low(np.array(each))
    return Verification(
        seeds=seeds,
        duration_s=duration_s,
        met=tuple(met),
        reliability=together,
        low=low,
        high=high,
        next_low=next_low,
        is_expected=objective.is_met(next_low),
        is_met_together=objective.is_met(together),
        is_met_at_low_ends=all(met) and objective.is_met(low),
    )


def _next_low(shares: FloatArray) -> FloatArray:
    """The value that a further run exceeds with confidence LEVEL, for each subscription, from the shares by run."""
    runs = (~np.isnan(shares)).sum(axis=0)
    filled = np.where(np.isnan(shares), 0.0, shares)
    mean = filled.sum(axis=0) / np.maximum(runs, 1)
    squares = np.where(np.isnan(shares), 0.0, (shares - mean) ** 2).sum(axis=0)
    spread = np.sqrt(squares / np.maximum(runs - 1, 1) * (1.0 + 1.0 / np.maximum(runs, 1)))
    factor = np.where(runs > 1, stdtrit(np.maximum(runs - 1, 1), LEVEL), 0.0)
    return np.where(runs > 0, mean - factor * spread, np.nan)


def _shares(on_time: FloatArray, matched: FloatArray) -> FloatArray:
    return np.where(matched > 0.0, on_time / np.maximum(matched, 1.0), np.nan)
