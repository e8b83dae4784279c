"""The compiled decisions, called as a simulation loop calls them: slots of many links in shared arrays."""

from typing import Any

import numpy as np
import pytest

from tidings.scheduling import (
    NORMAL_TABLE,
    Pairs,
    Paths,
    PlainQueue,
    Strategy,
    Waiting,
    decide,
    empty_slots,
    fill_slot,
    forget,
    heap_choose,
    heap_purge,
    heap_push,
    heap_take,
    take,
)

PROCESSING_S = 0.002
TURN_S = 3.0
EVENTS = 400
ALL = [
    Strategy.fifo(),
    Strategy.rl(),
    Strategy.eb(),
    Strategy.pc(),
    Strategy.ebpc(0.3),
    Strategy.lookahead(),
    Strategy.plan(),
    Strategy.triage(),
]


class Shared:
    """One set of subscriptions, events with pairs of their own, in the arrays that kernels take."""

    def __init__(self, strategy: Strategy, seed: int) -> None:
        generator = np.random.default_rng(seed)
        hops = generator.integers(1, 4, 12)
        self.paths = Paths(
            price=generator.choice([1.0, 2.0, 3.0], 12),
            nodes=hops.astype(np.float64),
            mean_s_per_kb=0.08 * hops,
            sd_s_per_kb=0.02 * np.sqrt(hops),
        )
        counts = generator.integers(1, 7, EVENTS)
        stops = np.cumsum(counts)
        self.pairs = Pairs(
            target=generator.integers(12, size=stops[-1]),
            allowed_s=generator.choice([10.0, 30.0, 60.0], stops[-1]),
        )
        self.slots = empty_slots(EVENTS)
        for event in range(EVENTS):
            bounds = int(stops[event] - counts[event]), int(stops[event])
            fill_slot(
                event,
                event * 0.7,
                50.0,
                *bounds,
                event,
                strategy.quantile,
                self.slots,
                self.pairs,
                self.paths,
                PROCESSING_S,
            )

    def waiting(self, event: int) -> Waiting[int]:
        where = slice(self.slots.start[event], self.slots.stop[event])
        target = self.pairs.target[where]
        price, nodes, mean, sd = (figure[target] for figure in self.paths)
        return Waiting.of(
            event,
            published_s=float(self.slots.published_s[event]),
            size_kb=50.0,
            allowed_s=self.pairs.allowed_s[where],
            nodes=nodes,
            mean_s_per_kb=mean,
            sd_s_per_kb=sd,
            price=price,
        )


def by_scan(shared: Shared, strategy: Strategy, queue: Any, count: int, now_s: float) -> tuple[int, int, set[int]]:
    deleted = np.empty(len(queue), np.int64)
    position, count, removed = decide(
        strategy.code,
        strategy.r,
        now_s,
        strategy.postponed_s(TURN_S),
        queue,
        count,
        shared.slots,
        shared.pairs,
        shared.paths,
        PROCESSING_S,
        NORMAL_TABLE,
        deleted,
    )
    gone = set(deleted[:removed].tolist())
    if position < 0:
        return -1, count, gone
    return take(queue, count, position), count - 1, gone


def by_heap(shared: Shared, strategy: Strategy, heap: Any, count: int, now_s: float) -> tuple[int, int, set[int]]:
    deleted = np.empty(len(heap), np.int64)
    count, removed, soonest_s = heap_purge(now_s, heap, count, shared.slots, deleted)
    assert soonest_s > now_s
    gone = set(deleted[:removed].tolist())
    position = heap_choose(
        strategy.code,
        now_s,
        heap,
        count,
        shared.slots,
        shared.pairs,
        shared.paths,
        PROCESSING_S,
        NORMAL_TABLE,
    )
    if position < 0:
        return -1, count, gone
    return heap_take(heap, count, position, shared.slots), count - 1, gone


@pytest.mark.parametrize("strategy", ALL, ids=[strategy.name for strategy in ALL])
@pytest.mark.parametrize("links", [1, 3])
def test_against_the_plain_twin(strategy: Strategy, links: int) -> None:
    shared = Shared(strategy, seed=links)
    heaped = strategy.name in ("rl", "eb")
    heap_shared = Shared(strategy, seed=links)
    queues = [np.empty(EVENTS, np.int64) for _ in range(links)]
    heaps = [np.empty(EVENTS, np.int64) for _ in range(links)]
    counts, heap_counts = [0] * links, [0] * links
    plain: list[PlainQueue[int]] = [PlainQueue(strategy, turn_s=TURN_S, processing_s=PROCESSING_S) for _ in queues]
    sent_count = 0
    for event in range(EVENTS):
        link, now_s = event % links, event * 0.7
        plain[link].push(shared.waiting(event), now_s)
        queues[link][counts[link]] = event
        counts[link] += 1
        heap_push(heaps[link], heap_counts[link], event, heap_shared.slots)
        heap_counts[link] += 1
        if event % 4 != 3:
            continue
        for number in range(links):
            sent, deleted = plain[number].pop(now_s)
            expected = -1 if sent is None else sent.event, {entry.waiting.event for entry in deleted}
            got, counts[number], gone = by_scan(shared, strategy, queues[number], counts[number], now_s)
            assert (got, gone) == expected
            assert counts[number] == len(plain[number])
            if heaped:
                got, heap_counts[number], gone = by_heap(
                    heap_shared, strategy, heaps[number], heap_counts[number], now_s
                )
                assert (got, gone) == expected
            sent_count += sent is not None
    assert sent_count > 50


@pytest.mark.parametrize("strategy", ALL, ids=[strategy.name for strategy in ALL])
def test_nothing_waits(strategy: Strategy) -> None:
    shared = Shared(strategy, seed=0)
    assert by_scan(shared, strategy, np.empty(4, np.int64), 0, 0.0) == (-1, 0, set())


def test_new_path_figures_count_once_what_was_known_is_forgotten() -> None:
    strategy = Strategy.eb()
    shared = Shared(strategy, seed=8)
    queue = np.arange(6)
    first, count, _ = by_scan(shared, strategy, queue, 6, 5.0)
    assert first >= 0
    shared.paths.price[:] *= np.linspace(1.0, 40.0, 12)
    forget(queue, count, shared.slots.known)
    plain: PlainQueue[int] = PlainQueue(strategy, turn_s=TURN_S, processing_s=PROCESSING_S)
    for event in queue[:count].tolist():
        plain.push(shared.waiting(event), 5.0)
    sent, _ = plain.pop(5.0)
    assert sent is not None
    assert by_scan(shared, strategy, queue, count, 5.0)[0] == sent.event
