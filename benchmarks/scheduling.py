"""What one scheduling decision costs, by strategy and queue length, against the plain twin that computes everything.

The load is paper C's, on one congested link: events of 50 kB with one to eight subscriptions behind the link, up to
three hops away, subscriber deadlines of 10, 30 and 60 s at prices 3, 2 and 1. The queue is kept at its length: every
decision sends one event, deletes what is due (at congestion more than is sent), and new events take their places, at
the cost of the decision. Each row is measured in the same run:

- `scan`, `heap`: the compiled decision inside a compiled loop, as the simulator calls it;
- `queue`: the live broker's queue, `pop` and `push` from Python;
- `plain`: the twin, in Python, also `pop` and `push`; the ratios say how many times it takes.

Then what order costs: a push and a pop of the live broker's queue at a depth, of events that nobody wants in order
(`free`), of one publisher's (`one`) and of fifty publishers' (`fifty`) for who wants order. Deadlines are far away, so
that the queue keeps its depth; worths differ, so that hardly ever the first of a chain is chosen.
"""

import math
import time
from typing import NamedTuple

import numpy as np

from tidings.compiled import compiled
from tidings.scheduling import (
    NORMAL_TABLE,
    OutputQueue,
    Pairs,
    Paths,
    PlainQueue,
    Slots,
    Strategy,
    Waiting,
    decide,
    empty_slots,
    fill_slot,
    heap_choose,
    heap_purge,
    heap_push,
    heap_take,
    queue_for,
    take,
)

LENGTHS = (20, 60, 200)
DEPTHS = (1, 1_000, 10_000)
ORDERED = (Strategy.fifo(), Strategy.eb(), Strategy.lookahead(), Strategy.triage())
ORDERED_TURNS = 1_000
ORDERED_ROUNDS = 6
STRATEGIES = (
    Strategy.fifo(),
    Strategy.rl(),
    Strategy.eb(),
    Strategy.pc(),
    Strategy.ebpc(0.6),
    Strategy.lookahead(),
    Strategy.plan(),
)
COMPILED_DECISIONS = 20_000
LIVE_DECISIONS = 2_000
PLAIN_EVENTS = 1_200
REPEATS = 3
SIZE_KB = 50.0
TURN_S = 3.75
PROCESSING_S = 0.002
SUBSCRIPTIONS = 40
SEED = 20
HEAPED = ("rl", "eb")


class Load(NamedTuple):
    """Events in the order in which they come, enough for the decisions asked for."""

    slots: Slots
    pairs: Pairs
    paths: Paths
    interval_s: float


def make_load(strategy: Strategy, length: int, events: int) -> Load:
    """Events at such a rate that about `length` of them are worth keeping at any time."""
    generator = np.random.default_rng(SEED)
    deadline = generator.integers(3, size=SUBSCRIPTIONS)
    hops = generator.integers(1, 4, size=SUBSCRIPTIONS)
    paths = Paths(
        price=np.array([3.0, 2.0, 1.0])[deadline],
        nodes=hops.astype(np.float64),
        mean_s_per_kb=hops * generator.uniform(0.05, 0.1, size=SUBSCRIPTIONS),
        sd_s_per_kb=0.02 * np.sqrt(hops),
    )
    counts = generator.integers(1, 9, size=events)
    stops = np.cumsum(counts)
    target = generator.integers(SUBSCRIPTIONS, size=int(stops[-1]))
    pairs = Pairs(target=target, allowed_s=np.array([10.0, 30.0, 60.0])[deadline[target]])
    interval_s = 30.0 / length
    slots = empty_slots(events)
    for event in range(events):
        start, stop = int(stops[event] - counts[event]), int(stops[event])
        published_s = event * interval_s
        fill_slot(event, published_s, SIZE_KB, start, stop, event, strategy.quantile, slots, pairs, paths, PROCESSING_S)
    return Load(slots, pairs, paths, interval_s)


@compiled
def scan_decisions(
    code: int, r: float, postponed_s: float, length: int, decisions: int, load: Load, table: np.ndarray
) -> tuple[int, int]:
    """Run the decisions; returns the sum of what was sent (a check) and how many events came."""
    slots, pairs, paths, interval_s = load
    events = len(slots.start)
    queue = np.empty(length, np.int64)
    deleted = np.empty(length, np.int64)
    came = count = checksum = 0
    for _ in range(decisions):
        while count < length and came < events:
            queue[count] = came
            count += 1
            came += 1
        now_s = came * interval_s
        position, count, _ = decide(
            code, r, now_s, postponed_s, queue, count, slots, pairs, paths, PROCESSING_S, table, deleted
        )
        if position >= 0:
            checksum += take(queue, count, position)
            count -= 1
    return checksum, came


@compiled
def heap_decisions(code: int, length: int, decisions: int, load: Load, table: np.ndarray) -> tuple[int, int]:
    """As `scan_decisions`, by the lazy heap."""
    slots, pairs, paths, interval_s = load
    events = len(slots.start)
    delete_s = slots.delete_s
    heap = np.empty(length, np.int64)
    deleted = np.empty(length, np.int64)
    soonest_s = math.inf
    came = count = checksum = 0
    for _ in range(decisions):
        while count < length and came < events:
            heap_push(heap, count, came, slots)
            soonest_s = min(soonest_s, delete_s[came])
            count += 1
            came += 1
        now_s = came * interval_s
        if now_s >= soonest_s:
            count, _, soonest_s = heap_purge(now_s, heap, count, slots, deleted)
        position = heap_choose(code, now_s, heap, count, slots, pairs, paths, PROCESSING_S, table)
        if position >= 0:
            checksum += heap_take(heap, count, position, slots)
            count -= 1
    return checksum, came


def queue_decisions(queue: OutputQueue[int], length: int, decisions: int, load: Load) -> tuple[int, int, float]:
    """The same from Python: the checksum, the events that came, and the seconds that it took."""
    waitings = [_waiting(load, event) for event in range(len(load.slots.start))]
    came = checksum = 0
    began = time.perf_counter()
    for _ in range(decisions):
        while len(queue) < length and came < len(waitings):
            queue.push(waitings[came], came * load.interval_s)
            came += 1
        sent, _ = queue.pop(came * load.interval_s)
        checksum += 0 if sent is None else sent.event
    return checksum, came, time.perf_counter() - began


def _waiting(load: Load, event: int) -> Waiting[int]:
    where = slice(load.slots.start[event], load.slots.stop[event])
    target = load.pairs.target[where]
    return Waiting.of(
        event,
        published_s=float(load.slots.published_s[event]),
        size_kb=SIZE_KB,
        allowed_s=load.pairs.allowed_s[where],
        price=load.paths.price[target],
        nodes=load.paths.nodes[target],
        mean_s_per_kb=load.paths.mean_s_per_kb[target],
        sd_s_per_kb=load.paths.sd_s_per_kb[target],
    )


def measure(strategy: Strategy, length: int) -> dict[str, float]:
    """Microseconds per decision, by who decides; all must agree on what is sent."""
    few = max(10, PLAIN_EVENTS // length)
    cost_us = {}
    checks = {}
    compiled_names = ("scan", "heap") if strategy.name in HEAPED else ("scan",)
    for name in compiled_names:
        checks[name], _ = _timed(name, strategy, length, few)  # compiles
        cost_us[name] = min(_timed(name, strategy, length, COMPILED_DECISIONS)[1] for _ in range(REPEATS))
    checks["queue"], _ = _timed("queue", strategy, length, few)
    cost_us["queue"] = _timed("queue", strategy, length, LIVE_DECISIONS)[1]
    checks["plain"], cost_us["plain"] = _timed("plain", strategy, length, few)
    if len(set(checks.values())) > 1:
        raise AssertionError(f"{strategy.name} at {length}: the decisions differ: {checks}")
    return cost_us


def _timed(name: str, strategy: Strategy, length: int, decisions: int) -> tuple[tuple[int, int], float]:
    """What was sent (a checksum, and how many events came), and the microseconds per decision."""
    load = make_load(strategy, length, decisions * 4 + length)
    if name in ("queue", "plain"):
        queue: OutputQueue[int] = PlainQueue(strategy, turn_s=TURN_S, processing_s=PROCESSING_S)
        if name == "queue":
            queue = queue_for(strategy, turn_s=TURN_S, processing_s=PROCESSING_S)
        checksum, came, seconds = queue_decisions(queue, length, decisions, load)
        return (checksum, came), seconds / decisions * 1e6
    began = time.perf_counter()
    if name == "heap":
        check = heap_decisions(strategy.code, length, decisions, load, NORMAL_TABLE)
    else:
        postponed_s = strategy.postponed_s(TURN_S)
        check = scan_decisions(strategy.code, strategy.r, postponed_s, length, decisions, load, NORMAL_TABLE)
    return check, (time.perf_counter() - began) / decisions * 1e6


def measure_order(strategy: Strategy, depth: int) -> dict[str, float]:
    """Microseconds for a push and a pop, by whose events must leave in sequence."""
    kinds = {"free": 0, "one": 1, "fifty": 50}
    rounds = [{name: _timed_order(strategy, depth, kinds[name]) for name in kinds} for _ in range(ORDERED_ROUNDS)]
    return {name: min(each[name] for each in rounds) / ORDERED_TURNS * 1e6 for name in kinds}


def _timed_order(strategy: Strategy, depth: int, publishers: int) -> float:
    generator = np.random.default_rng(SEED)
    waitings = [
        Waiting.of(
            event,
            published_s=0.0,
            size_kb=1.0,
            allowed_s=float(allowed_s),
            nodes=1,
            mean_s_per_kb=0.0001,
            sd_s_per_kb=0.00002,
            price=float(price),
            chain=event % publishers if publishers else None,
            place=event,
        )
        for event, (allowed_s, price) in enumerate(generator.uniform(1e3, 1e4, size=(depth + ORDERED_TURNS, 2)))
    ]
    queue: OutputQueue[int] = queue_for(strategy, turn_s=0.0001)
    for waiting in waitings[: depth - 1]:
        queue.push(waiting, 0.0)
    queue.push(waitings[depth - 1], 0.0)
    queue.pop(0.0)
    began = time.process_time()
    for waiting in waitings[depth:]:
        queue.push(waiting, 0.0)
        queue.pop(0.0)
    return time.process_time() - began


def print_order() -> None:
    print("Order: microseconds of processor time for a push and a pop, and how many times what is free takes")
    print(f"{'strategy':10} {'queued':>6} {'free':>9} {'one':>9} {'fifty':>9}   one/free fifty/free")
    for strategy in ORDERED:
        for depth in DEPTHS:
            cost = measure_order(strategy, depth)
            cells = " ".join(f"{cost[name]:9.2f}" for name in cost)
            ratios = f"{cost['one'] / cost['free']:8.2f} {cost['fifty'] / cost['free']:10.2f}"
            print(f"{strategy.name:10} {depth:6} {cells}   {ratios}", flush=True)


def main() -> None:
    print("Scheduling: microseconds per decision, and how many times that the plain twin takes")
    print(f"{'strategy':10} {'queued':>6} {'scan':>9} {'heap':>9} {'queue':>9} {'plain':>10}   plain/scan /heap /queue")
    for strategy in STRATEGIES:
        for length in LENGTHS:
            cost = measure(strategy, length)
            cells = [f"{cost[name]:9.2f}" if name in cost else f"{'':9}" for name in ("scan", "heap", "queue")]
            ratios = [
                f"{cost['plain'] / cost[name]:6.0f}" if name in cost else f"{'':6}"
                for name in ("scan", "heap", "queue")
            ]
            print(
                f"{strategy.name:10} {length:6} {' '.join(cells)} {cost['plain']:10.1f}   {' '.join(ratios)}",
                flush=True,
            )
    print_order()


if __name__ == "__main__":
    main()
