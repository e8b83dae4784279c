"""All publishers together: sums by hand, against trying everything, and no herd."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError, InputError
from tidings.placement import Service, Stream, TraceSession, place_jointly
from tidings.placement._evaluation import handled_from
from tidings.placement._joint import _State
from tidings.routing import overlay_of_links, shortest_path_tree


def star(leaves: int, home: int, share: list[float], onward_ns: int = 1_000_000) -> TraceSession:
    """Broker 0 in the middle; at each broker `share` of 100 events is delivered, the first ones."""
    overlay = overlay_of_links(leaves + 1, [(0, b, 1.0) for b in range(1, leaves + 1)], both_ways=True)
    counts = [round(100 * part) for part in share]
    words = [[((1 << count) - 1) & (2**64 - 1), ((1 << count) - 1) >> 64] for count in counts]
    return TraceSession(
        overlay=overlay,
        tree=shortest_path_tree(overlay, home),
        events=100,
        bits=np.array(words, np.uint64),
        deliveries=np.array(counts),
        to_client_ns=np.zeros(leaves + 1, np.int64),
        onward_ns=np.full(overlay.link_count, onward_ns),
        ping_ns=np.zeros(leaves + 1, np.int64),
    )


def test_waits_are_those_of_the_queue() -> None:
    service = Service(mean_s=np.array([0.1, 0.1, 0.0]), scv=np.array([1.0, 0.0, 1.0]))
    assert service.wait_s(np.array([5.0, 5.0, 5.0])) == pytest.approx([0.1, 0.05, 0.0])
    # the slope is the derivative, also beyond the point from which the wait goes on along its tangent
    for rate in (2.0, 9.0, 9.8, 12.0):
        at = np.full(3, rate)
        step = (service.wait_s(at + 1e-6) - service.wait_s(at - 1e-6)) / 2e-6
        assert service.slope_s2(at) == pytest.approx(step, rel=1e-5, abs=1e-9)


@settings(deadline=None)  # the first call compiles
@given(seed=st.integers(0, 2**32 - 1), brokers=st.integers(1, 15))
def test_what_passes_a_broker(make_session, seed, brokers) -> None:
    """Deliveries that pass b: all whose way from the home goes through it, found by walking every path."""
    session = make_session(seed, brokers, 30)
    home = int(np.random.default_rng(seed).integers(brokers))
    passing = np.zeros(brokers, np.int64)
    seen_from_home = shortest_path_tree(session.overlay, home)
    for broker in range(brokers):
        for on_the_way in seen_from_home.path(broker):
            passing[on_the_way] += session.deliveries[broker]
    assert handled_from(session, home)[1].tolist() == passing.tolist()


def herd(home: int) -> TraceSession:
    """Half of the events are read at the publisher's leaf, the other half in the middle, there by a few more people.

    So the middle is the better place for each publisher, and handles twice as much if it moves there.
    """
    session = star(5, home, [0.0] * 6)
    bits = np.zeros((6, 2), np.uint64)
    deliveries = np.zeros(6, np.int64)
    bits[0, 0], deliveries[0] = (1 << 50) - 1, 60
    bits[home, 0], bits[home, 1], deliveries[home] = ((1 << 14) - 1) << 50, (1 << 36) - 1, 50
    return replace(session, bits=bits, deliveries=deliveries)


def test_publishers_do_not_herd() -> None:
    streams = [Stream(session=herd(b), rate_per_s=19.0) for b in range(1, 6)]
    service = Service(mean_s=np.full(6, 0.01), scv=np.ones(6))
    alone = place_jointly(streams, Service(mean_s=np.zeros(6), scv=np.ones(6)))
    assert alone.targets == (0, 0, 0, 0, 0)
    crowded = _State(streams, service, np.zeros(()))
    for number in range(5):
        crowded._add(number, crowded.homes[number], -1.0)
        crowded._settle(number, 0)
    together = place_jointly(streams, service)
    assert crowded.utilisation().max() == pytest.approx(0.95)
    assert together.utilisation.max() < 0.85 * crowded.utilisation().max()
    deliveries = sum(stream.per_event * stream.session.total_deliveries for stream in streams)
    assert together.mean_delay_s < crowded.total() / deliveries


@settings(deadline=None, max_examples=25)  # the first call compiles
@given(seed=st.integers(0, 2**32 - 1))
def test_near_the_best_of_all_placements(make_session, seed) -> None:
    """Two publishers on five brokers: 25 placements, all tried. A local search may miss the best, by little."""
    generator = np.random.default_rng(seed)
    overlays = [make_session(seed % 1000, 5, 60, home=home) for home in (0, 4)]
    streams = [Stream(session=session, rate_per_s=float(generator.uniform(1, 40))) for session in overlays]
    service = Service(mean_s=np.full(5, 0.01), scv=np.ones(5))
    plan = place_jointly(streams, service)
    state = _State(streams, service, np.zeros(()))
    found = []
    for homes in product(range(5), repeat=2):
        for number, home in enumerate(homes):
            state._add(number, state.homes[number], -1.0)
            state._settle(number, home)
        found.append(state.total())
    deliveries = sum(stream.per_event * stream.session.total_deliveries for stream in streams)
    assert plan.mean_delay_s <= plan.mean_delay_s_now * (1 + 1e-9)
    if deliveries:
        assert plan.mean_delay_s <= 1.25 * min(found) / deliveries + 1e-9


def test_a_hysteresis_keeps_publishers_where_they_are() -> None:
    stream = Stream(session=star(3, 1, [0.0, 0.5, 0.6, 0.0]), rate_per_s=1.0)
    service = Service(mean_s=np.full(4, 1e-4), scv=np.ones(4))
    assert place_jointly([stream], service).targets == (2,)
    assert place_jointly([stream], service, hysteresis=0.5).targets == (1,)


def test_nothing_published_and_nothing_delivered() -> None:
    idle = Stream(session=star(2, 1, [0.0, 0.0, 0.0]), rate_per_s=0.0)
    plan = place_jointly([idle], Service(mean_s=np.full(3, 0.1), scv=np.ones(3)))
    assert (plan.homes, plan.targets, plan.mean_delay_s) == ((1,), (1,), 0.0)
    assert place_jointly([], Service(mean_s=np.ones(1), scv=np.ones(1))).targets == ()


def test_what_is_wrong_is_said() -> None:
    session = star(2, 1, [0.0, 0.5, 0.5])
    service = Service(mean_s=np.full(3, 0.1), scv=np.ones(3))
    with pytest.raises(ConfigurationError, match="hysteresis"):
        place_jointly([], service, hysteresis=1.0)
    with pytest.raises(InputError, match="an overlay with 3 brokers, and there are service times of 2"):
        place_jointly([Stream(session=session, rate_per_s=1.0)], Service(mean_s=np.ones(2), scv=np.ones(2)))
    with pytest.raises(InputError, match="rate"):
        Stream(session=session, rate_per_s=-1.0)
    with pytest.raises(InputError, match="mean_s"):
        Service(mean_s=np.array([-1.0]), scv=np.ones(1))
