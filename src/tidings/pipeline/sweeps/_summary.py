"""What a sweep found: per setting, each figure over the seeds with its mean, its spread and an interval for the mean.

The interval is Student's: mean +- t * sd / sqrt(n), t for n - 1 degrees of freedom at CONFIDENCE. Seeds are independent
replications, so it needs no more than that their figures are not too far from normal; one seed gives no spread at all.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from tidings.pipeline.sweeps._cells import FIGURES, Cell

__all__ = ["CONFIDENCE", "Estimate", "Failure", "SettingSummary", "SweepResult", "estimate", "summarise"]

CONFIDENCE = 0.95


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over `runs` seeds; None where too few seeds (or none with events) say anything."""

    runs: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


class SettingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: what was written into the scenario, how many seeds ran or failed, and the figures of the former."""

    setting: dict[str, Any]
    runs: int
    failed: int
    figures: dict[str, Estimate]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that failed, why, and the command that runs it alone."""

    setting: dict[str, Any]
    seed: int
    error: str
    command: str


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole sweep; `found` of its `cells` were there already from an earlier run into the same directory."""

    scenario: str
    out: str | None
    seeds: list[int]
    cells: int
    found: int
    settings: list[SettingSummary]
    failures: list[Failure]


def estimate(values: ArrayLike) -> Estimate:
    """Mean, standard deviation and Student's interval for the mean of independent values."""
    sample = np.asarray(values, dtype=np.float64)
    count = sample.size
    if count == 0:
        return Estimate(runs=0, mean=None, sd=None, low=None, high=None)
    mean = float(sample.mean())
    if count == 1:
        return Estimate(runs=1, mean=mean, sd=None, low=None, high=None)
    from scipy.special import stdtrit

    sd = float(sample.std(ddof=1))
    margin = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * sd / count**0.5
    return Estimate(runs=count, mean=mean, sd=sd, low=mean - margin, high=mean + margin)


def summarise(cells: Sequence[Cell], rows: Mapping[str, Mapping[str, Any]]) -> list[SettingSummary]:
    """One summary per setting in the order of the cells; `rows` has the figures of the cells that ran, by name."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(str(cell.setting), []).append(cell)
    summaries = []
    for group in groups.values():
        ran = [rows[cell.name] for cell in group if cell.name in rows]
        figures = {name: estimate([row[name] for row in ran if row[name] is not None]) for name in FIGURES}
        setting = group[0].setting.as_dict()
        summaries.append(SettingSummary(setting=setting, runs=len(ran), failed=len(group) - len(ran), figures=figures))
    return summaries
