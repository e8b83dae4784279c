"""A deep queue: the same choices as the linear scan, and few events looked at for each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.conftest import random_waiting, saturated_waiting
from tests.scheduling.scan import ScanQueue
from tests.scheduling.test_queues import ALL, LINK, named

from tidings.compiled import borrowing
from tidings.scheduling import LinkQueue, Strategy, Waiting
from tidings.scheduling._lane import AT
from tidings.scheduling._urgency import Urgency, empty_urgency, enter, is_time_for_all, leave, most_urgent, retime

Make = Callable[[np.random.Generator, int, float], Waiting[int]]


def wavering_waiting(generator: np.random.Generator, event: int, now_s: float) -> Waiting[int]:
    """An event of one or two subscriptions whose success falls slowly, over the whole time that it waits."""
    count = int(generator.integers(1, 3))
    return Waiting.of(
        event,
        published_s=now_s,
        size_kb=50.0,
        allowed_s=generator.uniform(5.0, 200.0, size=count),
        nodes=1,
        mean_s_per_kb=0.05,
        sd_s_per_kb=generator.choice([0.0, 0.2, 1.0], size=count),
        price=generator.uniform(0.5, 3.0, size=count),
    )


def equal_waiting(generator: np.random.Generator, event: int, now_s: float) -> Waiting[int]:
    """An event like all others but for its deadline, which is far away."""
    figures: Any = {"nodes": 1, "mean_s_per_kb": 0.05, "sd_s_per_kb": 0.01}
    return Waiting.of(event, published_s=now_s, size_kb=50.0, allowed_s=generator.uniform(1e3, 2e3), **figures)


MAKES = {
    "congested": random_waiting,
    "saturated": saturated_waiting,
    "wavering": wavering_waiting,
    "equal": equal_waiting,
}


@named(ALL)
@pytest.mark.parametrize("name", MAKES)
@given(seed=st.integers(0, 1_000_000), depth=st.sampled_from([10, 200, 900]), pace=st.sampled_from([0.0, 0.01, 0.3]))
@settings(max_examples=6, deadline=None)
def test_against_the_linear_scan(strategy: Strategy, name: str, seed: int, depth: int, pace: float) -> None:
    generator = np.random.default_rng(seed)
    turn_s = float(generator.choice([0.0, 0.001, 0.5, 3.0]))
    events = depth + 300
    queue: LinkQueue[int] = LinkQueue(strategy, turn_s=turn_s, processing_s=0.002)
    scan: ScanQueue[int] = ScanQueue(strategy, turn_s=turn_s, processing_s=0.002, events=events)
    now_s = 1_000.0
    for event in range(events):
        now_s += float(generator.exponential(pace)) if event > depth and pace else 0.0
        waiting = MAKES[name](generator, event, now_s)
        queue.push(waiting, now_s)
        scan.push(waiting, now_s)
        while len(queue) > depth or (event >= depth and generator.random() < 0.5):
            (sent, deleted), (expected, gone) = queue.pop(now_s), scan.pop(now_s)
            assert sent is expected
            assert [each.waiting for each in deleted] == [each.waiting for each in gone]
            if sent is None:
                break
    assert len(queue) == len(scan)


@named(ALL)
@pytest.mark.parametrize("name", ["equal", "priced"])
def test_a_decision_looks_at_few_of_many(strategy: Strategy, name: str) -> None:
    """By the count of worths that were computed at each of a hundred decisions, as time goes on."""
    generator = np.random.default_rng(5)
    queue: LinkQueue[int] = LinkQueue(strategy, turn_s=0.001)
    most = 0
    for event in range(4_100):
        waiting = equal_waiting(generator, event, 0.0)
        if name == "priced":
            rows = waiting.rows.copy()
            rows[1] = generator.uniform(1.0, 9.0)
            waiting = Waiting(event, 0.0, 50.0, rows)
        now_s = 1.0 + max(event - 4_000, 0) * 0.001
        queue.push(waiting, now_s)
        if event >= 4_000:
            assert queue.pop(now_s)[0] is not None
            most = max(most, int((queue._lane[0][:, AT:] == now_s).sum()))
    assert len(queue) == 4_000
    assert most <= 32


def test_a_queue_that_turns_over_stays_as_small_as_what_waits() -> None:
    queue: LinkQueue[int] = LinkQueue(Strategy.triage(), **LINK)
    generator = np.random.default_rng(3)
    first = equal_waiting(generator, -1, 0.0)
    queue.push(first, 0.0)
    for event in range(5_000):
        queue.push(wavering_waiting(generator, event, event * 0.01), event * 0.01)
        if len(queue) > 50:
            queue.pop(event * 0.01)
    assert len(queue._lane[0]) <= 256
    assert len(queue._urgency[2]) <= 256 // 32 + 4


@borrowing
def _enter(time_s: float, number: int, step_s: float, urgency: Urgency) -> None:
    enter(time_s, number, step_s, urgency)


@borrowing
def _leave(time_s: float, number: int, step_s: float, urgency: Urgency) -> None:
    leave(time_s, number, step_s, urgency)


@borrowing
def _ask(now_s: float, step_s: float, urgency: Urgency) -> tuple[bool, int]:
    return is_time_for_all(now_s, step_s, urgency), most_urgent(urgency)


@given(
    seed=st.integers(0, 1_000_000),
    step_s=st.sampled_from([0.0, 0.25, 1.0, 1.1]),
    spread=st.sampled_from([0, 3, 400, 2_000]),
    leaving=st.sampled_from([0.2, 0.5, 0.7]),
)
@settings(max_examples=60, deadline=None)
def test_time_for_all_is_as_defined(seed: int, step_s: float, spread: int, leaving: float) -> None:
    """Against a sorted list; whole times and steps, so that it is often just enough."""
    generator = np.random.default_rng(seed)
    urgency = tuple(empty_urgency(1_000))
    here: list[tuple[float, int]] = []
    now_s = 0.0
    for number in range(1_000):
        time_s = now_s + float(generator.integers(0, spread + 1)) + len(here) * step_s * float(generator.random() < 0.9)
        time_s = time_s if generator.random() < 0.9 else np.inf
        _enter(time_s, number, step_s, urgency)
        here.append((time_s, number))
        if generator.random() < leaving:
            gone = here.pop(int(generator.integers(len(here))))
            _leave(*gone, step_s, urgency)
        if number == 500:
            step_s *= 0.5
            retime(step_s, urgency)
        here.sort()
        if here:
            is_enough = step_s == 0.0 or all((time - now_s) / step_s >= k for k, (time, _) in enumerate(here, start=1))
            assert _ask(now_s, step_s, urgency) == (is_enough, here[0][1])
        now_s += float(generator.integers(0, 2))
        blocks = int(urgency[5][0])
        assert blocks <= len(here) // 32 + 1
