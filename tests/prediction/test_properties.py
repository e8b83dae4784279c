"""What has to hold of any prediction: less time left, more load, another order of names."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.model.distributions import Deterministic, Discrete, Exponential, ShiftedGamma, Uniform
from tidings.prediction import from_network, predict, predict_network

INTERVALS = {
    "poisson": lambda mean: Exponential(scale=mean),
    "uniform": lambda mean: Uniform(low=0.0, high=2.0 * mean),
    "bursty": lambda mean: ShiftedGamma(shift=0.0, shape=0.5, scale=2.0 * mean),
    "constant": lambda mean: Deterministic(value=mean),
}
SERVICES = {
    "exponential": Exponential(scale=0.1),
    "constant": Deterministic(value=0.1),
    "two values": Discrete(values=(0.05, 0.25), weights=(3.0, 1.0)),
}
NOISE = 2e-3  # of inversions near kinks


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(sorted(INTERVALS)),
    st.sampled_from(sorted(SERVICES)),
    st.floats(0.1, 0.85),
    st.floats(0.05, 0.1),
    st.floats(0.2, 2.0),
)
def test_more_load_is_never_better(chain, interval, service, load, more, lifetime_s) -> None:
    """Two publishers at a row of three brokers."""
    found = [
        predict(
            from_network(
                chain(
                    3,
                    interval=INTERVALS[interval](0.2 / each),
                    service=SERVICES[service],
                    lifetime=Deterministic(value=lifetime_s),
                    publishers_at=(0, 0),
                )
            )
        ).reliability[0]
        for each in (load, load + more)
    ]
    assert found[1] <= found[0] + NOISE


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(sorted(INTERVALS)),
    st.sampled_from(sorted(SERVICES)),
    st.floats(0.1, 0.9),
    st.lists(st.floats(0.01, 4.0), min_size=2, max_size=2).map(sorted),
)
def test_more_time_is_never_worse(chain, interval, service, load, lifetimes_s) -> None:
    found = [
        predict(
            from_network(
                chain(
                    2,
                    interval=INTERVALS[interval](0.1 / load),
                    service=SERVICES[service],
                    lifetime=Deterministic(value=each),
                )
            )
        ).reliability[0]
        for each in lifetimes_s
    ]
    assert found[0] <= found[1] + NOISE


@pytest.mark.parametrize("policy", ["fifo", "eb"])
def test_names_and_their_order_do_not_matter(chain, policy) -> None:
    """By formulas nothing changes; a sample draws other events for other numbers, and stays within its intervals."""
    network = chain(
        3,
        interval=Uniform(low=0.0, high=0.3),
        slowness=Exponential(scale=0.05),
        filters=("x >= 1", "x >= 2", "x = 4"),
        homes=(2, 1, 2),
        publishers_at=(0, 1),
        max_delay_s=0.5,
        expired="forward" if policy == "fifo" else "drop",
    )
    scheduling = msgspec.structs.replace(network.policies.scheduling, name=policy)
    network = msgspec.structs.replace(
        network, policies=msgspec.structs.replace(network.policies, scheduling=scheduling)
    )
    turned = msgspec.structs.replace(
        network,
        publishers=network.publishers[::-1],
        subscribers=network.subscribers[::-1],
        subscriptions=network.subscriptions[::-1],
    )
    one, other = predict_network(network), predict_network(turned)
    if policy == "fifo":
        assert one.sample is None
        np.testing.assert_allclose(one.reliability, other.reliability[::-1], atol=1e-7)
    else:
        assert one.sample is not None
        widths = one.sample.half_widths + other.sample.half_widths[::-1]
        assert (np.abs(one.reliability - other.reliability[::-1]) <= widths).all()
    np.testing.assert_allclose(one.matched_per_s, other.matched_per_s[::-1])


@pytest.mark.parametrize("expired", ["forward", "drop"])
def test_what_nobody_can_match_has_no_reliability(chain, expired) -> None:
    network = chain(2, slowness=Exponential(scale=0.15), filters=("x >= 1", "x = 7"), max_delay_s=0.6, expired=expired)
    for answer in (predict(from_network(network)), predict_network(network)):
        assert np.isnan(answer.reliability[1])
        assert answer.subscribers["s1"].on_time_reliability is None
        assert answer.subscribers["s1"].matched_per_s == 0.0
        assert 0.0 < answer.subscribers["s0"].on_time_reliability < 1.0
