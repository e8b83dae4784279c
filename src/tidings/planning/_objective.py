"""The objective, and by how much a network must be above it so that a single run is not below it by chance.

A run of a network in which a subscription gets a share R of its events on time shows some other share, and the fewer
events match, the farther off it may be. So R has to be above the objective r by a margin: by Wilson's interval, the R
from which a run of n events is at r with the confidence asked for is the upper end of the interval around r. Late
events come in bursts, so n events count as n / DISPERSION independent ones, which is still too many under load. The
confidence is for all subscriptions together: each gets its part of what may go wrong (Bonferroni).
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.statistics import wilson_interval

__all__ = ["DISPERSION", "RISK", "Objective"]

DISPERSION: Final = 2.0
RISK: Final = 0.05
"""The chance, at most, that a fresh run of a network that has the margin misses the objective for somebody, assuming
independent events, late ones in pairs."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """At least a share `share` of the subscriptions gets at least a share `reliability` of its events on time."""

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
        """The R of each subscription from which a run with so many matching events does not fall short by chance."""
        counted = max(1, int((matched > 0.0).sum()))
        trials = np.maximum(matched, 1e-9) / DISPERSION
        return wilson_interval(self.reliability * trials, trials, level=1.0 - 2.0 * RISK / counted).high

    def shortfall(self, reliability: FloatArray, needed: FloatArray | None = None) -> float:
        """What is missing, added up over the subscriptions that have to be helped, the nearest first; 0 if it is met.

        Subscriptions that nothing matches (NaN) do not count.
        """
        wanted = np.full(len(reliability), self.reliability) if needed is None else needed
        known = ~np.isnan(reliability)
        missing = np.sort(np.maximum(0.0, wanted[known] - reliability[known]))
        return float(missing[: self.count(int(known.sum()))].sum())

    def is_met(self, reliability: FloatArray, needed: FloatArray | None = None) -> bool:
        return self.shortfall(reliability, needed) <= 1e-12

    def count(self, subscriptions: int) -> int:
        """How many of so many subscriptions that is."""
        return math.ceil(self.share * subscriptions - 1e-9)
