"""Where a subscription's time goes, and what to change first.

Journeys: for every publisher with events for the subscription, the hops of the path with the mean wait, service and
propagation of each, and the quantiles of the delay. Remedies: each candidate along these paths (a broker or a link's
transmission twice as fast, half the propagation delay, no loss, a deadline 1.5 times as long) is predicted, and its
gain is reported.
"""

import math
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np

from tidings.model.units import percent
from tidings.prediction._deadlines import chance_on_time
from tidings.prediction._knowledge import Knowledge
from tidings.prediction._predict import predict
from tidings.prediction._prediction import Prediction
from tidings.prediction._unmodelled import Unmodelled

__all__ = ["Explanation", "Hop", "JourneyPrediction", "Remedy", "explain"]

QUANTILES = (0.5, 0.9, 0.99)
CANDIDATES_MAX = 4  # stations and links to try, those that take most time
_BISECTIONS = 48


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a path: a link or a broker; mean wait, mean service (or transmission), mean propagation (or
    processing)."""

    place: str
    kind: Literal["link", "broker"]
    wait_s: float | None
    service_s: float
    way_s: float
    utilisation: float


class JourneyPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """From one publisher: its share of the matching events, their on-time share, and the delay of those that arrive
    (mean and quantiles; None behind an overload)."""

    publisher: str
    share: float
    on_time: float
    arriving: float
    mean_delay_s: float | None
    delay_quantiles_s: dict[str, float | None]
    hops: tuple[Hop, ...]


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and R' after it."""

    change: str
    on_time_reliability: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one subscription; `remedies` are sorted by gain, `unmodelled` are the effects that matter here
    and are left out."""

    subscription: str
    on_time_reliability: float | None
    overloaded_at: str | None
    journeys: tuple[JourneyPrediction, ...]
    remedies: tuple[Remedy, ...]
    unmodelled: tuple[Unmodelled, ...]
    words: str


def explain(prediction: Prediction, subscription: str) -> Explanation:
    """Explain the on-time share of a subscription by formulas, since a sample has no causes; an InputError if the name
    is unknown."""
    if prediction.sample is not None:
        prediction = predict(prediction.knowledge, model=prediction.model)
    knowledge = prediction.knowledge
    number = knowledge.number_of(subscription)
    journeys = tuple(_journeys(prediction, number))
    value = prediction.reliability[number]
    known = None if math.isnan(value) else float(value)
    stuck = prediction.subscribers[subscription].overloaded_at
    remedies = tuple(_remedies(prediction, number, journeys)) if known is not None else ()
    unmodelled = tuple(each for each in prediction.unmodelled if prediction.concerned(each)[number])
    return Explanation(
        subscription=subscription,
        on_time_reliability=known,
        overloaded_at=stuck,
        journeys=journeys,
        remedies=remedies,
        unmodelled=unmodelled,
        words=_words(subscription, known, stuck, journeys, remedies, unmodelled),
    )


def _journeys(prediction: Prediction, number: int) -> list[JourneyPrediction]:
    knowledge, home = prediction.knowledge, int(prediction.knowledge.homes[number])
    found = []
    for p, publisher in enumerate(knowledge.publishers):
        matched, masses = publisher.content.masses
        place = np.searchsorted(matched, number)
        if place == len(matched) or matched[place] != number:
            continue
        share = publisher.rate_per_s * masses[place] / prediction.matched_per_s[number]
        where = np.array([home], np.int32)
        deadline_s = knowledge.max_delays_s[number : number + 1]
        on_time = float(chance_on_time(prediction.delays, p, publisher.lifetime, where, deadline_s)[0])
        arriving = float(prediction.layout.kept[p][home])
        mean_s = prediction.mean_delays(p)[0][home]
        found.append(
            JourneyPrediction(
                publisher=publisher.name,
                share=float(share),
                on_time=arriving * on_time,
                arriving=arriving,
                mean_delay_s=float(mean_s) if np.isfinite(mean_s) else None,
                delay_quantiles_s={f"{q:g}": _quantile(prediction, p, home, q, float(mean_s)) for q in QUANTILES},
                hops=tuple(_hops(prediction, p, home)),
            )
        )
    return sorted(found, key=lambda journey: -journey.share)


def _hops(prediction: Prediction, publisher: int, home: int) -> list[Hop]:
    layout, knowledge, n = prediction.layout, prediction.knowledge, len(prediction.knowledge.brokers)
    tree = knowledge.publishers[publisher].tree
    hops: list[Hop] = []
    for broker in tree.path(home) if home in tree else ():
        stations = [broker] if broker == tree.root else [n + int(layout.link[publisher, broker]), broker]
        for station in stations:
            wait_s = float(prediction.wait_s[publisher, station])
            hops.append(
                Hop(
                    place=prediction.station_name(station),
                    kind="broker" if station < n else "link",
                    wait_s=wait_s if math.isfinite(wait_s) and not prediction.waits.is_stuck[station] else None,
                    service_s=layout.stages[layout.service[publisher, station]].mean_s,
                    way_s=layout.stages[layout.delay[station]].mean_s,
                    utilisation=float(prediction.utilisation[station]),
                )
            )
    return hops


def _quantile(prediction: Prediction, publisher: int, home: int, q: float, mean_s: float) -> float | None:
    """The q-quantile of the delay of arriving events, by bisection."""
    if not math.isfinite(mean_s):
        return None
    where = np.array([home], np.int32)
    low_s = float(prediction.delays.constants(publisher)[0][home])
    high_s = max(2.0 * mean_s, 1e-9)
    while prediction.delays.chances(publisher, where, np.array([high_s]))[0] < q and high_s < 1e6 * mean_s:
        low_s, high_s = high_s, 2.0 * high_s
    for _ in range(_BISECTIONS):
        middle_s = 0.5 * (low_s + high_s)
        below = prediction.delays.chances(publisher, where, np.array([middle_s]))[0] < q
        low_s, high_s = (middle_s, high_s) if below else (low_s, middle_s)
    return high_s


def _remedies(prediction: Prediction, number: int, journeys: tuple[JourneyPrediction, ...]) -> list[Remedy]:
    knowledge, before = prediction.knowledge, float(prediction.reliability[number])
    spent: dict[tuple[str, str, str], float] = {}
    for journey in journeys:
        for hop in journey.hops:
            turn_s = math.inf if hop.wait_s is None else hop.wait_s + hop.service_s
            for what, cost_s in (("turn", turn_s), ("way", hop.way_s if hop.kind == "link" else 0.0)):
                key = (hop.kind, hop.place, what)
                spent[key] = spent.get(key, 0.0) + (journey.share * cost_s if cost_s > 0.0 else 0.0)
    busiest = sorted((key for key in spent if spent[key] > 0.0), key=lambda key: -spent[key])[:CANDIDATES_MAX]
    tried = [_changed(knowledge, *key) for key in busiest]
    losses = {hop.place for journey in journeys for hop in journey.hops if hop.kind == "link"}
    tried += [(text, changed) for text, changed in _lossless(knowledge, losses)]
    if math.isfinite(knowledge.max_delays_s[number]):
        relaxed = knowledge.max_delays_s.copy()
        relaxed[number] *= 1.5
        tried.append((f"extend the deadline to {relaxed[number]:.3g} s", replace(knowledge, max_delays_s=relaxed)))
    remedies = [
        Remedy(change=text, on_time_reliability=float(predict(changed, model=prediction.model).reliability[number]))
        for text, changed in tried
    ]
    better = [remedy for remedy in remedies if remedy.on_time_reliability > before + 1e-6]
    return sorted(better, key=lambda remedy: -remedy.on_time_reliability)


def _changed(knowledge: Knowledge, kind: str, place: str, what: str) -> tuple[str, Knowledge]:
    if kind == "broker":
        brokers = tuple(
            replace(broker, service_factor=0.5 * broker.service_factor) if broker.name == place else broker
            for broker in knowledge.brokers
        )
        return f"make broker {place} twice as fast", replace(knowledge, brokers=brokers)
    factor = "slowness_factor" if what == "turn" else "propagation_factor"
    links = tuple(
        replace(link, **{factor: 0.5 * getattr(link, factor)}) if knowledge.link_name(number) == place else link
        for number, link in enumerate(knowledge.links)
    )
    text = f"double the bandwidth of {place}" if what == "turn" else f"halve the propagation delay of {place}"
    return text, replace(knowledge, links=links)


def _lossless(knowledge: Knowledge, places: set[str]) -> list[tuple[str, Knowledge]]:
    """The change that stops the losses of the worst of these links, if any has losses."""
    found = [(link.loss, n) for n, link in enumerate(knowledge.links) if knowledge.link_name(n) in places]
    loss, worst = max(found, default=(0.0, -1))
    if loss <= 0.0:
        return []
    links = tuple(replace(link, loss=0.0) if n == worst else link for n, link in enumerate(knowledge.links))
    return [(f"stop the losses of {knowledge.link_name(worst)}", replace(knowledge, links=links))]


def _words(
    name: str,
    known: float | None,
    stuck: str | None,
    journeys: tuple[JourneyPrediction, ...],
    remedies: tuple[Remedy, ...],
    unmodelled: tuple[Unmodelled, ...],
) -> str:
    if known is None:
        return f"No publisher can match {name}, so it receives no events."
    sentences = [f"The predicted on-time share of {name} is {percent(known)}{_as_if(unmodelled)}."]
    if stuck is not None:
        sentences.append(f"{stuck} is overloaded: in the long run nothing behind it is on time.")
    elif journeys:
        main = journeys[0]
        parts = [(hop.wait_s or 0.0, f"waiting at {hop.place}") for hop in main.hops]
        parts += [
            (hop.service_s, f"{'service' if hop.kind == 'broker' else 'transmission'} at {hop.place}")
            for hop in main.hops
        ]
        parts += [
            (hop.way_s, f"{'processing' if hop.kind == 'broker' else 'propagation'} at {hop.place}")
            for hop in main.hops
        ]
        most_s, what = max(parts)
        if main.mean_delay_s:
            sentences.append(
                f"Most of its events come from {main.publisher} with a mean delay of {main.mean_delay_s:.3g} s; "
                f"{percent(most_s / main.mean_delay_s)} of it is {what}."
            )
    if remedies:
        gain = f"it would raise the share to {percent(remedies[0].on_time_reliability)}"
        sentences.append(f"The most effective single change: {remedies[0].change}; {gain}.")
    elif known < 1.0:
        sentences.append("No single change along its paths would help.")
    return " ".join(sentences)


def _as_if(unmodelled: tuple[Unmodelled, ...]) -> str:
    """The assumptions behind the figure."""
    # An overload has its own sentence.
    *others, last = [each.effect for each in unmodelled if each.kind != "overload"] or [""]
    listed = f"{', '.join(others)}, and {last}" if others else last
    return f", {listed}" if listed else ""
