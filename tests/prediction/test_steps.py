"""Delays with steps against sums worked out value by value, and atoms beside densities against closed forms."""

from itertools import product

import msgspec
import numpy as np
import pytest

from tidings.model.distributions import Deterministic, Discrete, Empirical, Exponential
from tidings.prediction import from_network, predict
from tidings.prediction._stages import nodes_of, product_stage, stage_of
from tidings.prediction._steps import MOST_STEPS, convolved

LINKS = {
    "two speeds": Discrete(values=(0.020, 0.060)),
    "three, one rare": Discrete(values=(0.010, 0.035, 0.200), weights=(0.70, 0.27, 0.03)),
    "five": Discrete(values=(0.0, 0.003, 0.011, 0.013, 0.040), weights=(1.0, 4.0, 2.0, 2.0, 1.0)),
}
WITHIN = (0.1, 0.3, 0.5, 0.55, 0.7, 0.8, 0.9, 0.97, 1.05)  # deadlines, as shares of the longest delay
NO_QUEUE = Deterministic(value=0.0)


def sums(distribution: Discrete, hops: int) -> tuple[np.ndarray, np.ndarray]:
    """All sums of so many values, with their chances, by going through every combination."""
    points, chances = zip(*distribution.atoms(), strict=True)
    totals = [sum(each) for each in product(points, repeat=hops)]
    return np.array(totals), np.array([np.prod(each) for each in product(chances, repeat=hops)])


@pytest.mark.parametrize("share", WITHIN)
@pytest.mark.parametrize("hops", [1, 3, 5])
@pytest.mark.parametrize("name", LINKS)
def test_discrete_links(chain, name, hops, share) -> None:
    """81 cases, of which 32 were within .01 when steps were drawn by a series."""
    totals, chances = sums(LINKS[name], hops)
    deadline_s = share * totals.max() + 0.25e-3
    network = chain(hops + 1, service=NO_QUEUE, propagation=LINKS[name], lifetime=Deterministic(value=deadline_s))
    wanted = chances[totals < deadline_s].sum()
    assert predict(from_network(network)).reliability[0] == pytest.approx(wanted, abs=1e-9)


def test_two_speeds_in_99_ms(chain) -> None:
    """Three hops of 20 or 60 ms: only the quickest of eight is within 99 ms; a series said .265."""
    network = chain(4, service=NO_QUEUE, propagation=LINKS["two speeds"], lifetime=Deterministic(value=0.099))
    assert predict(from_network(network)).reliability[0] == pytest.approx(0.125, abs=1e-9)


def test_on_time_is_strictly_before(chain) -> None:
    network = chain(4, service=NO_QUEUE, propagation=LINKS["two speeds"], lifetime=Deterministic(value=0.100))
    assert predict(from_network(network)).reliability[0] == pytest.approx(0.125, abs=1e-9)


@pytest.mark.parametrize("deadline_s", [0.05, 0.11, 0.25, 0.6])
def test_steps_behind_a_queue(chain, deadline_s) -> None:
    """An M/M/1 queue at load .5 (the time there is exponential, 200 ms), then three links of two speeds."""
    network = chain(
        1, interval=Exponential(scale=0.2), service=Exponential(scale=0.1), lifetime=Deterministic(value=deadline_s)
    )
    alone = predict(from_network(network)).reliability[0]
    assert alone == pytest.approx(-np.expm1(-5.0 * deadline_s), abs=1e-7)
    longer = chain(4, service=NO_QUEUE, propagation=LINKS["two speeds"], lifetime=Deterministic(value=deadline_s))
    brokers = (network.topology.brokers[0], *longer.topology.brokers[1:])
    topology = longer.topology.map(brokers=lambda broker: brokers[longer.topology.index[broker.name]])
    totals, chances = sums(LINKS["two speeds"], 3)
    wanted = chances @ -np.expm1(-5.0 * np.maximum(0.0, deadline_s - totals))
    found = predict(from_network(msgspec.structs.replace(longer, topology=topology)))
    assert found.reliability[0] == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("deadline_s", [0.02, 0.035, 0.061, 0.1, 0.3])
def test_a_queue_with_two_services(chain, deadline_s) -> None:
    """M/G/1 with services of 20 or 60 ms at load .4: an idle queue makes steps. Truth by Benes's series."""
    network = chain(
        1, interval=Exponential(scale=0.1), service=LINKS["two speeds"], lifetime=Deterministic(value=deadline_s)
    )
    found = predict(from_network(network)).reliability[0]
    assert found == pytest.approx(sojourn(deadline_s), abs=2e-3)


def sojourn(t_s: float) -> float:
    """P[wait + service < t]; the wait is a geometric number of residual services (uniform to 20 ms, or to 60 ms with
    half the density above that), summed on a lattice of 20 us."""
    step_s, cells = 20e-6, 32_768
    middles = (np.arange(cells) + 0.5) * step_s
    density = np.where(middles < 0.020, 1.0, np.where(middles < 0.060, 0.5, 0.0)) / 0.040
    residual = density * step_s
    spectrum = np.fft.rfft(residual, 2 * cells)
    wait = np.fft.irfft(0.6 / (1.0 - 0.4 * spectrum * np.exp(-1j * np.pi * np.arange(cells + 1) / (2 * cells))))[:cells]
    places = np.arange(cells) * step_s
    return sum(0.5 * wait[places < t_s - service - 1e-12].sum() for service in (0.020, 0.060) if t_s > service)


def test_atoms_beside_a_density(chain) -> None:
    """Quantiles of which the lower half are equal: 10 ms, or anything from there to 50 ms; two hops."""
    mixed = Empirical(quantiles=(0.010, 0.010, 0.050))
    for deadline_s, wanted in ((0.0201, 0.25 + 0.5 * 0.0001 / 0.040 + 0.25 * 0.5 * (0.0001 / 0.040) ** 2), (0.1, 1.0)):
        network = chain(3, service=NO_QUEUE, propagation=mixed, lifetime=Deterministic(value=deadline_s))
        assert predict(from_network(network)).reliability[0] == pytest.approx(wanted, abs=2e-3)


def test_sizes_and_lifetimes_of_a_few_values(chain) -> None:
    """1 or 3 kB at 10 ms/kB, alive for 15 or 40 ms; an event in 1,000 s waits for nobody."""
    network = chain(2, interval=Exponential(scale=1e6), service=NO_QUEUE, slowness=Deterministic(value=0.010))
    publisher = msgspec.structs.replace(
        network.publishers[0],
        size_kb=Discrete(values=(1.0, 3.0), weights=(0.9, 0.1)),
        lifetime=Discrete(values=(0.015, 0.040), weights=(0.25, 0.75)),
    )
    found = predict(from_network(msgspec.structs.replace(network, publishers=(publisher,)))).reliability[0]
    assert found == pytest.approx(0.9 + 0.1 * 0.75, abs=1e-6)


def test_sums_keep_mean_and_mass_when_there_are_too_many() -> None:
    generator = np.random.default_rng(4)
    one, other = (
        (np.sort(generator.random(200)), generator.dirichlet(np.ones(200))),
        (np.sort(generator.random(90)), generator.dirichlet(np.ones(90))),
    )
    points, chances = convolved(one, other)
    assert len(points) <= MOST_STEPS
    assert (np.diff(points) > 0.0).all()
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    assert chances @ points == pytest.approx(one[1] @ one[0] + other[1] @ other[0], abs=1e-12)


def test_a_product_of_two_discrete_ones_is_discrete() -> None:
    made = product_stage(Discrete(values=(1.0, 2.0)), Discrete(values=(0.1, 0.2)))
    assert made.is_discrete
    points, chances = made.nodes()
    assert points == pytest.approx([0.1, 0.2, 0.4])
    assert chances == pytest.approx([0.25, 0.5, 0.25])


def test_nodes_of_a_discrete_one_are_its_values() -> None:
    distribution = LINKS["three, one rare"]
    points, weights = nodes_of(distribution, panels=(0.0, 0.8))
    assert points == pytest.approx([0.010, 0.035])
    assert weights == pytest.approx([0.7, 0.1])
    assert stage_of(distribution).at_shift == pytest.approx(0.7)
