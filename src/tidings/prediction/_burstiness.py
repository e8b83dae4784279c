"""Burstiness in our model: that of each publisher, at the time scale of each queue.

Theory. Take an M/G/1 queue and let its arrivals be a little correlated. To first order in the correlation, an arrival
of class p waits, on average, X_p + rho / (1 - rho) X longer than with Poisson arrivals, where

    X_p = integral over u of (h_p(u) - lambda_p) D(u) = (tau / 2) (E[I_p(B*)] - 1),   X = the rates' mean of X_p.

h_p(u) is the rate of p's arrivals a time u before one of its arrivals; D(u) is how much of a service that came a time u
ago is still in the queue; its transform is (rho s - (1 - rho)(eta(s) - s)) / (lambda s^2) with eta the root of
eta = s + lambda (1 - B(eta)), and so D'' = (1 - rho) times the density of the busy period. I_p is the index of
dispersion of p's arrivals: what counts is the variability over a busy period B*, longer ones counting more. A periodic
publisher that comes back later than the queue remembers does not wait for itself, however busy the broker is.

For a renewal publisher thinned to a share phi of its events and delayed by independent times with characteristic
function F, h_p is known by its spectrum, (S(w) - 1) phi |F(w)|^2, and X_p is an integral over w (a sum over harmonics
for a periodic publisher). F is that of the path so far, so burstiness fades as queues and links scatter a flow.

Events that leave the same queue are as regular as its services: their index of dispersion differs from 1 by
(c_s^2 - 1) (1 - w(t)), w of Whitt and You's robust queueing network analyzer. It adds to X_p of all that came over the
same link.

Beyond first order. A busy period is as long as its own arrivals make it, so B* is that of the M/M/1 queue stretched by
(I + c_s^2) / 2, I the index of dispersion found at the queue: both are found by repetition, as in robust queueing. What
remains is small: W = W_0 f(W_1 / W_0), W_1 the sum above, W_0 the Poisson wait, f(x) = x + (1 - rho) (1 - x)^2 / 5 for
x < 1 (GI/M/1 wants between a seventh and a third). Queues that a publisher has to itself are exact (`_renewal`).
"""

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import ive, ndtr

from tidings.compiled import compiled, compiled_inline
from tidings.model.distributions import DelayDistribution
from tidings.prediction._flows import Array, Layout, Stations
from tidings.prediction._knowledge import FloatArray, Knowledge
from tidings.prediction._renewal import ExactWait
from tidings.prediction._stages import stage_of
from tidings.prediction._waits import poisson_wait, residual_mean, sigma_of_wait

__all__ = ["bursty_waits", "busy_nodes", "spectrum_of"]

HOPS = 12  # how far what a queue does to a flow is followed
REGULARITY = 1.5  # uniform and constant services in a row want 1.3 to 1.6, those more variable than exponential ones 1
ROUNDS = 3  # burstiness depends on how waits scatter the flows, and waits on burstiness
PERIODIC_BELOW = 0.01  # a publisher of a smaller squared coefficient of variation counts as periodic
CURVATURE = 0.2  # of the wait with regular arrivals, on GI/M/1 queues
SAME_SIZES = 0.5  # what is large on one link is large on the next: less regular; tuned on examples/quickstart.toml
_HARMONICS = 32
_LOAD_MAX = 0.9999
_BESSEL_MAX = 1e6


def spectrum_of(interval: DelayDistribution) -> tuple[FloatArray, FloatArray] | None:
    """Frequencies w and weights by which X = sum(weights * |F(w)|^2 * Re D(iw)); None for a Poisson publisher."""
    scv = interval.scv()
    stage = stage_of(interval)
    base = 2.0 * math.pi / stage.mean_s
    steps = np.concatenate(
        [np.geomspace(1e-5, 0.4, 60), np.linspace(0.4, 4.6, 64)[1:], np.geomspace(4.6, 4000.0, 32)[1:]]
    )
    w = base * steps
    weights = np.gradient(w) / math.pi
    if scv < PERIODIC_BELOW:
        harmonics = base * np.arange(1, _HARMONICS + 1)
        # The comb stops at the last harmonic, and so does what it is compared with.
        below = w <= base * (_HARMONICS + 0.5)
        return np.concatenate([harmonics, w[below]]), np.concatenate(
            [np.full(_HARMONICS, 2.0 / stage.mean_s), -weights[below]]
        )
    f = np.exp(-1j * w * stage.shift_s) * stage.transform(np.asarray(1j * w, np.complex128))
    excess = (1.0 - np.abs(f) ** 2) / np.abs(1.0 - f) ** 2 - 1.0
    if np.abs(excess).max() < 1e-6:
        return None
    return w, weights * excess


def bursty_waits(
    knowledge: Knowledge, layout: Layout, stations: Stations, exact: Mapping[tuple[int, int], ExactWait]
) -> tuple[FloatArray, FloatArray]:
    """By [publisher, station] the mean wait and the sigma that belongs to it; `exact` are the waits that are known."""
    residual_s = residual_mean(stations.mean_s, stations.second_s2)
    plain_s = poisson_wait(stations.total_per_s, stations.mean_s, stations.second_s2)
    is_open = np.isfinite(plain_s) & (plain_s > 0.0)
    load = np.minimum(stations.utilisation, _LOAD_MAX)
    wait_s = np.broadcast_to(plain_s, stations.rate_per_s.shape)
    sigma = sigma_of_wait(wait_s, np.broadcast_to(residual_s, wait_s.shape))
    spectra = _Spectra(knowledge, layout, stations)
    if not spectra.any and (np.abs(stations.scv[is_open] - 1.0) < 1e-12).all():
        return wait_s, sigma
    shared = _Shared(knowledge, layout, stations, load)
    spread = 1.0 + stations.scv
    for _ in range(ROUNDS):
        own = spectra.own(sigma, load, 0.5 * spread)
        extra = own + shared.extra(stations.mean(own))
        at_station = stations.mean(extra)
        index = 1.0 + 2.0 * np.where(is_open, at_station / np.maximum(stations.mean_s, 1e-300), 0.0)
        spread = np.maximum(0.5 * (spread + np.maximum(index, 0.0) + stations.scv), 1e-3)
        first = plain_s + extra + load / (1.0 - load) * at_station
        ratio = np.where(is_open, first / np.where(is_open, plain_s, 1.0), 1.0)
        wait_s = np.where(is_open, plain_s * _bent(ratio, load), plain_s)
        for cell, (mean_s, _) in exact.items():
            wait_s[cell] = mean_s
        sigma = sigma_of_wait(wait_s, np.broadcast_to(residual_s, wait_s.shape))
    return wait_s, sigma


def _bent(ratio: FloatArray, load: FloatArray) -> FloatArray:
    """f(W_1 / W_0): what first-order theory says of the wait, corrected where arrivals are regular."""
    short = np.maximum(0.0, 1.0 - ratio)
    return np.asarray(np.maximum(0.0, ratio + CURVATURE * (1.0 - load) * short**2))


class _Spectra:
    """The publishers that are not Poisson, grouped by their interval distributions."""

    def __init__(self, knowledge: Knowledge, layout: Layout, stations: Stations) -> None:
        self._layout, self._stations = layout, stations
        self._groups: list[tuple[list[int], FloatArray, FloatArray, Array, Array]] = []
        members: dict[DelayDistribution, list[int]] = {}
        for number, publisher in enumerate(knowledge.publishers):
            members.setdefault(publisher.interval, []).append(number)
        for distribution, numbers in members.items():
            spectrum = spectrum_of(distribution)
            if spectrum is not None:
                w, weights = spectrum
                self._groups.append((numbers, w, weights, self._stage_powers(w), self._residuals(w)))
        self.any = bool(self._groups)

    def own(self, sigma: FloatArray, load: FloatArray, stretch: FloatArray) -> FloatArray:
        """X_p by [publisher, station], from the publisher's own spectrum; queues remember `stretch` times as long as
        M/M/1."""
        layout, out = self._layout, np.zeros(sigma.shape)
        for numbers, w, weights, powers, residuals in self._groups:
            memory = _memory(load, self._stations.mean_s, stretch, w)
            for p in numbers:
                share = self._stations.rate_per_s[p] / layout.rate_per_s[p]
                _own_burstiness(
                    layout.order[p],
                    layout.parent[p],
                    layout.link[p],
                    layout.service[p],
                    layout.delay,
                    share,
                    sigma[p],
                    weights,
                    powers,
                    residuals,
                    memory,
                    out[p],
                )
        return out

    def _stage_powers(self, w: FloatArray) -> Array:
        """[stage, frequency]: |F(w)|^2; of a distribution without a closed form, that of the normal with its
        variance."""
        s = np.asarray(1j * w, np.complex128)
        powers = [
            np.abs(stage.transform(s)) ** 2 if stage.is_closed else np.exp(-(w**2) * stage.variance_s2)
            for stage in self._layout.stages
        ]
        return np.array(powers)

    def _residuals(self, w: FloatArray) -> Array:
        """[station, frequency]: the residual service, taken as exponential: here only its scale matters."""
        residual_s = residual_mean(self._stations.mean_s, self._stations.second_s2)
        return 1.0 / (1.0 + 1j * np.multiply.outer(residual_s, w))


def _memory(load: FloatArray, mean_s: FloatArray, stretch: FloatArray, w: FloatArray) -> Array:
    """[station, frequency]: Re D(iw), of the M/M/1 queue, stretched in time so that its integral is the M/G/1 one."""
    has_queue = (mean_s > 0.0) & (load > 0.0)
    tau = np.where(has_queue, mean_s, 1.0)[:, None]
    rho = np.where(has_queue, load, 0.5)[:, None]
    arrivals, services = rho / tau, 1.0 / tau
    s = 1j * np.multiply.outer(stretch, w)
    drift = services - arrivals - s
    eta = 0.5 * (-drift + np.sqrt(drift * drift + 4.0 * s * services))
    transform = (rho * s - (1.0 - rho) * (eta - s)) / (arrivals * s * s)
    return np.where(has_queue[:, None], (stretch[:, None] * transform).real, 0.0)


@compiled_inline
def _scatter(sigma: float, residual: complex) -> float:
    """|F(w)|^2 of a wait, by the transform of the residual service at iw."""
    real, imaginary = 1.0 - sigma * residual.real, sigma * residual.imag
    return (1.0 - sigma) * (1.0 - sigma) / (real * real + imaginary * imaginary)


@compiled
def _own_burstiness(
    order: Array,
    parent: Array,
    link: Array,
    service: Array,
    delay: Array,
    share: Array,
    sigma: Array,
    weights: Array,
    powers: Array,
    residuals: Array,
    memory: Array,
    out: Array,
) -> None:
    """Walks one tree with |F|^2 of the path so far, and leaves X_p at every station."""
    n, points = len(order), len(weights)
    power = np.ones((n, points))
    here = np.ones(points)
    for place in range(n):
        broker = order[place]
        if broker < 0:
            break
        here[:] = 1.0
        if place > 0:
            station = n + link[broker]
            here[:] = power[parent[broker]]
            if service[station] > 0 and share[station] > 0.0:
                out[station] = share[station] * np.sum(weights * here * memory[station])
            for k in range(points):
                here[k] *= _scatter(sigma[station], residuals[station, k])
                here[k] *= powers[service[station], k] * powers[delay[station], k]
        if service[broker] > 0 and share[broker] > 0.0:
            out[broker] = share[broker] * np.sum(weights * here * memory[broker])
        for k in range(points):
            power[broker, k] = here[k] * _scatter(sigma[broker], residuals[broker, k])
            power[broker, k] *= powers[service[broker], k] * powers[delay[broker], k]


class _Shared:
    """What queues do to all that passes through them together: their output is partly as regular as their services."""

    def __init__(self, knowledge: Knowledge, layout: Layout, stations: Stations, load: FloatArray) -> None:
        self._layout, self._stations, self._n = layout, stations, len(knowledge.brokers)
        self._source = np.array([link.source for link in knowledge.links], np.int64)
        self._target = np.array([link.target for link in knowledge.links], np.int64)
        self._survives = np.array([1.0 - link.loss for link in knowledge.links])
        self._links = self._n + np.arange(len(knowledge.links))
        sent = stations.total_per_s[self._links]
        self._share = np.minimum(1.0, sent / np.maximum(stations.total_per_s[self._source], 1e-300))
        self._is_queue = (stations.mean_s[self._links] > 0.0) & (sent > 0.0)
        self._arriving = sent * self._survives
        self._to_link = _released(stations, load, self._source, self._links)
        self._to_broker = _released(stations, load, self._source, self._target)
        varies = any(publisher.size_kb.variance() > 0.0 for publisher in knowledge.publishers)
        onward = self._next_queues(stations)
        self._link_to_broker = (SAME_SIZES if varies else 1.0) * _released(stations, load, self._links, onward)

    def _next_queues(self, stations: Stations) -> Array:
        """By link, the station whose busy periods count behind it: the broker, or the busiest link out of one that does
        not queue."""
        busiest = np.arange(self._n)
        order = np.argsort(stations.utilisation[self._links], kind="stable")
        busiest[self._source[order]] = self._links[order]
        return np.where(stations.mean_s[self._target] > 0.0, self._target, busiest[self._target])

    def extra(self, own_mean_s: FloatArray) -> FloatArray:
        """X_p by [publisher, station] from what is shared, given the stations' mean X of the publishers' own."""
        stations, n = self._stations, self._n
        out = np.zeros(stations.rate_per_s.shape)
        if not len(self._links):
            return out
        has_queue = stations.mean_s > 0.0
        own = np.where(has_queue, 2.0 * own_mean_s / np.where(has_queue, stations.mean_s, 1.0), 0.0)
        imposed = stations.scv - 1.0 - own
        common = np.zeros(len(own))
        for _ in range(HOPS):
            at_link = self._behind(self._source, self._to_link, imposed, common)
            direct = self._behind(self._source, self._to_broker, imposed, common)
            common[self._links] = np.where(self._is_queue, at_link, 0.0)
            behind_link = self._behind(self._links, self._link_to_broker, imposed, common, share=1.0)
            flow = self._survives * np.where(self._is_queue, behind_link, direct)
            mixed = np.bincount(self._target, self._arriving * flow, minlength=n)
            common[:n] = mixed / np.maximum(stations.total_per_s[:n], 1e-300)
        for p in range(len(out)):
            members = self._layout.order[p]
            inner = members[members >= 0][1:]
            via = self._layout.link[p][inner]
            out[p, n + via] = 0.5 * stations.mean_s[n + via] * at_link[via]
            out[p, inner] = 0.5 * stations.mean_s[inner] * flow[via]
        return out

    def _behind(
        self, before: Array, released: FloatArray, imposed: FloatArray, common: FloatArray, share: float | None = None
    ) -> FloatArray:
        """The shared part of the index of dispersion behind a queue, of the part of its output sent here."""
        part = self._share if share is None else share
        return np.asarray(part * ((1.0 - released) * common[before] + released * imposed[before]))


def _released(stations: Stations, load: FloatArray, before: Array, at: Array) -> FloatArray:
    """How far the output of the queue `before` follows its services rather than its arrivals, over busy periods of the
    queue `at`: E[1 - w(B*)], less where the first is often idle."""
    is_queue = (stations.mean_s[before] > 0.0) & (stations.mean_s[at] > 0.0) & (stations.total_per_s[before] > 0.0)
    is_queue &= stations.total_per_s[at] > 0.0
    out = np.zeros(len(before))
    if not is_queue.any():
        return out
    one, other = before[is_queue], at[is_queue]
    times, weights = busy_nodes(load[other], stations.mean_s[other] * (1.0 + stations.scv[other]) / 2.0)
    pace = (1.0 - load[one]) ** 2 / (stations.mean_s[one] * (1.0 + stations.scv[one]))
    held = (weights * _not_yet_released(times * pace[:, None])).sum(axis=1)
    more = np.where(stations.scv[one] < 1.0 + 1e-9, REGULARITY, 1.0)
    out[is_queue] = np.minimum(1.0, more * load[one] * held)
    return out


def busy_nodes(load: FloatArray, mean_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Times and weights of B*, the busy period of an M/M/1 queue in which longer ones count in proportion."""
    rho = np.maximum(load, 1e-6)[:, None]
    steps = np.geomspace(1e-3, 40.0, 80)[None, :]
    times = steps * (2.0 / (1.0 - rho) ** 2)
    x = 2.0 * np.sqrt(rho) * times
    # SciPy has no Bessel function of arguments as large as those near an overload.
    scaled = np.where(x < _BESSEL_MAX, ive(1, np.minimum(x, _BESSEL_MAX)), 1.0 / np.sqrt(2.0 * math.pi * x))
    density = scaled * np.exp(-((1.0 - np.sqrt(rho)) ** 2) * times)
    weights = density * np.gradient(np.log(steps[0]))[None, :] * times
    return times * mean_s[:, None], weights / weights.sum(axis=1, keepdims=True)


def _not_yet_released(t: FloatArray) -> FloatArray:
    """1 - w(t) = (1 - c(t)) / (2 t), c the correlation function of reflected Brownian motion."""
    root = np.sqrt(t)
    tail = ndtr(-root)
    normal = np.exp(-0.5 * t) / math.sqrt(2.0 * math.pi)
    correlation = 2.0 * (1.0 - 2.0 * t - t * t) * tail + 2.0 * root * normal * (1.0 + t)
    return np.asarray(np.clip((1.0 - correlation) / (2.0 * t), 0.0, 1.0))
