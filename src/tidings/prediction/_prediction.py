"""The result of a prediction: by subscriber, by broker, by link."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.model.frames import Column, arrow_table, html_page, html_table, pandas_frame
from tidings.model.units import percent
from tidings.prediction._flows import Layout, Stations, load
from tidings.prediction._knowledge import FloatArray, Knowledge, LongArray
from tidings.prediction._paths import PathDelays, Waits
from tidings.prediction._unmodelled import Unmodelled, UnmodelledKind
from tidings.statistics import ReliabilityInterval

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["BrokerPrediction", "LinkPrediction", "Model", "Prediction", "Sample", "SubscriberPrediction"]

Model = Literal["ours", "gg1", "mm1"]
Rows = Literal["subscribers", "brokers", "links"]

SAMPLED: Final = frozenset[UnmodelledKind](
    {
        "scheduling",
        "ordering",
        "relocation",
        "routing",
        "access",
        "failures",
        "bursts",
        "regularity",
        "content",
        "churn",
        "convergence",
    }
)
"""The effects that formulas leave out and a sample includes."""

IDLE: Final = 0.01
"""Utilisation up to which the strategy of a link does not matter: at most this share of events finds others waiting."""


FORMULAS_ERROR: Final = 0.01
"""The mean |R' - R| of formulas with queues: .002 to .011 in the regimes that they cover
(`python -m benchmarks prediction_regimes`)."""

_MEAN_OF_HALF_WIDTH: Final = 0.407
"""The mean absolute value of a normal deviation, in half widths of its 95 % interval."""


class SubscriberPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription: R', the rate of the events that match it, their mean delay and the path of most of them.

    `on_time_reliability` is None if no publisher can match it. `mean_delay_s` is None also if all its events are behind
    an overload, or if a sample was taken, which has no delays. `interval` is that of the sample. `unmodelled` are the
    kinds of effects that matter here and are left out.
    """

    on_time_reliability: float | None
    matched_per_s: float
    mean_delay_s: float | None
    path: tuple[str, ...]
    overloaded_at: str | None
    unmodelled: tuple[UnmodelledKind, ...] = ()
    interval: ReliabilityInterval | None = None


class BrokerPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """One broker: arrival rate, utilisation, and mean wait (None: without end)."""

    arrival_rate_per_s: float
    utilisation: float
    wait_s: float | None


class LinkPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """One link: rate of events that cross it (without losses, as in equation 3), utilisation, and mean wait."""

    rate_per_s: float
    utilisation: float
    wait_s: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """R by subscription and utilisation by station, from a short run of the event loop (`_sample`)."""

    events: int
    duration_s: float
    reliability: FloatArray
    intervals: tuple[ReliabilityInterval | None, ...]
    utilisation: FloatArray

    @property
    def half_widths(self) -> FloatArray:
        """Half the width of each subscription's interval; NaN: unknown."""
        return np.array([np.nan if each is None else (each.high - each.low) / 2.0 for each in self.intervals])

    @property
    def mean_half_width(self) -> float | None:
        """The mean of the half widths."""
        known = self.half_widths[~np.isnan(self.half_widths)]
        return float(known.mean()) if len(known) else None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Prediction:
    """All figures, numbered as in the knowledge; R' is NaN where no publisher can match a subscription.

    `by_formulas` is R' by formulas; where these leave out effects that matter, there is a `sample`. `wait_s` is the
    mean wait by [publisher, station], by formulas. `subscribers`, `brokers` and `links` hold the same by name;
    `to_arrow` and `to_pandas` give one row per subscription.
    """

    model: Model
    knowledge: Knowledge
    layout: Layout
    stations: Stations
    waits: Waits
    wait_s: FloatArray
    delays: PathDelays
    by_formulas: FloatArray
    matched_per_s: FloatArray
    has_converged: bool
    sample: Sample | None = None

    @property
    def reliability(self) -> FloatArray:
        """R' of each subscription."""
        return self.by_formulas if self.sample is None else self.sample.reliability

    @property
    def mean_reliability(self) -> float | None:
        """The mean R' over the subscriptions that a publisher can match; None if there is none."""
        known = self.reliability[~np.isnan(self.reliability)]
        return float(known.mean()) if len(known) else None

    @property
    def expected_error(self) -> float | None:
        """The expected mean |R' - R| over the subscriptions, from the intervals of a sample, or from the error of
        formulas on other networks; None where effects are left out, so that it is unknown."""
        if self.unmodelled:
            return None
        if self.sample is not None:
            width = self.sample.mean_half_width
            return None if width is None else _MEAN_OF_HALF_WIDTH * width
        waits = bool(((self.layout.service > 0) & (self.stations.rate_per_s > 0.0)).any())
        return FORMULAS_ERROR if waits else 0.0

    @property
    def needs_sample(self) -> bool:
        """Whether formulas leave out effects that a sample includes, and there is a steady state to sample."""
        lasts = not self.overloaded or self.knowledge.drops_expired
        changes = any(each.kind == "day" for each in self._left_out)  # a sample is too short for a day
        return bool(self.left_out_by_formulas) and lasts and not changes

    @cached_property
    def station_wait_s(self) -> FloatArray:
        """The mean wait over all events of a station."""
        rate = self.stations.rate_per_s
        total = np.maximum(rate.sum(axis=0), 1e-300)
        with np.errstate(invalid="ignore"):
            mean = np.nansum(np.where(rate > 0.0, rate * self.wait_s, 0.0), axis=0) / total
        return np.where(self.waits.is_stuck, np.inf, mean)

    @cached_property
    def utilisation(self) -> FloatArray:
        """By station; above 1 only where queues grow without end: a link that sheds has at most 1."""
        if self.sample is not None:
            return self.sample.utilisation
        found = self.stations.utilisation
        return np.where(self.waits.is_stuck, found, np.minimum(found, 1.0))

    @property
    def bottleneck(self) -> str | None:
        """The busiest station: a broker's name, or a link as "source -> target"; None if nothing is ever busy."""
        busiest = int(np.argmax(self.utilisation)) if len(self.utilisation) else 0
        return self.station_name(busiest) if self.utilisation[busiest] > 0.0 else None

    @property
    def overloaded(self) -> tuple[str, ...]:
        """The overloaded stations, the worst first; by formulas, since a sample covers only its own duration."""
        stuck = np.flatnonzero(self.waits.is_stuck)
        return tuple(self.station_name(int(k)) for k in stuck[np.argsort(-self.utilisation[stuck], kind="stable")])

    @cached_property
    def left_out_by_formulas(self) -> tuple[UnmodelledKind, ...]:
        """The effects that a sample includes and formulas leave out or only estimate, such as links that drop expired
        events."""
        # A search that was given up may have stopped at a load of nothing.
        is_lossless = self.delays.is_whole and (self.has_converged or not self.knowledge.drops_expired)
        sheds: tuple[UnmodelledKind, ...] = () if is_lossless or self.model != "ours" else ("dropping",)
        left_out = (each.kind for each in self._left_out if each.kind in SAMPLED - {"convergence"})
        return (*sheds, *left_out)

    @cached_property
    def unmodelled(self) -> tuple[Unmodelled, ...]:
        """The effects left out of R': in the source of the knowledge, and by this model."""
        return tuple(each for each in self._left_out if self.sample is None or each.kind not in SAMPLED)

    @cached_property
    def _left_out(self) -> tuple[Unmodelled, ...]:
        found = []
        for each in self.knowledge.unmodelled:
            if each.kind == "scheduling":
                each = msgspec.structs.replace(each, links=tuple(name for name in each.links if name in self._busy))
                if not each.links:
                    continue
            if each.kind in ("bursts", "regularity"):
                names = tuple(name for name in each.publishers if name in self._approximate)
                if not names:
                    continue
                each = msgspec.structs.replace(each, publishers=names)
            found.append(each)
        if self.knowledge.drops_expired and self.model != "ours":
            found.append(
                Unmodelled(
                    kind="dropping",
                    what="links that drop expired events",
                    effect="as if expired events were forwarded",
                    remedy='use the model "ours"',
                )
            )
        if not self.has_converged:
            found.append(
                Unmodelled(
                    kind="convergence",
                    what="the mutual dependence of load and delays",
                    effect="from a load that had not converged when the search ended",
                    remedy="`tidings simulate` needs no search",
                )
            )
        if self.overloaded:
            brokers = {broker.name for broker in self.knowledge.brokers}
            found.append(
                Unmodelled(
                    kind="overload",
                    what="how long an overload has lasted",
                    effect="for the long run, when nothing behind it is on time",
                    remedy="`tidings simulate` runs it for the duration of the scenario",
                    brokers=tuple(name for name in self.overloaded if name in brokers),
                    links=tuple(name for name in self.overloaded if name not in brokers),
                )
            )
        return tuple(found)

    @cached_property
    def _approximate(self) -> frozenset[str]:
        """The publishers with events in shared queues; waits in their own queues are exact."""
        stations, layout = self.stations, self.layout
        waits = (layout.service > 0) & (stations.rate_per_s > 0.0) & ~self.waits.is_exact
        somewhere = np.flatnonzero(np.asarray(waits).any(axis=1)).tolist()
        return frozenset(self.knowledge.publishers[number].name for number in somewhere)

    def _wait_s(self, station: int) -> float | None:
        return None if self.sample is not None else _finite(self.station_wait_s[station])

    @cached_property
    def _busy(self) -> frozenset[str]:
        """The links that would be busy if nothing were dropped."""
        layout, n = self.layout, len(self.knowledge.brokers)
        offered = load(layout, np.ones(layout.mass.shape), np.ones(layout.service.shape[1])).utilisation[n:]
        return frozenset(self.knowledge.link_name(link) for link in np.flatnonzero(offered >= IDLE).tolist())

    def concerned(self, left_out: Unmodelled) -> NDArray[np.bool_]:
        """By subscription: whether the effect would matter there."""
        knowledge, n = self.knowledge, len(self.knowledge.brokers)
        found = np.full(len(knowledge.subscriptions), left_out.is_everywhere)
        if left_out.is_everywhere:
            return found
        broker_is_named = [broker.name in left_out.brokers for broker in knowledge.brokers]
        named = set(left_out.links)
        link_is_named = [knowledge.link_name(number) in named for number in range(len(knowledge.links))]
        for publisher in knowledge.publishers:
            tree, is_behind = publisher.tree, np.full(n, publisher.name in left_out.publishers)
            for broker in tree.order.tolist():
                is_behind[broker] |= broker_is_named[broker]
                if broker != tree.root:
                    is_behind[broker] |= is_behind[tree.parent[broker]] or link_is_named[tree.parent_link[broker]]
            matched, _ = publisher.content.masses
            found[matched] |= is_behind[knowledge.homes[matched]]
        return found

    def station_name(self, station: int) -> str:
        n = len(self.knowledge.brokers)
        return self.knowledge.brokers[station].name if station < n else self.knowledge.link_name(station - n)

    @cached_property
    def brokers(self) -> dict[str, BrokerPrediction]:
        return {
            broker.name: BrokerPrediction(
                arrival_rate_per_s=float(self._arriving_per_s[number]),
                utilisation=float(self.utilisation[number]),
                wait_s=self._wait_s(number),
            )
            for number, broker in enumerate(self.knowledge.brokers)
        }

    @cached_property
    def links(self) -> dict[str, LinkPrediction]:
        n = len(self.knowledge.brokers)
        return {
            self.knowledge.link_name(number): LinkPrediction(
                rate_per_s=float(self._arriving_per_s[n + number] * self._passed[n + number] * (1.0 - link.loss)),
                utilisation=float(self.utilisation[n + number]),
                wait_s=self._wait_s(n + number),
            )
            for number, link in enumerate(self.knowledge.links)
        }

    @cached_property
    def _arriving_per_s(self) -> FloatArray:
        """By station. Where links drop events, the utilisation of a sample gives the rate that is left to serve."""
        found, mean_s = self.stations.total_per_s, self.stations.mean_s
        if self.sample is None or not self.knowledge.drops_expired:
            return found
        return np.where(mean_s > 0.0, self.sample.utilisation / np.where(mean_s > 0.0, mean_s, 1.0), found)

    @cached_property
    def _passed(self) -> FloatArray:
        return np.where(self.waits.is_stuck, 1.0 / np.maximum(self.utilisation, 1.0), 1.0)

    @cached_property
    def subscribers(self) -> dict[str, SubscriberPrediction]:
        """By subscription, in the order of the knowledge."""
        mean_s, main, stuck_at = self._journeys()
        left_out = [(each.kind, self.concerned(each)) for each in self.unmodelled]
        intervals = (None,) * len(self.knowledge.subscriptions) if self.sample is None else self.sample.intervals
        made = {}
        for number, name in enumerate(self.knowledge.subscriptions):
            known = not np.isnan(self.reliability[number])
            publisher = int(main[number])
            home = int(self.knowledge.homes[number])
            tree = self.knowledge.publishers[publisher].tree if publisher >= 0 else None
            path = tree.path(home) if tree is not None and home in tree else ()
            stuck = int(stuck_at[publisher, home]) if publisher >= 0 else -1
            made[name] = SubscriberPrediction(
                on_time_reliability=float(self.reliability[number]) if known else None,
                matched_per_s=float(self.matched_per_s[number]),
                mean_delay_s=_finite(mean_s[number]) if known and self.sample is None else None,
                path=tuple(self.knowledge.brokers[broker].name for broker in path),
                overloaded_at=self.station_name(stuck) if stuck >= 0 else None,
                unmodelled=tuple(kind for kind, concerned in left_out if concerned[number]),
                interval=intervals[number],
            )
        return made

    def to_arrow(self, rows: Rows = "subscribers") -> "pa.Table":
        """One row per subscription, broker or link."""
        return arrow_table(self._columns(rows))

    def to_pandas(self, rows: Rows = "subscribers") -> "pd.DataFrame":
        """The same as a pandas frame."""
        return pandas_frame(self._columns(rows))

    def __repr__(self) -> str:
        mean = self.mean_reliability
        share = "no matches" if mean is None else f"mean on-time share {percent(mean)}"
        return f"Prediction({len(self.knowledge.subscriptions):,} subscriptions, {share})"

    def _repr_html_(self) -> str:
        """The mean, the bottleneck, what is left out, and the subscriptions, the lowest on-time share first."""
        mean, busiest = self.mean_reliability, self.bottleneck
        facts = {
            "mean on-time share": "no event matches" if mean is None else percent(mean),
            "busiest": "none" if busiest is None else f"{busiest} ({percent(float(self.utilisation.max()))})",
            "not modelled": "; ".join(each.what for each in self.unmodelled) or "nothing",
        }
        order = np.argsort(self.reliability, kind="stable").tolist()  # NaN, without matches, comes last
        listed = list(self.subscribers.items())
        rows = [
            (
                name,
                "no matches" if found.on_time_reliability is None else percent(found.on_time_reliability),
                f"{found.matched_per_s:.3g}",
                "" if found.mean_delay_s is None else f"{1e3 * found.mean_delay_s:.1f}",
                " - ".join(found.path),
            )
            for name, found in (listed[number] for number in order)
        ]
        heads = ("subscription", "on-time share", "events per s", "mean delay (ms)", "path")
        return html_page("Prediction", html_table(("", ""), facts.items()), html_table(heads, rows))

    def _columns(self, rows: Rows) -> dict[str, Column]:
        match rows:
            case "subscribers":
                return self._subscription_columns()
            case "brokers":
                brokers = list(self.brokers.values())
                return {
                    "broker": Column("text", list(self.brokers)),
                    "arrival_rate_per_s": Column("number", [each.arrival_rate_per_s for each in brokers]),
                    "utilisation": Column("number", [each.utilisation for each in brokers]),
                    "mean_wait_s": Column("number", [each.wait_s for each in brokers]),
                }
            case "links":
                links, knowledge = list(self.links.values()), self.knowledge
                names = [broker.name for broker in knowledge.brokers]
                return {
                    "source": Column("text", [names[link.source] for link in knowledge.links]),
                    "target": Column("text", [names[link.target] for link in knowledge.links]),
                    "rate_per_s": Column("number", [each.rate_per_s for each in links]),
                    "utilisation": Column("number", [each.utilisation for each in links]),
                    "mean_wait_s": Column("number", [each.wait_s for each in links]),
                }
        raise ConfigurationError(f"rows is {rows!r}; write one of {', '.join(get_args(Rows))}")

    def _subscription_columns(self) -> dict[str, Column]:
        names, found = list(self.subscribers), list(self.subscribers.values())
        homes = [self.knowledge.brokers[home].name for home in self.knowledge.homes.tolist()]
        return {
            "subscription": Column("text", names),
            "broker": Column("text", homes),
            "on_time_share": Column("number", [each.on_time_reliability for each in found]),
            "low": Column("number", [None if each.interval is None else each.interval.low for each in found]),
            "high": Column("number", [None if each.interval is None else each.interval.high for each in found]),
            "matched_per_s": Column("number", [each.matched_per_s for each in found]),
            "mean_delay_s": Column("number", [each.mean_delay_s for each in found]),
            "path": Column("texts", [each.path for each in found]),
            "overloaded_at": Column("text", [each.overloaded_at for each in found]),
            "unmodelled": Column("texts", [each.unmodelled for each in found]),
        }

    def _journeys(self) -> tuple[FloatArray, LongArray, LongArray]:
        """Mean delay and busiest publisher by subscription; the first overloaded station by [publisher, broker]."""
        count, knowledge = len(self.knowledge.subscriptions), self.knowledge
        total, weight, best = np.zeros(count), np.zeros(count), np.zeros(count)
        main = np.full(count, -1, np.int64)
        stuck_at = np.full((len(knowledge.publishers), len(knowledge.brokers)), -1, np.int64)
        for p, publisher in enumerate(knowledge.publishers):
            mean_s, stuck_at[p] = self.mean_delays(p)
            matched, masses = publisher.content.masses
            rate = publisher.rate_per_s * masses
            arriving = rate * self.layout.kept[p][knowledge.homes[matched]]
            finite = np.isfinite(mean_s[knowledge.homes[matched]])
            total[matched[finite]] += (arriving * np.where(finite, mean_s[knowledge.homes[matched]], 0.0))[finite]
            weight[matched[finite]] += arriving[finite]
            more = rate > best[matched]
            best[matched[more]] = rate[more]
            main[matched[more]] = p
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(weight > 0.0, total / weight, np.inf), main, stuck_at

    def mean_delays(self, publisher: int) -> tuple[FloatArray, LongArray]:
        """By broker: the mean delay until it has processed an event, and the first overloaded station before that."""
        layout, n = self.layout, len(self.knowledge.brokers)
        means = np.array([stage.mean_s for stage in layout.stages])
        mean_s, stuck_at = np.full(n, np.inf), np.full(n, -1, np.int64)
        spent_s = self.wait_s[publisher] + means[layout.service[publisher]] + means[layout.delay]
        is_stuck = self.waits.is_stuck
        members = layout.order[publisher]
        for place, broker in enumerate(members[members >= 0].tolist()):
            before_s, first = 0.0, -1
            if place > 0:
                above, station = layout.parent[publisher, broker], n + layout.link[publisher, broker]
                before_s, first = mean_s[above] + spent_s[station], int(stuck_at[above])
                if first < 0 and is_stuck[station]:
                    first = station
            if first < 0 and is_stuck[broker]:
                first = broker
            mean_s[broker] = before_s + spent_s[broker] if first < 0 else np.inf
            stuck_at[broker] = first
        return mean_s, stuck_at


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
