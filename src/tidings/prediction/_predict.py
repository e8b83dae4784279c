"""The prediction: flows, waits, delays along the trees, and R' of every subscription (paper B, section 4).

    R'_s = sum over p of rate_p C_p(f_s) kept_p P[delay < allowed] / sum over p of rate_p C_p(f_s)

`allowed` is the tighter of the publisher's lifetime and the subscriber's deadline. `mm1` and `gg1` are the paper's
methods as corrected: the mean wait is added as a constant. `ours` takes the whole distribution of the wait.

Two things make the load depend on the delays: expired events that are dropped before a link (if the knowledge says so,
and they are more than one in 50), and stations that cannot keep up, which pass on no more than they can serve.
Both are found by iteration.

The parts also serve callers that have the content in pieces (`parts`): the layout needs only the masses by [publisher,
broker], `settle` only the layout, and `arrival_chances` is the contribution of one publisher to R' of some
subscriptions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidings.prediction._analyzer import arrival_scvs
from tidings.prediction._burstiness import bursty_waits
from tidings.prediction._deadlines import chance_on_time, latest_deadlines
from tidings.prediction._expiry import Shedding
from tidings.prediction._flows import Layout, Stations, layout_of, load
from tidings.prediction._knowledge import FloatArray, IntArray, Knowledge
from tidings.prediction._paths import PathDelays, Waits
from tidings.prediction._prediction import Model, Prediction
from tidings.prediction._renewal import NO_WAIT, renewal_waits
from tidings.prediction._waits import gg1_wait, mm1_wait

__all__ = ["Settled", "arrival_chances", "predict", "settle"]

ROUNDS_MAX = 60
BOLD_ROUNDS = 15  # of whole steps; then ever smaller ones, since shedding lowers the load that causes it
LEAST_STEP = 0.08
NEGLIGIBLE = 0.02  # when no link drops more than this share of its events, they count as forwarded
SETTLED = 1e-4  # of a publisher's events: the load moves less than that in the last round
_SIGMA_MAX = 1.0 - 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Settled:
    """Load and delays that fit each other, if that was found; `wait_s` is the mean wait by [publisher, station]."""

    stations: Stations
    waits: Waits
    wait_s: FloatArray
    delays: PathDelays
    has_converged: bool


def predict(knowledge: Knowledge, *, model: Model = "ours", rounds: int = ROUNDS_MAX) -> Prediction:
    """Who gets what share of its events on time, and where the time goes; by formulas."""
    layout = layout_of(knowledge)
    latest_s = latest_deadlines(knowledge, layout) if knowledge.drops_expired else None
    settled = settle(knowledge, layout, latest_s, model=model, rounds=rounds)
    reliability, matched_per_s = _reliability(knowledge, layout, settled.delays)
    return Prediction(
        model=model,
        knowledge=knowledge,
        layout=layout,
        stations=settled.stations,
        waits=settled.waits,
        wait_s=settled.wait_s,
        delays=settled.delays,
        by_formulas=reliability,
        matched_per_s=matched_per_s,
        has_converged=settled.has_converged,
    )


def settle(
    knowledge: Knowledge, layout: Layout, latest_s: FloatArray | None, *, model: Model, rounds: int = ROUNDS_MAX
) -> Settled:
    """The stations' load and the delays; `latest_s` by [publisher, broker] is the last moment at which an event is
    still worth sending to the broker, None where expired events are forwarded."""
    passed = np.ones(layout.service.shape[1])
    # The paper's methods know no dropping.
    shedding = Shedding(knowledge, layout, latest_s) if latest_s is not None and model == "ours" else None
    has_converged = False
    for turn in range(rounds):
        stations = load(layout, np.ones(layout.mass.shape) if shedding is None else shedding.alive, passed)
        is_stuck = (stations.utilisation >= 1.0) & (stations.total_per_s > 0.0)
        if shedding is not None:
            is_stuck[len(knowledge.brokers) :] = False  # a link's queue sheds what is expired
        waits, wait_s = _waits(knowledge, layout, stations, is_stuck, model, shedding)
        delays = PathDelays(layout, stations, waits)
        new_passed = np.where(is_stuck, 1.0 / np.maximum(stations.utilisation, 1.0), 1.0)
        moved = float(np.abs(new_passed - passed).max(initial=0.0))
        passed = new_passed
        if shedding is not None:
            step = 1.0 if turn < BOLD_ROUNDS else max(LEAST_STEP, 1.0 / (turn - BOLD_ROUNDS + 2.0))
            moved += shedding.step(delays, step)
            is_negligible = shedding.alive.min(initial=1.0) > 1.0 - NEGLIGIBLE
            if turn == 0 and is_negligible and stations.utilisation.max(initial=0.0) < 1.0:
                shedding = None
                continue
        if moved < SETTLED:
            has_converged = True
            break
    return Settled(stations=stations, waits=waits, wait_s=wait_s, delays=delays, has_converged=has_converged)


def _waits(
    knowledge: Knowledge,
    layout: Layout,
    stations: Stations,
    is_stuck: np.ndarray,
    model: Model,
    shedding: Shedding | None,
) -> tuple[Waits, FloatArray]:
    """The waiting distributions, and the mean wait by [publisher, station]."""
    shape, nothing = stations.rate_per_s.shape, np.zeros(len(stations.mean_s))
    known, is_exact = np.zeros(shape, np.int32), np.zeros(shape, np.bool_)
    if model == "ours":
        exact = renewal_waits(knowledge, layout, stations)
        wait_s, sigma = bursty_waits(knowledge, layout, stations, exact)
        values = [NO_WAIT]
        if shedding is not None:
            sigma, idle, wait_s = shedding.waits(stations, sigma)
        else:
            sigma = np.minimum(sigma, _SIGMA_MAX)
            for cell, (_, wait) in exact.items():
                is_exact[cell] = True
                sigma[cell] = wait if isinstance(wait, float) else 0.0
                if not isinstance(wait, float) and len(wait[0]) > 1:
                    known[cell] = len(values)
                    values.append(wait)
            idle = 1.0 - sigma
        return Waits(
            sigma=sigma,
            idle=idle,
            constant_s=nothing,
            is_stuck=is_stuck,
            known=known,
            is_exact=is_exact,
            values=values,
        ), wait_s
    if model == "mm1":
        mean_s = mm1_wait(stations.total_per_s, stations.mean_s)
    else:
        arrivals = arrival_scvs(knowledge, layout, stations)
        mean_s = gg1_wait(stations.total_per_s, stations.mean_s, arrivals, stations.scv)
    constant_s = np.where(np.isfinite(mean_s), mean_s, 1e9)
    found = Waits(
        sigma=np.zeros(shape),
        idle=np.ones(shape),
        constant_s=constant_s,
        is_stuck=is_stuck,
        known=known,
        is_exact=is_exact,
    )
    return found, np.broadcast_to(mean_s, shape)


def _reliability(knowledge: Knowledge, layout: Layout, delays: PathDelays) -> tuple[FloatArray, FloatArray]:
    """R' and the rate of matching events of each subscription."""
    count = len(knowledge.subscriptions)
    on_time, matched_per_s = np.zeros(count), np.zeros(count)
    kinds, kind_of = _alike(knowledge.homes, knowledge.max_delays_s)
    for number, publisher in enumerate(knowledge.publishers):
        matched, masses = publisher.content.masses
        if not len(matched):
            continue
        asked, place = np.unique(kind_of[matched], return_inverse=True)
        homes, max_delays_s = kinds[0][asked].astype(np.int32), kinds[1][asked]
        chance = arrival_chances(knowledge, layout, delays, number)(homes, max_delays_s)
        rate = publisher.rate_per_s * masses
        on_time[matched] += rate * chance[place]
        matched_per_s[matched] += rate
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(matched_per_s > 0.0, on_time / matched_per_s, np.nan), matched_per_s


def arrival_chances(
    knowledge: Knowledge, layout: Layout, delays: PathDelays, publisher: int
) -> Callable[[IntArray, FloatArray], FloatArray]:
    """By home and deadline: the chance that an event of the publisher gets there, and on time."""
    lifetime, kept = knowledge.publishers[publisher].lifetime, layout.kept[publisher]

    def chances(homes: IntArray, max_delays_s: FloatArray) -> FloatArray:
        return np.asarray(kept[homes] * chance_on_time(delays, publisher, lifetime, homes, max_delays_s))

    return chances


def _alike(homes: IntArray, max_delays_s: FloatArray) -> tuple[FloatArray, np.ndarray]:
    """The different pairs of a home and a deadline, and which one each subscription has: each is asked for once."""
    return np.unique(np.stack([homes.astype(np.float64), max_delays_s]), axis=1, return_inverse=True)
