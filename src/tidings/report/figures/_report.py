"""The values of a report: what a pipeline run says, worked out and cut to a size that a page can hold.

A report holds at most SHOWN_MAX subscriptions, brokers, links and moves one by one, the worst first; all of them count
in the sums and distributions. Stations are numbered: the brokers, then the links; a journey names the stations that it
passes. What could not be worked out is None, and `missing` says by section which command would add it.
"""

from typing import Final, Literal

import msgspec

from tidings.placement import Plan
from tidings.prediction import Unmodelled

__all__ = [
    "BINS",
    "SHOWN_MAX",
    "Cause",
    "Change",
    "Changes",
    "Comparison",
    "Headline",
    "Journey",
    "Ordering",
    "Place",
    "PolicyPoint",
    "Reason",
    "Report",
    "SchemeFigures",
    "Schemes",
    "Section",
    "Station",
    "SubscriptionFigures",
    "Window",
]

SHOWN_MAX: Final = 200
"""So many subscriptions (brokers, links, moves) are in tables, the worst first."""
BINS: Final = 20
"""Bars of a distribution of on-time shares."""

Cause = Literal[
    "none", "deadline", "long path", "busy broker", "busy link", "slow broker", "slow link", "losses", "failures"
]
Section = Literal["map", "comparison", "waterfall", "ordering", "schemes", "placement", "changes"]


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The run as a whole; `meeting` subscriptions of the `heard` that matched anything had R of .99 or more."""

    title: str
    subscriptions: int
    heard: int
    meeting: int
    publishers: int
    brokers: int
    links: int
    events: int
    matched: int
    on_time: int
    late: int
    lost: int
    worst: str | None
    worst_reliability: float | None
    busiest: str | None
    busiest_utilisation: float
    lasted_s: float
    rows: int
    bad: int
    quarantined: dict[str, int]

    @property
    def reliability(self) -> float | None:
        return self.on_time / self.matched if self.matched else None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of departures; `begins_s` counts from the first."""

    begins_s: float
    matched: int
    on_time: int


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A broker on the map: where it is drawn (both from 0 to 1, y downwards), and who is there."""

    x: float
    y: float
    publishers: int
    subscriptions: int
    matched: int
    on_time: int


class Station(msgspec.Struct, frozen=True, kw_only=True):
    """A broker (service) or a link (transmission of size times slowness, propagation), as it was measured.

    `waiting_s`, `service_s` and `propagation_s` are means; `shed` is the share of the copies for a link that expired in
    its queue, `loss` the share lost on it, `availability` 1 where no outage was seen. A link that nothing went over
    has no rate.
    """

    name: str
    kind: Literal["broker", "link"]
    source: int
    target: int
    rate_per_s: float
    kb_per_s: float
    utilisation: float
    waiting_s: float
    service_s: float
    slowness_s_per_kb: float
    propagation_s: float
    loss: float
    shed: float
    availability: float


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """From a publisher to a subscription: its share of the events, the size of one, and the stations on the way.

    `arrived`, `mean_delay_s` and `on_time` were measured of this pair; `on_time` comes from quantiles where a
    subscription hears several publishers, and is good to some hundredths.
    """

    publisher: str
    share: float
    size_kb: float
    allowed_s: float | None
    arrived: float
    on_time: float
    mean_delay_s: float | None
    stations: tuple[int, ...]


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a subscription does not get all of its events on time, in a word and in words."""

    cause: Cause
    words: str


class SubscriptionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription: what was promised, what was measured, what is predicted of the profiles, and why."""

    name: str
    broker: str
    filter: str
    max_delay_s: float | None
    matched: int
    on_time: int
    late: int
    lost: int
    reliability: float | None
    low: float | None
    high: float | None
    delay_p50_s: float | None
    delay_p99_s: float | None
    predicted: float | None
    reason: Reason


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted against measured, over all subscriptions that matched anything.

    `noise` is what sampling alone makes of the mean absolute error; `inside` of them are predicted inside the interval
    of what was measured; in both, events that are late together count for less than independent ones. `counts` by
    [measured, predicted] in steps of 1 / len(counts); `points` are (measured, predicted, name), if there are few.
    `scheme` is what outages were counted in with; None: they were not. `unmodelled` is what else the prediction leaves
    out.
    """

    scheme: str | None
    unmodelled: tuple[Unmodelled, ...]
    compared: int
    inside: int
    error: float
    noise: float
    counts: tuple[tuple[int, ...], ...]
    points: tuple[tuple[float, float, str], ...] | None


class PolicyPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that was replayed: the share of receptions in violation of order, and the mean hold."""

    policy: str
    received: int
    disorder: float
    hold_s: float


class Ordering(msgspec.Struct, frozen=True, kw_only=True):
    """The chance that an event comes after a later one, by how long receivers hold behind a gap.

    `curve` is over all pairs, weighted by their events; `curves` by subscription. `measured` is the share of deliveries
    that came out of order.
    """

    holds_s: tuple[float, ...]
    curve: tuple[float, ...]
    curves: dict[str, tuple[float, ...]]
    measured: float
    replayed: tuple[PolicyPoint, ...]


class SchemeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A way to live with failures: R' over all deliveries, R' of the subscriptions shown, messages for each event."""

    scheme: str
    reliability: float
    messages_per_event: float
    stored_events: float | None
    by_subscription: dict[str, float]


class Schemes(msgspec.Struct, frozen=True, kw_only=True):
    """The schemes that could be predicted, and why others could not; `source` says where failures come from, and
    subscriptions are taken to be refreshed every `refresh_s`, and kept through a crash where tables are durable.
    `unmodelled` is what the predictions leave out."""

    source: Literal["measured", "scenario"]
    refresh_s: float
    has_durable_tables: bool
    schemes: tuple[SchemeFigures, ...]
    left_out: dict[str, str]
    unmodelled: tuple[Unmodelled, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """R by subscription with one change made, and over all of them (weighted by what they matched)."""

    name: str
    description: str
    reliability: float
    meeting: int
    by_subscription: dict[str, float]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """As it is now, each single change, and all of them together (None: not given); `compared` subscriptions count."""

    compared: int
    now: Change
    single: tuple[Change, ...]
    together: Change | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a page."""

    headline: Headline
    windows: tuple[Window, ...]
    stations: tuple[Station, ...]
    places: tuple[Place, ...]
    is_map: bool
    subscriptions: tuple[SubscriptionFigures, ...]
    measured_bins: tuple[int, ...]
    predicted_bins: tuple[int, ...] | None
    causes: dict[Cause, int]
    journeys: dict[str, tuple[Journey, ...]]
    comparison: Comparison | None
    ordering: Ordering | None
    schemes: Schemes | None
    plans: tuple[tuple[str, Plan], ...]
    changes: Changes | None
    missing: dict[Section, str]

    @property
    def brokers(self) -> tuple[Station, ...]:
        return self.stations[: len(self.places)]

    @property
    def links(self) -> tuple[Station, ...]:
        return self.stations[len(self.places) :]
