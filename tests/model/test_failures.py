"""How components fail, in Python and in scenarios."""

import re

import pytest
from msgspec.structs import replace

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model import Scenario
from tidings.model.distributions import Deterministic, Exponential, LogNormal, Weibull
from tidings.model.failures import Failures
from tidings.model.scenario import Faults

SCENARIO = """
duration = "10 min"
topology = {{ kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }}
{text}
"""
USUAL = '{ availability = 0.9, period = "100 s" }'


def read(text: str) -> Scenario:
    return Scenario.parse(SCENARIO.format(text=text))


def test_by_availability_and_period() -> None:
    distribution = Failures.exponential(availability=0.92, period_s=60_000.0)
    assert distribution.up == Exponential(scale=0.92 * 60_000.0)
    assert distribution.availability == pytest.approx(0.92)
    assert distribution.period_s == pytest.approx(60_000.0)
    assert distribution.failure_rate_per_s == pytest.approx(1 / 55_200)
    assert distribution.repair_rate_per_s == pytest.approx(1 / 4_800)
    assert distribution.is_exponential


def test_by_rates() -> None:
    distribution = Failures.by_rates(failure_per_s=0.01, repair_per_s=0.04)
    assert distribution.availability == pytest.approx(0.8)
    assert not Failures(up=distribution.up, down=Deterministic(value=3.0)).is_exponential


@pytest.mark.parametrize("availability", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_an_availability_that_cannot_be(availability: float) -> None:
    with pytest.raises(ConfigurationError, match="above 0 and below 1; leave"):
        Failures.exponential(availability=availability, period_s=10.0)


def test_rates_and_times_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="failure rate is 0"):
        Failures.by_rates(failure_per_s=0.0, repair_per_s=1.0)
    with pytest.raises(ConfigurationError, match="repair rate is 0"):
        Failures.by_rates(failure_per_s=1.0, repair_per_s=0.0)
    with pytest.raises(ConfigurationError, match="mean down time is 0"):
        Failures(up=Exponential(scale=1.0), down=Deterministic(value=0.0))
    with pytest.raises(ConfigurationError, match="period"):
        Failures.exponential(availability=0.5, period_s=0.0)


def test_from_a_profile() -> None:
    row = {"kind": "link", "source": "a", "target": "b", "failures": 4, "failure_rate_per_s": 0.01}
    found = Failures.from_profile(row | {"repair_rate_per_s": 0.1})
    assert found == Failures.by_rates(failure_per_s=0.01, repair_per_s=0.1)
    assert Failures.from_profile(row | {"failure_rate_per_s": 0.0, "repair_rate_per_s": None}) is None
    with pytest.raises(ConfigurationError, match="'a -> b' failed 4 times and was never repaired in the trace"):
        Failures.from_profile(row | {"repair_rate_per_s": None})


def test_nothing_fails_unless_it_is_said() -> None:
    network = read("").expand()
    assert network.broker_failures == (None, None, None)
    assert network.link_failures == (None,) * 4
    assert network.link_components == (0, 0, 1, 1)
    assert not network.has_failures
    assert network.policies.faults == Faults(scheme="bypass+buffer", refresh_s=600.0, timeout_s=86_400.0)


def test_defaults_and_exceptions() -> None:
    network = read(
        f"""
[links]
failures = {USUAL}
[[link]]
source = "b"
target = "c"
failures = {{ failure_rate = "36 /h", repair_rate = "2 /s", together = false }}
[brokers]
failures.up = {{ distribution = "weibull", shape = 0.7, scale = "10 s" }}
failures.down = {{ distribution = "log-normal", median = "2 s", sigma = 0.5 }}
[[broker]]
name = "c"
failures = "never"
"""
    ).expand()
    assert network.has_failures
    odd = Failures(up=Weibull(shape=0.7, scale=10.0), down=LogNormal(median=2.0, sigma=0.5))
    assert network.broker_failures == (odd, odd, None)
    usual, other = (
        Failures.exponential(availability=0.9, period_s=100.0),
        Failures.by_rates(failure_per_s=0.01, repair_per_s=2.0),
    )
    assert network.link_failures == (usual, usual, other, other)
    assert network.link_components == (0, 0, 1, 2)


def test_one_direction_may_fail_alone() -> None:
    network = read(
        f'[links]\nfailures = {USUAL}\n[[link]]\nsource = "a"\ntarget = "b"\ndirection = "forward"\nfailures = "never"'
    ).expand()
    assert network.link_failures[0] is None
    assert network.link_failures[1] is not None
    assert network.link_components == (0, 1, 2, 2)


def test_each_component_draws_its_own_and_moves_nothing_else() -> None:
    drawn = '{ availability = { distribution = "uniform", low = 0.9, high = 0.95 }, period = "60000 s" }'
    scenario = read(f"[brokers]\nfailures = {drawn}")
    network = scenario.expand(3)
    shares = [each.availability for each in network.broker_failures if each is not None]
    assert len(set(shares)) == 3
    assert all(0.9 <= share <= 0.95 for share in shares)
    assert scenario.expand(3).to_bytes() == network.to_bytes()
    assert scenario.expand(4).broker_failures != network.broker_failures
    assert network.topology == read("").expand(3).topology


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[brokers]\nfailures = { availability = 1, period = "1 s" }',
            "brokers.failures.availability: 1 is not possible",
        ),
        (
            '[brokers]\nfailures = { availability = 0, period = "1 s" }',
            "must be above 0 and below 1; leave the component",
        ),
        ('[brokers]\nfailures = { period = "1 s" }', "`availability` is missing beside `period`"),
        ("[links]\nfailures = {}", "the failures are empty"),
        ('[links]\nfailures = { up = "1 s", failure_rate = "1 /s" }', "both `failure_rate` and `up` are given"),
        ('[links]\nfailures = { failure_rate = "0 /s", repair_rate = "1 /s" }', "'0 /s' is not possible"),
        ('[links]\nfailures = { up = "1 s", down = "0 s" }', "'0 s' is not possible"),
        ('[links]\nfailures = "sometimes"', "did you mean|write one of never"),
        ('[brokers]\nfailures = { availability = 0.5, period = "1 s", together = true }', "unknown key `together`"),
        ('[policies]\nfaults = "buffering"', "did you mean `buffer`"),
        ('[policies]\nfaults = { scheme = "periodic", queues = "volatile" }', '`queues` belongs to "buffer"'),
        ('[policies]\nfaults = { refresh = "1 h", timeout = "1 min" }', "forgotten after 60 s, before it is refreshed"),
    ],
)
def test_what_cannot_be_is_said_where_it_is_written(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=f"({message})" if "|" in message else re.escape(message)):
        read(text).expand()


def test_a_drawn_availability_that_cannot_be() -> None:
    text = '[brokers]\nfailures = { availability = { distribution = "uniform", low = 1, high = 2 }, period = "1 s" }'
    with pytest.raises(ScenarioError, match=r"brokers\.failures: availability is 1\."):
        read(text).expand()


def test_a_network_is_checked() -> None:
    network = read("").expand()
    distribution = Failures.exponential(availability=0.9, period_s=10.0)
    with pytest.raises(ConfigurationError, match="broker_failures has 1 entries for 3 brokers"):
        replace(network, broker_failures=(distribution,))
    with pytest.raises(ConfigurationError, match="component 0 fail together"):
        replace(network, link_failures=(distribution, None, None, None))
