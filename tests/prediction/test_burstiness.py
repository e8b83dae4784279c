"""Burstiness: exact single-server queues, and what queues do to what passes through them."""

import math

import msgspec
import numpy as np
import pytest
from scipy.optimize import brentq

from tidings.model.distributions import Deterministic, Exponential, Hypoexponential, Uniform
from tidings.prediction import from_network, predict
from tidings.prediction._burstiness import _memory, _not_yet_released, _own_burstiness, busy_nodes, spectrum_of
from tidings.simulation import simulate


def exact_wait(transform, mean_s: float) -> float:
    """GI/M/1: sigma solves sigma = A(mu (1 - sigma)), and the mean wait is tau sigma / (1 - sigma)."""
    sigma = brentq(lambda x: x - transform((1.0 - x) / mean_s), 1e-12, 1.0 - 1e-7)
    return mean_s * sigma / (1.0 - sigma)


QUEUES = {
    "periodic": (Deterministic(value=1.0), lambda s: math.exp(-s)),
    "erlang": (Hypoexponential.erlang(phases=2, rate=2.0), lambda s: (2.0 / (2.0 + s)) ** 2),
    "uniform": (Uniform(low=0.0, high=2.0), lambda s: -math.expm1(-2.0 * s) / (2.0 * s)),
}


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("name", QUEUES)
def test_single_queues(chain, name, load) -> None:
    """Within .1 of the Poisson wait, where forgetting the regularity would be off by up to .8 of it."""
    interval, transform = QUEUES[name]
    prediction = predict(from_network(chain(1, interval=interval, service=Exponential(scale=load))))
    poisson_s = load * load / (1.0 - load)
    assert prediction.brokers["b0"].wait_s == pytest.approx(exact_wait(transform, load), abs=0.1 * poisson_s)


def test_poisson_publishers_have_no_spectrum() -> None:
    assert spectrum_of(Exponential(scale=3.0)) is None


def test_a_spectrum_at_frequency_0_is_the_variability() -> None:
    """The weights hold sigma(w) = S(w) - 1, and S(0) is the squared coefficient of variation."""
    w, weights = spectrum_of(Uniform(low=0.0, high=2.0))
    excess = weights / (np.gradient(w) / math.pi)
    assert 1.0 + excess[0] == pytest.approx(1.0 / 3.0, abs=1e-3)
    assert excess[-1] == pytest.approx(0.0, abs=1e-3)


def test_memory_integrates_to_the_derivative_of_the_workload() -> None:
    """At w -> 0, Re D is E[S^2] / (2 (1 - rho)^2)."""
    value = _memory(np.array([0.6]), np.array([0.1]), np.array([2.0 / 3.0]), np.array([1e-3]))[0, 0]
    assert value == pytest.approx(0.01 * (4.0 / 3.0) / (2.0 * 0.4**2), rel=1e-4)


def test_busy_periods_have_their_mean() -> None:
    """E[B*] = E[B^2] / E[B] = 2 tau / (1 - rho)^2 for M/M/1."""
    times, weights = busy_nodes(np.array([0.3, 0.8, 0.9999]), np.array([0.1, 0.1, 0.1]))
    assert (times * weights).sum(axis=1) == pytest.approx([0.2 / 0.49, 0.2 / 0.04, 0.2 / 1e-8], rel=0.03)


def test_an_overload_elsewhere_leaves_other_queues_as_they_are(chain) -> None:
    """Uniform intervals; of three brokers in a row the last two cannot keep up, which once made everything NaN."""
    found = predict(from_network(chain(3, interval=Uniform(low=0.0, high=0.3), publishers_at=(0, 1))))
    assert set(found.overloaded) == {"b1", "b2"}
    wanted_s = exact_wait(lambda s: -math.expm1(-0.3 * s) / (0.3 * s), 0.1)
    assert found.brokers["b0"].wait_s == pytest.approx(wanted_s, rel=1e-6)
    assert found.reliability[0] == 0.0


def test_what_is_not_yet_released_falls_from_1_to_0() -> None:
    value = _not_yet_released(np.geomspace(1e-4, 1e3, 50))
    assert value[0] == pytest.approx(1.0, abs=0.02)
    assert value[-1] < 1e-3
    assert (np.diff(value) <= 1e-9).all()


def test_regular_services_make_the_next_queue_shorter(chain) -> None:
    """Two queues with uniform service in a row at load .7: a simulation of 4,000,000 events gives .1042 s at the
    second (standard error .0003), where Poisson arrivals would wait .1556 s."""
    network = chain(2, interval=Exponential(scale=1.0 / 7.0), service=Uniform(low=0.0, high=0.2))
    found = predict(from_network(network)).brokers
    assert found["b0"].wait_s == pytest.approx(0.7 / 0.3 * 0.2 / 3.0, rel=1e-9)
    assert found["b1"].wait_s == pytest.approx(0.1042, rel=0.05)


def test_compiled_and_plain_agree() -> None:
    generator = np.random.default_rng(3)
    order, parent, link = (np.array(x, np.int32) for x in ([0, 1, 2], [-1, 0, 1], [-1, 0, 1]))
    service, delay = np.array([1, 1, 1, 2, 0], np.int32), np.array([0, 0, 0, 1, 1], np.int32)
    share, sigma = generator.random(5), 0.9 * generator.random(5)
    weights, powers = generator.normal(size=6), generator.random((3, 6))
    residuals = generator.random((5, 6)) + 1j * generator.random((5, 6))
    memory, found = generator.random((5, 6)), []
    for kernel in (_own_burstiness, _own_burstiness.py_func):
        out = np.zeros(5)
        kernel(order, parent, link, service, delay, share, sigma, weights, powers, residuals, memory, out)
        found.append(out)
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert found[0][4] == 0.0  # a link that transmits for free has no queue


def test_phases_bound_what_can_be_known(chain) -> None:
    """Two publishers of period 1 s at a broker that serves in .4 s, .6 s to live: events that come less than .2 s after
    the other publisher's are late, all of them or none in a run. So a subscriber to both gets half or all on time, with
    chances .4 and .6 over the phases; 300 runs have a standard error of .03."""
    network = chain(
        1,
        interval=Deterministic(value=1.0),
        service=Deterministic(value=0.4),
        lifetime=Deterministic(value=0.6),
        publishers_at=(0, 0),
        duration_s=60.0,
    )
    shares = []
    for seed in range(300):
        row = simulate(msgspec.structs.replace(network, seed=seed)).subscribers["s0"]
        shares.append(row.on_time_reliability)
    found = np.array(shares)
    assert np.isclose(found, 0.5, atol=0.02).mean() == pytest.approx(0.4, abs=0.1)
    assert np.isclose(found, 1.0, atol=0.02).mean() == pytest.approx(0.6, abs=0.1)
