from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.scan import ScanQueue
from tests.scheduling.twins import PlainQueue, plain_benefit

from tidings.scheduling import TIE, LinkQueue, OutputQueue, Strategy, Waiting

TURN_S = 3.75


def random_events(seed: int, count: int) -> list[Waiting[int]]:
    generator = np.random.default_rng(seed)
    return [
        Waiting.of(
            number,
            published_s=-float(generator.exponential(4.0)),
            size_kb=50.0,
            allowed_s=generator.uniform(5.0, 30.0, 3),
            nodes=1,
            mean_s_per_kb=generator.uniform(0.05, 0.2, 3),
            sd_s_per_kb=0.02,
            price=generator.choice([1.0, 2.0, 3.0], 3),
        )
        for number in range(count)
    ]


def best_plan_by_trying_all(events: list[Waiting[int]], r: float) -> int:
    """Every way to give four turns an event each; the earliest event that a best way sends first."""
    worth = [[plain_benefit(e, 0.0, extra_s=k * TURN_S, processing_s=0.0) for k in range(4)] for e in events]
    best: dict[int, float] = {}
    for plan in permutations(range(len(events)), min(4, len(events))):
        total = sum(worth[number][turn] * (1.0 - r if turn else 1.0) for turn, number in enumerate(plan))
        best[plan[0]] = max(best.get(plan[0], 0.0), total)
    most = max(best.values())
    return min(number for number, total in best.items() if total >= most - TIE)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(1, 7), st.sampled_from([0.0, 0.3, 0.7]))
def test_against_trying_all_plans(seed: int, count: int, r: float) -> None:
    events = random_events(seed, count)
    # Nothing is deleted, so that the choice alone is compared.
    strategy = Strategy.plan(r=r, turns=1.0, epsilon=0.0)
    queues: list[OutputQueue[int]] = [kind(strategy, turn_s=TURN_S) for kind in (LinkQueue, ScanQueue, PlainQueue)]
    alive = [event for event in events if event.published_s + event.rows[0].max() > 0.0]
    for queue in queues:
        for event in events:
            queue.push(event, 0.0)
        sent, _ = queue.pop(0.0)
        if alive:
            assert sent is alive[best_plan_by_trying_all(alive, r)]
        else:
            assert sent is None


def waiting(event: str, allowed_s: float, price: float) -> Waiting[str]:
    figures: Any = {"nodes": 1, "mean_s_per_kb": 0.075, "sd_s_per_kb": 0.02}
    return Waiting.of(event, published_s=0.0, size_kb=50.0, allowed_s=allowed_s, price=price, **figures)


def test_what_can_wait_lets_the_urgent_go_first() -> None:
    queue: OutputQueue[str] = LinkQueue(Strategy.plan(r=0.0, turns=1.0, epsilon=0.0005), turn_s=TURN_S)
    greedy: OutputQueue[str] = LinkQueue(Strategy.eb(), turn_s=TURN_S)
    for either in (queue, greedy):
        either.push(waiting("dear, can wait three turns", 60.0, 3.0), 0.0)
        either.push(waiting("cheap, now or never", 6.0, 1.0), 0.0)
        either.push(waiting("middling, next turn at the latest", 10.0, 2.0), 0.0)
    orders = []
    for either in (queue, greedy):
        popped = [either.pop(turn * TURN_S)[0] for turn in range(3)]
        orders.append([sent.event.split(",")[0] for sent in popped if sent is not None])
    assert orders == [["cheap", "middling", "dear"], ["dear", "middling"]]


def test_at_full_weight_of_now_a_plan_is_eb(play: Any) -> None:
    plan = LinkQueue(Strategy.plan(r=1.0, epsilon=0.0005), turn_s=TURN_S)
    assert play(plan, 4) == play(LinkQueue(Strategy.eb(), turn_s=TURN_S), 4)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_at_full_weight_of_later_what_can_wait_is_first_in_first_out(count: int) -> None:
    queue: OutputQueue[str] = LinkQueue(Strategy.plan(r=0.0, turns=1.0), turn_s=TURN_S)
    for number in range(count):
        queue.push(waiting(f"e{number}", 60.0, float(number)), 0.0)
    order = [queue.pop(turn * TURN_S)[0].event for turn in range(count)]  # type: ignore[union-attr]
    assert order == [f"e{number}" for number in range(count)]
