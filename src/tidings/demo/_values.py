"""What a demonstration finds, as values."""

import msgspec

from tidings.prediction import Unmodelled

__all__ = ["Demonstration", "Effect", "OrderEffect", "Standing"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription: its share of events on time as measured, as predicted beforehand, and after changes.

    What a change would bring is the measured share and the difference that the change makes. `best_change` is the
    single change that brings this subscription most; None if none brings it anything. Shares are None if nothing
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
    """One change by itself: the mean share on time over subscriptions with it, and how many gain a point or more."""

    name: str
    description: str
    reliability: float
    gaining: int


class OrderEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What sending by deadlines does to the order of a publisher's events, and what receivers can do about it."""

    policy: str
    received: int
    out_of_order: int
    repaired: float | None
    hold_ms_mean: float


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; `error` is the mean distance of prediction and measurement over the subscriptions.

    `unpredicted` is why what is called predicted was simulated, in a run of its own; None if it was predicted. Then
    `unmodelled` is what the prediction leaves out.
    """

    title: str
    scenario: str
    trace: str
    scores: str
    report: str
    simulated_s: float
    events: int
    deliveries: int
    rows: int
    reliability: float
    error: float
    unpredicted: str | None
    unmodelled: tuple[Unmodelled, ...]
    reliability_all: float
    effects: tuple[Effect, ...]
    order: OrderEffect | None
    subscribers: tuple[Standing, ...]
