"""Changes and their costs: what is changed, what is not, and that costs add up."""

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError, InputError
from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Empirical,
    Exponential,
    Hypoexponential,
    LogNormal,
    PhaseType,
    ShiftedGamma,
    TruncatedNormal,
    Uniform,
    Weibull,
    scaled,
)
from tidings.model.scenario import Network
from tidings.planning import (
    AllowLonger,
    Change,
    Costs,
    LiveLonger,
    MovePublisher,
    SpeedUpBroker,
    SpeedUpLink,
    UseOrdering,
    UseScheme,
    UseStrategy,
    apply,
)

DISTRIBUTIONS: list[DelayDistribution] = [
    Deterministic(value=0.3),
    Exponential(scale=0.2),
    Uniform(low=0.1, high=0.4),
    TruncatedNormal(location=0.5, scale=0.2),
    ShiftedGamma(shift=0.1, shape=1.5, scale=0.2),
    LogNormal(median=0.4, sigma=0.6, low=0.1, high=2.0),
    Hypoexponential(rates=(3.0, 5.0)),
    PhaseType(alpha=(0.4, 0.6), sub_generator=((-3.0, 1.0), (0.0, -2.0))),
    Empirical(quantiles=(0.1, 0.2, 0.9)),
    Weibull(shape=0.7, scale=0.4),
]

ALL: tuple[Change, ...] = (
    UseStrategy(strategy="eb"),
    UseScheme(scheme="periodic"),
    UseOrdering(policy="CST-30"),
    MovePublisher(publisher="p", broker="c"),
    SpeedUpLink(source="c", target="b", factor=2.0),
    SpeedUpBroker(broker="a", factor=3.0),
    AllowLonger(subscription="near", factor=1.5),
    LiveLonger(publisher="p", factor=4.0),
)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda distribution: type(distribution).__name__)
def test_a_scaled_distribution_is_that_of_the_scaled_variable(distribution: DelayDistribution) -> None:
    points = np.linspace(0.05, 1.5, 12)
    stretched = scaled(distribution, 2.5)
    assert type(stretched) is type(distribution)
    assert stretched.mean() == pytest.approx(2.5 * distribution.mean())
    assert stretched.cdf(2.5 * points) == pytest.approx(distribution.cdf(points), abs=1e-9)


def test_every_change_does_what_it_says(overloaded: Network) -> None:
    then = apply(overloaded, ALL)
    assert then.policies.scheduling.name == "eb"
    assert then.policies.faults.scheme == "periodic"
    assert then.policies.ordering == "CST-30"
    assert then.publishers[0].broker == "c"
    assert then.publishers[0].lifetime == Deterministic(value=8.0)
    assert then.subscriptions[0].max_delay_s == pytest.approx(0.018)
    assert then.subscriptions[1] == overloaded.subscriptions[1]
    for pair in (("b", "c"), ("c", "b")):  # a line is bought both ways
        assert _mean(then, *pair) == pytest.approx(_mean(overloaded, *pair) / 2.0)
    assert _mean(then, "a", "b") == _mean(overloaded, "a", "b")


def _mean(network: Network, source: str, target: str) -> float:
    slowness = network.topology.link(source, target).slowness
    assert slowness is not None
    return slowness.mean()


def test_a_broker_gets_faster(busy: Network) -> None:
    service = apply(busy, [SpeedUpBroker(broker="a", factor=3.0)]).topology.broker("a").service
    assert service == Exponential(scale=0.004)
    assert apply(busy, [SpeedUpBroker(broker="a", factor=3.0)]).topology.broker("b") == busy.topology.broker("b")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the network is a frozen value
@given(order=st.permutations(ALL))
def test_the_order_of_changes_does_not_matter(overloaded: Network, order: list[Change]) -> None:
    assert apply(overloaded, order).to_bytes() == apply(overloaded, ALL).to_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (MovePublisher(publisher="P", broker="c"), "no publisher 'P'; did you mean|no publisher 'P'; there are 1"),
        (MovePublisher(publisher="p", broker="z"), "no broker 'z'"),
        (SpeedUpBroker(broker="z", factor=2.0), "no broker 'z'"),
        (SpeedUpLink(source="a", target="c", factor=2.0), "no link between 'a' and 'c'"),
        (SpeedUpLink(source="a", target="b", factor=0.5), "must be 1 or more"),
        (AllowLonger(subscription="nobody", factor=2.0), "no subscription 'nobody'"),
        (AllowLonger(subscription="far", factor=2.0), "'far' has no deadline"),
        (LiveLonger(publisher="p", factor=float("nan")), "must be 1 or more"),
    ],
)
def test_what_cannot_be_changed_is_named(overloaded: Network, change: Change, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        apply(overloaded, [change])


def test_the_same_thing_is_not_changed_twice(overloaded: Network) -> None:
    twice = [SpeedUpLink(source="a", target="b", factor=2.0), SpeedUpLink(source="b", target="a", factor=3.0)]
    with pytest.raises(ConfigurationError, match="two changes of link a b"):
        apply(overloaded, twice)


@given(chosen=st.lists(st.sampled_from(ALL), unique=True), more=st.sampled_from(ALL))
def test_costs_add_up_and_grow(chosen: list[Change], more: Change) -> None:
    costs = Costs(move=2.0, capacity=7.0)
    total = costs.total(chosen)
    assert total == pytest.approx(sum(costs.of(change) for change in chosen))
    assert costs.total([*chosen, more]) > total


def test_capacity_costs_by_what_is_added() -> None:
    costs = Costs(capacity=10.0, lifetime=20.0)
    assert costs.of(SpeedUpBroker(broker="a", factor=1.5)) == pytest.approx(5.0)
    assert costs.of(AllowLonger(subscription="s", factor=2.0)) == pytest.approx(20.0)


def test_costs_from_a_file(tmp_path: pytest.TempPathFactory) -> None:
    path = tmp_path / "costs.toml"  # type: ignore[operator]
    path.write_text("[costs]\ncapacity = 3\n")
    assert Costs.load(path) == Costs(capacity=3)
    path.write_text("[costs]\ncapactiy = 3\n")
    with pytest.raises(ConfigurationError, match="did you mean 'capacity'"):
        Costs.load(path)
    path.write_text("capacity = 3\n")
    with pytest.raises(InputError, match=r"no table \[costs\]"):
        Costs.load(path)
    with pytest.raises(InputError, match="cannot be read"):
        Costs.load(path.with_name("nothing.toml"))
    with pytest.raises(ConfigurationError, match="must be a number above 0"):
        Costs(move=0.0)


def test_changes_have_a_form_in_json() -> None:
    text = msgspec.json.encode(ALL)
    assert msgspec.json.decode(text, type=tuple[Change, ...]) == ALL
