"""The ways from publishers to subscriptions, and where the time goes on them.

A journey passes the stations of its publisher's tree. What each of them takes is the mean over all events that were
there: waiting at a broker or for a link, service, transmission (the publisher's mean size times the slowness) and
propagation. The mean delay of the pair itself was measured too, and may differ: brokers that schedule by deadlines
make some wait longer than others, and what was dropped on the way has no delay.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.prediction import Knowledge
from tidings.report.figures._report import Journey, Station
from tidings.statistics import PROBABILITIES

__all__ = ["Part", "journeys_of", "parts_of"]

JOURNEYS_MAX = 4
"""Of one subscription, those with the most events."""

Row = Mapping[str, Any]


class Part(NamedTuple):
    """What one station takes of a journey, in seconds."""

    station: int
    waiting_s: float
    service_s: float
    transmission_s: float
    propagation_s: float

    @property
    def empty_s(self) -> float:
        """Without waiting."""
        return self.service_s + self.transmission_s + self.propagation_s

    @property
    def total_s(self) -> float:
        return self.waiting_s + self.empty_s


def parts_of(journey: Journey, stations: Sequence[Station]) -> tuple[Part, ...]:
    """Station by station, in the order of the way."""
    return tuple(
        Part(
            number,
            stations[number].waiting_s,
            stations[number].service_s,
            journey.size_kb * stations[number].slowness_s_per_kb,
            stations[number].propagation_s,
        )
        for number in journey.stations
    )


def journeys_of(
    knowledge: Knowledge, pairs: pa.Table, measured: Mapping[str, float | None]
) -> dict[str, tuple[Journey, ...]]:
    """Of these subscriptions, the journeys with the most events first; `measured` is R by subscription."""
    wanted = {name: knowledge.number_of(name) for name in measured}
    chosen = pairs.filter(pc.is_in(pairs["subscription"], value_set=pa.array(list(wanted), pa.string())))
    publishers = {publisher.name: number for number, publisher in enumerate(knowledge.publishers)}
    rows: dict[str, list[Row]] = {name: [] for name in wanted}
    for row in chosen.to_pylist():
        if row["publisher"] in publishers and row["matched"]:
            rows[row["subscription"]].append(row)
    found = {
        name: tuple(
            _journey(knowledge, publishers[row["publisher"]], wanted[name], row, sum(each["matched"] for each in own))
            for row in sorted(own, key=lambda row: (-row["matched"], row["publisher"]))[:JOURNEYS_MAX]
        )
        for name, own in rows.items()
    }
    return {name: _with_known_share(own, measured[name]) for name, own in found.items()}


def _with_known_share(own: tuple[Journey, ...], share: float | None) -> tuple[Journey, ...]:
    """With one publisher, the pair's on-time share is the subscription's, which was counted."""
    return (msgspec.structs.replace(own[0], on_time=share),) if len(own) == 1 and share is not None else own


def _journey(knowledge: Knowledge, publisher: int, subscription: int, row: Row, matched: int) -> Journey:
    known = knowledge.publishers[publisher]
    home, n = int(knowledge.homes[subscription]), len(knowledge.brokers)
    stations: list[int] = []
    for broker in known.tree.path(home) if home in known.tree else ():
        stations += [broker] if broker == known.tree.root else [n + int(known.tree.parent_link[broker]), broker]
    lifetime_s = np.inf if known.lifetime is None else known.lifetime.mean()
    allowed_s = min(float(knowledge.max_delays_s[subscription]), lifetime_s)
    arrived = row["arrived"] or 0.0
    return Journey(
        publisher=known.name,
        share=row["matched"] / matched,
        size_kb=known.size_kb.mean(),
        allowed_s=float(allowed_s) if np.isfinite(allowed_s) else None,
        arrived=arrived,
        on_time=arrived * _share_within(row, allowed_s),
        mean_delay_s=row["delay_mean_s"],
        stations=tuple(stations),
    )


def _share_within(row: Row, allowed_s: float) -> float:
    """Which share of what arrived did so within this time, between the quantiles that are known."""
    if not row["delay_count"]:
        return 0.0
    if not np.isfinite(allowed_s):
        return 1.0
    times = [row["delay_min_ns"], *(row["delay_quantiles_ns"] or ()), row["delay_max_ns"]]
    shares = [0.0, *(PROBABILITIES if len(times) > 2 else ()), 1.0]
    if row["delay_min_ns"] == row["delay_max_ns"]:
        return float(row["delay_max_ns"] < allowed_s * 1e9)
    return float(np.interp(allowed_s * 1e9, np.maximum.accumulate(times), shares))
