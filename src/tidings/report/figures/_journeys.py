"""The paths from publishers to subscriptions, and where the time goes on them.

A journey passes the stations of its publisher's tree. What each of them takes is the mean over all events that passed
it: waiting at a broker or for a link, service, transmission (the publisher's mean size times the slowness) and
propagation. The mean delay of the pair itself was measured too and may differ: brokers that schedule by deadlines make
some events wait longer than others, and an event dropped on its path has no delay.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.prediction import Knowledge
from tidings.report.figures._report import Journey, Station
from tidings.statistics import PROBABILITIES

__all__ = ["Part", "journeys_of", "on_time_by_station", "parts_of"]

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
    """Station by station, in the order of the path."""
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


def on_time_by_station(
    knowledge: Knowledge, pairs: pa.Table, measured: Mapping[str, float]
) -> tuple[float | None, ...]:
    """Brokers, then links: the on-time share of the deliveries whose path passes there; None if there are none."""
    publishers = {publisher.name: number for number, publisher in enumerate(knowledge.publishers)}
    numbers = {name: number for number, name in enumerate(knowledge.subscriptions)}
    heard = Counter(pairs["subscription"].to_pylist())
    arriving: dict[tuple[int, int], tuple[float, float]] = {}
    for row in pairs.to_pylist():
        publisher, subscription = publishers.get(row["publisher"]), numbers.get(row["subscription"])
        if publisher is None or subscription is None or not row["matched"]:
            continue
        if heard[row["subscription"]] == 1:
            share = measured.get(row["subscription"], 0.0)
        else:
            share = (row["arrived"] or 0.0) * _share_within(row, _allowed_s(knowledge, publisher, subscription))
        key = publisher, int(knowledge.homes[subscription])
        matched, on_time = arriving.get(key, (0.0, 0.0))
        arriving[key] = matched + row["matched"], on_time + share * row["matched"]
    totals = np.zeros((2, len(knowledge.brokers) + len(knowledge.links)))
    for (publisher, home), counts in arriving.items():
        stations = _stations(knowledge, publisher, home)
        totals[:, stations] += np.array(counts)[:, None]
    return tuple(float(on_time / matched) if matched else None for matched, on_time in totals.T.tolist())


def _stations(knowledge: Knowledge, publisher: int, home: int) -> list[int]:
    """From the publisher's broker to another one; none if the tree does not reach it."""
    tree, n = knowledge.publishers[publisher].tree, len(knowledge.brokers)
    found: list[int] = []
    for broker in tree.path(home) if home in tree else ():
        found += [broker] if broker == tree.root else [n + int(tree.parent_link[broker]), broker]
    return found


def _allowed_s(knowledge: Knowledge, publisher: int, subscription: int) -> float:
    lifetime = knowledge.publishers[publisher].lifetime
    return min(float(knowledge.max_delays_s[subscription]), np.inf if lifetime is None else lifetime.mean())


def _with_known_share(own: tuple[Journey, ...], share: float | None) -> tuple[Journey, ...]:
    """With one publisher, the pair's on-time share is the subscription's, which was counted."""
    return (msgspec.structs.replace(own[0], on_time=share),) if len(own) == 1 and share is not None else own


def _journey(knowledge: Knowledge, publisher: int, subscription: int, row: Row, matched: int) -> Journey:
    known = knowledge.publishers[publisher]
    allowed_s = _allowed_s(knowledge, publisher, subscription)
    arrived = row["arrived"] or 0.0
    return Journey(
        publisher=known.name,
        share=row["matched"] / matched,
        size_kb=known.size_kb.mean(),
        allowed_s=float(allowed_s) if np.isfinite(allowed_s) else None,
        arrived=arrived,
        on_time=arrived * _share_within(row, allowed_s),
        mean_delay_s=row["delay_mean_s"],
        stations=tuple(_stations(knowledge, publisher, int(knowledge.homes[subscription]))),
    )


def _share_within(row: Row, allowed_s: float) -> float:
    """The share of the arrivals within this time, interpolated between the known quantiles."""
    if not row["delay_count"]:
        return 0.0
    if not np.isfinite(allowed_s):
        return 1.0
    times = [row["delay_min_ns"], *(row["delay_quantiles_ns"] or ()), row["delay_max_ns"]]
    shares = [0.0, *(PROBABILITIES if len(times) > 2 else ()), 1.0]
    if row["delay_min_ns"] == row["delay_max_ns"]:
        return float(row["delay_max_ns"] < allowed_s * 1e9)
    return float(np.interp(allowed_s * 1e9, np.maximum.accumulate(times), shares))
