"""Queues that a publisher has to itself, against exact roots, sums and long recursions."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from tidings.model.distributions import (
    Deterministic,
    Discrete,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    ShiftedGamma,
    Uniform,
)
from tidings.prediction import from_network, predict, predict_network
from tidings.prediction._renewal import root_of, wait_of
from tidings.prediction._stages import stage_of

INTERVALS = {  # of mean 1, with their transforms
    "constant": (Deterministic(value=1.0), lambda s: math.exp(-s)),
    "Erlang 2": (Hypoexponential.erlang(phases=2, rate=2.0), lambda s: (2.0 / (2.0 + s)) ** 2),
    "Erlang 4": (Hypoexponential.erlang(phases=4, rate=4.0), lambda s: (4.0 / (4.0 + s)) ** 4),
    "uniform": (Uniform(low=0.0, high=2.0), lambda s: -math.expm1(-2.0 * s) / (2.0 * s)),
    "two rates, scv 2": (PhaseType.from_moments(mean=1.0, scv=2.0), None),
    "two rates, scv 4": (PhaseType.from_moments(mean=1.0, scv=4.0), None),
    "two rates, scv 8": (PhaseType.from_moments(mean=1.0, scv=8.0), None),
}


def transform_of(name: str):
    interval, known = INTERVALS[name]
    if known is not None:
        return known
    # Balanced means: each of two exponentials has half of the mean.
    part = 0.5 * (1.0 + math.sqrt((interval.scv() - 1.0) / (interval.scv() + 1.0)))
    return lambda s: sum(p * 2.0 * p / (2.0 * p + s) for p in (part, 1.0 - part))


def exact_sigma(name: str, load: float) -> float:
    transform = transform_of(name)
    return brentq(lambda sigma: sigma - transform((1.0 - sigma) / load), 1e-12, 1.0 - 1e-9, xtol=1e-15)


@pytest.mark.parametrize("times", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("name", INTERVALS)
def test_single_queues_with_exponential_service(chain, name, load, times) -> None:
    """84 queues GI/M/1, deadlines in mean delays: 54 were within .01 of the exact root, the worst .21 off."""
    mean_s = load / (1.0 - exact_sigma(name, load))
    network = chain(
        1,
        interval=INTERVALS[name][0],
        service=Exponential(scale=load),
        lifetime=Deterministic(value=times * mean_s),
    )
    assert predict(from_network(network)).reliability[0] == pytest.approx(-math.expm1(-times), abs=1e-5)


@pytest.mark.parametrize(("name", "services"), [("constant", 9.172), ("two rates, scv 8", 85.4)])
def test_mean_waits_at_load_95(chain, name, services) -> None:
    network = chain(1, interval=INTERVALS[name][0], service=Exponential(scale=0.95))
    assert predict(from_network(network)).brokers["b0"].wait_s / 0.95 == pytest.approx(services, rel=1e-3)


@pytest.mark.parametrize("brokers", [1, 3])
def test_what_is_as_regular_as_its_queues_never_waits(chain, brokers) -> None:
    network = chain(
        brokers,
        interval=Deterministic(value=0.1),
        service=Deterministic(value=0.095),
        propagation=Deterministic(value=0.01),
        lifetime=Deterministic(value=0.3 if brokers == 1 else 3 * 0.095 + 0.0201),
    )
    found = predict_network(network)
    assert found.sample is None  # no sample has to be taken
    assert found.unmodelled == ()
    assert found.reliability[0] == 1.0
    assert found.brokers[f"b{brokers - 1}"].wait_s == 0.0


RECURSIONS = {
    "D/G/1, two values": (Deterministic(value=0.1), Discrete(values=(0.02, 0.16))),
    "D/U/1": (Deterministic(value=1.0), Uniform(low=0.5, high=1.2)),
    "U/D/1": (Uniform(low=0.0, high=2.0), Deterministic(value=0.8)),
    "U/U/1": (Uniform(low=0.0, high=2.0), Uniform(low=0.0, high=1.2)),
    "gamma/D/1": (ShiftedGamma(shift=0.0, shape=0.25, scale=4.0), Deterministic(value=0.5)),
    "log-normal/gamma/1": (LogNormal(median=0.6, sigma=1.0), ShiftedGamma(shift=0.1, shape=0.5, scale=0.6)),
}


@pytest.mark.parametrize("name", RECURSIONS)
def test_other_queues_against_lindleys_recursion(chain, name) -> None:
    """Two million waits; events of a queue are not independent, so a share is known to about .002."""
    interval, service = RECURSIONS[name]
    generator = np.random.default_rng(11)
    served = service.sample(generator, 2_000_000)
    path = np.concatenate([[0.0], np.cumsum(served[:-1] - interval.sample(generator, 1_999_999))])
    waits = path - np.minimum.accumulate(path)
    points, chances = wait_of(stage_of(interval).nodes(), stage_of(service).nodes())
    assert points[0] == 0.0
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    assert chances[0] == pytest.approx((waits < 1e-9).mean(), abs=0.006)
    assert chances @ points == pytest.approx(waits.mean(), rel=0.02)
    mean_s = float((waits + served).mean())
    for times in (0.6, 1.1, 2.0):
        network = chain(1, interval=interval, service=service, lifetime=Deterministic(value=times * mean_s))
        found = predict(from_network(network))
        assert found.reliability[0] == pytest.approx((waits + served < times * mean_s).mean(), abs=0.006)
        assert found.brokers["b0"].wait_s == pytest.approx(chances @ points)


@pytest.mark.parametrize("share", [0.4, 1.0])
@pytest.mark.parametrize("load", [0.1, 0.6, 0.95])
@pytest.mark.parametrize("name", INTERVALS)
def test_sums_on_a_lattice_and_roots_agree(name, load, share) -> None:
    """Exponential service has both; a share of the events comes to the queue."""
    interval, service = stage_of(INTERVALS[name][0]), stage_of(Exponential(scale=load / share))
    sigma = root_of(interval, service.mean_s, share)
    points, chances = wait_of(interval.nodes(), service.nodes(), share)
    assert chances[0] == pytest.approx(1.0 - sigma, abs=0.003)
    assert chances @ points == pytest.approx(service.mean_s * sigma / (1.0 - sigma), rel=0.002, abs=1e-4)


def test_a_queue_that_others_come_to_is_not_exact(chain) -> None:
    regular = chain(1, interval=Deterministic(value=1.0), service=Deterministic(value=0.4), publishers_at=(0, 0))
    assert {each.kind for each in predict(from_network(regular)).unmodelled} == {"regularity"}
