"""GRAPE, phase 2: which of the candidates it is to be (paper E, section 4.2).

Rules:

- The metric that has priority is spread over 0 to 100 between the best and the worst candidate (all 0 if they are
  equal). With weight P, candidates above 100 - P are out; among the rest the other metric decides.
- Ties go by the metric that has priority, then to the present home, then to the fewest hops, then to the lowest number.
- Nobody moves for noise: a move must better what decides by more than the `hysteresis`, as a share of what it is now.
  Where the present home is out, that is the metric with priority; where it is not, the other one, or, among equals, the
  one with priority.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.placement._defaults import Metric
from tidings.placement._evaluation import Candidates

__all__ = ["Decision", "select"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """Where the publisher should be, and what that changes; `target` is its home where it should stay."""

    home: int
    target: int
    delay_ns: float
    delay_ns_now: float
    messages: int
    messages_now: int
    hops: int

    @property
    def moves(self) -> bool:
        return self.target != self.home


def select(
    candidates: Candidates, *, metric: Metric = "load", weight: float = 100.0, hysteresis: float = 0.0
) -> Decision:
    """The broker to move to, or the present one: `metric` has priority with `weight` 0 to 100."""
    if metric not in ("delay", "load"):
        raise ConfigurationError(f"there is no metric {metric!r}: choose delay or load")
    if not 0.0 <= weight <= 100.0:
        raise ConfigurationError(f"the weight of {metric} is {weight!r}: it must be from 0 to 100")
    if not 0.0 <= hysteresis < 1.0:
        raise ConfigurationError(f"a hysteresis of {hysteresis!r}: it must be a share, 0 or more and below 1")
    first, second = candidates.total_delay_ns, candidates.messages
    if metric == "load":
        first, second = second, first
    kept = np.flatnonzero(_normalised(first) <= 100.0 - weight)
    abroad = candidates.brokers != candidates.home
    keys = (candidates.brokers, candidates.hops, abroad, first, second)
    best = int(kept[np.lexsort(tuple(key[kept] for key in keys))[0]])
    now = candidates.at(candidates.home)
    decisive = (second, first) if now in kept else (first,)
    if not any(values[best] < values[now] * (1.0 - hysteresis) for values in decisive):
        best = now
    average = candidates.average_delay_ns
    return Decision(
        home=candidates.home,
        target=int(candidates.brokers[best]),
        delay_ns=float(average[best]),
        delay_ns_now=float(average[now]),
        messages=int(candidates.messages[best]),
        messages_now=int(candidates.messages[now]),
        hops=int(candidates.hops[best]),
    )


def _normalised(values: NDArray[np.int64]) -> NDArray[np.float64]:
    least, most = int(values.min()), int(values.max())
    if least == most:
        return np.zeros(len(values))
    return (values - least) * 100.0 / (most - least)
