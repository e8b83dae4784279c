"""Events of one chain leave in sequence, whatever the strategy, and the strategy still decides whose turn it is."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.test_queues import ALL, LINK, named
from tests.scheduling.twins import PlainQueue

from tidings.scheduling import DeferredQueue, OutputQueue, Strategy, Waiting, queue_for

PUSH = st.fixed_dictionaries(
    {
        "chain": st.sampled_from([None, "p", "q", "r"]),
        "place": st.integers(0, 9),
        "allowed_s": st.lists(st.floats(3.0, 40.0), min_size=1, max_size=3),
        "price": st.sampled_from([0.0, 1.0, 1.0, 3.0]),
    }
)
STEPS = st.lists(st.one_of(PUSH, st.just("pop"), st.floats(0.0, 4.0)), max_size=40)


def waiting(event: int, now_s: float, *, allowed_s: Any, price: float, chain: str | None, place: int) -> Waiting[int]:
    path = {"nodes": 1, "mean_s_per_kb": 0.075, "sd_s_per_kb": 0.02}
    figures = {"published_s": now_s - 1.0, "size_kb": 50.0, "allowed_s": allowed_s, "price": price}
    return Waiting.of(event, **figures, **path, chain=chain, place=place)


def play(queue: OutputQueue[int], steps: list[Any]) -> tuple[list[Any], dict[int, Waiting[int]], list[list[int]]]:
    """What left and what was deleted, step by step; what was pushed; and for each pop the others that waited then."""
    now_s, seen = 100.0, list[Any]()
    pushed: dict[int, Waiting[int]] = {}
    here: dict[int, None] = {}
    others: list[list[int]] = []
    for number, step in enumerate(steps):
        if isinstance(step, float):
            now_s += step
            continue
        sent = None
        if step == "pop":
            sent, gone = queue.pop(now_s)
        else:
            pushed[number] = waiting(number, now_s, **step)
            here[number] = None
            gone = queue.push(pushed[number], now_s)
        for each in gone:
            del here[each.waiting.event]
        if sent is not None:
            del here[sent.event]
            others.append([sent.event, *here])
        seen.append((None if sent is None else sent.event, [(each.waiting.event, each.reason) for each in gone]))
        assert len(queue) == len(here)
    return seen, pushed, others


@named(ALL)
@given(steps=STEPS, max_queued=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_chains_leave_in_sequence_and_nothing_is_lost(strategy: Strategy, steps: list[Any], max_queued: int) -> None:
    queue: OutputQueue[int] = queue_for(strategy, **LINK, max_queued=max_queued)
    seen, pushed, others = play(queue, steps)
    for sent, *left in others:
        first = pushed[sent]
        behind = [pushed[other] for other in left if first.chain is not None and pushed[other].chain == first.chain]
        assert all((first.place, sent) < (other.place, other.event) for other in behind)
    came = [event for sent, gone in seen for event in ([] if sent is None else [sent]) + [each for each, _ in gone]]
    assert len(came) == len(set(came))
    assert len(came) + len(queue) == len(pushed)
    assert len(queue) <= max_queued


@named(ALL)
@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_the_choice_is_that_of_the_plain_twin(strategy: Strategy, steps: list[Any]) -> None:
    assert play(queue_for(strategy, **LINK), steps)[0] == play(PlainQueue(strategy, **LINK), steps)[0]


@named(ALL)
def test_without_chains_places_say_nothing(strategy: Strategy) -> None:
    """The same choices as if there were none, whatever the places."""
    generator = np.random.default_rng(7)

    def choices(places: list[int]) -> list[int]:
        queue: OutputQueue[int] = queue_for(strategy, **LINK)
        figures = np.random.default_rng(8)
        for event, place in enumerate(places):
            allowed_s, price = figures.uniform(8.0, 60.0), float(figures.integers(1, 4))
            queue.push(waiting(event, 0.0, allowed_s=allowed_s, price=price, chain=None, place=place), 0.0)
        found = [queue.pop(1.0 + turn)[0] for turn in range(20)]
        return [-1 if each is None else each.event for each in found]

    assert choices([0] * 30) == choices(generator.permutation(30).tolist())


@pytest.mark.parametrize("name", ["rl", "eb", "pc", "lookahead", "plan", "triage"])
def test_an_urgent_event_lends_its_urgency_to_those_before_it(name: str) -> None:
    """The chain's first is patient, its second is worth most; one of no chain is worth more than the one, and less
    than the other."""
    queue: OutputQueue[int] = queue_for(Strategy(name=name, r=0.0, epsilon=0.0005), **LINK)
    for event, (chain, allowed_s, price) in enumerate((("p", 600.0, 1.0), (None, 14.0, 2.0), ("p", 12.0, 5.0))):
        queue.push(waiting(event, 0.0, allowed_s=allowed_s, price=price, chain=chain, place=event), 0.0)
    assert queue.pop(0.0)[0].event == 0  # type: ignore[union-attr]


def test_what_expires_leaves_its_place_to_the_next() -> None:
    queue: OutputQueue[int] = queue_for(Strategy.fifo(), **LINK)
    for event, allowed_s in enumerate((2.0, 30.0, 30.0)):
        queue.push(waiting(event, 0.0, allowed_s=allowed_s, price=1.0, chain="p", place=event), 0.0)
    sent, deleted = queue.pop(5.0)
    assert sent is not None
    assert sent.event == 1
    assert [each.waiting.event for each in deleted] == [0]


def test_a_deferred_queue_knows_chains() -> None:
    queue: DeferredQueue[str] = DeferredQueue(Strategy.triage(), **LINK, max_queued=8)
    for event, place, allowed_s in (("late", 1, 9.0), ("first", 0, 900.0)):
        columns = ((allowed_s, 1.0, 1.0, 0.075, 0.02),)
        queue.push_all([(event, 0.0, 50.0, columns, "p", place)], 0.0)
    assert [each.event for each, _ in (queue.pop(0.0), queue.pop(0.0)) if each is not None] == ["first", "late"]
