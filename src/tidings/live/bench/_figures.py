"""The results of a bench: counted in each process, added up, and turned into figures.

- Rates cover the time after the warm-up. Latency is measured from the time when an event was due (not from when there
  was room to send it), so a broker that falls behind cannot hide it; it covers the events that were due after the
  warm-up.
- Counts cover the whole run: for the accepted events, how many deliveries the filters demand, and how many arrived,
  arrived on time, arrived twice, never arrived. A missing delivery of an event without a deadline is lost; an event
  with one may have been dropped because it was too late, which is what deadlines are for, and counts against the
  on-time share. So do the deliveries of events whose lifetime ended before they were accepted.

Latencies are counted in bins of 1 %: bounded, and added up without loss.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from tidings.live.bench._load import Load

__all__ = ["Figures", "Tally", "figures"]

_BINS: Final = 1 / math.log(1.01)
_LEAST_S: Final = 1e-9


def bin_of(latency_s: float) -> int:
    """The bin that a latency is counted in."""
    return round(math.log(max(latency_s, _LEAST_S)) * _BINS)


class Tally(msgspec.Struct, kw_only=True):
    """Counts; lists are by event of the load."""

    accepted: list[int]
    expired: list[int]
    """Its lifetime ended before the broker had it."""
    wanted: list[int]
    came: list[int]
    on_time: int = 0
    duplicated: int = 0
    refused: int = 0
    unconfirmed: int = 0
    accepted_in_time: int = 0
    """After the warm-up and before the end of the run; so is the next one."""
    came_in_time: int = 0
    latencies: dict[int, int] = {}

    @classmethod
    def empty(cls, load: Load) -> "Tally":
        """Nothing yet."""
        none = [0] * len(load.events)
        return cls(accepted=[*none], expired=[*none], wanted=[*none], came=[*none])

    def add(self, other: "Tally") -> None:
        """Count what another process has counted."""
        for counts in ("accepted", "expired", "wanted", "came"):
            both = zip(getattr(self, counts), getattr(other, counts), strict=True)
            setattr(self, counts, [one + more for one, more in both])
        self.on_time += other.on_time
        self.duplicated += other.duplicated
        self.refused += other.refused
        self.unconfirmed += other.unconfirmed
        self.accepted_in_time += other.accepted_in_time
        self.came_in_time += other.came_in_time
        self.latencies = dict(Counter(self.latencies) + Counter(other.latencies))


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a bench."""

    accepted_per_s: float
    deliveries_per_s: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    on_time: float | None
    """Share of the deliveries with a deadline; None if there is none."""
    accepted: int
    expired: int
    refused: int
    unconfirmed: int
    """Neither accepted nor refused in time."""
    expected: int
    delivered: int
    lost: int
    too_late: int
    duplicated: int


def figures(load: Load, tally: Tally) -> Figures:
    """The figures of a run."""
    measured_s = load.seconds - load.warmup_s
    expected = _each(tally.accepted, tally.wanted)
    never_came = [max(all_of_it - came, 0) for all_of_it, came in zip(expected, tally.came, strict=True)]
    has_deadline = [load.deadline_s(event) is not None for event in load.events]
    lost = sum(count for count, has_one in zip(never_came, has_deadline, strict=True) if not has_one)
    promised = sum(_each(expected, has_deadline)) + sum(_each(tally.expired, tally.wanted))
    return Figures(
        accepted_per_s=round(tally.accepted_in_time / measured_s, 3),
        deliveries_per_s=round(tally.came_in_time / measured_s, 3),
        latency_p50_ms=_quantile_ms(tally.latencies, 0.50),
        latency_p99_ms=_quantile_ms(tally.latencies, 0.99),
        on_time=round(tally.on_time / promised, 6) if promised else None,
        accepted=sum(tally.accepted),
        expired=sum(tally.expired),
        refused=tally.refused,
        unconfirmed=tally.unconfirmed,
        expected=sum(expected),
        delivered=sum(tally.came),
        lost=lost,
        too_late=promised - tally.on_time,
        duplicated=tally.duplicated,
    )


def _each(counts: Sequence[int], times: Sequence[int]) -> list[int]:
    return [count * each for count, each in zip(counts, times, strict=True)]


def _quantile_ms(latencies: dict[int, int], share: float) -> float | None:
    left = share * sum(latencies.values())
    for place in sorted(latencies):
        left -= latencies[place]
        if left <= 0.0:
            return float(f"{math.exp(place / _BINS) * 1e3:.4g}")
    return None
