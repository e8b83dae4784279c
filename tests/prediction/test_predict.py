"""Predictions against closed forms, the errata's check values, properties, and the simulator as truth."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError, InputError
from tidings.model.distributions import Deterministic, Exponential, LogNormal, Uniform
from tidings.model.scenario import Policies, Scheduling
from tidings.model.topology import Link, Topology
from tidings.prediction import from_network, predict
from tidings.prediction._paths import _invert_rows, _prefixes, _walk_constants
from tidings.routing import Overlay, tree_of_parents
from tidings.simulation import simulate


def reliability(network, **options):
    return predict(from_network(network), **options).reliability


# -- check values and closed forms -----------------------------------------------------------------------------------


def test_check_value_of_the_wait(chain) -> None:
    found = predict(from_network(chain(3)), model="mm1").brokers
    for name in ("b0", "b1", "b2"):
        assert found[name].wait_s == pytest.approx(0.1, abs=1e-6)
        assert found[name].utilisation == pytest.approx(0.5, abs=1e-6)


def test_check_value_of_the_tandem(chain) -> None:
    """Two M/M/1 brokers in a row: Erlang-2 of rate mu - lambda."""
    assert reliability(chain(2))[0] == pytest.approx(0.959572318, abs=1e-6)
    assert reliability(chain(2))[0] == pytest.approx(1.0 - math.exp(-5.0) * 6.0, abs=1e-9)


def test_errata_at_load_08(chain) -> None:
    """One and three brokers at load .8: .998 and .000 with the mean wait, .865 and .323 in truth."""
    fast = Exponential(scale=0.125)
    one, three = chain(1, interval=fast), chain(3, interval=fast)
    assert reliability(one, model="mm1")[0] == pytest.approx(1.0 - math.exp(-6.0), abs=1e-6)
    assert reliability(three, model="mm1")[0] == 0.0
    assert reliability(one)[0] == pytest.approx(1.0 - math.exp(-2.0), abs=1e-6)
    assert reliability(three)[0] == pytest.approx(1.0 - math.exp(-2.0) * (1.0 + 2.0 + 2.0), abs=1e-6)


def test_mg1_has_the_whole_distribution(chain) -> None:
    """M/D/1: P[wait < t] = (1 - rho) sum over k of (lambda (k d - t))^k / k! exp(-lambda (k d - t)) for k d <= t."""
    network = chain(1, service=Deterministic(value=0.1), lifetime=Deterministic(value=0.35))
    t, rate, d = 0.25, 5.0, 0.1
    terms = ((rate * (k * d - t)) ** k / math.factorial(k) * math.exp(-rate * (k * d - t)) for k in range(3))
    assert reliability(network)[0] == pytest.approx((1.0 - rate * d) * sum(terms), abs=1e-3)


def test_link_queues_are_stations(chain) -> None:
    """A free broker and a link that takes 100 ms per kB, exponentially: one M/M/1 queue at load .5."""
    network = chain(2, service=Deterministic(value=0.0), slowness=Exponential(scale=0.1))
    prediction = predict(from_network(network))
    assert prediction.reliability[0] == pytest.approx(1.0 - math.exp(-5.0), abs=1e-8)
    assert prediction.links["b0 -> b1"].utilisation == pytest.approx(0.5)
    assert prediction.links["b0 -> b1"].wait_s == pytest.approx(0.1)
    assert prediction.links["b1 -> b0"].rate_per_s == 0.0
    assert prediction.bottleneck == "b0 -> b1"


def test_processing_keeps_nobody_waiting(chain) -> None:
    network = chain(1, service=Deterministic(value=0.0), processing=Exponential(scale=0.5))
    assert reliability(network)[0] == pytest.approx(1.0 - math.exp(-2.0), abs=1e-8)


def test_the_deadline_is_strict(chain) -> None:
    """Constant ways of 100 and 200 ms: at 300 ms exactly it is too late, a nanosecond more is enough."""
    for allowed_s, wanted in ((0.3, 0.0), (0.300000001, 1.0), (0.299999999, 0.0)):
        network = chain(
            3, service=Deterministic(value=0.0), propagation=Deterministic(value=0.15), max_delay_s=allowed_s
        )
        assert reliability(network)[0] == wanted


def test_an_atom_at_the_constant_part(chain) -> None:
    """Behind a constant way, an M/M/1 wait of 0 has a chance of .5; the service still takes its time."""
    network = chain(2, service=Exponential(scale=0.1), propagation=Deterministic(value=0.2), max_delay_s=0.2)
    assert reliability(network)[0] == 0.0


def test_losses_and_rates(chain) -> None:
    network = chain(3, loss=0.1, filters=("x = 1", "x <= 2"), homes=(2, 1), lifetime=Exponential(scale=1e9))
    prediction = predict(from_network(network))
    assert prediction.reliability == pytest.approx([0.81, 0.9], abs=1e-6)
    assert prediction.links["b0 -> b1"].rate_per_s == pytest.approx(5.0 * 0.7 * 0.9)
    assert prediction.links["b1 -> b2"].rate_per_s == pytest.approx(5.0 * 0.4 * 0.81)
    assert prediction.brokers["b0"].arrival_rate_per_s == pytest.approx(5.0)
    assert prediction.brokers["b2"].arrival_rate_per_s == pytest.approx(5.0 * 0.4 * 0.81)
    assert prediction.matched_per_s == pytest.approx([2.0, 3.5])


def test_exponential_lifetimes(chain) -> None:
    """P[delay < an exponential of rate v] is the transform at v: (rate / (rate + v))^2 for two M/M/1 brokers."""
    network = chain(2, lifetime=Exponential(scale=0.5))
    assert reliability(network)[0] == pytest.approx((5.0 / 7.0) ** 2, abs=1e-9)
    capped = chain(2, lifetime=Exponential(scale=0.5), max_delay_s=0.4)
    v, r, m = 2.0, 5.0, 0.4

    def cdf(t):
        return 1.0 - math.exp(-r * t) * (1.0 + r * t)

    from scipy.integrate import quad

    wanted = quad(lambda t: v * math.exp(-v * t) * cdf(t), 0.0, m)[0] + math.exp(-v * m) * cdf(m)
    assert reliability(capped)[0] == pytest.approx(wanted, abs=1e-6)


def test_both_deadlines_the_tighter_counts(chain) -> None:
    def one(t):
        return 1.0 - math.exp(-5.0 * t)

    assert reliability(chain(1, max_delay_s=0.4))[0] == pytest.approx(one(0.4), abs=1e-8)
    assert reliability(chain(1, max_delay_s=3.0))[0] == pytest.approx(one(1.0), abs=1e-8)
    spread = chain(1, lifetime=Uniform(low=0.2, high=0.6))
    wanted = 1.0 - (math.exp(-1.0) - math.exp(-3.0)) / (0.4 * 5.0)
    assert reliability(spread)[0] == pytest.approx(wanted, abs=1e-6)


def test_without_any_deadline_what_is_not_lost_is_on_time(chain) -> None:
    network = chain(2, loss=0.25)
    publishers = tuple(msgspec.structs.replace(p, lifetime=None) for p in network.publishers)
    assert reliability(msgspec.structs.replace(network, publishers=publishers))[0] == pytest.approx(0.75)


@pytest.mark.parametrize("model", ["mm1", "gg1", "ours"])
def test_overload_and_its_bottleneck(chain, model) -> None:
    """The middle broker cannot keep up: nothing behind it is on time, what is before it is; the name is told."""
    network = chain(3, filters=("x >= 1", "x >= 1"), homes=(0, 2))
    slow = network.topology.map(
        brokers=lambda b: msgspec.structs.replace(b, service=Exponential(scale=0.4)) if b.name == "b1" else b
    )
    prediction = predict(from_network(msgspec.structs.replace(network, topology=slow)), model=model)
    assert prediction.reliability[1] == 0.0
    assert prediction.reliability[0] > 0.9
    assert prediction.bottleneck == "b1"
    assert prediction.overloaded == ("b1",)
    assert prediction.brokers["b1"].wait_s is None
    assert prediction.brokers["b1"].utilisation == pytest.approx(2.0)
    assert prediction.subscribers["s1"].overloaded_at == "b1"
    assert prediction.subscribers["s1"].mean_delay_s is None
    # It passes on what it can serve: 2.5 a second.
    assert prediction.brokers["b2"].arrival_rate_per_s == pytest.approx(2.5)


def test_nothing_to_match_has_no_reliability(chain) -> None:
    prediction = predict(from_network(chain(2, filters=("x >= 1", "x > 100", "y = 1"))))
    assert not np.isnan(prediction.reliability[0])
    assert np.isnan(prediction.reliability[1:]).all()
    assert prediction.subscribers["s1"].on_time_reliability is None
    assert prediction.subscribers["s2"].path == ()


def test_a_broker_out_of_reach_is_never_reached(chain) -> None:
    network = chain(2)
    forward = tuple(link for link in network.topology.links if link.source == "b1")
    topology = Topology(brokers=network.topology.brokers, links=forward)
    assert (
        reliability(msgspec.structs.replace(network, topology=topology, link_failures=(), link_components=()))[0] == 0.0
    )


def test_every_publisher_has_its_own_tree_in_a_mesh(chain) -> None:
    """A triangle: by given trees the one publisher goes round, and pays for two links of 200 ms."""
    network = chain(3, service=Deterministic(value=0.0), propagation=Exponential(scale=0.2))
    extra = tuple(Link(source=a, target=b, propagation=Exponential(scale=0.2)) for a, b in (("b0", "b2"), ("b2", "b0")))
    topology = Topology(brokers=network.topology.brokers, links=(*network.topology.links, *extra))
    mesh = msgspec.structs.replace(network, topology=topology, link_failures=(), link_components=())
    direct = predict(from_network(mesh)).reliability[0]
    assert direct == pytest.approx(1.0 - math.exp(-5.0), abs=1e-8)
    tree = tree_of_parents(Overlay.of(topology), 0, [-1, 0, 1])
    round_about = predict(from_network(mesh, trees=[tree])).reliability[0]
    assert round_about == pytest.approx(1.0 - 6.0 * math.exp(-5.0), abs=1e-8)
    with pytest.raises(ConfigurationError, match="2 trees are given for 1 publishers"):
        from_network(mesh, trees=[tree, tree])


def test_service_per_stored_subscription(chain) -> None:
    network = chain(2, filters=("x >= 1", "x >= 1", "x = 4"), homes=(1, 1, 0))
    per = network.topology.map(
        brokers=lambda b: msgspec.structs.replace(b, service=Exponential(scale=0.01), service_per="subscription")
    )
    network = msgspec.structs.replace(network, topology=per)
    routed, everywhere = from_network(network), from_network(network, stored="all")
    assert [broker.service_factor for broker in routed.brokers] == [3.0, 2.0]
    assert [broker.service_factor for broker in everywhere.brokers] == [3.0, 3.0]


def test_several_paths_are_refused(chain) -> None:
    network = msgspec.structs.replace(chain(2), policies=Policies(routing="multi-path"))
    with pytest.raises(ConfigurationError, match="the first copy counts, which formulas do not cover"):
        from_network(network)
    network = msgspec.structs.replace(network, policies=Policies(routing="spread"))
    with pytest.raises(ConfigurationError, match=r'every event chooses its tree.*"single-path" and "balanced"'):
        from_network(network)


def test_balanced_routes_are_those_of_a_simulation() -> None:
    from tidings.model.scenario import Scenario
    from tidings.simulation._options import Options
    from tidings.simulation._plan import plan

    network = Scenario.load("examples/quickstart.toml").expand()
    network = msgspec.structs.replace(
        network, policies=Policies(scheduling=Scheduling(name="fifo"), routing="balanced", expired="forward")
    )
    knowledge, routes = from_network(network), plan(network, Options()).routes
    for number, publisher in enumerate(knowledge.publishers):
        assert publisher.tree.position.tolist() == routes.position[routes.tree_of[number]].tolist()


def test_unknown_subscriptions_are_named(chain) -> None:
    with pytest.raises(InputError, match="did you mean 's0'"):
        from_network(chain(1)).number_of("s01")


# -- properties ------------------------------------------------------------------------------------------------------

DISTRIBUTIONS = st.sampled_from([Exponential(scale=0.1), Uniform(low=0.0, high=0.2), Deterministic(value=0.1)])


@settings(deadline=None, max_examples=25)
@given(brokers=st.integers(1, 4), load=st.floats(0.05, 0.9), step=st.floats(0.01, 0.09), service=DISTRIBUTIONS)
def test_reliability_falls_with_load(chain, brokers, load, step, service) -> None:
    low, high = (
        reliability(chain(brokers, interval=Exponential(scale=0.1 / rho), service=service))[0]
        for rho in (load, load + step)
    )
    assert high <= low + 2e-3


@settings(deadline=None, max_examples=25)
@given(
    brokers=st.integers(1, 4),
    lifetime_s=st.floats(0.05, 3.0),
    more=st.floats(1.01, 2.0),
    service=DISTRIBUTIONS,
    model=st.sampled_from(["mm1", "gg1", "ours"]),
)
def test_reliability_rises_with_lifetime(chain, brokers, lifetime_s, more, service, model) -> None:
    way = LogNormal(median=0.04, sigma=0.6, low=0.005, high=0.2)
    low, high = (
        reliability(chain(brokers, service=service, propagation=way, lifetime=Deterministic(value=t)), model=model)[0]
        for t in (lifetime_s, more * lifetime_s)
    )
    assert 0.0 <= low <= high + 2e-3 <= 1.0 + 2e-3


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(5)))
def test_names_and_numbers_change_nothing(chain, order) -> None:
    """Renaming and reordering brokers and subscriptions permutes the answer."""
    network = chain(
        5,
        publishers_at=(1, 3),
        filters=("x = 1", "x <= 2", "x = 4", "x >= 2", "x = 3"),
        homes=(0, 4, 2, 1, 3),
        interval=Uniform(low=0.0, high=0.8),
        service=Uniform(low=0.0, high=0.2),
        propagation=Exponential(scale=0.02),
    )
    wanted = predict(from_network(network)).subscribers
    brokers = tuple(network.topology.brokers[number] for number in order)
    links = tuple(network.topology.links[number] for number in np.argsort([0, *order, 6, 7]) % 8)
    shuffled = msgspec.structs.replace(
        network,
        topology=Topology(brokers=brokers, links=tuple(dict.fromkeys(links))),
        subscriptions=tuple(network.subscriptions[number] for number in order),
    )
    found = predict(from_network(shuffled)).subscribers
    for name, row in wanted.items():
        assert found[name].on_time_reliability == pytest.approx(row.on_time_reliability, abs=1e-7)


def test_a_publisher_split_in_two_poisson_halves_changes_nothing(chain) -> None:
    one = from_network(chain(2, service=Uniform(low=0.0, high=0.2)))
    two = from_network(
        chain(2, service=Uniform(low=0.0, high=0.2), interval=Exponential(scale=0.4), publishers_at=(0, 0))
    )
    assert predict(two).reliability == pytest.approx(predict(one).reliability, abs=1e-9)


# -- kernels and their twins -----------------------------------------------------------------------------------------


def test_compiled_and_plain_agree() -> None:
    generator = np.random.default_rng(7)
    order, parent, link = (np.array(x, np.int32) for x in ([0, 1, 2, -1], [-1, 0, 1, -1], [-1, 0, 1, -1]))
    service, delay = np.array([1, 0, 2, 0, 1, 2], np.int32), np.array([0, 2, 0, 0, 1, 1], np.int32)
    sigma = 0.5 * generator.random(6)
    transforms = generator.random((3, 5)) + 1j * generator.random((3, 5))
    residuals = generator.random((6, 5)) + 1j * generator.random((6, 5))
    known, waited = np.array([0, 1, 0, 0, 1, 0], np.int32), generator.random((2, 5)) + 0j
    tree = (order, parent, link, service, delay)
    for is_sent in (False, True):
        one, other = (
            kernel(*tree, sigma, 1.0 - sigma, known, transforms, residuals, waited, is_sent)
            for kernel in (_prefixes, _prefixes.py_func)
        )
        assert one == pytest.approx(other, rel=1e-12)
        outs = []
        for kernel in (_walk_constants, _walk_constants.py_func):
            shift, atom, stuck = np.zeros(4), np.zeros(4), np.zeros(4, np.bool_)
            kernel(
                *tree,
                np.array([0.0, 0.1, 0.2]),
                np.array([1.0, 0.0, 0.5]),
                1.0 - sigma,
                0.1 * np.arange(6),
                np.array([False, False, True, False, False, False]),
                is_sent,
                shift,
                atom,
                stuck,
            )
            outs.append(np.concatenate([shift, atom, stuck]))
        assert outs[0] == pytest.approx(outs[1], rel=1e-12)
    s = 1.0 + 1j * np.arange(33)
    whole = (3.0 / (3.0 + s))[None, :].repeat(4, axis=0)
    outs = []
    for kernel in (_invert_rows, _invert_rows.py_func):
        out = np.zeros(3)
        kernel(whole, s, 1.0, math.pi, np.array([0, 0, 2]), np.array([0.5, 0.9, 0.7]), out)
        outs.append(out)
    assert outs[0] == pytest.approx(outs[1], abs=1e-9)


# -- the simulator as truth ------------------------------------------------------------------------------------------


def simulated(network):
    result = simulate(network)
    return np.array([row.on_time_reliability for row in result.subscribers.values()]), result


def test_against_simulation_on_a_row_with_everything(chain) -> None:
    """Queues at brokers and links, jitter, loss, two publishers, both deadlines. The runs of 20,000 s have a standard
    error of about .005 per subscription; the margin is .02."""
    network = chain(
        4,
        publishers_at=(0, 2),
        filters=("x = 1", "x <= 2", "x >= 3", "x >= 1"),
        homes=(3, 1, 0, 2),
        service=Exponential(scale=0.1),
        slowness=Exponential(scale=0.05),
        propagation=LogNormal(median=0.04, sigma=0.6),
        loss=0.02,
        max_delay_s=0.8,
        duration_s=20_000.0,
        interval=Exponential(scale=0.3),
    )
    actual, result = simulated(network)
    prediction = predict(from_network(network))
    assert prediction.reliability == pytest.approx(actual, abs=0.02)
    for name, row in prediction.brokers.items():
        assert row.utilisation == pytest.approx(result.brokers[name], abs=0.02)
    for name, link in prediction.links.items():
        assert link.utilisation == pytest.approx(result.links[name], abs=0.02)


def test_against_simulation_where_expired_events_are_dropped(chain) -> None:
    """Load .7 at the first broker and .8 s to live: a tenth of the events never leaves it. Standard error of the run
    about .01, margin .04; the second broker's load tells dropping from forwarding (.7 without)."""
    network = chain(
        2,
        interval=Exponential(scale=0.1 / 0.7),
        lifetime=Deterministic(value=0.8),
        expired="drop",
        duration_s=20_000.0,
    )
    actual, result = simulated(network)
    prediction = predict(from_network(network))
    assert result.brokers["b1"] < 0.66
    assert prediction.brokers["b1"].utilisation == pytest.approx(result.brokers["b1"], abs=0.02)
    assert prediction.reliability == pytest.approx(actual, abs=0.04)
    forwarding = predict(replace(from_network(network), drops_expired=False))
    assert forwarding.brokers["b1"].utilisation == pytest.approx(0.7)


def test_a_link_that_sheds_what_is_expired_settles_below_overload(chain) -> None:
    """Twice what the link can send, 2 s to live: it sends all the time, and no queue is without end."""
    network = chain(
        2,
        interval=Exponential(scale=0.1),
        service=Deterministic(value=0.0),
        slowness=Deterministic(value=0.2),
        lifetime=Deterministic(value=2.0),
        expired="drop",
        duration_s=5_000.0,
    )
    actual, result = simulated(network)
    prediction = predict(from_network(network))
    assert prediction.overloaded == ()
    assert result.links["b0 -> b1"] > 0.97
    assert prediction.links["b0 -> b1"].utilisation == pytest.approx(result.links["b0 -> b1"], abs=0.01)
    assert prediction.reliability == pytest.approx(actual, abs=0.02)
