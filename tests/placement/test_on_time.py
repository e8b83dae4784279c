"""The place from which most deliveries are on time: laws of the path, the choice, and that it beats the mean delay."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError, InputError
from tidings.placement import Spread, TraceSession, Wanted, evaluate, on_time_shares, select, select_on_time
from tidings.routing import overlay_of_links, shortest_path_tree

MS = 1_000_000


def chain(brokers: int, onward_ms: int, deliveries: list[int]) -> TraceSession:
    overlay = overlay_of_links(brokers, [(b, b + 1, 1.0) for b in range(brokers - 1)], both_ways=True)
    return TraceSession(
        overlay=overlay,
        tree=shortest_path_tree(overlay, 0),
        events=1,
        bits=np.array([[1 if count else 0] for count in deliveries], np.uint64),
        deliveries=np.array(deliveries),
        to_client_ns=np.zeros(brokers, np.int64),
        onward_ns=np.full(overlay.link_count, onward_ms * MS),
        ping_ns=np.zeros(brokers, np.int64),
    )


def test_exponential_stages_are_exact() -> None:
    """One and three equal exponential stages of mean 10 ms: Erlang laws in closed form."""
    session = chain(4, 10, [0, 1, 0, 1])
    spread = Spread(
        onward_least_ns=np.zeros(session.overlay.link_count, np.int64),
        onward_variance_ns2=np.full(session.overlay.link_count, (10.0 * MS) ** 2),
    )
    near = Wanted(broker=np.array([1]), deadline_s=np.array([0.02]), deliveries=np.array([1.0]))
    far = Wanted(broker=np.array([3]), deadline_s=np.array([0.02]), deliveries=np.array([1.0]))
    assert on_time_shares(session, near, spread)[0] == pytest.approx(1 - math.exp(-2), abs=1e-12)
    three = 1 - math.exp(-2) * (1 + 2 + 2)
    assert on_time_shares(session, far, spread)[0] == pytest.approx(three, abs=1e-12)
    assert on_time_shares(session, far, spread)[3] == 1.0


def test_without_scatter_a_deadline_is_strict() -> None:
    session = chain(3, 10, [0, 0, 1])
    at = Wanted(broker=np.array([2]), deadline_s=np.array([0.02]), deliveries=np.array([1.0]))
    above = Wanted(broker=np.array([2]), deadline_s=np.array([0.0200001]), deliveries=np.array([1.0]))
    assert on_time_shares(session, at).tolist() == [0.0, 1.0, 1.0]
    assert on_time_shares(session, above).tolist() == [1.0, 1.0, 1.0]


def test_deadlines_decide_otherwise_than_the_mean_delay() -> None:
    """Six readers at the far end with an hour, four here with 15 ms: the mean delay moves away from those who care."""
    session = chain(5, 10, [4, 0, 0, 0, 6])
    wanted = Wanted(broker=np.array([0, 4]), deadline_s=np.array([0.015, 3600.0]), deliveries=np.array([4.0, 6.0]))
    candidates = evaluate(session)
    shares = on_time_shares(session, wanted)
    assert select(candidates, metric="delay").target == 4
    assert shares.tolist() == [1.0, 1.0, 0.6, 0.6, 0.6]
    assert select_on_time(candidates, shares) == 1  # both on time, and nearer to the others than the home is


@settings(deadline=None)  # the first call compiles
@given(seed=st.integers(0, 2**32 - 1), brokers=st.integers(1, 20))
def test_a_longer_deadline_never_hurts_and_a_move_never_worsens(make_session, seed, brokers) -> None:
    session = make_session(seed, brokers, 50)
    generator = np.random.default_rng(seed)
    spread = Spread(
        onward_least_ns=session.onward_ns // 2,
        onward_variance_ns2=(session.onward_ns * generator.random(session.overlay.link_count)) ** 2.0,
    )
    where = np.arange(brokers)
    deadline = generator.uniform(0.01, 0.5, size=brokers)

    def shares(factor: float) -> np.ndarray:
        wanted = Wanted(broker=where, deadline_s=deadline * factor, deliveries=session.deliveries)
        return on_time_shares(session, wanted, spread)

    assert (shares(1.5) >= shares(1.0) - 1e-12).all()
    candidates = evaluate(session)
    target = select_on_time(candidates, shares(1.0))
    assert shares(1.0)[candidates.at(target)] >= shares(1.0)[candidates.at(session.tree.root)] - 1e-12


def test_nobody_moves_for_noise() -> None:
    session = chain(3, 10, [10, 0, 10])
    candidates = evaluate(session)
    shares = np.array([0.50, 0.52, 0.58])
    assert select_on_time(candidates, shares) == 2
    assert select_on_time(candidates, shares, hysteresis=0.1) == 0
    assert select_on_time(candidates, shares, traced_deliveries=20) == 0  # two standard errors are .22
    assert select_on_time(candidates, shares, traced_deliveries=1000) == 2


def test_what_is_wrong_is_said() -> None:
    session = chain(3, 10, [1, 0, 1])
    wanted = Wanted(broker=np.array([7]), deadline_s=np.array([1.0]), deliveries=np.array([1.0]))
    with pytest.raises(InputError, match="broker 7, which did not answer"):
        on_time_shares(session, wanted)
    fine = Wanted(broker=np.array([2]), deadline_s=np.array([1.0]), deliveries=np.array([1.0]))
    with pytest.raises(InputError, match="least time is above its mean"):
        on_time_shares(session, fine, Spread(onward_least_ns=session.onward_ns + 1))
    with pytest.raises(InputError, match="go along"):
        Wanted(broker=np.array([1, 2]), deadline_s=np.array([1.0]), deliveries=np.array([1.0]))
    with pytest.raises(InputError, match="a deadline must be a number"):
        Wanted(broker=np.array([1]), deadline_s=np.array([np.nan]), deliveries=np.array([1.0]))
    with pytest.raises(ConfigurationError, match="hysteresis"):
        select_on_time(evaluate(session), np.zeros(3), hysteresis=-1)
    with pytest.raises(InputError, match="2 shares for 3 candidates"):
        select_on_time(evaluate(session), np.zeros(2))
