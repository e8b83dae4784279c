"""The values of a report: the results of a pipeline run, cut to a size that a page can hold.

A report lists at most SHOWN_MAX subscriptions, brokers, links and moves, the worst first; all of them count in the sums
and distributions. Stations are numbered: the brokers, then the links. A journey names the stations that it passes. What
could not be computed is None, and `missing` names by section the command that adds it.
"""

from typing import Final, Literal

import msgspec

from tidings.placement import PlacementPlan
from tidings.prediction import Unmodelled

__all__ = [
    "BINS",
    "LATENESS_STEPS",
    "SHOWN_MAX",
    "Advice",
    "Cause",
    "Change",
    "Changes",
    "Comparison",
    "Headline",
    "Journey",
    "Move",
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
"""Rows of a table of subscriptions (brokers, links, moves), the worst first."""
BINS: Final = 20
"""Bars of a distribution of on-time shares."""
LATENESS_STEPS: Final = (0.99, 0.95, 0.8, 0.5)
"""The on-time shares at which the scale of lateness changes its colour: step 0 is 99 % or more, step 4 below 50 %."""

Cause = Literal[
    "none", "deadline", "long path", "busy broker", "busy link", "slow broker", "slow link", "losses", "failures"
]
Section = Literal["map", "comparison", "waterfall", "ordering", "schemes", "placement", "changes"]


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The run as a whole. `heard` subscriptions matched anything; `meeting` of them got 99 % or more on time.

    `reliability` is the on-time share of all deliveries, `mean_reliability` the mean of the shares of subscriptions:
    there, one that gets few events counts as much as one that gets many.
    """

    title: str
    subscriptions: int
    heard: int
    meeting: int
    mean_reliability: float | None
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
    """The events published in one stretch of time; `begins_s` counts from the first event."""

    begins_s: float
    matched: int
    on_time: int


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A broker on the map: its position (0 to 1, y downwards), and its clients."""

    x: float
    y: float
    publishers: int
    subscriptions: int
    matched: int
    on_time: int


class Station(msgspec.Struct, frozen=True, kw_only=True):
    """A broker (service) or a link (transmission of size times slowness, propagation), as it was measured.

    `waiting_s`, `service_s` and `propagation_s` are means; `shed` is the share of the copies for a link that expired in
    its queue, `loss` the share lost on it, `availability` 1 if no outage was seen. A link without traffic has rate 0.
    `on_time` is the on-time share of the deliveries whose path passes here; None if there are none, or the paths are
    not known.
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
    on_time: float | None = None


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """From a publisher to a subscription: its share of the events, the mean size, and the stations of the path.

    `arrived`, `mean_delay_s` and `on_time` were measured for this pair. If a subscription receives from several
    publishers, `on_time` is interpolated between quantiles, with an error of some points.
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
    """Why a subscription does not get all of its events on time: the cause, a sentence, and the station to blame."""

    cause: Cause
    words: str
    station: int | None = None


class SubscriptionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription: its deadline, what was measured, what is predicted from the profiles, and the reason."""

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
    """A replayed policy: the share of receptions out of order, and the mean hold."""

    policy: str
    received: int
    disorder: float
    hold_s: float


class Ordering(msgspec.Struct, frozen=True, kw_only=True):
    """The probability that an event arrives after a later one, by how long receivers hold behind a gap.

    `curve` is over all pairs, weighted by their events; `curves` by subscription. `measured` is the share of deliveries
    that arrived out of order.
    """

    holds_s: tuple[float, ...]
    curve: tuple[float, ...]
    curves: dict[str, tuple[float, ...]]
    measured: float
    replayed: tuple[PolicyPoint, ...]


class SchemeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One scheme: R' over all deliveries, R' of the subscriptions shown, and messages per event."""

    scheme: str
    reliability: float
    messages_per_event: float
    stored_events: float | None
    by_subscription: dict[str, float]


class Schemes(msgspec.Struct, frozen=True, kw_only=True):
    """The schemes that could be predicted, and why others could not.

    `source` is where the failures come from. Subscriptions are refreshed every `refresh_s` and, if tables are durable,
    kept through a crash. `unmodelled` is what the predictions leave out.
    """

    source: Literal["measured", "scenario"]
    refresh_s: float
    has_durable_tables: bool
    schemes: tuple[SchemeFigures, ...]
    left_out: dict[str, str]
    unmodelled: tuple[Unmodelled, ...]


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A client that a change moves from one broker to another."""

    client: str
    origin: str
    target: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """R by subscription with one change made, and over all deliveries; `moves` are the clients that it moves."""

    name: str
    description: str
    reliability: float
    meeting: int
    by_subscription: dict[str, float]
    moves: tuple[Move, ...] = ()


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The run as it was, each single change, and all together (None: not given); `compared` subscriptions count."""

    compared: int
    now: Change
    single: tuple[Change, ...]
    together: Change | None


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to do first, and the on-time share of all deliveries before and after.

    `action` is an imperative without a full stop. `basis` is where the figures come from: changes that the caller
    estimated, a plan of `tidings place`, schemes, or a station made twice as fast in the prediction.
    """

    action: str
    now: float
    then: float
    basis: Literal["changes", "plan", "schemes", "capacity"]

    @property
    def gain(self) -> float:
        return self.then - self.now


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a page.

    `lateness` counts the subscriptions in each step of the scale (LATENESS_STEPS), as measured; `predicted_lateness` as
    predicted.
    """

    headline: Headline
    advice: Advice | None
    lateness: tuple[int, ...]
    predicted_lateness: tuple[int, ...] | None
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
    plans: tuple[tuple[str, PlacementPlan], ...]
    changes: Changes | None
    missing: dict[Section, str]

    @property
    def brokers(self) -> tuple[Station, ...]:
        return self.stations[: len(self.places)]

    @property
    def links(self) -> tuple[Station, ...]:
        return self.stations[len(self.places) :]
