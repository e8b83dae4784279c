"""The results of a demonstration, as values."""

import msgspec

from tidings.prediction import Unmodelled

__all__ = ["Demonstration", "Effect", "OrderEffect", "Standing"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription: its on-time share as measured, as predicted beforehand, and after changes.

    `best` is the measured share plus the gain of `best_change`, the single change that gains most for this subscription
    (None: none gains anything). `all` is the share in the simulation with all changes. Shares are None if nothing
    matched.
    """

    subscriber: str
    broker: str
    filter: str
    max_delay_s: float | None
    matched: int
    measured: float | None
    predicted: float | None
    best: float | None
    best_change: str | None
    all: float | None


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One change by itself: the mean on-time share with it, and how many subscriptions gain a point or more."""

    name: str
    description: str
    reliability: float
    gaining: int


class OrderEffect(msgspec.Struct, frozen=True, kw_only=True):
    """How many events arrive out of order with all changes, and the share that receivers repair."""

    policy: str
    received: int
    out_of_order: int
    repaired: float | None
    hold_ms_mean: float


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """All results.

    `on_time_share` is that of all deliveries; `reliability` and `reliability_all` are means of the shares of
    subscriptions, before and after all changes. `error` is the mean distance of prediction and measurement.

    `unpredicted` is why the shares called predicted come from a short simulation instead; None if they were predicted,
    and then `unmodelled` is what the prediction leaves out. `worst` is the subscription with the lowest share, `reason`
    the sentence that explains it.
    """

    title: str
    scenario: str
    trace: str
    scores: str
    report: str
    simulated_s: float
    brokers: int
    events: int
    deliveries: int
    rows: int
    on_time_share: float | None
    reliability: float
    error: float
    unpredicted: str | None
    unmodelled: tuple[Unmodelled, ...]
    reliability_all: float
    effects: tuple[Effect, ...]
    order: OrderEffect | None
    worst: str | None
    reason: str | None
    subscribers: tuple[Standing, ...]
