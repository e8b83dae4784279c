from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError
from tidings.placement import Candidates, PrintedEvaluation, evaluate, select

SEEDS = st.integers(0, 2**32 - 1)
WEIGHTS = (0.0, 1.0, 25.0, 50.0, 75.0, 99.0, 100.0)


def by_brute_force(session, metric: str, weight: float) -> int:
    """The rule of section 4.2, word for word, on the printed algorithms."""
    printed = PrintedEvaluation(session)
    hops = session.tree.depth
    candidates = session.tree.order.tolist()
    delay = {b: printed.total_delay_ns(b) for b in candidates}
    load = {b: printed.total_messages(b) for b in candidates}
    first, second = (delay, load) if metric == "delay" else (load, delay)
    least, most = min(first.values()), max(first.values())
    kept = [b for b in candidates if least == most or 100.0 * (first[b] - least) / (most - least) <= 100.0 - weight]
    return min(kept, key=lambda b: (second[b], first[b], b != session.tree.root, hops[b], b))


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 15))
def test_against_brute_force(make_session, seed, brokers) -> None:
    session = make_session(seed, brokers, 40)
    candidates = evaluate(session)
    for metric, weight in product(("delay", "load"), WEIGHTS):
        assert select(candidates, metric=metric, weight=weight).target == by_brute_force(session, metric, weight)


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 25), weight=st.floats(0, 100), hysteresis=st.sampled_from([0.0, 0.01, 0.3]))
def test_a_move_never_worsens_its_own_objective(make_session, seed, brokers, weight, hysteresis) -> None:
    candidates = evaluate(make_session(seed, brokers, 100))
    by_load = select(candidates, metric="load", weight=100.0, hysteresis=hysteresis)
    assert by_load.messages <= by_load.messages_now
    by_delay = select(candidates, metric="delay", weight=100.0, hysteresis=hysteresis)
    assert by_delay.delay_ns <= by_delay.delay_ns_now
    mixed = select(candidates, metric="delay", weight=weight, hysteresis=hysteresis)
    if mixed.moves:
        assert mixed.delay_ns < mixed.delay_ns_now or mixed.messages < mixed.messages_now


def candidates(delay: list[int], messages: list[int], home: int = 0) -> Candidates:
    count = len(delay)
    return Candidates(
        home=home,
        brokers=np.arange(count, dtype=np.int32),
        total_delay_ns=np.array(delay),
        messages=np.array(messages),
        hops=np.abs(np.arange(count) - home).astype(np.int32),
        deliveries=10,
    )


def test_ties_go_to_priority_then_home_then_hops_then_number() -> None:
    assert select(candidates([5, 5, 5], [3, 3, 3], home=1)).target == 1
    assert select(candidates([5, 5, 9, 5], [2, 2, 3, 2], home=2), metric="load").target == 1
    assert select(candidates([4, 3, 9], [2, 2, 2], home=2), metric="load").target == 1


def test_nobody_moves_for_noise() -> None:
    nearly = candidates([100, 99, 100], [10, 10, 10])
    assert select(nearly, metric="delay").target == 1
    assert select(nearly, metric="delay", hysteresis=0.05).target == 0
    assert select(candidates([100, 90, 100], [10, 10, 10]), metric="delay", hysteresis=0.05).target == 1
    # equal in load: the delay decides, and has to be better by more than the hysteresis as well
    assert select(nearly, metric="load", hysteresis=0.05).target == 0


def test_bad_settings_are_refused() -> None:
    some = candidates([1, 2], [1, 2])
    with pytest.raises(ConfigurationError, match="from 0 to 100"):
        select(some, weight=101)
    with pytest.raises(ConfigurationError, match="no metric 'cost'"):
        select(some, metric="cost")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="hysteresis"):
        select(some, hysteresis=1.0)
