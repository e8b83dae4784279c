"""Clocks from least delays: bounds that always hold, estimates that keep all of them, rates of drift."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.statistics import RATE_MAX, UNBOUNDED_NS, clock_bounds, clock_estimate, clock_rates

MS = 1_000_000


@given(ahead=st.integers(-(10**15), 10**15), there=st.integers(0, 10**12), back=st.integers(0, 10**12))
def test_two_clocks_half_the_difference_and_half_the_sum(ahead: int, there: int, back: int) -> None:
    """The least delays that are seen are the true ones, plus and minus what the second clock is ahead."""
    forward, backward = there + ahead, back - ahead
    most = clock_bounds(2, np.array([0, 1]), np.array([1, 0]), np.array([forward, backward]))
    found = clock_estimate(most, 0)
    assert found.ahead_ns.tolist() == [0, (forward - backward) // 2]
    assert found.high_ns[1] - found.low_ns[1] == there + back
    assert found.low_ns[1] <= ahead <= found.high_ns[1]


@st.composite
def networks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """True clocks, and messages between them with delays that are not negative."""
    clocks = draw(st.integers(2, 6))
    ahead = np.array([0, *draw(st.lists(st.integers(-(10**18), 10**18), min_size=clocks - 1, max_size=clocks - 1))])
    machine = st.integers(0, clocks - 1)
    messages = draw(st.lists(st.tuples(machine, machine, st.integers(0, 10**10)), max_size=30))
    source, target, delay = (np.array([message[part] for message in messages], np.int64) for part in range(3))
    return ahead, source, target, delay + ahead[target] - ahead[source]


@given(networks())
def test_the_truth_is_always_within_the_bounds(network: tuple[np.ndarray, ...]) -> None:
    ahead, source, target, seen = network
    most = clock_bounds(len(ahead), source, target, seen)
    difference = ahead[None, :] - ahead[:, None]
    assert (difference <= most).all()
    assert (np.diag(most) == 0).all()
    found = clock_estimate(most, 0)
    assert (found.low_ns <= ahead).all()
    assert (ahead <= found.high_ns).all()


@given(networks())
def test_corrected_delays_are_never_negative(network: tuple[np.ndarray, ...]) -> None:
    """Where every clock is bounded on both sides, the estimates keep every bound together."""
    ahead, source, target, seen = network
    most = clock_bounds(len(ahead), source, target, seen)
    found = clock_estimate(most, 0)
    known = (found.high_ns < UNBOUNDED_NS) & (found.low_ns > -UNBOUNDED_NS)
    both = known[source] & known[target]
    assert (seen - found.ahead_ns[target] + found.ahead_ns[source])[both].min(initial=0) >= 0


@given(networks(), st.randoms(use_true_random=False))
def test_more_traffic_only_narrows(network: tuple[np.ndarray, ...], random: object) -> None:
    ahead, source, target, seen = network
    part = np.array([random.random() < 0.5 for _ in source], np.bool_)  # type: ignore[attr-defined]
    whole = clock_bounds(len(ahead), source, target, seen)
    assert (whole <= clock_bounds(len(ahead), source[part], target[part], seen[part])).all()


def test_machines_that_never_talk_are_bounded_through_a_third() -> None:
    """0 and 2 both talk to 1 only; a delay of 3 + 4 ms there and 1 + 2 ms back."""
    source, target = np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1])
    most = clock_bounds(3, source, target, np.array([3, 1, 4, 2]) * MS)
    assert most[0, 2] == 7 * MS
    assert most[2, 0] == 3 * MS


def test_traffic_in_one_direction_bounds_one_side() -> None:
    most = clock_bounds(2, np.array([0]), np.array([1]), np.array([5 * MS]))
    assert most.tolist() == [[0, 5 * MS], [UNBOUNDED_NS, 0]]
    assert clock_estimate(most, 0).ahead_ns.tolist() == [0, 0]


def test_what_no_clocks_can_explain_shows_on_the_diagonal() -> None:
    """There and back in less than no time: a clock was set in between."""
    most = clock_bounds(2, np.array([0, 1]), np.array([1, 0]), np.array([5, -6]))
    assert (np.diag(most) < 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_rates_of_drift(seed: int) -> None:
    """Three clocks, ten minutes, 40 delays for each pair. The rate is off by no more than what the least of the
    exponential delays of an end would tilt a line: 1 ms over the ten minutes would be 1.7 parts in a million."""
    random = np.random.default_rng(seed)
    rates = np.array([0.0, 80e-6, -45e-6])
    source, target = np.repeat([0, 0, 1, 1, 2, 2], 40), np.repeat([1, 2, 0, 2, 0, 1], 40)
    at = np.tile(np.linspace(0, 600e9, 40), 6).astype(np.int64)
    delay = 5 * MS + random.exponential(2 * MS, len(at))
    seen = (delay + (rates[target] - rates[source]) * at).astype(np.int64)
    assert clock_rates(3, source, target, at, seen) == pytest.approx(rates, abs=2e-6)


def test_a_rate_that_nothing_tells_is_none() -> None:
    """A clock without traffic, one moment only, and a drift that no crystal has."""
    pair, times = np.array([0, 0]), np.array([0, 10**12])
    assert clock_rates(3, pair, pair + 1, times, np.array([MS, MS])).tolist() == [0.0, 0.0, 0.0]
    assert clock_rates(2, pair, pair + 1, times * 0, np.array([MS, 2 * MS])).tolist() == [0.0, 0.0]
    assert np.abs(clock_rates(2, pair, pair + 1, times, np.array([0, 10**11]))).max() <= RATE_MAX
