"""What to do first: the change with the largest gain among those whose effect is known.

The changes that the caller gives come first: they were estimated on one basis. If none of them gains anything, plans
are considered, and the schemes if outages were measured and the scenario names the one in force: moves and policies,
which cost no hardware. If these gain nothing either, capacity is tried: the stations where the subscriptions in the
table lose most deliveries are made twice as fast, one at a time, and the run is predicted again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tidings.placement import PlacementPlan
from tidings.prediction import Knowledge, Prediction, predict
from tidings.report.figures._report import Advice, Changes, Schemes, Station, SubscriptionFigures

__all__ = ["advice_of", "missed_by_station"]

GAIN_MIN: Final = 0.0005
"""A change that gains less of all deliveries is not worth a sentence."""
CANDIDATES_MAX: Final = 4
"""Stations that are tried; each costs a prediction of the whole network."""
MOVES_NAMED: Final = 2


def advice_of(
    on_time: float | None,
    *,
    changes: Changes | None,
    plans: Sequence[tuple[str, PlacementPlan]],
    schemes: Schemes | None,
    scheme: str | None,
    prediction: Prediction | None,
    subscriptions: Sequence[SubscriptionFigures],
    stations: Sequence[Station],
) -> Advice | None:
    """None if everything is on time, or nothing known would help. `scheme` is the one in force, if it is known."""
    if on_time is None or on_time >= 1.0:
        return None
    sources: tuple[Iterable[Advice], ...] = (
        _changes(changes),
        (*_plans(plans), *_schemes(schemes, scheme, on_time)),
        () if prediction is None else _capacities(prediction, subscriptions, stations, on_time),
    )
    for source in sources:
        best = max(source, key=lambda each: each.gain, default=None)
        if best is not None and best.gain >= GAIN_MIN:
            return best
    return None


def _changes(changes: Changes | None) -> Iterator[Advice]:
    if changes is None:
        return
    for each in changes.single:
        words = each.description or each.name
        yield Advice(
            action=words[0].upper() + words[1:],
            now=changes.now.reliability,
            then=each.reliability,
            basis="changes",
        )


def _plans(plans: Sequence[tuple[str, PlacementPlan]]) -> Iterator[Advice]:
    for _, plan in plans:
        if plan.moves and plan.expected.on_time is not None:
            named = [f"{move.name} from {move.origin} to {move.target}" for move in plan.moves[:MOVES_NAMED]]
            more = len(plan.moves) - len(named)
            listed = ", ".join(named) + (f" and {more} more" if more else "")
            yield Advice(
                action=f"Move {listed}", now=plan.expected.on_time.now, then=plan.expected.on_time.then, basis="plan"
            )


def _schemes(schemes: Schemes | None, in_force: str | None, on_time: float) -> Iterator[Advice]:
    """The gain is the difference of two predictions, added to what was measured."""
    if schemes is None or schemes.source != "measured":
        return
    now = next((each.reliability for each in schemes.schemes if each.scheme == in_force), None)
    if now is not None:
        for each in schemes.schemes:
            yield Advice(
                action=f'Use the scheme "{each.scheme}" against failures',
                now=on_time,
                then=min(1.0, on_time + each.reliability - now),
                basis="schemes",
            )


def missed_by_station(subscriptions: Sequence[SubscriptionFigures]) -> dict[int, int]:
    """The deliveries that missed their deadline, by the station that the reason blames; the most first."""
    found: dict[int, int] = {}
    for each in subscriptions:
        if each.reason.station is not None:
            found[each.reason.station] = found.get(each.reason.station, 0) + each.matched - each.on_time
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _capacities(
    prediction: Prediction,
    subscriptions: Sequence[SubscriptionFigures],
    stations: Sequence[Station],
    on_time: float,
) -> Iterator[Advice]:
    """The gain is the difference of two predictions, added to what was measured."""
    knowledge = prediction.knowledge
    before = _share(prediction)
    for number in list(missed_by_station(subscriptions))[:CANDIDATES_MAX]:
        station = stations[number]
        faster = predict(_twice_as_fast(knowledge, number), model=prediction.model)
        what = f"Give link {station.name} twice the bandwidth"
        if station.kind == "broker":
            what = f"Make broker {station.name} twice as fast"
        yield Advice(action=what, now=on_time, then=min(1.0, on_time + _share(faster) - before), basis="capacity")


def _twice_as_fast(knowledge: Knowledge, station: int) -> Knowledge:
    if station < len(knowledge.brokers):
        brokers = list(knowledge.brokers)
        brokers[station] = replace(brokers[station], service_factor=0.5 * brokers[station].service_factor)
        return replace(knowledge, brokers=tuple(brokers))
    links, number = list(knowledge.links), station - len(knowledge.brokers)
    links[number] = replace(links[number], slowness_factor=0.5 * links[number].slowness_factor)
    return replace(knowledge, links=tuple(links))


def _share(prediction: Prediction) -> float:
    """R' over all deliveries."""
    rate, known = prediction.matched_per_s, ~np.isnan(prediction.reliability)
    return float((rate * prediction.reliability)[known].sum() / max(rate[known].sum(), 1e-12))
