"""`read_report`: from the directory of a pipeline run to the figures of a page. No Spark, no clock.

Each part is computed by a pure function in a module of its own. This module puts them together; for each part that
could not be computed it adds a sentence with the command that would.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tidings.errors import InputError
from tidings.model.scenario import Network, Scenario
from tidings.placement import PlacementPlan, read_plan
from tidings.prediction import Prediction, Unmodelled, from_profiles, predict, unmodelled
from tidings.report.figures._advice import advice_of
from tidings.report.figures._changes import MEETS, changes_of
from tidings.report.figures._comparison import bins_of, compare, lateness_of
from tidings.report.figures._journeys import journeys_of, on_time_by_station
from tidings.report.figures._ordering import ordering_of, read_replay
from tidings.report.figures._reasons import reason_of
from tidings.report.figures._report import (
    SHOWN_MAX,
    Comparison,
    Headline,
    Journey,
    Report,
    Section,
    Station,
    SubscriptionFigures,
    Window,
)
from tidings.report.figures._schemes import InForce, schemes_of
from tidings.report.figures._stations import BROKERS_MAX, places_of, stations_of, watched_s
from tidings.report.figures._tables import Tables, read_tables

__all__ = ["read_report"]

WINDOWS_MAX: Final = 120
SCHEMES_BROKERS_MAX: Final = 250
"""Schemes of larger networks take minutes; `tidings predict --compare-schemes` compares them."""

Floats = NDArray[np.float64]
Plans = PlacementPlan | str | Path | Sequence[PlacementPlan | str | Path]


def read_report(
    directory: str | Path,
    *,
    scenario: str | Path | Network | None = None,
    plan: Plans | None = None,
    changes: Sequence[Mapping[str, Any]] | None = None,
    orders: str | Path | None = None,
    title: str | None = None,
) -> Report:
    """The figures of a pipeline run.

    `scenario` (a file, or its network) gives the title, places on the map and failures where the trace has none;
    `plan` is one or more plans of `tidings place`, as values or files; `changes` a list of {name, reliability}, see
    `_changes`; `orders` the directory of `tidings order replay --out`. InputError names what is missing or wrong.
    """
    tables = read_tables(Path(directory))
    network = Scenario.load(Path(scenario)).expand() if isinstance(scenario, str | Path) else scenario
    if network is not None:
        _check_scenario(network, tables)
    missing: dict[Section, str] = {}
    prediction = _prediction(tables, missing)
    stations = stations_of(tables, None if prediction is None else prediction.knowledge)
    places, is_map = places_of(tables, stations, network)
    if len(places) > BROKERS_MAX:
        missing["map"] = f"There are {len(places):,} brokers, too many for a map; the table lists the busiest."
    scores = _Scores(tables, prediction, network=network)
    shown = scores.worst(SHOWN_MAX)
    names = [scores.names[number] for number in shown]
    schemes, in_force = None, None
    if prediction is not None and len(places) <= SCHEMES_BROKERS_MAX:
        schemes, in_force = schemes_of(prediction, tables.profiles or {}, network, names)
    if in_force is not None:
        scores = _Scores(tables, prediction, in_force, network)
    journeys: dict[str, tuple[Journey, ...]] = {}
    if prediction is not None:
        shares = scores.measured_shares
        journeys = journeys_of(prediction.knowledge, tables.pairs, {name: shares.get(name) for name in names})
        passing = on_time_by_station(prediction.knowledge, tables.pairs, shares)
        stations = tuple(replace(each, on_time=share) for each, share in zip(stations, passing, strict=True))
    replayed = () if orders is None else read_replay(Path(orders))
    ordering = ordering_of(tables.pairs, tables.rows("publishers"), tables.scores, names, replayed)
    plans = _plans(plan)
    estimated = changes_of(changes or (), scores.measured_shares, scores.matched_events, names)
    if len(places) > SCHEMES_BROKERS_MAX:
        missing["schemes"] = (
            f"Comparing schemes for {len(places):,} brokers takes a while; run `tidings predict DIR --compare-schemes`."
        )
    moves = plans or (estimated is not None and any(each.moves for each in estimated.single))
    _note_what_is_missing(missing, ordering=ordering, schemes=schemes, moves=moves, changes=estimated)
    named = title or ("" if network is None else network.title)
    subscriptions = tuple(scores.figures(number, journeys, stations) for number in shown)
    headline = _headline(tables, scores, stations, named or Path(directory).resolve().name)
    return Report(
        headline=headline,
        advice=advice_of(
            headline.reliability,
            changes=estimated,
            plans=plans,
            schemes=schemes,
            scheme=None if in_force is None else in_force.scheme,
            prediction=prediction,
            subscriptions=subscriptions,
            stations=stations,
        ),
        lateness=lateness_of(scores.measured),
        predicted_lateness=None if prediction is None else lateness_of(scores.predicted),
        windows=_windows(tables),
        stations=stations,
        places=places,
        is_map=is_map,
        subscriptions=subscriptions,
        measured_bins=bins_of(scores.measured),
        predicted_bins=None if prediction is None else bins_of(scores.predicted),
        causes=dict(Counter(each.reason.cause for each in subscriptions).most_common()),
        journeys=journeys,
        comparison=scores.comparison() if prediction is not None else None,
        ordering=ordering,
        schemes=schemes,
        plans=plans,
        changes=estimated,
        missing=missing,
    )


def _check_scenario(network: Network, tables: Tables) -> None:
    known = {broker.name for broker in network.topology.brokers}
    seen = {row["source"] for row in tables.rows("topology") if row["kind"] == "broker"}
    strange = sorted(seen - known)
    if strange:
        raise InputError(
            f"scenario {network.title!r} has no broker {strange[0]!r}, which the run has; "
            "give the scenario of the trace, or none"
        )


def _prediction(tables: Tables, missing: dict[Section, str]) -> Prediction | None:
    """As `tidings predict DIR` makes it; if it cannot be made, the page shows the reason."""
    profiles = tables.profiles
    if profiles is None:
        missing["comparison"] = missing["waterfall"] = (
            f"The content has {tables.content_rows:,} kinds of events, too many to predict here; "
            "run `tidings predict DIR --spark --out predicted`."
        )
        return None
    try:
        return predict(from_profiles(profiles))
    except InputError as error:
        missing["comparison"] = missing["waterfall"] = f"The profiles do not suffice for a prediction: {error}."
        return None


def _left_out(
    prediction: Prediction | None, in_force: InForce | None, network: Network | None
) -> tuple[Unmodelled, ...]:
    """What the prediction leaves out; the policies in force are known only with a scenario."""
    if prediction is None:
        return ()
    found = prediction.unmodelled if in_force is None else in_force.unmodelled
    if network is None:
        return found
    policies = [each for each in unmodelled(network) if each.kind in ("scheduling", "ordering", "routing")]
    return (*policies, *(each for each in found if each.kind != "policies"))


def _plans(plan: Plans | None) -> tuple[tuple[str, PlacementPlan], ...]:
    if plan is None:
        return ()
    given = [plan] if isinstance(plan, PlacementPlan | str | Path) else list(plan)
    return tuple(
        (each.aim.objective, each) if isinstance(each, PlacementPlan) else (Path(each).name, read_plan(each))
        for each in given
    )


def _note_what_is_missing(missing: dict[Section, str], **found: object) -> None:
    sentences: dict[Section, str] = {
        "ordering": "No publisher sent two events that matched the same subscription: nothing can be out of order.",
        "schemes": "No outage was seen. Give the scenario with its failures: `tidings report DIR --scenario FILE`.",
        "placement": "Make a plan from the same trace and add it: `tidings place TRACE --objective on-time --out "
        "plan.json`, then `tidings report DIR --plan plan.json`.",
        "changes": "`tidings demo SCENARIO` computes the effect of single changes and shows them in its report.",
    }
    values = {"placement" if name == "moves" else name: value for name, value in found.items()}
    for section in sentences.keys() - missing.keys():
        if not values[section]:
            missing[section] = sentences[section]


class _Scores:
    """What was measured and predicted of every subscription, as columns in the order of the scores."""

    def __init__(
        self,
        tables: Tables,
        prediction: Prediction | None,
        in_force: InForce | None = None,
        network: Network | None = None,
    ) -> None:
        self._scheme = None if in_force is None else in_force.scheme
        self._unmodelled = _left_out(prediction, in_force, network)
        columns = tables.scores.to_pydict()
        self.names: list[str] = columns["subscription"]
        self._columns = columns
        self._rows = {row["subscription"]: row for row in tables.rows("subscriptions")}
        self.matched = np.array(columns["matched"], np.float64)
        self.measured, self.low, self.high, self.effective = (
            np.array([np.nan if value is None else value for value in columns[name]], np.float64)
            for name in ("on_time_reliability", "reliability_low", "reliability_high", "effective_events")
        )
        self.predicted = np.full(len(self.names), np.nan)
        if prediction is not None:
            shares = prediction.reliability if in_force is None else in_force.reliability
            numbers = {name: number for number, name in enumerate(prediction.knowledge.subscriptions)}
            for place, name in enumerate(self.names):
                if name in numbers:
                    self.predicted[place] = shares[numbers[name]]

    @property
    def measured_shares(self) -> dict[str, float]:
        pairs = zip(self.names, self.measured.tolist(), strict=True)
        return {name: share for name, share in pairs if share == share}

    @property
    def matched_events(self) -> dict[str, int]:
        return dict(zip(self.names, self._columns["matched"], strict=True))

    def worst(self, count: int) -> list[int]:
        """Those that had anything to receive first, by R, then by name."""
        keys = [
            (2.0 if np.isnan(share) else share, name) for share, name in zip(self.measured, self.names, strict=True)
        ]
        return sorted(range(len(keys)), key=lambda number: keys[number])[:count]

    def comparison(self) -> Comparison | None:
        return compare(
            self.names,
            self.measured,
            self.predicted,
            effective=self.effective,
            low=self.low,
            high=self.high,
            scheme=self._scheme,
            unmodelled=self._unmodelled,
        )

    def figures(
        self, number: int, journeys: Mapping[str, Sequence[Journey]], stations: Sequence[Station]
    ) -> SubscriptionFigures:
        name, columns = self.names[number], self._columns
        row = self._rows.get(name, {})
        share, p50_ns, p99_ns = (
            columns[column][number] for column in ("on_time_reliability", "delay_p50_ns", "delay_p99_ns")
        )
        return SubscriptionFigures(
            name=name,
            broker=row.get("broker") or "",
            filter=row.get("filter") or "",
            max_delay_s=None if row.get("max_delay_ns") is None else row["max_delay_ns"] / 1e9,
            **{column: columns[column][number] for column in ("matched", "on_time", "late", "lost")},
            reliability=share,
            low=columns["reliability_low"][number],
            high=columns["reliability_high"][number],
            delay_p50_s=None if p50_ns is None else p50_ns / 1e9,
            delay_p99_s=None if p99_ns is None else p99_ns / 1e9,
            predicted=None if np.isnan(self.predicted[number]) else float(self.predicted[number]),
            reason=reason_of(share, journeys.get(name, ()), stations),
        )

    def total(self, name: str) -> int:
        return int(sum(self._columns[name]))


def _headline(tables: Tables, scores: _Scores, stations: Sequence[Station], title: str) -> Headline:
    known = ~np.isnan(scores.measured)
    worst = scores.worst(1)[0] if known.any() else None
    busiest = max(stations, key=lambda station: station.utilisation, default=None)
    publishers = tables.rows("publishers")
    return Headline(
        title=title,
        subscriptions=len(scores.names),
        heard=int(known.sum()),
        meeting=int((scores.measured[known] >= MEETS).sum()),
        mean_reliability=float(scores.measured[known].mean()) if known.any() else None,
        publishers=len(publishers),
        brokers=sum(station.kind == "broker" for station in stations),
        links=sum(station.kind == "link" for station in stations),
        events=sum(row["events"] for row in publishers),
        **{name: scores.total(name) for name in ("matched", "on_time", "late", "lost")},
        worst=None if worst is None else scores.names[worst],
        worst_reliability=None if worst is None else float(scores.measured[worst]),
        busiest=busiest.name if busiest is not None and busiest.utilisation > 0.0 else None,
        busiest_utilisation=0.0 if busiest is None else busiest.utilisation,
        lasted_s=watched_s(tables),
        rows=sum(row["rows"] for row in tables.rows("rows")),
        bad=tables.bad,
        quarantined=dict(tables.quarantined),
    )


def _windows(tables: Tables) -> tuple[Window, ...]:
    """At most WINDOWS_MAX, neighbours put together."""
    rows = sorted(tables.rows("window_scores"), key=lambda row: row["window_ns"])
    if not rows:
        return ()
    together = -(-len(rows) // WINDOWS_MAX)
    groups = [rows[first : first + together] for first in range(0, len(rows), together)]
    return tuple(
        Window(
            begins_s=(group[0]["window_ns"] - rows[0]["window_ns"]) / 1e9,
            matched=sum(row["matched"] for row in group),
            on_time=sum(row["on_time"] for row in group),
        )
        for group in groups
    )
