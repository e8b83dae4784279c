"""The prediction: flows, waits, delays along the trees, and R' of every subscription (paper B, section 4).

    R'_s = sum over p of rate_p C_p(f_s) kept_p P[delay < allowed] / sum over p of rate_p C_p(f_s)

`allowed` is the tighter of the publisher's lifetime and the subscriber's deadline. `mm1` and `gg1` are the paper's
methods as corrected: the mean wait is added as a constant. `ours` takes the whole law of the wait.

Two things make the load depend on the delays: expired events that are dropped before a link (if the knowledge says so,
and it is more than a fiftieth of them), and stations that cannot keep up, which pass on no more than they can serve.
Both are found by repetition.
"""

import math

import numpy as np

from tidings.model.distributions import DelayDistribution, Deterministic, Exponential
from tidings.prediction._analyzer import arrival_scvs
from tidings.prediction._burstiness import bursty_waits
from tidings.prediction._flows import Layout, Stations, layout_of, load
from tidings.prediction._knowledge import FloatArray, IntArray, Knowledge
from tidings.prediction._paths import PathDelays, Waits
from tidings.prediction._prediction import Model, Prediction
from tidings.prediction._stages import nodes_of
from tidings.prediction._waiting import gg1_wait, mm1_wait

__all__ = ["predict"]

ROUNDS_MAX = 40
LEAST_STEP = 0.08
NEGLIGIBLE = 0.02  # when no link drops more than this share of its events, they count as forwarded
SETTLED = 1e-4  # of a publisher's events: the load moves less than that in the last round
_LIFETIME_PANELS = (0.0, 0.5, 0.9, 0.99, 0.9999, 1.0)
_LIFETIME_NODES = 8
_SIGMA_MAX = 1.0 - 1e-9


def predict(knowledge: Knowledge, *, model: Model = "ours") -> Prediction:
    """Who gets what share of its events on time, and where the time goes."""
    layout = layout_of(knowledge)
    alive, passed = np.ones(layout.mass.shape), np.ones(layout.service.shape[1])
    # The paper's methods know no dropping.
    latest_s = _latest(knowledge, layout) if knowledge.drops_expired and model == "ours" else None
    for turn in range(ROUNDS_MAX):
        stations = load(layout, alive, passed)
        is_stuck = (stations.utilisation >= 1.0) & (stations.total_per_s > 0.0)
        if latest_s is not None:
            is_stuck[len(knowledge.brokers) :] = False  # a link's queue sheds what is expired
        waits, wait_s = _waits(knowledge, layout, stations, is_stuck, model)
        delays = PathDelays(layout, stations, waits)
        new_passed = np.where(is_stuck, 1.0 / np.maximum(stations.utilisation, 1.0), 1.0)
        new_alive = alive if latest_s is None else _alive(knowledge, layout, delays, latest_s)
        if turn == 0 and latest_s is not None and new_alive.min(initial=1.0) > 1.0 - NEGLIGIBLE:
            latest_s, new_alive = None, alive
        moved = float(np.abs(new_passed - passed).max(initial=0.0)) + float(np.abs(new_alive - alive).max(initial=0.0))
        if moved < SETTLED:
            break
        # Ever smaller steps: shedding lowers the load that causes it.
        step = max(LEAST_STEP, 1.0 / (turn + 2.0))
        alive, passed = alive + step * (new_alive - alive), new_passed
    reliability, matched_per_s = _reliability(knowledge, layout, delays)
    return Prediction(
        model=model,
        knowledge=knowledge,
        layout=layout,
        stations=stations,
        waits=waits,
        wait_s=wait_s,
        delays=delays,
        reliability=reliability,
        matched_per_s=matched_per_s,
    )


def _waits(
    knowledge: Knowledge, layout: Layout, stations: Stations, is_stuck: np.ndarray, model: Model
) -> tuple[Waits, FloatArray]:
    """The waiting laws, and the mean wait by [publisher, station]."""
    shape, nothing = stations.rate_per_s.shape, np.zeros(len(stations.mean_s))
    if model == "ours":
        wait_s, sigma = bursty_waits(knowledge, layout, stations)
        return Waits(sigma=np.minimum(sigma, _SIGMA_MAX), constant_s=nothing, is_stuck=is_stuck), wait_s
    if model == "mm1":
        mean_s = mm1_wait(stations.total_per_s, stations.mean_s)
    else:
        arrivals = arrival_scvs(knowledge, layout, stations)
        mean_s = gg1_wait(stations.total_per_s, stations.mean_s, arrivals, stations.scv)
    constant_s = np.where(np.isfinite(mean_s), mean_s, 1e9)
    return Waits(sigma=np.zeros(shape), constant_s=constant_s, is_stuck=is_stuck), np.broadcast_to(mean_s, shape)


def _reliability(knowledge: Knowledge, layout: Layout, delays: PathDelays) -> tuple[FloatArray, FloatArray]:
    """R' and the rate of matching events of each subscription; those alike in home and deadline are asked for once."""
    count = len(knowledge.subscriptions)
    on_time, matched_per_s = np.zeros(count), np.zeros(count)
    kinds, kind_of = np.unique(
        np.stack([knowledge.homes.astype(np.float64), knowledge.max_delays_s]), axis=1, return_inverse=True
    )
    homes, max_delays_s = kinds[0].astype(np.int32), kinds[1]
    for number, publisher in enumerate(knowledge.publishers):
        matched, masses = publisher.content.masses
        if not len(matched):
            continue
        asked, place = np.unique(kind_of[matched], return_inverse=True)
        chance = chance_on_time(delays, number, publisher.lifetime, homes[asked], max_delays_s[asked])
        rate = publisher.rate_per_s * masses
        on_time[matched] += rate * layout.kept[number][knowledge.homes[matched]] * chance[place]
        matched_per_s[matched] += rate
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(matched_per_s > 0.0, on_time / matched_per_s, np.nan), matched_per_s


def chance_on_time(
    delays: PathDelays, publisher: int, lifetime: DelayDistribution | None, homes: IntArray, max_delays_s: FloatArray
) -> FloatArray:
    """P[delay < min(lifetime, max_delay)] for each pair of a home and a deadline."""
    if lifetime is None:
        return delays.chances(publisher, homes, max_delays_s)
    if isinstance(lifetime, Deterministic):
        return delays.chances(publisher, homes, np.minimum(max_delays_s, lifetime.value))
    if isinstance(lifetime, Exponential) and np.isinf(max_delays_s).all():
        return delays.outlived(publisher, homes, lifetime.scale)
    chance = np.zeros(len(homes))
    for max_delay_s in np.unique(max_delays_s).tolist():
        chosen = np.flatnonzero(max_delays_s == max_delay_s)
        points_s, weights = _allowed(lifetime, max_delay_s)
        asked = np.repeat(homes[chosen], len(points_s))
        found = delays.chances(publisher, asked, np.tile(points_s, len(chosen)))
        chance[chosen] = found.reshape(len(chosen), len(points_s)) @ weights
    return chance


def _allowed(lifetime: DelayDistribution, max_delay_s: float) -> tuple[FloatArray, FloatArray]:
    """Points and weights of min(lifetime, max_delay): the deadline is a point of its own."""
    within = 1.0 if math.isinf(max_delay_s) else float(lifetime.cdf(max_delay_s))
    if within <= 0.0:
        return np.array([max_delay_s]), np.ones(1)
    panels = tuple(within * edge for edge in _LIFETIME_PANELS)
    points_s, weights = nodes_of(lifetime, panels=panels, nodes=_LIFETIME_NODES)
    if within == 1.0:
        return points_s, weights
    return np.append(points_s, max_delay_s), np.append(weights, 1.0 - within)


def _latest(knowledge: Knowledge, layout: Layout) -> FloatArray:
    """By [publisher, broker]: the latest deadline of anybody at or behind the broker who ever matches."""
    latest_s = np.zeros(layout.mass.shape)
    for number, publisher in enumerate(knowledge.publishers):
        matched = publisher.content.masses[0]
        np.maximum.at(latest_s[number], knowledge.homes[matched], knowledge.max_delays_s[matched])
        members = layout.order[number]
        for broker in members[members >= 0][:0:-1].tolist():
            above = layout.parent[number, broker]
            latest_s[number, above] = max(latest_s[number, above], latest_s[number, broker])
    return latest_s


def _alive(knowledge: Knowledge, layout: Layout, delays: PathDelays, latest_s: FloatArray) -> FloatArray:
    """By [publisher, broker]: the share of events that is not expired when the link into the broker could send it,
    given that it was not before the link above."""
    alive = np.ones(layout.mass.shape)
    for number, publisher in enumerate(knowledge.publishers):
        members = layout.order[number]
        inner = members[members >= 0][1:]
        inner = inner[layout.mass[number, inner] > 0.0].astype(np.int32)
        if not len(inner):
            continue
        life_s = math.inf if publisher.lifetime is None else publisher.lifetime.mean()
        allowed_s = np.minimum(latest_s[number, inner], life_s)
        share = np.ones(layout.mass.shape[1])
        share[inner] = delays.chances(number, inner, allowed_s, place="sent")
        for broker in inner.tolist():
            above = layout.parent[number, broker]
            before = share[above] if above != members[0] else 1.0
            alive[number, broker] = min(1.0, share[broker] / before) if before > 0.0 else 0.0
    return alive
