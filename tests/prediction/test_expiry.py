"""Dropping of expired events: exact where one link does it, and near the simulator behind brokers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.model.distributions import Deterministic, Exponential
from tidings.prediction import from_network, predict
from tidings.prediction._expiry import _follow, _omega, _on_links, living_together
from tidings.simulation import simulate

MEAN_S = 0.1


def shedding_link(chain, load: float, lifetime_s: float, **others):
    return chain(
        2,
        interval=Exponential(scale=MEAN_S / load),
        service=Deterministic(value=0.0),
        slowness=Exponential(scale=MEAN_S),
        lifetime=Deterministic(value=lifetime_s),
        expired="drop",
        **others,
    )


@pytest.mark.parametrize("load", [0.7, 0.95, 1.2, 2.0])
@pytest.mark.parametrize("lifetime_s", [0.2, 0.5, 1.0])
def test_one_link_is_the_queue_with_a_limited_wait(chain, load: float, lifetime_s: float) -> None:
    """M/M/1+D: idle = 1 / (1 + rho U(x)), U(x) = (1 - rho exp(-mu (1 - rho) x)) / (1 - rho); R is idle times the
    convolution of U with the service, (1 - exp(-mu (1 - rho) x)) / (1 - rho)."""
    prediction = predict(from_network(shedding_link(chain, load, lifetime_s)))
    fall = math.exp(-(1.0 - load) * lifetime_s / MEAN_S)
    idle = 1.0 / (1.0 + load * (1.0 - load * fall) / (1.0 - load))
    assert prediction.links["b0 -> b1"].utilisation == pytest.approx(1.0 - idle, abs=2e-4)
    assert prediction.reliability[0] == pytest.approx(idle * (1.0 - fall) / (1.0 - load), abs=2e-4)
    assert prediction.overloaded == ()


def test_where_hardly_anything_is_dropped_it_is_left_out(chain) -> None:
    knowledge = from_network(shedding_link(chain, 0.3, 2.0))
    dropping, forwarding = predict(knowledge), predict(replace(knowledge, drops_expired=False))
    assert dropping.reliability == forwarding.reliability
    assert dropping.links["b0 -> b1"].utilisation == pytest.approx(0.3)


@pytest.mark.parametrize(("load", "margin"), [(0.7, 0.02), (0.95, 0.08)])
def test_against_simulation_behind_a_broker(chain, load: float, margin: float) -> None:
    """Half of the events are dropped at .95: the next broker sees the others in surges. Taken as a thin stream, R'
    would be .16 too high there; standard error of the run about .015."""
    network = chain(
        3,
        interval=Exponential(scale=MEAN_S / load),
        lifetime=Deterministic(value=1.4 if load > 0.9 else 0.5),
        homes=(1, 2),
        filters=("x >= 1", "x >= 1"),
        expired="drop",
        duration_s=20_000.0,
    )
    actual = [row.on_time_reliability for row in simulate(network).subscribers.values()]
    assert predict(from_network(network)).reliability == pytest.approx(actual, abs=margin)


def test_what_comes_another_way_is_no_surge(chain) -> None:
    """Two publishers that meet at a broker in the middle: each is thinned on its own, and counts at its mean for the
    other; from one end both would surge together."""
    both = {"interval": Exponential(scale=2.0 * MEAN_S / 0.9), "lifetime": Deterministic(value=1.0), "expired": "drop"}
    apart = predict(from_network(chain(3, publishers_at=(0, 2), homes=(1,), **both)))
    together = predict(from_network(chain(3, publishers_at=(0, 0), homes=(1,), **both)))
    assert apart.brokers["b1"].utilisation > together.brokers["b1"].utilisation
    assert apart.reliability[0] > together.reliability[0]


@given(share=st.floats(0.01, 0.99))
def test_living_together_fades(share: float) -> None:
    lags = np.geomspace(1e-4, 60.0, 40)
    held = living_together(lags, share)
    assert (np.diff(held) <= 1e-9).all()
    assert held[-1] < 1e-6
    assert (held >= 0.0).all()
    assert (held <= 1.0).all()


def test_a_slow_surge_fills_busy_periods_and_a_quick_one_does_not() -> None:
    load, mean_s, share = np.full(3, 0.6), np.full(3, 0.1), np.full(3, 0.5)
    found = _omega(load, mean_s, np.array([1e4, 10.0, 1e-3]), share)
    assert found[0] > 0.95
    assert found[2] < 0.02
    assert (np.diff(found) < 0.0).all()


def test_compiled_and_plain_agree() -> None:
    generator = np.random.default_rng(2)
    order = np.array([[0, 1, 2], [2, 1, 0]], np.int32)
    parent = np.array([[-1, 0, 1], [1, 2, -1]], np.int32)
    link = np.array([[-1, 0, 2], [1, 3, -1]], np.int32)
    shares = [generator.uniform(0.3, 1.0, (2, 3)) for _ in range(3)]
    rate = generator.uniform(0.1, 1.0, (2, 7))
    waits = [generator.uniform(0.0, 1.0, shape) for shape in (7, (2, 7), 7, 7)]
    outs = []
    for kernel in (_follow, _follow.py_func):
        found = [np.zeros((2, 7)), np.zeros((2, 7)), np.ones((2, 7))]
        kernel(order, parent, link, rate, shares[0], *waits, shares[1], *found)
        outs.append(np.concatenate(found))
    assert outs[0] == pytest.approx(outs[1], rel=1e-12)
    assert outs[0].any()
    outs = []
    for kernel in (_on_links, _on_links.py_func):
        offered, within = rate.copy(), np.ones((2, 7))
        kernel(order, link, *shares, offered, within)
        outs.append(np.concatenate([offered, within]))
    assert outs[0] == pytest.approx(outs[1], rel=1e-12)


@pytest.mark.parametrize("load", [0.5, 0.99, 1.0, 1.3, 3.0])
def test_what_is_sent_has_waited_less_than_it_lives(chain, load) -> None:
    """One link, M/M/1+D: the density of the wait is (sigma / tau) exp(-(1 - sigma) w / tau) up to the lifetime."""
    network = chain(
        2,
        interval=Exponential(scale=0.1 / load),
        service=Deterministic(value=0.0),
        slowness=Exponential(scale=0.1),
        lifetime=Deterministic(value=0.5),
        expired="drop",
    )
    w = np.linspace(0.0, 0.5, 20_001)
    density = load / 0.1 * np.exp(-(1.0 - load) * w / 0.1)
    wanted_s = np.trapezoid(w * density, w) / (1.0 + np.trapezoid(density, w))
    found_s = predict(from_network(network)).links["b0 -> b1"].wait_s
    assert found_s == pytest.approx(wanted_s, rel=0.01)
    assert found_s < 0.5
