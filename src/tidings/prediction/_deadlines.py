"""The chance to be on time: the distribution of a delay against the tighter of lifetime and deadline.

Lifetimes may vary between events. A constant one is a point, an exponential one needs only the transform of the delay,
and any other is represented by Gauss-Legendre nodes of its quantile function, with the subscriber's deadline as a point
of its own.
"""

import math

import numpy as np

from tidings.model.distributions import DelayDistribution, Deterministic, Exponential
from tidings.prediction._flows import Layout
from tidings.prediction._knowledge import FloatArray, IntArray, Knowledge
from tidings.prediction._paths import PathDelays, Place
from tidings.prediction._stages import nodes_of

__all__ = ["chance_on_time", "latest_deadlines", "spread_latest"]

_LIFETIME_PANELS = (0.0, 0.5, 0.9, 0.99, 0.9999, 1.0)
_LIFETIME_NODES = 8


def chance_on_time(
    delays: PathDelays,
    publisher: int,
    lifetime: DelayDistribution | None,
    homes: IntArray,
    max_delays_s: FloatArray,
    place: Place = "arrived",
) -> FloatArray:
    """P[delay < min(lifetime, max_delay)] for each pair of a broker and a deadline."""
    if lifetime is None:
        return delays.chances(publisher, homes, max_delays_s, place)
    if isinstance(lifetime, Deterministic):
        return delays.chances(publisher, homes, np.minimum(max_delays_s, lifetime.value), place)
    if isinstance(lifetime, Exponential) and place == "arrived" and np.isinf(max_delays_s).all() and delays.is_whole:
        return delays.outlived(publisher, homes, lifetime.scale)
    chance = np.zeros(len(homes))
    for max_delay_s in np.unique(max_delays_s).tolist():
        chosen = np.flatnonzero(max_delays_s == max_delay_s)
        points_s, weights = _allowed(lifetime, max_delay_s)
        asked = np.repeat(homes[chosen], len(points_s))
        found = delays.chances(publisher, asked, np.tile(points_s, len(chosen)), place)
        chance[chosen] = found.reshape(len(chosen), len(points_s)) @ weights
    return chance


def _allowed(lifetime: DelayDistribution, max_delay_s: float) -> tuple[FloatArray, FloatArray]:
    """Points and weights of min(lifetime, max_delay)."""
    within = 1.0 if math.isinf(max_delay_s) else float(lifetime.cdf(max_delay_s))
    if within <= 0.0:
        return np.array([max_delay_s]), np.ones(1)
    panels = tuple(within * edge for edge in _LIFETIME_PANELS)
    points_s, weights = nodes_of(lifetime, panels=panels, nodes=_LIFETIME_NODES)
    if within == 1.0:
        return points_s, weights
    return np.append(points_s, max_delay_s), np.append(weights, 1.0 - within)


def latest_deadlines(knowledge: Knowledge, layout: Layout) -> FloatArray:
    """By [publisher, broker]: the latest deadline of anybody at or behind the broker who ever matches."""
    latest_s = np.zeros(layout.mass.shape)
    for number, publisher in enumerate(knowledge.publishers):
        matched = publisher.content.masses[0]
        np.maximum.at(latest_s[number], knowledge.homes[matched], knowledge.max_delays_s[matched])
    return spread_latest(layout, latest_s)


def spread_latest(layout: Layout, latest_s: FloatArray) -> FloatArray:
    """The same, when `latest_s` says it of the subscriptions at home at each broker."""
    spread_s = latest_s.copy()
    for number, members in enumerate(layout.order):
        for broker in members[members >= 0][:0:-1].tolist():
            above = layout.parent[number, broker]
            spread_s[number, above] = max(spread_s[number, above], spread_s[number, broker])
    return spread_s
