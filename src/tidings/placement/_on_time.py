"""Ours: the place from which most deliveries are on time.

Mean delay is the wrong thing to minimise where there are deadlines: it pays to bring far readers a little nearer that
stay late all the same, at the cost of near ones that then miss theirs. So each candidate is judged by the expected
share of deliveries whose delay is below their deadline.

Theory of operation. The time on each link (queues, matching and transfer of the broker that sends, as GRAPE measures
it) has a least value, a mean and a variance. Along a path all three add up, since hops are independent; the delay is
then taken as the least value plus a gamma variable with the rest of the mean and the variance, which is exact for one
exponential stage and for equal ones, and has the right skewness in between. Deadlines are strict, as everywhere.

From one destination, times to it from all candidates follow in one pass over the tree, so a session with deliveries at
D brokers costs O(N D).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc

from tidings.compiled import compiled
from tidings.errors import ConfigurationError, InputError
from tidings.placement._evaluation import Candidates
from tidings.placement._sessions import TraceSession

__all__ = ["Spread", "Wanted", "on_time_shares", "select_on_time"]

NANOSECONDS_PER_SECOND = 1e9
_SURE = 1e-12
"""Shares that differ by less are equal: they are sums of thousands of rounded terms."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """Deliveries of a session by what they were promised: at `broker`, within `deadline_s` (infinite: no deadline)."""

    broker: NDArray[np.int64]
    deadline_s: NDArray[np.float64]
    deliveries: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name, dtype in (("broker", np.int64), ("deadline_s", np.float64), ("deliveries", np.float64)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype))
        if not self.broker.shape == self.deadline_s.shape == self.deliveries.shape or self.broker.ndim != 1:
            raise InputError("broker, deadline_s and deliveries must go along with each other, a row for each promise")
        if np.isnan(self.deadline_s).any() or (self.deliveries < 0).any():
            raise InputError("a deadline must be a number, and deliveries 0 or more")


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """How the times of a session scatter: the least value and the variance, by link and by broker.

    None stands for no scatter: every event takes the mean time.
    """

    onward_least_ns: NDArray[np.int64] | None = None
    onward_variance_ns2: NDArray[np.float64] | None = None
    to_client_variance_ns2: NDArray[np.float64] | None = None


def on_time_shares(session: TraceSession, wanted: Wanted, spread: Spread | None = None) -> NDArray[np.float64]:
    """For each broker of `session.tree.order` the expected share of deliveries on time with the publisher there."""
    order, tree = session.tree.order, session.tree
    scatter = spread or Spread()
    least = _or(scatter.onward_least_ns, np.zeros(session.overlay.link_count) if spread else session.onward_ns)
    variance = _or(scatter.onward_variance_ns2, np.zeros(session.overlay.link_count))
    at_client = _or(scatter.to_client_variance_ns2, np.zeros(session.overlay.broker_count))
    if (least > session.onward_ns).any():
        raise InputError("a link's least time is above its mean: take both from the same measurements")
    stray = [int(b) for b in np.unique(wanted.broker) if not 0 <= b < session.overlay.broker_count or b not in tree]
    if stray:
        raise InputError(f"deliveries are wanted at broker {stray[0]}, which did not answer in this session")
    figures = np.stack((session.onward_ns.astype(np.float64), least, variance))
    down, up = np.zeros((3, len(tree.parent))), np.zeros((3, len(tree.parent)))
    down[:, order[1:]] = figures[:, tree.parent_link[order[1:]]]
    up[:, order[1:]] = figures[:, session.back_links[1:]]
    on_time = np.zeros(len(order))
    for destination in np.unique(wanted.broker).tolist():
        mean, floor, scattered = _times_to(destination, order, tree.parent, down, up)
        mean = mean + session.ping_ns[order] + session.to_client_ns[destination]
        floor = floor + session.ping_ns[order]
        scattered = scattered + at_client[destination]
        here = wanted.broker == destination
        allowed_ns = wanted.deadline_s[here, None] * NANOSECONDS_PER_SECOND
        on_time += wanted.deliveries[here] @ _below(allowed_ns, mean, floor, scattered)
    asked = float(wanted.deliveries.sum())
    return on_time / asked if asked > 0.0 else on_time


def select_on_time(
    candidates: Candidates,
    shares: NDArray[np.float64],
    *,
    hysteresis: float = 0.0,
    traced_deliveries: int | None = None,
) -> int:
    """The broker with the largest share on time; among equals the least delay, home, fewest hops, lowest number.

    A move must gain more than `hysteresis`, an absolute share, and more than the noise of the session: two standard
    errors of a share measured on `traced_deliveries` (None: the shares are taken as exact).
    """
    if shares.shape != candidates.brokers.shape:
        raise InputError(f"{len(shares)} shares for {len(candidates.brokers)} candidates: take both from one session")
    if not 0.0 <= hysteresis < 1.0:
        raise ConfigurationError(f"a hysteresis of {hysteresis!r}: it must be a share, 0 or more and below 1")
    now = candidates.at(candidates.home)
    rounded = np.rint(shares / _SURE)
    abroad = candidates.brokers != candidates.home
    ranked = np.lexsort((candidates.brokers, candidates.hops, abroad, candidates.total_delay_ns, -rounded))
    best = int(ranked[0])
    noise = 0.0
    if traced_deliveries is not None:
        noise = 2.0 * np.sqrt(max(shares[now] * (1.0 - shares[now]), 0.0) / max(1, traced_deliveries))
    gain = shares[best] - shares[now]
    enough = gain > hysteresis + noise if hysteresis + noise > 0.0 else best != now
    return int(candidates.brokers[best if enough else now])


def _or(given: NDArray[np.generic] | None, otherwise: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(otherwise if given is None else given, np.float64)


def _below(
    allowed_ns: NDArray[np.float64],
    mean: NDArray[np.float64],
    floor: NDArray[np.float64],
    variance: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The chance of a delay below what is allowed: a row for each promise, a column for each candidate."""
    over, left = mean - floor, allowed_ns - floor
    scattered = (variance > 0.0) & (over > 0.0)
    shape = np.divide(over**2, variance, out=np.ones_like(over), where=scattered)
    scale = np.divide(variance, over, out=np.ones_like(over), where=scattered)
    chance = gammainc(shape, np.maximum(left, 0.0) / scale)
    return np.where(scattered, chance, (mean < allowed_ns).astype(np.float64))


@compiled
def _times_to(
    destination: int,
    order: NDArray[np.int32],
    parent: NDArray[np.int32],
    down: NDArray[np.float64],
    up: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The three figures of the path to `destination` from every candidate, in the order of the candidates.

    On the path from the home to the destination a broker's next step is down; everywhere else it is up, to the parent.
    """
    to = np.zeros((3, len(parent)), np.float64)
    on_path = np.zeros(len(parent), np.bool_)
    broker = destination
    on_path[broker] = True
    while parent[broker] >= 0:
        above = parent[broker]
        for figure in range(3):
            to[figure, above] = to[figure, broker] + down[figure, broker]
        on_path[above] = True
        broker = above
    found = np.zeros((3, len(order)), np.float64)
    for place in range(len(order)):
        broker = order[place]
        for figure in range(3):
            if not on_path[broker]:
                to[figure, broker] = to[figure, parent[broker]] + up[figure, broker]
            found[figure, place] = to[figure, broker]
    return found
