"""The cost of soft state: after a repair a broker's table is empty until the next refresh reaches it (section 2.4.1).

Refreshes come every T seconds; the last one was U seconds ago, U uniform from 0 to T. Given that all components of a
path are up now, a broker on it has the subscription

- if it has been up for at least U, and the last refresh got through to it: the connections between it and the
  subscriber were up U ago, which for one that is up now has probability a + (1 - a) exp(-(gamma + sigma) U);
- or else if it has been up for at least U + T, by the refresh before that.

(A broker between them that was down U ago is itself without the subscription.) Events are lost at the first broker that
has not got it. A connection that was down for longer than the time-out leaves the brokers before it without the
subscription until the next refresh, whatever they were. Without this (T = 0) equation 3 is exact.

With bypass a broker of the tree that is down is passed by, and costs nothing; one that is up without its table swallows
the event.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tidings.faults._chains import phases_of
from tidings.faults._graph import FaultGraph, FloatArray

if TYPE_CHECKING:
    from tidings.model.failures import Failures

__all__ = ["Refreshing"]

_NODES = 8


class Refreshing:
    """The shares of events that empty tables leave, path by path."""

    def __init__(self, graph: FaultGraph, *, interval_s: float, timeout_s: float) -> None:
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        self._weights: FloatArray = 0.5 * weights
        age_s = 0.5 * interval_s * (nodes + 1.0)
        self._graph = graph
        self._aged = np.array([_up_for(each, age_s) for each in graph.brokers])
        self._older = np.array([_up_for(each, age_s + interval_s) for each in graph.brokers])
        a, frequency = graph.link_availability, graph.link_frequency_per_s
        back = np.where(a < 1.0, frequency / np.maximum(1.0 - a, 1e-300), 0.0) + frequency / a
        self._was_up = a[:, None] + (1.0 - a)[:, None] * np.exp(-back[:, None] * age_s)
        self._kept = np.array([_not_timed_out(each, age_s, timeout_s) for each in graph.links]).reshape(-1, _NODES)

    def periodic(self, path: Sequence[int], links: Sequence[int]) -> float:
        """Given that all of the path is up: the chance that every broker of it has the subscription."""
        through = np.ones(_NODES)
        chance = np.ones(_NODES)
        for place in range(len(path) - 1, -1, -1):
            broker = path[place]
            aged = self._aged[broker]
            share = np.where(aged > 0.0, self._older[broker] / np.maximum(aged, 1e-300), 0.0)
            chance *= aged * (through + (1.0 - through) * share)
            if place > 0:
                through *= self._was_up[links[place - 1]]
                chance *= self._kept[links[place - 1]]
        return float(self._weights @ chance)

    def bypass(self, path: Sequence[int], passed: Collection[int]) -> float:
        """Given that all paths go through the brokers of `passed`, and these are up: the chance that no broker of the
        tree path is up without its table."""
        chance = np.ones(_NODES)
        for broker in path:
            up = 1.0 if broker in passed else float(self._graph.broker_availability[broker])
            chance *= 1.0 - up * (1.0 - self._aged[broker])
        return float(self._weights @ chance)


def _up_for(failures: "Failures | None", age_s: FloatArray) -> FloatArray:
    """The chance that the components up now have been up for at least this long."""
    from scipy.linalg import expm

    if failures is None:
        return np.ones(len(age_s))
    start, sub = phases_of(failures.up)
    lasting = np.linalg.solve(-sub.T, start)
    lasting /= lasting.sum()
    return np.array([float((lasting @ expm(sub * age)).sum()) for age in age_s.tolist()])


def _not_timed_out(failures: "Failures | None", age_s: FloatArray, timeout_s: float) -> FloatArray:
    """The chance that a connection that is up now has not come back since, after longer than the time-out."""
    if failures is None or np.isinf(timeout_s):
        return np.ones(len(age_s))
    longer = 1.0 - float(failures.down.cdf(timeout_s))
    return np.asarray(1.0 - (1.0 - _up_for(failures, age_s)) * longer)
