"""Dropping of expired events: a link does not send an event that is too late for all subscriptions behind it.

Theory. Three effects depend on each other, so they are found by iteration (`_predict`):

- A link's own queue. Events that would wait too long take no service. With Poisson arrivals of load rho and patience x,
  the wait below x has the distribution of the queue without dropping, up to a factor: P[W < w] = idle U(w), where U has
  the transform 1 / (s (1 - rho Be(s))), and idle = 1 / (1 + rho U(x)) since the busy and idle shares add up to 1
  (Baccelli and Hebuterne's M/G/1+D). At a load of 1 or more U grows without bound, and the distribution still holds.
  Events that have already spent much of their time have less patience: `rho` is the load of events that arrive alive,
  and the chance to be sent is the chance that the whole delay so far is within the deadline.
- Behind a broker, which also serves expired events, only those that came while its queue was short are alive. The next
  queue does not see a thinned stream but the whole stream switched on and off: on while the broker's queue is below its
  level. Let a be the share that is alive, and c(u) the correlation of being alive a time u apart. The stream's index of
  dispersion over t exceeds 1 by rate (1 - a) (2 / t) integral (t - u) c(u), and what counts is its mean over the next
  queue's busy periods (`_burstiness`). If omega is that mean divided by its value for c = 1, the next queue behaves as
  at (a + (1 - a) omega) times the rate of the whole stream. c is that of reflected Brownian motion below the level that
  it exceeds with probability 1 - a. Its time scale is rate E[S^2] / (1 - rho)^2 of the queue with the largest variance
  of the wait, or the time to cross the patience if that queue is a link's, which drops. Only the part of the surge
  counts that this wait contributes to the variance of the delay so far; the rest is independent between events.
- What two publishers send over the same links is switched on and off together; other traffic counts at its mean rate.
"""

from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from tidings.compiled import compiled
from tidings.prediction._burstiness import busy_nodes
from tidings.prediction._deadlines import chance_on_time
from tidings.prediction._flows import Array, Layout, Stations
from tidings.prediction._knowledge import FloatArray, Knowledge
from tidings.prediction._paths import PathDelays
from tidings.prediction._waits import residual_mean, wait_of_sigma

__all__ = ["Shedding"]

SIGMA_MAX = 1.0 - 1e-6
OMEGA_ROUNDS = 6
_LEAST, _MOST = 1e-12, 1e6
_PATIENCE_MAX, _STEEP = 1e6, 500.0
_SHARES = np.concatenate([[0.001], np.linspace(0.02, 0.98, 25), [0.999]])
_LAGS = np.concatenate([[0.0], np.geomspace(1e-6, 60.0, 300)])


class Shedding:
    """The shares of events that live on, by [publisher, broker] for the link into the broker; they change in turns.

    `alive` is the share that is sent of what was sent by the link before; `arriving` the share that comes to the link
    alive; `slow` what is left of a flow by all that happened at brokers.
    """

    def __init__(self, knowledge: Knowledge, layout: Layout, latest_s: FloatArray) -> None:
        self._knowledge, self._layout, self._latest_s = knowledge, layout, latest_s
        shape = layout.mass.shape
        self.alive, self.arriving = np.ones(shape), np.ones(shape)
        self.slow = np.ones(shape)
        self._n = shape[1]
        lives_s = [np.inf if p.lifetime is None else p.lifetime.mean() for p in knowledge.publishers]
        self._patience_s = np.minimum(latest_s, np.array(lives_s)[:, None])
        self._link_patience_s = np.full((shape[0], len(knowledge.links)), np.inf)
        for p, members in enumerate(layout.order):
            inner = members[members >= 0][1:]
            self._link_patience_s[p, layout.link[p, inner]] = self._patience_s[p, inner]
        self._within = np.ones(shape)
        self._idle: FloatArray | None = None

    def waits(self, stations: Stations, sigma: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """By [publisher, station]: sigma and the chance of no wait, given the sigma of thinned streams; and the mean
        wait."""
        n, thin = self._n, np.maximum(stations.utilisation, _LEAST)
        regular = np.where(thin < SIGMA_MAX, sigma / thin, 1.0)
        offered = stations.rate_per_s.copy()
        within = np.ones(offered.shape)
        _on_links(self._layout.order, self._layout.link, self.arriving, self.alive, self._within, offered, within)
        total = offered.sum(axis=0)
        own = regular * (self._surges(stations, offered) + (total * stations.mean_s)[None, :])
        own[offered <= 0.0] = 0.0
        own[:, :n] = np.minimum(own[:, :n], SIGMA_MAX)  # a broker sheds nothing
        reached = (offered * within).sum(axis=0) / np.maximum(total, 1e-300)
        idle = np.where(own < SIGMA_MAX, 1.0 - own, 1.0 / (1.0 + own))
        if self._idle is not None:
            # U at the patience is `reached` / idle of the last turn; idle = 1 / (1 + own U).
            sheds = (np.abs(reached - 1.0) > 1e-9) & (np.arange(len(reached)) >= n)
            idle = np.where(sheds, self._idle / (self._idle + own * reached), idle)
        self._idle = idle
        residual_s = residual_mean(stations.mean_s, stations.second_s2)
        mean_s = wait_of_sigma(np.minimum(own, 1.0 - idle), np.broadcast_to(residual_s, own.shape))
        mean_s[:, n:] = _limited_waits(own[:, n:], residual_s[n:], self._link_patience_s)
        return own, idle, mean_s

    def _surges(self, stations: Stations, offered: FloatArray) -> FloatArray:
        """By [publisher, station]: how much more load there is than on average while the publisher's events live."""
        layout = self._layout
        excess, scale_s, share = np.zeros(offered.shape), np.zeros(offered.shape), np.ones(offered.shape)
        varies = np.array([stage.variance_s2 for stage in layout.stages])
        spread = offered.sum(axis=0) * stations.second_s2
        free = np.maximum(np.abs(1.0 - offered.sum(axis=0) * stations.mean_s), 1e-3)
        trees = (layout.order, layout.parent, layout.link)
        other_s2 = varies[layout.service] + varies[layout.delay]
        waits = (_wait_variance(stations), other_s2, spread, spread / free**2, self._patience_s)
        _follow(*trees, offered, self.slow, *waits, excess, scale_s, share)
        excess *= stations.mean_s[None, :]
        rows, places = np.nonzero((excess > 1e-6) & (scale_s > 0.0))
        surge = np.zeros(offered.shape)
        if not len(rows):
            return surge
        mean_load = (offered.sum(axis=0) * stations.mean_s)[places]
        more, scale = excess[rows, places], scale_s[rows, places]
        stretched_s = stations.mean_s[places] * (1.0 + stations.scv[places]) / 2.0
        omega = np.full(len(rows), 0.5)
        for _ in range(OMEGA_ROUNDS):
            load = np.clip(mean_load + omega * more, 1e-6, 0.98)
            found = _omega(load, stretched_s, scale, share[rows, places])
            omega = 0.5 * (omega + found)
        surge[rows, places] = omega * more
        return surge

    def step(self, delays: PathDelays, size: float) -> float:
        """Move the shares by the fraction `size` towards those that the delays imply; returns the largest step."""
        before, moved = self._within.copy(), 0.0
        for held, new in zip((self.alive, self.arriving, self.slow), self._shares(delays), strict=True):
            moved = max(moved, float(np.abs(new - held).max(initial=0.0)))
            held += size * (new - held)
        return max(moved, float(np.abs(self._within - before).max(initial=0.0)))

    def _shares(self, delays: PathDelays) -> tuple[FloatArray, FloatArray, FloatArray]:
        """`alive`, `arriving` and `slow` as the delays say."""
        layout = self._layout
        alive, arriving, slow = (np.ones(layout.mass.shape) for _ in range(3))
        for p, publisher in enumerate(self._knowledge.publishers):
            members = layout.order[p]
            inner = members[members >= 0][1:]
            inner = inner[layout.mass[p, inner] > 0.0].astype(np.int32)
            if not len(inner):
                continue
            latest_s, above = self._latest_s[p, inner], layout.parent[p, inner]
            through = chance_on_time(delays, p, publisher.lifetime, above, latest_s)
            sent = chance_on_time(delays, p, publisher.lifetime, inner, latest_s, place="sent")
            arrives = through > _LEAST  # where nothing does in time, nothing is shed
            shares = np.where(arrives, sent / np.where(arrives, through, 1.0), 1.0)
            # Far above 1 while the height of the distribution is yet to be found; beyond bounds if that search fails.
            self._within[p, inner] = np.minimum(np.nan_to_num(shares), _MOST)
            share = np.ones(layout.mass.shape[1])
            for broker, up, came, went in zip(inner.tolist(), above.tolist(), through, sent, strict=True):
                before = share[up]
                arriving[p, broker] = min(1.0, came / before) if before > 0.0 else 0.0
                alive[p, broker] = min(arriving[p, broker], went / before) if before > 0.0 else 0.0
                share[broker] = share[up] * alive[p, broker]
                slow[p, broker] = slow[p, up] * arriving[p, broker]
        return alive, arriving, slow


def _limited_waits(sigma: FloatArray, residual_s: FloatArray, patience_s: FloatArray) -> FloatArray:
    """By [publisher, link] the mean wait of what is sent, which is never longer than its patience x.

    With the residual service taken as exponential, the density of U is (sigma / residual) exp(-theta w) up to x, where
    theta = (1 - sigma) / residual, beside an atom of 1 at no wait.
    """
    residual = np.maximum(np.broadcast_to(residual_s, sigma.shape), 1e-300)
    x = np.minimum(patience_s, _PATIENCE_MAX * residual)
    theta = (1.0 - sigma) / residual
    steep = np.clip(theta * x, -_STEEP, _STEEP)
    near = np.abs(steep) < 1e-4
    safe = np.where(near, 1.0, steep)
    mass = x * np.where(near, 1.0 - steep / 2.0, -np.expm1(-safe) / safe)
    first = x * np.where(near, 0.5 - steep / 12.0, 1.0 / safe - 1.0 / np.expm1(safe))
    waiting = sigma / residual * mass
    return np.asarray(np.where(residual_s > 0.0, first * waiting / (1.0 + waiting), 0.0))


def _omega(load: FloatArray, mean_s: FloatArray, scale_s: FloatArray, share: FloatArray) -> FloatArray:
    """By queue: the mean over its busy periods of the time that a stream is on together, over its mean busy period."""
    times_s, weights = busy_nodes(load, mean_s)
    lags, table = _LAGS, _together()
    at = np.clip(np.interp(share, _SHARES, np.arange(len(_SHARES))), 0.0, len(_SHARES) - 1.0)
    low = np.minimum(at.astype(np.int64), len(_SHARES) - 2)
    part = (at - low)[:, None]
    z = np.minimum(times_s / scale_s[:, None], lags[-1])
    place = np.clip(np.searchsorted(lags, z) - 1, 0, len(lags) - 2)
    step = (z - lags[place]) / (lags[place + 1] - lags[place])

    def value(row: Array) -> FloatArray:
        first, second = table[row[:, None], place], table[row[:, None], place + 1]
        return np.asarray(first + step * (second - first))

    held = (1.0 - part) * value(low) + part * value(low + 1)
    return np.asarray((weights * held * times_s).sum(axis=1) / (weights * times_s).sum(axis=1))


@lru_cache(maxsize=1)
def _together() -> FloatArray:
    """[share, lag]: (2 / t^2) integral over u < t of (t - u) c(u); 1 where t is short, in units of the time scale."""
    rows = []
    for share in _SHARES.tolist():
        held = living_together(_LAGS[1:], share)
        value = np.concatenate([[1.0], held])
        once = np.concatenate([[0.0], np.cumsum(0.5 * (value[1:] + value[:-1]) * np.diff(_LAGS))])
        twice = np.concatenate([[0.0], np.cumsum(0.5 * (once[1:] + once[:-1]) * np.diff(_LAGS))])
        rows.append(np.concatenate([[1.0], 2.0 * twice[1:] / _LAGS[1:] ** 2]))
    return np.array(rows)


def living_together(lag: FloatArray, share: float) -> FloatArray:
    """c(u): the correlation of {V < level} a time apart, V reflected Brownian motion of drift -1 and variance 1."""
    level = -0.5 * np.log1p(-share)
    roots, weights = np.polynomial.legendre.leggauss(48)
    start = 0.5 * level * (roots + 1.0)
    chance = weights * np.exp(-2.0 * start) * (level - start)
    chance /= chance.sum()
    t = lag[:, None]
    below = ndtr((level - start + t) / np.sqrt(t)) - np.exp(-2.0 * level) * ndtr((-level - start + t) / np.sqrt(t))
    return np.asarray(np.clip((below @ chance - share) / (1.0 - share), 0.0, 1.0))


def _wait_variance(stations: Stations) -> FloatArray:
    """By station, with Poisson arrivals (Pollaczek and Khinchine)."""
    free = np.maximum(1.0 - stations.utilisation, 1e-3)
    rate = stations.total_per_s
    return rate * stations.third_s3 / (3.0 * free) + (rate * stations.second_s2) ** 2 / (4.0 * free**2)


@compiled
def _on_links(
    order: Array, link: Array, arriving: Array, alive: Array, within: Array, offered: Array, on_link: Array
) -> None:
    """From what is sent, what comes to each link's queue alive; and `within` by station."""
    count, n = arriving.shape
    for p in range(count):
        for place in range(1, n):
            broker = order[p, place]
            if broker < 0:
                break
            station = n + link[p, broker]
            if alive[p, broker] > 0.0:
                offered[p, station] *= arriving[p, broker] / alive[p, broker]
                on_link[p, station] = within[p, broker]


@compiled
def _follow(
    order: Array,
    parent: Array,
    link: Array,
    rate: Array,
    slow: Array,
    wait_s2: Array,
    other_s2: Array,
    spread: Array,
    time_s: Array,
    patience_s: Array,
    excess: Array,
    scale_s: Array,
    share: Array,
) -> None:
    """Fills the last three, by [publisher, station]: the rate above the mean while the publisher's events live, the
    time scale of that, and the share that lives."""
    count, n = slow.shape
    worst, scale, varies = np.zeros(n), np.zeros(n), np.zeros(n)
    whole = np.ones((count, n))
    for p in range(count):
        for place in range(n):
            broker = order[p, place]
            if broker < 0:
                break
            waited, lasting, spent = 0.0, 0.0, 0.0
            if place > 0:
                above, via = parent[p, broker], n + link[p, broker]
                waited, lasting, spent = worst[above], scale[above], varies[above]
                for q in range(count):
                    # What q loses on the links that it shares with p, it loses when p loses its own.
                    is_shared = link[q, broker] == link[p, broker]
                    whole[q, broker] = whole[q, above] if is_shared else slow[q, broker]
                for turn in range(2):  # the link into the broker, and the broker itself
                    station = np.int64(broker) if turn == 1 else np.int64(via)
                    more = 0.0
                    for q in range(count):
                        if rate[q, station] > 0.0 and slow[q, broker] > 0.0:
                            more += rate[q, station] * (whole[q, broker] / slow[q, broker] - 1.0)
                    excess[p, station] = more * waited / spent if spent > 0.0 else 0.0
                    scale_s[p, station], share[p, station] = lasting, slow[p, broker]
                # A queue that sheds is never longer than the patience of those in it.
                own = min(wait_s2[via], patience_s[p, broker] ** 2 / 12.0)
                spent += own + other_s2[p, via]
                if own > waited:
                    waited, lasting = own, min(time_s[via], patience_s[p, broker] ** 2 / spread[via])
            else:
                for q in range(count):
                    whole[q, broker] = slow[q, broker]
            if wait_s2[broker] > waited:
                waited, lasting = wait_s2[broker], time_s[broker]
            worst[broker], scale[broker] = waited, lasting
            varies[broker] = spent + wait_s2[broker] + other_s2[p, broker]
