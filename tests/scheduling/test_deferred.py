"""A queue that is made late chooses as one that was made at once."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.scheduling.test_queues import ALL, LINK, named

from tidings.scheduling import MOST_DEFERRED, DeferredQueue, Strategy, Waiting, queue_for

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.floats(0.5, 40.0), st.floats(0.0, 5.0)),
        st.tuples(st.just("pop")),
        st.tuples(st.just("wait"), st.floats(0.0, 5.0)),
        st.tuples(st.just("retime"), st.floats(0.1, 9.0)),
    ),
    max_size=30,
)


def play(queue: Any, steps: list[Any]) -> list[Any]:
    """What is sent and what is deleted, step by step."""
    now_s = 100.0
    seen: list[Any] = []
    for number, (what, *more) in enumerate(steps):
        if what == "push":
            allowed_s, price = more
            column = (allowed_s, price, 1.0, 0.075, 0.02)
            if isinstance(queue, DeferredQueue):
                gone = queue.push_all([(number, now_s - 1.0, 50.0, (column,), None, 0)], now_s)
            else:
                names = ("allowed_s", "price", "nodes", "mean_s_per_kb", "sd_s_per_kb")
                figures = dict(zip(names, column, strict=True))
                gone = queue.push(Waiting.of(number, published_s=now_s - 1.0, size_kb=50.0, **figures), now_s)
            seen.append([(each.waiting.event, each.reason) for each in gone])
        elif what == "pop":
            chosen, gone = queue.pop(now_s)
            seen.append((chosen and chosen.event, [(each.waiting.event, each.reason) for each in gone]))
        elif what == "wait":
            now_s += more[0]
        else:
            queue.retime(more[0])
        seen.append(len(queue))
    return seen


@named(ALL)
@given(steps=STEPS, max_queued=st.integers(1, 12))
@hypothesis_settings(max_examples=25, deadline=None)
def test_every_choice_is_that_of_a_queue_made_at_once(strategy: Strategy, steps: list[Any], max_queued: int) -> None:
    at_once: Any = queue_for(strategy, **LINK, max_queued=max_queued)
    assert play(DeferredQueue(strategy, **LINK, max_queued=max_queued), steps) == play(at_once, steps)


def test_it_is_made_when_more_wait_than_may_be_entered_at_once() -> None:
    queue: DeferredQueue[int] = DeferredQueue(Strategy.eb(), **LINK, max_queued=2 * MOST_DEFERRED)
    column = (30.0, 1.0, 1.0, 0.075, 0.02)
    for number in range(MOST_DEFERRED + 1):
        assert (queue._queue is None) == (number <= MOST_DEFERRED)
        assert queue.push_all([(number, 0.0, 1.0, (column,), None, 0)], 0.0) == ()
    assert queue._queue is not None
    assert len(queue) == MOST_DEFERRED + 1
    assert {queue.pop(0.0)[0].event for _ in range(MOST_DEFERRED + 1)} == set(range(MOST_DEFERRED + 1))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "code",
    [
        "from tidings.scheduling import DeferredQueue, Strategy\n"
        "queue = DeferredQueue(Strategy.triage(), turn_s=1.0, processing_s=0.0, max_queued=9)\n"
        "queue.push_all([('e', 0.0, 1.0, ((1.0, 1.0, 0.0, 0.1, 0.1),), None, 0)], 0.0)",
        "import tidings.live.broker._node, tidings.live.broker._supervisor",
    ],
)
def test_what_waits_and_what_serves_loads_no_compiler(code: str) -> None:
    code += (
        "\nimport sys; print(sorted({'numba', 'scipy', 'numpy', 'prometheus_client', 'pyarrow'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
