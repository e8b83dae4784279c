"""What one scheduling decision costs, by strategy and by how much waits.

1. Depth: a push and a pop of the live broker's queue with 1, 1,000 and 10,000 events waiting, in µs of processor time,
   beside a push and a pop of `heapq` with as many entries: no queue that decides anything can cost less. Loads:

   - `priced`: every event has another price, deadlines are far away;
   - `equal`: every event pays the same, so that all of them tie;
   - `urgent`: every success is falling at every moment (a spread of 100 ms, deadlines within 1 s), and what becomes
     hopeless is deleted. Nothing that was computed at the last decision is exact at the next.

2. Full: a push onto a queue that is full, so that one event is dropped; and what deleting an expired event costs.
3. Order: the same as `priced`, of events that nobody wants in order (`free`), of one publisher's (`one`) and of fifty
   publishers' (`fifty`) for who wants order.
4. Congestion, as in paper C, on one link: events of 50 kB with one to eight subscriptions behind the link, deadlines of
   10, 30 and 60 s at prices 3, 2 and 1, against the plain twin that computes everything. Both must send the same.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from tests.scheduling.twins import PlainQueue

from tidings.scheduling import OutputQueue, Strategy, Waiting, queue_for

DEPTHS = (1, 1_000, 10_000)
STRATEGIES = (
    Strategy.fifo(),
    Strategy.rl(),
    Strategy.eb(),
    Strategy.pc(),
    Strategy.ebpc(0.6),
    Strategy.lookahead(),
    Strategy.plan(),
    Strategy.triage(),
)
LOADS = ("priced", "equal", "urgent")
TURNS = 1_000
ROUNDS = 4
STEP_S = 0.00005
LIMIT_US = 10.0
CONGESTED = (20, 60, 200)
CONGESTED_TURNS = 300
TURN_S = 3.75
PROCESSING_S = 0.002
SEED = 20


def waitings(load: str, events: int, *, publishers: int = 0) -> Iterator[Waiting[int]]:
    """Events of a load; those of publishers, if there are any, must leave in sequence."""
    generator = np.random.default_rng(SEED)
    for event in range(events):
        allowed_s, price = generator.uniform(1e3, 1e4, size=2)
        yield Waiting.of(
            event,
            published_s=0.0,
            size_kb=1.0,
            allowed_s=float(allowed_s) / 1e4 if load == "urgent" else float(allowed_s),
            nodes=1,
            mean_s_per_kb=0.0001,
            sd_s_per_kb=0.1 if load == "urgent" else 0.00002,
            price=1.0 if load == "equal" else float(price),
            chain=event % publishers if publishers else None,
            place=event,
        )


def cost_us(work: Callable[[], float]) -> float:
    """The least of some rounds, in µs for each turn."""
    return min(work() for _ in range(ROUNDS)) / TURNS * 1e6


def queue_s(strategy: Strategy, load: str, depth: int, publishers: int = 0) -> float:
    """Seconds for all turns."""
    events = list(waitings(load, depth + TURNS, publishers=publishers))
    queue: OutputQueue[int] = queue_for(strategy, turn_s=0.0001)
    for waiting in events[:depth]:
        queue.push(waiting, 0.0)
    queue.pop(0.0)
    now_s, began = 0.0, time.process_time()
    for waiting in events[depth:]:
        now_s += STEP_S
        queue.push(waiting, now_s)
        queue.pop(now_s)
    return time.process_time() - began


def heap_s(depth: int) -> float:
    generator = np.random.default_rng(SEED)
    entries = [(float(key), number) for number, key in enumerate(generator.uniform(size=depth + TURNS))]
    heap = entries[:depth]
    heapq.heapify(heap)
    began = time.process_time()
    for entry in entries[depth:]:
        heapq.heappush(heap, entry)
        heapq.heappop(heap)
    return time.process_time() - began


def full_s(strategy: Strategy, depth: int) -> float:
    events = list(waitings("priced", depth + TURNS))
    queue: OutputQueue[int] = queue_for(strategy, turn_s=0.0001, max_queued=depth)
    for waiting in events[:depth]:
        queue.push(waiting, 0.0)
    now_s, began = 0.0, time.process_time()
    for waiting in events[depth:]:
        now_s += STEP_S
        assert queue.push(waiting, now_s)
    return time.process_time() - began


def expired_us(strategy: Strategy, depth: int) -> float:
    """µs for each event that is deleted, a hundredth of them at a time."""
    queue: OutputQueue[int] = queue_for(strategy, turn_s=0.0001)
    for waiting in waitings("urgent", depth):
        queue.push(waiting, 0.0)
    deleted = 0
    began = time.process_time()
    for number in range(1, 101):
        deleted += len(queue.pop(number * 0.01)[1])
    return (time.process_time() - began) / max(deleted, 1) * 1e6


def print_depth() -> None:
    floor_us = [cost_us(partial(heap_s, depth)) for depth in DEPTHS]
    print("Depth: µs of processor time for a push and a pop; how many times that of heapq; what is above the limit")
    print(f"{'strategy':10} {'load':8}" + "".join(f" {depth:>9,}" for depth in DEPTHS) + "   /heapq")
    print(f"{'heapq':10} {'':8}" + "".join(f" {each:9.2f}" for each in floor_us))
    for strategy, load in itertools.product(STRATEGIES, LOADS):
        cost = [cost_us(partial(queue_s, strategy, load, depth)) for depth in DEPTHS]
        note = "" if cost[-1] <= LIMIT_US else f"   {cost[-1] / LIMIT_US:.1f} x the limit"
        cells = "".join(f" {each:9.2f}" for each in cost)
        print(f"{strategy.name:10} {load:8}{cells} {cost[-1] / floor_us[-1]:8.1f}{note}", flush=True)


def print_full() -> None:
    print("Full: µs for a push that drops one, and for each event that expires")
    print(f"{'strategy':10}" + "".join(f" {depth:>9,}" for depth in DEPTHS[1:]) + "    expired" + f" {DEPTHS[-1]:>9,}")
    for strategy in STRATEGIES:
        cost = [cost_us(partial(full_s, strategy, depth)) for depth in DEPTHS[1:]]
        cells = "".join(f" {each:9.2f}" for each in cost)
        print(f"{strategy.name:10}{cells} {'':10} {expired_us(strategy, DEPTHS[-1]):9.2f}", flush=True)


def print_order() -> None:
    print("Order: µs for a push and a pop, and how many times what is free takes")
    print(f"{'strategy':10} {'queued':>6} {'free':>9} {'one':>9} {'fifty':>9}   one/free fifty/free")
    for strategy in (Strategy.fifo(), Strategy.eb(), Strategy.lookahead(), Strategy.triage()):
        for depth in DEPTHS:
            free, one, fifty = (
                cost_us(partial(queue_s, strategy, "priced", depth, publishers)) for publishers in (0, 1, 50)
            )
            ratios = f"{one / free:8.2f} {fifty / free:10.2f}"
            print(f"{strategy.name:10} {depth:6} {free:9.2f} {one:9.2f} {fifty:9.2f}   {ratios}", flush=True)


def congested(length: int) -> list[Waiting[int]]:
    """Events at such a rate that about `length` of them are worth keeping at any time."""
    generator = np.random.default_rng(SEED)
    events = []
    for event in range(4 * CONGESTED_TURNS + length):
        count = int(generator.integers(1, 9))
        deadline, hops = generator.integers(3, size=count), generator.integers(1, 4, size=count)
        events.append(
            Waiting.of(
                event,
                published_s=event * 30.0 / length,
                size_kb=50.0,
                allowed_s=np.array([10.0, 30.0, 60.0])[deadline],
                price=np.array([3.0, 2.0, 1.0])[deadline],
                nodes=hops,
                mean_s_per_kb=hops * generator.uniform(0.05, 0.1, size=count),
                sd_s_per_kb=0.02 * np.sqrt(hops),
            )
        )
    return events


def congested_us(
    queue: OutputQueue[int], events: list[Waiting[int]], length: int, turns: int
) -> tuple[list[int], float]:
    """What was sent, and µs for each decision: what is due leaves, one is sent, and new events take their places."""
    came, sent = 0, []
    began = time.process_time()
    for _ in range(turns):
        while len(queue) < length and came < len(events):
            queue.push(events[came], came * 30.0 / length)
            came += 1
        first, _ = queue.pop(came * 30.0 / length)
        sent.append(-1 if first is None else first.event)
    return sent, (time.process_time() - began) / turns * 1e6


def print_congestion() -> None:
    print("Congestion: µs for each decision with all that it deletes and lets in, beside the plain twin")
    print(f"{'strategy':10} {'queued':>6} {'queue':>9} {'plain':>10}   plain/queue")
    figures: Any = {"turn_s": TURN_S, "processing_s": PROCESSING_S}
    for strategy, length in itertools.product(STRATEGIES, CONGESTED):
        events, few = congested(length), max(10, CONGESTED_TURNS * 4 // length)
        sent, _ = congested_us(queue_for(strategy, **figures), events, length, CONGESTED_TURNS)
        _, cost = congested_us(queue_for(strategy, **figures), events, length, CONGESTED_TURNS)
        plain, plain_cost = congested_us(PlainQueue(strategy, **figures), events, length, few)
        if sent[:few] != plain:
            raise AssertionError(f"{strategy.name} at {length}: the decisions differ")
        print(f"{strategy.name:10} {length:6} {cost:9.2f} {plain_cost:10.1f} {plain_cost / cost:8.0f}", flush=True)


def main() -> None:
    print_depth()
    print_full()
    print_order()
    print_congestion()


if __name__ == "__main__":
    main()
