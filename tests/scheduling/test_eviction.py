"""What a full queue gives up: the least expected benefit, at the price of a share of the queue."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.twins import plain_benefit

from tidings.scheduling import TIE, LinkQueue, OutputQueue, Strategy, Waiting, queue_for
from tidings.scheduling._eviction import ASSESSED_S, SHARE

ALL = [
    Strategy.fifo(),
    Strategy.rl(),
    Strategy.eb(),
    Strategy.pc(),
    Strategy.lookahead(),
    Strategy.plan(),
    Strategy.triage(),
]
PROCESSING_S = 0.002
NEARLY = 2e-9  # ties, and the table of the normal distribution


def of_price(event: int, price: float, *, allowed_s: float = 60.0) -> Waiting[int]:
    return Waiting.of(
        event,
        published_s=0.0,
        size_kb=50.0,
        allowed_s=allowed_s,
        nodes=1,
        mean_s_per_kb=0.05,
        sd_s_per_kb=0.01,
        price=price,
    )


def anything(generator: np.random.Generator, event: int, now_s: float) -> Waiting[int]:
    """Up to four subscriptions: deadlines tight, loose and absent, paths with spread and without."""
    count = int(generator.integers(1, 5))
    return Waiting.of(
        event,
        published_s=now_s - float(generator.exponential(2.0)),
        size_kb=50.0,
        allowed_s=generator.choice([10.0, 20.0, 60.0, np.inf], size=count),
        nodes=generator.integers(1, 4, size=count),
        mean_s_per_kb=generator.uniform(0.05, 0.3, size=count),
        sd_s_per_kb=generator.choice([0.0, 0.02, 0.04], size=count),
        price=generator.choice([0.0, 1.0, 2.0, 3.0], size=count),
    )


def worth(waiting: Waiting[int], now_s: float) -> float:
    return plain_benefit(waiting, now_s, extra_s=0.0, processing_s=PROCESSING_S)


def full_queue(strategy: Strategy, most: int) -> OutputQueue[int]:
    return queue_for(strategy, turn_s=3.0, processing_s=PROCESSING_S, max_queued=most)


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_what_pays_least_goes_first_however_long_it_would_live(strategy: Strategy) -> None:
    queue = full_queue(strategy, 3)
    gone = []
    for event, (price, allowed_s) in enumerate([(3.0, 20.0), (1.0, math.inf), (2.0, 60.0), (2.0, 30.0), (0.5, 60.0)]):
        gone += [deleted.waiting.event for deleted in queue.push(of_price(event, price, allowed_s=allowed_s), 0.0)]
    assert gone == [1, 4]


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
@given(seed=st.integers(0, 1_000_000), most=st.integers(1, 40))
@settings(max_examples=15, deadline=None)
def test_what_is_dropped_is_never_worth_more_than_what_is_kept(strategy: Strategy, seed: int, most: int) -> None:
    generator = np.random.default_rng(seed)
    queue = full_queue(strategy, most)
    kept: dict[int, Waiting[int]] = {}
    now_s = 0.0
    for event in range(3 * most):
        now_s += float(generator.exponential(0.1))
        entry = anything(generator, event, now_s)
        kept[event] = entry
        for deleted in queue.push(entry, now_s):
            assert deleted.reason == "full"
            del kept[deleted.waiting.event]
            least = min(worth(other, now_s) for other in kept.values())
            assert worth(deleted.waiting, now_s) <= least + NEARLY
        if generator.random() < 0.2:
            sent, expired = queue.pop(now_s)
            for each in [*(one.waiting for one in expired), *([sent] if sent is not None else [])]:
                del kept[each.event]
        assert len(queue) == len(kept) <= most


@pytest.mark.parametrize("strategy", [Strategy.fifo(), Strategy.eb(), Strategy.lookahead()], ids=lambda s: s.name)
def test_a_long_queue_keeps_the_stated_bound(strategy: Strategy) -> None:
    """Nothing dropped was worth more than anything kept, by what each was worth when it was last assessed."""
    generator = np.random.default_rng(7)
    most = 3 * SHARE
    queue = full_queue(strategy, most)
    kept: dict[int, Waiting[int]] = {}
    now_s = 0.0
    for event in range(2 * most):
        now_s += 0.002
        entry = anything(generator, event, now_s)
        kept[event] = entry
        for deleted in queue.push(entry, now_s):
            del kept[deleted.waiting.event]
            # An assessment is at most so old, and worth falls with time: then, each that is kept was worth no less.
            then = [worth(other, max(now_s - ASSESSED_S, other.published_s)) for other in kept.values()]
            assert worth(deleted.waiting, now_s) <= min(then) + NEARLY


@pytest.mark.parametrize("strategy", [Strategy.fifo(), Strategy.eb(), Strategy.lookahead()], ids=lambda s: s.name)
def test_a_long_queue_is_not_assessed_for_every_drop(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    most, drops = 20 * SHARE, 10 * 20
    evaluated = 0
    assess = LinkQueue._least

    def counting(self: Any, now_s: float) -> Any:
        nonlocal evaluated
        evaluated += len(self)
        return assess(self, now_s)

    monkeypatch.setattr(LinkQueue, "_least", counting)
    queue = full_queue(strategy, most)
    generator = np.random.default_rng(1)
    for event in range(most + drops):
        queue.push(of_price(event, float(generator.integers(1, 1_000))), 0.0)
    assert len(queue) == most
    assert evaluated <= (drops / 20 + 2) * (most + 1) + drops


def test_worths_that_differ_by_rounding_are_ties() -> None:
    queue = full_queue(Strategy.eb(), 2)
    queue.push(of_price(0, 1.0, allowed_s=40.0), 0.0)
    queue.push(of_price(1, 1.0 + TIE / 10, allowed_s=20.0), 0.0)
    gone = queue.push(of_price(2, 1.0 + TIE / 10, allowed_s=30.0), 0.0)
    assert [deleted.waiting.event for deleted in gone] == [1]


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
# A queue that drops more than a share of its length at once looks again meanwhile, and may choose among equals anew.
@given(seed=st.integers(0, 2**32 - 1), most=st.integers(1, SHARE - 1))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_events_that_come_together_leave_what_they_leave_one_after_the_other(
    strategy: Strategy, seed: int, most: int
) -> None:
    """By what is kept, and by what is sent of it; some of those that come together have equal rows."""
    generator = np.random.default_rng(seed)
    together, single = (LinkQueue[int](strategy, turn_s=1.0, max_queued=most) for _ in range(2))
    now_s, event = 100.0, 0
    for _ in range(6):
        batch: list[Waiting[int]] = []
        for _ in range(int(generator.integers(1, 40))):
            waiting = anything(generator, event, now_s)
            if batch and generator.random() < 0.5:
                waiting = Waiting(event, now_s - 1.0, 50.0, batch[-1].rows)
            batch.append(waiting)
            event += 1
        gone = {each.waiting.event for each in together.push_all(batch, now_s)}
        assert gone == {each.waiting.event for waiting in batch for each in single.push(waiting, now_s)}
        assert len(together) == len(single) <= most
        for _ in range(int(generator.integers(0, 5))):
            assert _sent(together, now_s) == _sent(single, now_s)
        now_s += float(generator.exponential(1.0))


def _sent(queue: LinkQueue[int], now_s: float) -> tuple[int | None, list[int]]:
    chosen, deleted = queue.pop(now_s)
    return chosen and chosen.event, sorted(each.waiting.event for each in deleted)


def test_a_queue_gives_up_as_many_as_it_is_told_to() -> None:
    queue: LinkQueue[int] = LinkQueue(Strategy.eb(), turn_s=1.0)
    queue.push_all([of_price(event, float(event)) for event in range(300)], 0.0)
    assert {gone.waiting.event for gone in queue.drop(200, 0.0)} == set(range(200))
    assert {gone.waiting.event for gone in queue.drop(200, 0.0)} == set(range(200, 300))
    assert queue.pop(0.0) == (None, ())
    queue.push(of_price(7, 1.0), 0.0)
    assert _sent(queue, 0.0) == (7, [])
