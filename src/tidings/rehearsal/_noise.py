"""On-time shares with their noise, by batches of time.

A run is cut into BATCHES parts of equal length. An interval is that of the batches (`statistics.batch_share`), and no
narrower than Wilson's for independent events: where all batches are alike there may still have been luck.
"""

import math
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.simulation import Script
from tidings.statistics import batch_share, wilson_interval

__all__ = ["BATCHES", "LEVEL", "Batches", "BoolArray", "Estimate", "IntArray", "estimate"]

BATCHES: Final = 20
LEVEL: Final = 0.95
"""Of the intervals that are shown."""

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """An on-time share with the interval that its noise makes; the predictor's has none."""

    share: float
    low: float
    high: float


class Batches:
    """The counted pairs of a script, by subscription and batch."""

    def __init__(self, script: Script) -> None:
        network, pairs = script.network, script.counted()
        at_ns = np.array([script.publications[number].at_ns for number, _ in pairs], np.float64)
        begin_ns, length_ns = network.warmup_s * 1e9, (network.duration_s - network.warmup_s) * 1e9 / BATCHES
        self._batch = np.minimum((at_ns - begin_ns) / length_ns, BATCHES - 1).astype(np.int64)
        self._wanted = np.array([subscription for _, subscription in pairs], np.int64)
        self._count = len(network.subscriptions)
        self.matched = self.counts(np.ones(len(pairs), np.bool_))

    def counts(self, chosen: BoolArray) -> IntArray:
        """[subscription, batch]: how many of the pairs are among the chosen."""
        counts = np.zeros((self._count, BATCHES), np.int64)
        np.add.at(counts, (self._wanted[chosen], self._batch[chosen]), 1)
        return counts


def estimate(hits: IntArray, matched: IntArray) -> Estimate | None:
    """The share of hits among the matched, both by batch; None if nothing matched."""
    if not matched.sum():
        return None
    found = batch_share(hits, matched)
    low, high = (float(end) for end in wilson_interval(hits.sum(), matched.sum(), level=LEVEL))
    if not math.isnan(found.error):
        half = found.half_width(LEVEL)
        low, high = min(low, found.value - half), max(high, found.value + half)
    return Estimate(share=found.value, low=max(low, 0.0), high=min(high, 1.0))
