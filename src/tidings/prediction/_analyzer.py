"""Whitt's queueing network analyzer (1983) on broker networks: how bursty is what arrives at each station?

One squared coefficient of variation per flow. A publisher's flow has that of its intervals; where flows meet,
c_a^2 = 1 - w + w sum(share c^2) with w = 1 / (1 + 4 (1 - rho)^2 (v - 1)), v = 1 / sum(share^2); behind a station
c_d^2 = 1 + (1 - rho^2) (c_a^2 - 1) + rho^2 (max(c_s^2, .2) - 1); a part phi of a flow has phi c^2 + 1 - phi.

A link l of broker b is fed by up(l) only: what came to b, less what came from the broker that l leads to. Publishers
have trees of their own, so the flows of a mesh may feed each other in a circle; sweeps repeat until nothing moves,
which on a tree is after as many sweeps as it is deep.
"""

import numpy as np

from tidings.compiled import compiled
from tidings.prediction._flows import Array, Layout, Stations
from tidings.prediction._knowledge import FloatArray, Knowledge

__all__ = ["arrival_scvs"]

SWEEPS_MAX = 200
_SETTLED = 1e-10
_LEAST_SERVICE_SCV = 0.2


def arrival_scvs(knowledge: Knowledge, layout: Layout, stations: Stations) -> FloatArray:
    """The squared coefficient of variation of what arrives at each station."""
    n, m = len(knowledge.brokers), len(knowledge.links)
    source = np.array([link.source for link in knowledge.links], np.int64)
    target = np.array([link.target for link in knowledge.links], np.int64)
    survives = np.array([1.0 - link.loss for link in knowledge.links])
    by_target = np.argsort(target, kind="stable")
    in_offsets = np.searchsorted(target[by_target], np.arange(n + 1))
    roots = layout.order[:, 0].astype(np.int64)
    scvs = np.array([publisher.interval.scv() for publisher in knowledge.publishers])
    by_root = np.argsort(roots, kind="stable")
    publisher_offsets = np.searchsorted(roots[by_root], np.arange(n + 1))
    load = np.minimum(stations.utilisation, 1.0)
    has_queue = stations.mean_s > 0.0
    service_scv = np.maximum(stations.scv, _LEAST_SERVICE_SCV)
    arrivals, flows = np.ones(n + m), np.ones(m)
    for _ in range(SWEEPS_MAX):
        moved = _sweep(
            source,
            target,
            survives,
            in_offsets,
            by_target,
            publisher_offsets,
            by_root,
            layout.rate_per_s,
            scvs,
            stations.total_per_s,
            load,
            has_queue,
            service_scv,
            arrivals,
            flows,
        )
        if moved < _SETTLED:
            break
    return arrivals


@compiled
def _superposed(rates: Array, scvs: Array, count: int, load: float) -> float:
    """Of the first `count` flows."""
    total = 0.0
    for i in range(count):
        total += rates[i]
    if total <= 0.0:
        return 1.0
    mean, concentration = 0.0, 0.0
    for i in range(count):
        share = rates[i] / total
        mean += share * scvs[i]
        concentration += share * share
    weight = 1.0 / (1.0 + 4.0 * (1.0 - load) ** 2 * (1.0 / concentration - 1.0))
    return 1.0 - weight + weight * mean


@compiled
def _behind(arrival: float, load: float, service_scv: float, has_queue: bool) -> float:
    if not has_queue:
        return arrival
    return 1.0 + (1.0 - load**2) * (arrival - 1.0) + load**2 * (service_scv - 1.0)


@compiled
def _sweep(
    source: Array,
    target: Array,
    survives: Array,
    in_offsets: Array,
    in_links: Array,
    publisher_offsets: Array,
    publishers: Array,
    publisher_rates: Array,
    publisher_scvs: Array,
    total_per_s: Array,
    load: Array,
    has_queue: Array,
    service_scv: Array,
    arrivals: Array,
    flows: Array,
) -> float:
    """One pass over all links; how far anything moved. `flows` are the links' flows as they reach the other broker."""
    n, moved = len(in_offsets) - 1, 0.0
    rates, scvs = np.zeros(len(source) + len(publishers)), np.zeros(len(source) + len(publishers))
    for link in range(len(source) + n):  # first every link by up(l), then every broker by all that comes in
        broker = source[link] if link < len(source) else link - len(source)
        count = 0
        for slot in range(publisher_offsets[broker], publisher_offsets[broker + 1]):
            rates[count] = publisher_rates[publishers[slot]]
            scvs[count] = publisher_scvs[publishers[slot]]
            count += 1
        for slot in range(in_offsets[broker], in_offsets[broker + 1]):
            entering = in_links[slot]
            if link < len(source) and source[entering] == target[link]:
                continue
            rates[count] = total_per_s[n + entering] * survives[entering]
            scvs[count] = flows[entering]
            count += 1
        arrival = _superposed(rates, scvs, count, load[broker])
        if link >= len(source):
            arrivals[broker] = arrival
            continue
        upstream = 0.0
        for i in range(count):
            upstream += rates[i]
        share = min(1.0, total_per_s[n + link] / upstream) if upstream > 0.0 else 0.0
        behind = _behind(arrival, load[broker], service_scv[broker], has_queue[broker])
        sent = share * behind + 1.0 - share
        station = n + link
        arrivals[station] = sent
        left = _behind(sent, load[station], service_scv[station], has_queue[station])
        flow = survives[link] * left + 1.0 - survives[link]
        moved = max(moved, abs(flow - flows[link]))
        flows[link] = flow
    return moved
