"""Buffering delays along trees: equations 4 to 11, all hops of a whole tree in one chain (paper D, section 4.3).

A broker that has the event holds it until it, the connection and the next broker are up at the same time; then the next
broker has it, at once. At the first try the connection and the next broker are found as they are in the long run
(they are independent of everything before), so the hop takes no time with probability a_l a_b. The holder
is known: it has just got the event. With exponential times that is the chain of equation 7, seven states a hop; here
the state of a hop is one phase of each of the three components, and the next hop starts with the phase in
which the next broker was when it got the event. So no independence of hops is assumed; for exponential up times it
comes out.

The chain of the whole tree is advanced by uniformisation: with L at least every rate of leaving a state,

    P[state at t] = sum over k of Poisson(k; L t) p (I + Q / L)**k,

which has only non-negative terms. Branches share their common prefix, and all requested times share the steps.
A component whose phases last less than 1 / FASTEST of the time asked for is slowed down to that: its waits are shorter
than can matter, and steps would be many.
"""

from typing import NamedTuple

import numpy as np

from tidings.compiled import compiled
from tidings.errors import InputError
from tidings.faults._chains import Chains
from tidings.faults._graph import Array, FloatArray

__all__ = ["FASTEST", "Hops", "arrival_chances"]

FASTEST = 5_000.0
_SPREADS = 9.0  # steps beyond the mean, in standard deviations: the rest is below 1e-16
_MORE_STEPS = 40


class Hops(NamedTuple):
    """A tree of hops: `order` lists the root and then brokers after their `parent`; `links` are chains by broker, of
    what leads to it from its parent (the root's is not used); `brokers` are chains by broker."""

    order: Array
    parent: Array
    brokers: Chains
    links: Chains


def arrival_chances(hops: Hops, times_s: FloatArray) -> FloatArray:
    """[time, broker]: the chance that the event has got there by then, given that the root was up when it came.

    Brokers that are not in the tree are never reached; after an infinite time every other one is.
    """
    times = np.atleast_1d(np.asarray(times_s, np.float64))
    if np.isnan(times).any() or (times < 0.0).any():
        raise InputError("a lifetime is at least 0 seconds, and may be infinite")
    n = len(hops.brokers.phases)
    out = np.zeros((len(times), n))
    finite = np.flatnonzero(np.isfinite(times))
    out[np.isinf(times)[:, None] & np.isin(np.arange(n), hops.order)[None, :]] = 1.0
    if not len(finite):
        return out
    longest = float(times[finite].max())
    brokers, links = _slowed(hops.brokers, longest), _slowed(hops.links, longest)
    rate = 2.0 * _fastest(brokers) + _fastest(links)
    weights = _poisson(rate * times[finite])
    found = np.zeros((len(finite), n))
    _advance(
        np.asarray(hops.order, np.int64),
        np.asarray(hops.parent, np.int64),
        brokers.generator,
        brokers.stationary,
        brokers.phases,
        brokers.holds,
        brokers.ready,
        links.generator,
        links.stationary,
        links.phases,
        links.ready,
        rate if rate > 0.0 else 1.0,
        weights,
        found,
    )
    out[finite] = np.minimum(found, 1.0)
    return out


def _fastest(chains: Chains) -> float:
    return float(-np.diagonal(chains.generator, axis1=1, axis2=2).min(initial=0.0))


def _slowed(chains: Chains, longest_s: float) -> Chains:
    rates = -np.diagonal(chains.generator, axis1=1, axis2=2).min(axis=1, initial=0.0) * longest_s
    factor = np.where(rates > FASTEST, FASTEST / np.maximum(rates, FASTEST), 1.0)
    return chains._replace(generator=chains.generator * factor[:, None, None])


def _poisson(means: FloatArray) -> FloatArray:
    """[mean, k]: Poisson probabilities, as far as they matter, each row of sum 1."""
    from scipy.special import gammaln, xlogy

    most = float(means.max(initial=0.0))
    k = np.arange(int(most + _SPREADS * np.sqrt(most)) + _MORE_STEPS)
    weights = np.exp(xlogy(k, means[:, None]) - means[:, None] - gammaln(k + 1.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@compiled
def _advance(
    order: Array,
    parent: Array,
    b_generator: Array,
    b_stationary: Array,
    b_phases: Array,
    b_holds: Array,
    b_ready: Array,
    l_generator: Array,
    l_stationary: Array,
    l_phases: Array,
    l_up: Array,
    rate: float,
    weights: Array,
    out: Array,
) -> None:
    """Fills out[time, broker]. A hop's state is [holder, connection, next broker]; the root's only its own phase."""
    n, kb, kl = len(b_phases), b_generator.shape[1], l_generator.shape[1]
    state = np.zeros((n, kb, kl, kb))
    scratch = np.zeros((kb, kl, kb))
    came = np.zeros((n, kb))  # in this step, by the phase in which the broker is
    arrived = np.zeros(n)
    root = order[0]
    up = 0.0
    for c in range(b_phases[root]):
        if b_holds[root, c]:
            up += b_stationary[root, c]
    for step in range(weights.shape[1]):
        for place in range(len(order)):
            v = order[place]
            above = parent[v]
            nb, nl = (1, 1) if place == 0 else (b_phases[above], l_phases[v])
            nc = b_phases[v]
            came[v] = 0.0
            here = state[v]
            if step > 0:
                for i in range(nb):
                    for j in range(nl):
                        for c in range(nc):
                            mass = here[i, j, c]
                            value = mass * rate
                            for other in range(nc):
                                value += here[i, j, other] * b_generator[v, other, c]
                            if place > 0:
                                for other in range(nl):
                                    value += here[i, other, c] * l_generator[v, other, j]
                                for other in range(nb):
                                    value += here[other, j, c] * b_generator[above, other, i]
                            scratch[i, j, c] = value / rate
                for i in range(nb):
                    for j in range(nl):
                        open_way = place == 0 or (b_holds[above, i] and l_up[v, j])
                        for c in range(nc):
                            if open_way and b_ready[v, c]:
                                came[v, c] += scratch[i, j, c]
                                here[i, j, c] = 0.0
                            else:
                                here[i, j, c] = scratch[i, j, c]
            if place == 0:
                if step == 0:
                    for c in range(nc):
                        if b_ready[v, c]:
                            came[v, c] += b_stationary[v, c] / up
                        elif b_holds[v, c]:
                            here[0, 0, c] += b_stationary[v, c] / up
            else:
                for i in range(nb):
                    if came[above, i] > 0.0:
                        for j in range(nl):
                            for c in range(nc):
                                mass = came[above, i] * l_stationary[v, j] * b_stationary[v, c]
                                if l_up[v, j] and b_ready[v, c]:
                                    came[v, c] += mass
                                else:
                                    here[i, j, c] += mass
            for c in range(nc):
                arrived[v] += came[v, c]
        for time in range(weights.shape[0]):
            for place in range(len(order)):
                out[time, order[place]] += weights[time, step] * arrived[order[place]]
