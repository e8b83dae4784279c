"""The five schemes: the chance that an event reaches a subscriber's home broker in time (paper D, section 4).

| scheme | the paper, as corrected | ours |
| --- | --- | --- |
| static | 0: tables are lost for good at the first crash | the same |
| periodic | equation 3: every component of the tree path is up | and has its table back (`_soft_state`) |
| buffer | equations 4-11, exponential times | any times, empty tables as longer repairs (`_chains`, `_hops`) |
| bypass | equation 12: disjoint paths | connectivity (`_connectivity`), and tables as for periodic |
| bypass+buffer | equation 13, corrected | the chain of `_hops` along equivalent connections |

Equation 13 as printed exceeds 1; right is r_A + (a_b0 - r_A) P[0 < d <= D] / P[d > 0], with r_A of equation 12 and the
buffering delay d of equation 11.

Detection is immediate and carrying takes no time; `tidings.prediction` adds queues and links. A tree is given by the
parent of each broker (-1: the root, or not in the tree); where no path leads, the chance is 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from tidings.errors import ConfigurationError, InputError
from tidings.faults._chains import Chains, chains_of
from tidings.faults._connectivity import Connectivity, connectivity_of
from tidings.faults._disjoint import disjoint_path_chances
from tidings.faults._graph import FaultGraph, FloatArray, LongArray
from tidings.faults._hops import Hops, arrival_chances
from tidings.faults._soft_state import Refreshing
from tidings.model.policies import Scheme

__all__ = ["SCHEMES", "FaultModel", "Route", "Scheme", "SchemePredictor"]

FaultModel = Literal["ours", "paper"]

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)


@dataclass(frozen=True, kw_only=True, eq=False)
class Route:
    """The tree along which a root's events travel: `parent` by broker, and the connection from it."""

    root: int
    parent: LongArray
    connection: LongArray
    order: LongArray

    @classmethod
    def of(cls, graph: FaultGraph, root: int, parent: "Sequence[int] | LongArray") -> "Route":
        graph.require_broker(root, "root")
        above = np.array(parent, np.int64)
        if above.shape != (graph.broker_count,) or above[root] != -1:
            raise InputError(f"a tree names one parent for each of {graph.broker_count} brokers and -1 for its root")
        members = np.flatnonzero(above >= 0)
        connection = np.full(graph.broker_count, -1, np.int64)
        connection[members] = graph.connections_between(above[members], members)
        missing = members[connection[members] < 0]
        if len(missing):
            child = int(missing[0])
            raise InputError(f"no connection joins broker {child} to {int(above[child])}, its parent in the tree")
        children: list[list[int]] = [[] for _ in above]
        for child in members.tolist():
            children[above[child]].append(child)
        order = [root]
        for broker in order:  # grows while it is read
            order += children[broker]
        if len(order) != len(members) + 1:
            raise InputError(f"the parents of some brokers form a cycle instead of leading to the root {root}")
        return cls(root=root, parent=above, connection=connection, order=np.array(order, np.int64))

    def path(self, broker: int) -> tuple[list[int], list[int]]:
        """The brokers from the root to this one, and the connections between them."""
        brokers, connections = [broker], []
        while brokers[-1] != self.root:
            connections.append(int(self.connection[brokers[-1]]))
            brokers.append(int(self.parent[brokers[-1]]))
        return brokers[::-1], connections[::-1]


@dataclass(frozen=True, kw_only=True, eq=False)
class SchemePredictor:
    """Answers for one graph. Subscriptions are refreshed every `refresh_s` (0: at once) and time out after `timeout_s`;
    both count in our model only. Parts shared by roots are computed once."""

    graph: FaultGraph
    model: FaultModel = "ours"
    refresh_s: float = 0.0
    timeout_s: float = math.inf
    generator: np.random.Generator | None = None

    def __post_init__(self) -> None:
        if self.model not in ("ours", "paper"):
            raise ConfigurationError(f"there is no model {self.model!r} of failures: choose ours or paper")
        if not 0.0 <= self.refresh_s < math.inf or self.timeout_s < self.refresh_s:
            raise ConfigurationError(
                f"subscriptions are refreshed every {self.refresh_s!r} s and time out after {self.timeout_s!r} s: "
                "the interval is at least 0, and no longer than the time-out"
            )

    def on_time(self, scheme: Scheme, route: Route, lifetimes_s: FloatArray) -> FloatArray:
        """[lifetime, broker]: the chance that an event published at the root gets to the broker within the lifetime."""
        times = np.atleast_1d(np.asarray(lifetimes_s, np.float64))
        if scheme not in SCHEMES:
            raise InputError(f"there is no scheme {scheme!r}: choose one of {', '.join(SCHEMES)}")
        if scheme == "static":
            return np.zeros((len(times), self.graph.broker_count))
        if scheme == "periodic":
            return np.tile(self._periodic(route), (len(times), 1))
        if scheme == "bypass":
            return np.tile(self._bypass(route), (len(times), 1))
        start = self.graph.broker_availability[route.root]
        if scheme == "buffer":
            return np.asarray(start * self._buffered(route, times))
        if self.model == "paper":
            return self._equation_13(route, times)
        return np.asarray(start * self._bypassed_and_buffered(route, times))

    def _periodic(self, route: Route) -> FloatArray:
        up = _along(route, self.graph)
        if self._refreshing is not None:
            for broker in route.order.tolist():
                up[broker] *= self._refreshing.periodic(*route.path(broker))
        return up

    def _bypass(self, route: Route) -> FloatArray:
        if self.model == "paper":
            a = self.graph.broker_availability
            chance = a[route.root] * a * disjoint_path_chances(self.graph, route.root)
            chance[route.root] = a[route.root]
            return np.asarray(chance)
        chance = self.connectivity.chances(route.root)
        if self._refreshing is not None:
            tree = self.connectivity.tree(route.root)
            for broker in route.order.tolist():
                chance[broker] *= self._refreshing.bypass(route.path(broker)[0], tree.passed(broker))
        return chance

    def _buffered(self, route: Route, times: FloatArray) -> FloatArray:
        links = Chains(*(part[np.maximum(route.connection, 0)] for part in self._link_chains))
        return arrival_chances(Hops(route.order, route.parent, self._broker_chains, links), times)

    def _equation_13(self, route: Route, times: FloatArray) -> FloatArray:
        start = self.graph.broker_availability[route.root]
        at_once, *later = self._buffered(route, np.concatenate(([0.0], times)))
        waited = np.array(later) - at_once
        by_bypass = self._bypass(route)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(at_once < 1.0, waited / (1.0 - at_once), 0.0)
        return np.asarray(by_bypass + (start - by_bypass) * share)

    def _bypassed_and_buffered(self, route: Route, times: FloatArray) -> FloatArray:
        tree = self.connectivity.tree(route.root)
        links = _equivalent(tree.availability, tree.frequency_per_s)
        bridges = np.flatnonzero(tree.connection >= 0)
        links = _replaced(links, bridges, self._link_chains, tree.connection[bridges])
        return arrival_chances(Hops(tree.order, tree.parent, self._broker_chains, links), times)

    @cached_property
    def connectivity(self) -> Connectivity:
        return connectivity_of(self.graph, generator=self.generator)

    @cached_property
    def _refreshing(self) -> Refreshing | None:
        if self.model == "paper" or self.refresh_s == 0.0:
            return None
        return Refreshing(self.graph, interval_s=self.refresh_s, timeout_s=self.timeout_s)

    @cached_property
    def _broker_chains(self) -> Chains:
        lag_s = self.refresh_s if self.model == "ours" else 0.0
        return chains_of(self.graph.brokers, lag_s=lag_s, exponential=self.model == "paper")

    @cached_property
    def _link_chains(self) -> Chains:
        return chains_of(self.graph.links or (None,), exponential=self.model == "paper")


def _along(route: Route, graph: FaultGraph) -> FloatArray:
    """Equation 3, for every broker of the tree."""
    out = np.zeros(graph.broker_count)
    out[route.root] = graph.broker_availability[route.root]
    for broker in route.order[1:].tolist():
        a = graph.link_availability[route.connection[broker]] * graph.broker_availability[broker]
        out[broker] = out[route.parent[broker]] * a
    return out


def _equivalent(availability: FloatArray, frequency_per_s: FloatArray) -> Chains:
    """Connections with these availabilities and frequencies, up and down for exponential times."""
    n = len(availability)
    fails = availability < 1.0 - 1e-12
    up = np.where(fails, availability, 1.0)
    failing = np.where(fails, frequency_per_s / np.maximum(up, 1e-300), 0.0)
    repairing = np.where(fails, frequency_per_s / np.maximum(1.0 - up, 1e-12), 0.0)
    generator = np.zeros((n, 2, 2))
    generator[:, 0, 0], generator[:, 0, 1] = -failing, failing
    generator[:, 1, 0], generator[:, 1, 1] = repairing, -repairing
    is_up = np.tile(np.array([True, False]), (n, 1))
    return Chains(generator, np.stack((up, 1.0 - up), axis=1), np.full(n, 2, np.int64), is_up, is_up)


def _replaced(chains: Chains, places: LongArray, others: Chains, chosen: LongArray) -> Chains:
    """The chains at these places taken from others."""
    most = max(chains.stationary.shape[1], others.stationary.shape[1])
    wide, source = (_widened(each, most) for each in (chains, others))
    for part, other in zip(wide, source, strict=True):
        part[places] = other[chosen]
    return wide


def _widened(chains: Chains, most: int) -> Chains:
    n, k = chains.stationary.shape
    generator = np.zeros((n, most, most))
    generator[:, :k, :k] = chains.generator
    stationary = np.zeros((n, most))
    stationary[:, :k] = chains.stationary
    masks = []
    for mask in (chains.holds, chains.ready):
        wide = np.zeros((n, most), np.bool_)
        wide[:, :k] = mask
        masks.append(wide)
    return Chains(generator, stationary, chains.phases.copy(), *masks)
