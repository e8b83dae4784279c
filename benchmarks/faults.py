"""What it costs to predict every pair of brokers of a network that fails, and how near that is, against sampling.

Random graphs of average degree 4 with low-end brokers (paper D, section 5: availability .9 to .95, links .99, cycles of
60,000 s, events that live an hour), trees of fewest hops from every broker. Each row is measured in the same run, in
processor seconds of one core:

- `predicting`: blocks, bypass and bypass+buffer from every broker to every other, after compilation;
- `sampling`: the peer, a compiled simulation of the same mechanism (components that alternate, holders along the tree,
  detours to the first broker that can be reached), to a standard error of .001 for every pair: what its samples here
  cost, times how many are needed;
- `off`: root mean square difference of the two, sampling noise taken off, for ours and for the paper's equations.
"""

import time
from typing import Any, NamedTuple

import networkx
import numpy as np

from tidings.compiled import compiled
from tidings.faults import FaultGraph, Route, Scheme, SchemePredictor

SIZES = (10, 50, 200)
GRAPHS = 2
ROOTS = 4  # whose pairs are sampled
SAMPLES = {10: 100_000, 50: 50_000, 200: 25_000}
LIFETIME_S, PERIOD_S = 3_600.0, 60_000.0
STANDARD_ERROR = 0.001
SEED = 6
MEASURED: tuple[Scheme, ...] = ("bypass", "bypass+buffer")


class Row(NamedTuple):
    """One size, over all of its graphs."""

    brokers: int
    predicting_s: float
    sampling_s: float
    bypass_off: float
    both_off: float
    bypass_paper_off: float
    both_paper_off: float


def low_end_graph(brokers: int, rng: np.random.Generator) -> FaultGraph:
    while True:
        drawn = networkx.gnm_random_graph(brokers, 2 * brokers, seed=int(rng.integers(2**31)))
        if networkx.is_connected(drawn):
            break
    availability = rng.uniform(0.9, 0.95, brokers).tolist()
    return FaultGraph.exponential(ends=list(drawn.edges), brokers=availability, links=0.99, period_s=PERIOD_S)


def routes_of(graph: FaultGraph) -> list[Route]:
    net = networkx.Graph(graph.ends.tolist())
    made = []
    for root in range(graph.broker_count):
        parents = [-1] * graph.broker_count
        for above, below in networkx.bfs_edges(net, root):
            parents[below] = above
        made.append(Route.of(graph, root, parents))
    return made


@compiled
def sample(
    offsets: Any,
    neighbours: Any,
    connections: Any,
    order: Any,
    parent: Any,
    availability: Any,
    fails: Any,
    repairs: Any,
    lifetime_s: float,
    samples: int,
    seed: int,
    at_once: Any,
    in_time: Any,
) -> None:
    """Adds, by broker, the events that it got at once and in time; every event finds the root up."""
    np.random.seed(seed)
    count, n = len(availability), len(offsets) - 1
    up, has = np.zeros(count, np.bool_), np.zeros(n, np.bool_)
    label, waiting = np.empty(n, np.int64), np.empty(n, np.int64)
    root = order[0]
    for _ in range(samples):
        rate = 0.0
        for x in range(count):
            up[x] = np.random.random() < availability[x] or x == root
            rate += fails[x] if up[x] else repairs[x]
        has[:] = False
        has[root] = True
        now_s = 0.0
        while True:
            spread(offsets, neighbours, connections, order, parent, up, has, label, waiting)
            if now_s == 0.0:
                for v in range(n):
                    at_once[v] += has[v]
            is_repair = False
            while not is_repair and now_s <= lifetime_s:
                now_s += np.random.exponential(1.0 / rate)
                drawn, x = np.random.random() * rate, -1
                while drawn >= 0.0 and x < count - 1:
                    x += 1
                    drawn -= fails[x] if up[x] else repairs[x]
                rate += repairs[x] - fails[x] if up[x] else fails[x] - repairs[x]
                up[x] = not up[x]
                is_repair = up[x]
            if now_s > lifetime_s:
                break
        for v in range(n):
            in_time[v] += has[v]


@compiled
def spread(
    offsets: Any,
    neighbours: Any,
    connections: Any,
    order: Any,
    parent: Any,
    up: Any,
    has: Any,
    label: Any,
    waiting: Any,
) -> None:
    """Whoever is nearest above a broker and has the event gives it, if they are connected."""
    n = len(label)
    label[:] = -1
    for start in range(n):
        if label[start] >= 0 or not up[start]:
            continue
        label[start], waiting[0], size, at = start, start, 1, 0
        while at < size:
            v = waiting[at]
            at += 1
            for place in range(offsets[v], offsets[v + 1]):
                w = neighbours[place]
                if label[w] < 0 and up[w] and up[n + connections[place]]:
                    label[w] = start
                    waiting[size] = w
                    size += 1
    for place in range(1, len(order)):
        v = order[place]
        above = parent[v]
        while not has[above]:
            above = parent[above]
        if up[v] and up[above] and label[v] == label[above]:
            has[v] = True


def measure(brokers: int) -> Row:
    rng = np.random.default_rng([SEED, brokers])
    predicting_s, sampling_s = 0.0, 0.0
    found: dict[str, list[np.ndarray]] = {"ours": [], "paper": [], "seen": [], "noise": []}
    times_s = np.array([LIFETIME_S])
    for _ in range(GRAPHS):
        graph = low_end_graph(brokers, rng)
        routes = routes_of(graph)
        start = time.process_time()
        predictor = SchemePredictor(graph=graph)
        ours = [[predictor.on_time(scheme, route, times_s)[0] for scheme in MEASURED] for route in routes]
        predicting_s += time.process_time() - start
        paper = SchemePredictor(graph=graph, model="paper")
        a = np.concatenate((graph.broker_availability, graph.link_availability))
        f = np.concatenate((graph.broker_frequency_per_s, graph.link_frequency_per_s))
        for root in rng.choice(brokers, ROOTS, replace=False).tolist():
            route, samples = routes[root], SAMPLES[brokers]
            seen = np.zeros((2, brokers))
            start = time.process_time()
            tree, rates, seed = (route.order, route.parent), (f / a, f / (1.0 - a)), int(rng.integers(2**31))
            sample(*graph.adjacency, *tree, a, *rates, LIFETIME_S, samples, seed, *seen)
            spent_s = time.process_time() - start
            others = np.arange(brokers) != root
            share = seen[:, others] / samples
            variance = a[root] ** 2 * share * (1.0 - share)
            sampling_s += spent_s / samples * float(variance.mean()) / STANDARD_ERROR**2 * brokers / ROOTS
            found["seen"].append(a[root] * share)
            found["noise"].append(variance / samples)
            found["ours"].append(np.array(ours[root])[:, others])
            by_paper = [paper.on_time(scheme, route, times_s)[0] for scheme in MEASURED]
            found["paper"].append(np.array(by_paper)[:, others])
    values = {name: np.concatenate(parts, axis=1) for name, parts in found.items()}

    def off(name: str) -> tuple[float, ...]:
        square = ((values[name] - values["seen"]) ** 2).mean(axis=1) - values["noise"].mean(axis=1)
        return tuple(np.sqrt(np.maximum(square, 0.0)).tolist())

    (bypass, both), (paper_bypass, paper_both) = off("ours"), off("paper")
    return Row(brokers, predicting_s / GRAPHS, sampling_s / GRAPHS, bypass, both, paper_bypass, paper_both)


def main() -> None:
    for compiling in (SIZES[0], 16):
        graph = low_end_graph(compiling, np.random.default_rng(1))
        SchemePredictor(graph=graph).on_time("bypass+buffer", routes_of(graph)[0], np.array([1.0]))
    print("| brokers | predicting | sampling | times | off: bypass | bypass+buffer | paper: bypass | bypass+buffer |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for brokers in SIZES:
        row = measure(brokers)
        ratio = row.sampling_s / row.predicting_s
        offs = " | ".join(f"{value:.5f}" for value in row[3:])
        print(f"| {brokers} | {row.predicting_s:.3f} s | {row.sampling_s:.1f} s | {ratio:.0f} | {offs} |", flush=True)


if __name__ == "__main__":
    main()
