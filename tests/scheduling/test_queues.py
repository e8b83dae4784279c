import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.scan import ScanQueue
from tests.scheduling.twins import PlainQueue

from tidings.errors import ConfigurationError, InputError
from tidings.scheduling import LinkQueue, OutputQueue, Strategy, Waiting, queue_for

LINK = {"turn_s": 3.0, "processing_s": 0.002}
ALL = [
    Strategy.fifo(),
    Strategy.rl(),
    Strategy.eb(),
    Strategy.pc(),
    Strategy.ebpc(0.6),
    Strategy.ebpc(0.6, turns=2.0, epsilon=0.2),
    Strategy.lookahead(),
    Strategy.plan(),
    Strategy.triage(),
    Strategy.triage(turns=0.5, epsilon=0.0005),
    Strategy.plan(r=0.0, turns=1.0, epsilon=0.0005),
]
Play = Callable[..., list[Any]]


def named(strategies: list[Strategy]) -> Any:
    return pytest.mark.parametrize("strategy", strategies, ids=[f"{s.name}-{s.turns:g}-{s.r:g}" for s in strategies])


def waiting(event: str, *, allowed_s: Any = 30.0, price: Any = 1.0, sd: float = 0.02, published_s: float = 0.0) -> Any:
    """One hop of 75 ms/kB away: 50 kB take 3.75 s, with a spread of 1 s."""
    return Waiting.of(
        event,
        published_s=published_s,
        size_kb=50.0,
        allowed_s=allowed_s,
        nodes=1,
        mean_s_per_kb=0.075,
        sd_s_per_kb=sd,
        price=price,
    )


def sent_in_order(queue: OutputQueue[Any], now_s: float) -> list[Any]:
    order = []
    while len(queue):
        sent, _ = queue.pop(now_s)
        if sent is not None:
            order.append(sent.event)
    return order


@named(ALL)
@pytest.mark.parametrize("seed", range(4))
def test_against_the_plain_twin(strategy: Strategy, seed: int, play: Play, make: Any) -> None:
    plain = play(PlainQueue(strategy, **LINK), seed, make=make)
    assert sum(1 for sent, _ in plain if sent is not None) > 50
    assert play(queue_for(strategy, **LINK), seed, make=make) == plain
    assert play(ScanQueue(strategy, **LINK), seed, make=make) == plain


def test_the_random_workload_deletes_for_both_reasons(play: Play) -> None:
    reasons = [reason for _, gone in play(queue_for(Strategy.eb(), **LINK), 0) for _, reason in gone]
    assert {"expired", "hopeless"} == set(reasons)
    reasons = [reason for _, gone in play(queue_for(Strategy.fifo(), **LINK), 0) for _, reason in gone]
    assert {"expired"} == set(reasons)


@named([strategy for strategy in ALL if strategy.name != "triage"])
def test_ties_go_to_the_earliest(strategy: Strategy) -> None:
    queue: OutputQueue[Any] = queue_for(strategy, **LINK)
    for number in range(6):
        # Success is within 1e-9 of 1 for all, but not exactly equal; RL sees deadlines within 1e-9 s of each other.
        queue.push(waiting(f"e{number}", allowed_s=20.0 - number * 1e-10), 0.0)
    assert sent_in_order(queue, 0.0) == [f"e{number}" for number in range(6)]


def test_each_strategy_prefers_what_it_says() -> None:
    rows = {
        "cheap and safe": {"allowed_s": 60.0, "price": 1.0},
        "dear and safe": {"allowed_s": 50.0, "price": 3.0},
        "urgent": {"allowed_s": 5.0, "price": 2.0},
        "hopeless soon": {"allowed_s": 2.0, "price": 1.0},
    }
    first = {
        "fifo": "cheap and safe",
        "rl": "hopeless soon",
        "eb": "dear and safe",
        "pc": "urgent",
        "plan": "urgent",
    }
    for name, expected in first.items():
        queue: OutputQueue[Any] = queue_for(Strategy(name=name, r=0.0, epsilon=0.0), turn_s=3.75)
        for event, row in rows.items():
            queue.push(waiting(event, **row), 0.0)
        sent, deleted = queue.pop(0.0)
        assert sent is not None
        assert (sent.event, deleted) == (expected, ())


def test_rl_looks_at_the_subscriptions_that_have_not_expired() -> None:
    queue: OutputQueue[Any] = queue_for(Strategy.rl(), turn_s=1.0)
    queue.push(waiting("two deadlines", allowed_s=[10.0, 60.0]), 0.0)  # 35 s on average, 50 s once the first is over
    queue.push(waiting("one deadline", allowed_s=40.0), 0.0)
    queue.push(waiting("none", allowed_s=math.inf), 0.0)
    assert sent_in_order(queue, 0.0) == ["two deadlines", "one deadline", "none"]
    for event, allowed_s in (("two deadlines", [10.0, 60.0]), ("one deadline", [40.0]), ("none", [math.inf])):
        queue.push(waiting(event, allowed_s=allowed_s), 0.0)
    assert sent_in_order(queue, 10.0) == ["one deadline", "two deadlines", "none"]


@named(ALL)
def test_expired_and_hopeless_events_leave_with_their_reason(strategy: Strategy) -> None:
    queue: OutputQueue[Any] = queue_for(strategy, turn_s=3.75)
    queue.push(waiting("expired", allowed_s=10.0), 0.0)
    queue.push(waiting("hopeless", allowed_s=11.0, sd=0.0), 0.0)
    queue.push(waiting("fine", allowed_s=60.0), 0.0)
    sent, deleted = queue.pop(10.0)
    reasons = {entry.waiting.event: entry.reason for entry in deleted}
    if strategy.epsilon == 0.0:
        assert reasons == {"expired": "expired"}
    else:
        assert sent is not None
        assert (sent.event, reasons) == ("fine", {"expired": "expired", "hopeless": "hopeless"})


@named(ALL)
def test_an_empty_queue_sends_nothing(strategy: Strategy) -> None:
    queue: OutputQueue[Any] = queue_for(strategy, turn_s=1.0)
    assert queue.pop(0.0) == (None, ())
    queue.push(waiting("late", allowed_s=1.0), 0.0)
    sent, deleted = queue.pop(100.0)
    assert sent is None
    assert [entry.waiting.event for entry in deleted] == ["late"]
    assert len(queue) == 0


@named(ALL)
def test_a_full_queue_gives_up_what_would_be_deleted_first(strategy: Strategy) -> None:
    queue: OutputQueue[Any] = queue_for(strategy, turn_s=1.0, max_queued=3)
    gone = []
    for number, allowed_s in enumerate([30.0, 20.0, 40.0, 50.0, 20.0, math.inf]):
        gone += queue.push(waiting(f"e{number}", allowed_s=allowed_s), 0.0)
        assert len(queue) <= 3
    assert [(entry.waiting.event, entry.reason) for entry in gone] == [("e1", "full"), ("e4", "full"), ("e0", "full")]
    assert sorted(sent_in_order(queue, 0.0)) == ["e2", "e3", "e5"]


@named(ALL)
def test_a_full_queue_without_deadlines_refuses_the_last(strategy: Strategy) -> None:
    queue: OutputQueue[Any] = queue_for(strategy, turn_s=1.0, max_queued=2)
    gone = [entry for n in range(4) for entry in queue.push(waiting(f"e{n}", allowed_s=math.inf), 0.0)]
    assert [entry.waiting.event for entry in gone] == ["e2", "e3"]
    assert sent_in_order(queue, 0.0) == ["e0", "e1"]


@named(ALL)
def test_memory_is_bounded_by_what_waits(strategy: Strategy, play: Play) -> None:
    queue: Any = queue_for(strategy, **LINK)
    play(queue, 3, events=3_000, depth=20)
    assert len(queue._lane[0]) <= 64
    assert queue._lane[2].shape[1] <= 4 * 22 * 6
    assert len(queue._urgency[2]) <= 64 // 32 + 4


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1_000_000), st.sampled_from([Strategy.eb(), Strategy.rl()]))
def test_the_lazy_heap_on_random_workloads(seed: int, strategy: Strategy) -> None:
    generator = np.random.default_rng(seed)
    lazy: OutputQueue[int] = queue_for(strategy, **LINK)
    plain: OutputQueue[int] = PlainQueue(strategy, **LINK)
    now_s = 0.0
    for event in range(60):
        now_s += generator.exponential(1.0)
        count = generator.integers(1, 4)
        entry = Waiting.of(
            event,
            published_s=now_s,
            size_kb=50.0,
            allowed_s=generator.choice([8.0, 12.0, 30.0], count),
            nodes=1,
            mean_s_per_kb=0.1,
            sd_s_per_kb=0.02,
        )
        lazy.push(entry, now_s)
        plain.push(entry, now_s)
        if event % 3 == 2:
            assert lazy.pop(now_s)[0] is plain.pop(now_s)[0]
    assert len(lazy) == len(plain)


def test_subscriptions_in_another_order_change_nothing(play: Play) -> None:
    for strategy in ALL:
        outcomes = []
        for order in (slice(None), slice(None, None, -1)):
            queue: OutputQueue[int] = queue_for(strategy, **LINK)
            push = queue.push

            def turned(entry: Waiting[int], now_s: float, order: slice = order, push: Any = push) -> Any:
                return push(Waiting(entry.event, entry.published_s, entry.size_kb, entry.rows[:, order]), now_s)

            queue.push = turned  # type: ignore[method-assign]
            outcomes.append(play(queue, 5))
        assert outcomes[0] == outcomes[1]


@named([Strategy.pc(), Strategy.ebpc(0.6), Strategy.plan(), Strategy.plan(r=0.0)])
@pytest.mark.parametrize("turns_s", [(0.01, 12.0), (12.0, 0.01)])
def test_a_new_time_of_a_turn_takes_effect_at_once(strategy: Strategy, turns_s: tuple[float, float], make: Any) -> None:
    generator = np.random.default_rng(11)
    queue: LinkQueue[int] = LinkQueue(strategy, turn_s=turns_s[0])
    plain: PlainQueue[int] = PlainQueue(strategy, turn_s=turns_s[0])
    for event in range(60):
        entry = make(generator, event, event * 0.1)
        queue.push(entry, event * 0.1)
        plain.push(entry, event * 0.1)
    assert queue.pop(6.0)[0] is plain.pop(6.0)[0]
    queue.retime(turns_s[1])
    plain.turn_s = turns_s[1]
    for number in range(10):
        assert queue.pop(6.0 + number)[0] is plain.pop(6.0 + number)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size_kb": -1.0}, "size_kb of at least 0"),
        ({"published_s": math.nan}, "finite published_s"),
        ({"allowed_s": [1.0, math.nan]}, "allowed_s of an event holds NaN"),
        ({"price": -1.0}, "price of an event holds -1.0"),
        ({"mean_s_per_kb": math.inf}, "mean_s_per_kb of an event holds inf"),
        ({"nodes": [1, 2, 3], "price": [1, 2]}, "one for each of 3 subscriptions"),
        ({"nodes": "many"}, "nodes of an event is 'many'"),
    ],
)
def test_impossible_events_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    figures: dict[str, Any] = {"published_s": 0.0, "size_kb": 1.0, "allowed_s": 1.0, "nodes": 1}
    figures |= {"mean_s_per_kb": 0.1, "sd_s_per_kb": 0.1}
    with pytest.raises(InputError, match=message):
        Waiting.of("event", **(figures | change))


def test_impossible_queues_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="room for at least one"):
        queue_for(Strategy.eb(), turn_s=1.0, max_queued=0)
    with pytest.raises(ConfigurationError, match="turn_s and processing_s"):
        queue_for(Strategy.eb(), turn_s=-1.0)


def test_triage_sends_the_most_urgent_while_there_is_time_for_all_and_then_the_dearest() -> None:
    queue: OutputQueue[str] = queue_for(Strategy.triage(turns=1.0), turn_s=3.75)
    for event, allowed_s, price in (("dear", 60.0, 3.0), ("urgent", 12.0, 1.0), ("later", 30.0, 2.0)):
        queue.push(waiting(event, allowed_s=allowed_s, price=price), 0.0)
    assert sent_in_order(queue, 0.0) == ["urgent", "later", "dear"]
    for event, price in (("old", 1.0), ("dear", 3.0), ("older", 1.0), ("new", 1.0)):
        queue.push(waiting(event, allowed_s=12.0, price=price), 0.0)  # four turns are more than there is time for
    assert [queue.pop(0.0)[0].event for _ in range(2)] == ["dear", "new"]  # type: ignore[union-attr]
