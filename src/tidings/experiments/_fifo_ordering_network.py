"""The networks and the traffic of paper A's evaluation: who publishes what when, and when it reaches whom.

Two settings. `8`: eight brokers, two hubs with three others each (diameter 3), 50 clients each, 300 s. `46`:
forty-six brokers on a sparse graph of diameter 15, 10 clients each, 240 s. Every client subscribes, 50 publish. 48
publish at a low rate that ramps from 1.5 to 25 events/s and match 2.9 % of the subscribers, event by event; two
publish 1,200 events/s, from 30 % and 63 % of the run on (90 and 190 s of 300), and match 85 % of ten subscribers.
Publishing is Poisson. Links take 50 ms and a jitter of up to 5 ms that varies slowly, so that it does not reorder.

Two models of a broker. `independent`: an event takes an exponential time of mean 1 ms, whatever else is there (paper
A, section 3.1). `stall`: four threads, .05 ms of exponential service, first come first served, and about every .3 s
everything stands still for 50 ms (a collector of garbage, a full disk queue): noise that keeps order, and bursts that
do not.
"""

import heapq
import math
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from tidings.compiled import compiled
from tidings.ordering import Streams

__all__ = ["Model", "Setting", "Traffic", "make_traffic"]

Setting = Literal["8", "46"]
Model = Literal["independent", "stall"]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
FlagArray = NDArray[np.bool_]

DURATION_S: Final[dict[Setting, float]] = {"8": 300.0, "46": 240.0}
CLIENTS: Final[dict[Setting, int]] = {"8": 50, "46": 10}
LOW, HIGH = 48, 2
LOW_RATES: Final = (1.5, 25.0)
HIGH_RATE: Final = 1200.0
HIGH_FROM: Final = (0.3, 19.0 / 30.0)
LOW_INTEREST, HIGH_INTEREST, HIGH_SUBSCRIBERS = 0.029, 0.85, 10
LINK_S, JITTER_S, JITTER_PERIOD_S = 0.050, 0.005, (8.0, 20.0)
INDEPENDENT_S: Final = 0.001
THREADS, SERVICE_S, STALL_S, STALL_EVERY_S = 4, 0.00005, 0.050, 0.3
FALSE_POSITIVES: Final = 0.001
"""How often a summary says that an event matches although it does not (measured: docs/reference/ordering.md)."""


class Links(NamedTuple):
    """Between each two brokers a delay of LINK_S and a wave of `jitter_s`."""

    jitter_s: float
    period_s: FloatArray
    phase: FloatArray


class Traffic(NamedTuple):
    """What was published, and when each event left each broker for its clients."""

    departure_s: tuple[FloatArray, ...]  # by publisher
    left_s: tuple[FloatArray, ...]  # by publisher: [broker, event]
    subscriber_broker: IntArray
    depth: IntArray  # [publisher, broker]: brokers on the path
    seed: int

    def streams(self, publisher: int) -> tuple[Streams, IntArray]:
        """What every subscriber receives of one publisher, and the broker that each of the streams comes from."""
        generator = np.random.default_rng([self.seed, 2, publisher])
        departure_ns = _to_ns(self.departure_s[publisher])
        events, subscribers = departure_ns.size, self.subscriber_broker.size
        if publisher < LOW:
            readers, interest = np.arange(subscribers), LOW_INTEREST
        else:
            readers, interest = generator.choice(subscribers, HIGH_SUBSCRIBERS, replace=False), HIGH_INTEREST
        matched = generator.random((readers.size, events), np.float32) < interest
        wanted = matched | (generator.random((readers.size, events), np.float32) < FALSE_POSITIVES)
        stream, sequence = np.nonzero(matched)
        arrival_ns = _to_ns(self.left_s[publisher][self.subscriber_broker[readers[stream]], sequence])
        order = np.lexsort((arrival_ns, stream))
        return (
            Streams.of_one_publisher(
                departure_ns=departure_ns,
                stream=stream[order],
                sequence=sequence[order],
                arrival_ns=arrival_ns[order],
                wanted=wanted,
            ),
            self.subscriber_broker[readers],
        )

    def each(self) -> Iterator[Streams]:
        """The streams, publisher by publisher."""
        for publisher in range(len(self.departure_s)):
            yield self.streams(publisher)[0]


def make_traffic(
    setting: Setting, model: Model, seed: int, *, share: float = 1.0, jitter_s: float = JITTER_S
) -> Traffic:
    """One run; `share` shortens it, with the same ramp and the same joins in proportion."""
    generator = np.random.default_rng([seed, 1])
    graph = _graph(setting, generator)
    brokers = graph.number_of_nodes()
    subscriber_broker = np.repeat(np.arange(brokers), CLIENTS[setting])
    homes = subscriber_broker[generator.choice(subscriber_broker.size, LOW + HIGH, replace=False)]
    duration_s = DURATION_S[setting] * share
    departures = tuple(_departures(publisher, duration_s, generator) for publisher in range(LOW + HIGH))
    parents = np.array([_parents(graph, int(home)) for home in homes])
    depth = np.array([[len(nx.shortest_path(graph, int(home), b)) for b in range(brokers)] for home in homes])
    links = Links(
        jitter_s,
        generator.uniform(*JITTER_PERIOD_S, (brokers, brokers)),
        generator.uniform(0.0, 2.0 * np.pi, (brokers, brokers)),
    )
    if model == "independent":
        left = tuple(
            _independent(departures[p], parents[p], int(homes[p]), links, generator) for p in range(LOW + HIGH)
        )
    else:
        left = _with_stalls(departures, parents, homes, links, duration_s, generator)
    return Traffic(departures, left, subscriber_broker, depth, seed)


def _graph(setting: Setting, generator: np.random.Generator) -> nx.Graph:
    if setting == "8":
        return nx.Graph([(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (1, 6), (1, 7)])
    # A backbone of 16 in a row, and 30 brokers beside it that never lengthen the longest path.
    graph = nx.path_graph(16)
    for broker in range(16, 46):
        graph.add_edge(broker, int(generator.integers(1, 15)))
    return graph


def _parents(graph: nx.Graph, home: int) -> list[int]:
    """By broker, the one that it gets the publisher's events from; the home broker's own is itself."""
    predecessors = dict(nx.bfs_predecessors(graph, home))
    return [predecessors.get(broker, broker) for broker in range(graph.number_of_nodes())]


def _departures(publisher: int, duration_s: float, generator: np.random.Generator) -> FloatArray:
    if publisher >= LOW:
        start_s = HIGH_FROM[publisher - LOW] * duration_s
        count = generator.poisson(HIGH_RATE * (duration_s - start_s))
        return np.sort(generator.uniform(start_s, duration_s, count))
    low, high = LOW_RATES
    count = generator.poisson((low + high) / 2.0 * duration_s)
    # Inverse of the integrated ramp low·t + (high - low)·t²/2T.
    mass = np.sort(generator.random(count)) * (low + high) / 2.0
    return np.asarray((np.sqrt(low**2 + 2.0 * (high - low) * mass) - low) / (high - low) * duration_s)


def _independent(
    departure_s: FloatArray,
    parents: IntArray,
    home: int,
    links: Links,
    generator: np.random.Generator,
) -> FloatArray:
    brokers = parents.size
    left_s = np.full((brokers, departure_s.size), np.nan)
    left_s[home] = departure_s + generator.exponential(INDEPENDENT_S, departure_s.size)
    open_ = [broker for broker in range(brokers) if broker != home]
    while open_:
        ready = [broker for broker in open_ if not np.isnan(left_s[parents[broker], :1]).any()]
        for broker in ready:
            sent_s = left_s[parents[broker]]
            came_s = sent_s + _link_s(links, int(parents[broker]), broker, sent_s)
            left_s[broker] = came_s + generator.exponential(INDEPENDENT_S, sent_s.size)
        open_ = [broker for broker in open_ if broker not in ready]
    return left_s


def _link_s(links: Links, broker: int, child: int, sent_s: FloatArray) -> FloatArray:
    swing = np.sin(2.0 * np.pi * sent_s / links.period_s[broker, child] + links.phase[broker, child])
    return np.asarray(LINK_S + links.jitter_s * swing)


def _with_stalls(
    departures: tuple[FloatArray, ...],
    parents: IntArray,
    homes: IntArray,
    links: Links,
    duration_s: float,
    generator: np.random.Generator,
) -> tuple[FloatArray, ...]:
    brokers = parents.shape[1]
    counts = np.array([d.size for d in departures])
    publisher = np.repeat(np.arange(counts.size), counts)
    departure_s = np.concatenate(departures)
    order = np.argsort(departure_s, kind="stable")
    stalls = int(duration_s / STALL_EVERY_S * 2.0) + 100
    begin_s = np.cumsum(generator.exponential(STALL_EVERY_S, (brokers, stalls)) + STALL_S, axis=1) - STALL_S
    children, child_starts = _children(parents)
    left_s = np.empty((brokers, departure_s.size))
    service_s = generator.exponential(SERVICE_S, (brokers, departure_s.size))
    _run_stalls(departure_s, order, publisher, homes, children, child_starts, links, begin_s, service_s, left_s)
    starts = np.concatenate(([0], np.cumsum(counts)))
    return tuple(left_s[:, starts[p] : starts[p + 1]] for p in range(counts.size))


def _children(parents: IntArray) -> tuple[IntArray, IntArray]:
    """By publisher and broker, whom it forwards to, end to end, and where each list starts."""
    publishers, brokers = parents.shape
    flat: list[int] = []
    starts = [0]
    for publisher in range(publishers):
        for broker in range(brokers):
            flat += [b for b in range(brokers) if b != broker and parents[publisher, b] == broker]
            starts.append(len(flat))
    return np.array(flat, np.int64), np.array(starts, np.int64)


@compiled
def _run_stalls(
    departure_s: FloatArray,
    order: IntArray,
    publisher: IntArray,
    homes: IntArray,
    children: IntArray,
    child_starts: IntArray,
    links: Links,
    begin_s: FloatArray,
    service_s: FloatArray,
    left_s: FloatArray,
) -> None:
    """Every event through every broker, in the order of arrival there."""
    brokers = len(begin_s)
    free_s = np.zeros((brokers, THREADS))
    stall = np.zeros(brokers, np.int64)
    coming = [(departure_s[order[0]], np.int64(homes[publisher[order[0]]]), np.int64(order[0]))]
    published = 1
    while coming:
        now, broker, event = heapq.heappop(coming)
        if published < len(order) and broker == homes[publisher[event]]:
            following = order[published]
            published += 1
            heapq.heappush(coming, (departure_s[following], np.int64(homes[publisher[following]]), following))
        thread = np.argmin(free_s[broker])
        begun = max(now, free_s[broker, thread])
        current = stall[broker]
        while begin_s[broker, current] + STALL_S <= begun:
            current += 1
        stall[broker] = current  # not further: another may still arrive during this one
        if begun >= begin_s[broker, current]:
            begun = begin_s[broker, current] + STALL_S
            current += 1
        done = begun + service_s[broker, event]
        if done > begin_s[broker, current]:  # a stall begins before it is done
            done += STALL_S
        free_s[broker, thread] = done
        left_s[broker, event] = done
        place = publisher[event] * brokers + broker
        for index in range(child_starts[place], child_starts[place + 1]):
            child = children[index]
            swing = math.sin(2.0 * math.pi * done / links.period_s[broker, child] + links.phase[broker, child])
            heapq.heappush(coming, (done + LINK_S + links.jitter_s * swing, child, event))


def _to_ns(seconds: FloatArray) -> IntArray:
    return np.rint(seconds * 1e9).astype(np.int64)
