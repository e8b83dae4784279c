"""Random congestion on one link: what queues, twins and kernels are all put through."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidings.scheduling import OutputQueue, Waiting

Choice = tuple[int | None, tuple[tuple[int, str], ...]]


def random_waiting(generator: np.random.Generator, event: int, now_s: float) -> Waiting[int]:
    """An event with up to six subscriptions: deadlines tight, loose and absent, paths with spread and without."""
    count = int(generator.integers(0, 7))
    return Waiting.of(
        event,
        published_s=now_s - float(generator.exponential(2.0)),
        size_kb=float(generator.choice([0.0, 20.0, 50.0], p=[0.02, 0.49, 0.49])),
        allowed_s=generator.choice([10.0, 20.0, 30.0, 60.0, np.inf], p=[0.3, 0.3, 0.2, 0.19, 0.01], size=count),
        nodes=generator.integers(1, 4, size=count),
        mean_s_per_kb=generator.uniform(0.05, 0.3, size=count),
        sd_s_per_kb=generator.choice([0.0, 0.02, 0.04], size=count),
        price=generator.choice([0.0, 1.0, 2.0, 3.0], p=[0.05, 0.35, 0.3, 0.3], size=count),
    )


def saturated_waiting(generator: np.random.Generator, event: int, now_s: float) -> Waiting[int]:
    """An event whose success is close to 1 everywhere, so that worths tie, or nearly do."""
    count = int(generator.integers(1, 4))
    return Waiting.of(
        event,
        published_s=now_s,
        size_kb=50.0,
        allowed_s=generator.choice([25.0, 40.0, 60.0], size=count),
        nodes=1,
        mean_s_per_kb=0.05,
        sd_s_per_kb=generator.choice([0.04, 0.06], size=count),
    )


def play(
    queue: OutputQueue[int],
    seed: int,
    *,
    events: int = 300,
    depth: int = 40,
    make: Callable[[np.random.Generator, int, float], Waiting[int]] = random_waiting,
) -> list[Choice]:
    """Push and pop at random times; returns what was sent and what was deleted, and why, at each decision."""
    generator = np.random.default_rng(seed)
    now_s = 0.0
    choices: list[Choice] = []
    for event in range(events):
        now_s += float(generator.exponential(1.0))
        queue.push(make(generator, event, now_s), now_s)
        if len(queue) > depth or generator.random() < 0.5:
            sent, deleted = queue.pop(now_s)
            gone = tuple((entry.waiting.event, entry.reason) for entry in deleted)
            choices.append((None if sent is None else sent.event, gone))
    return choices


@pytest.fixture(name="play")
def play_fixture() -> Callable[..., list[Choice]]:
    return play


@pytest.fixture(params=[random_waiting, saturated_waiting], ids=["congested", "saturated"])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param
