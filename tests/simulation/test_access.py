"""Access links of publishers and subscribers: a delay, a queue, loss, with every strategy, scheme and route."""

import math

import msgspec
import pytest

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model import Network, Scenario
from tidings.model.distributions import Deterministic
from tidings.model.scenario import Access
from tidings.model.scenario_file import to_toml
from tidings.prediction import predict_network
from tidings.routing import Overlay, shortest_path_tree
from tidings.simulation import Options, Result, simulate
from tidings.storm import play

SCENARIO = """
duration = "{seconds} s"
warmup = "100 s"
seed = 7
topology = {{ kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }}
[links]
propagation = "20 ms"
{failures}
[[publishers]]
name = "p"
at = "a"
rate = "5 /s"
{publisher}
[[subscribers]]
name = "s"
at = "b"
filter = "TRUE"
max_delay = "{max_delay}"
{subscriber}
[policies]
expired = "forward"
{policies}
"""


def network(
    access: str, max_delay: str = "1 s", *, seconds: int = 4_000, policies: str = "", failures: str = "", of: str = "p"
) -> Network:
    """A publisher and a subscriber; the link is that of the publisher `p` or of the subscriber `s`."""
    text = SCENARIO.format(
        publisher=f"access = {access}" if of == "p" else "",
        subscriber=f"access = {access}" if of == "s" else "",
        max_delay=max_delay,
        seconds=seconds,
        policies=policies,
        failures=failures,
    )
    return Scenario.parse(text).expand()


def share_of(result: Result, subscriber: str) -> float:
    found = result.subscribers[subscriber].on_time_reliability
    assert found is not None
    return found


def share(result: Result) -> float:
    return share_of(result, "s")


@pytest.mark.parametrize("of", ["p", "s"])
def test_propagation_is_added_to_every_delay(of: str) -> None:
    assert share(simulate(network('{ propagation = "30 ms" }', "50 ms", seconds=200, of=of))) == 0.0  # strictly before
    assert share(simulate(network('{ propagation = "30 ms" }', "50.001 ms", seconds=200, of=of))) == 1.0


@pytest.mark.parametrize("of", ["p", "s"])
def test_a_lossy_access_link_loses_its_share(of: str) -> None:
    """Margin: four standard errors of a share of 19,500."""
    result = simulate(network("{ loss = 0.2 }", of=of))
    assert share(result) == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / result.matched))
    assert result.lost == result.matched - result.on_time


@pytest.mark.parametrize("of", ["p", "s"])
def test_a_slow_access_link_is_a_queue(of: str) -> None:
    """M/M/1 of 1 kB at 100 ms/kB and 5 events a second, then 20 ms: P[T < t]; margin .02 of 19,500 dependent events."""
    made = network(
        '{ slowness = { distribution = "exponential", mean = "100 ms/kB" } }',
        "320 ms",
        policies='scheduling = "fifo"',
        of=of,
    )
    assert share(simulate(made)) == pytest.approx(1 - math.exp(-5 * 0.3), abs=0.02)
    by_bandwidth = network('{ bandwidth = "10 kB/s" }', of=of)
    client = by_bandwidth.publishers[0] if of == "p" else by_bandwidth.subscribers[0]
    assert client.access == Access(slowness=Deterministic(value=0.1))


def test_a_scenario_says_what_options_say() -> None:
    distribution = Deterministic(value=0.1)
    written = simulate(network('{ slowness = "100 ms/kB" }', "200 ms", policies='scheduling = "lookahead"'))
    plain = network('{ slowness = "100 ms/kB" }', "200 ms", policies='scheduling = "lookahead"')
    bare = tuple(msgspec.structs.replace(publisher, access=None) for publisher in plain.publishers)
    option = simulate(msgspec.structs.replace(plain, publishers=bare), Options(access_slowness=[distribution]))
    assert msgspec.structs.replace(written, wall_s=0.0) == msgspec.structs.replace(option, wall_s=0.0)


@pytest.mark.parametrize("scheduling", ["fifo", "eb", "lookahead", "plan"])
@pytest.mark.parametrize("scheme", [None, "periodic", "bypass+buffer"])
@pytest.mark.parametrize("of", ["p", "s"])
def test_every_event_is_accounted_for(scheduling: str, scheme: str | None, of: str) -> None:
    policies, failures = f'scheduling = "{scheduling}"', ""
    if scheme is not None:
        policies += f'\nfaults = {{ scheme = "{scheme}", refresh = "5 s", timeout = "30 s", retry = "1 s" }}'
        failures = 'failures = { availability = 0.9, period = "10 s" }'
    access = '{ bandwidth = "6 kB/s", propagation = "5 ms", loss = 0.1 }'
    made = network(access, "500 ms", seconds=300, policies=policies, failures=failures, of=of)
    result = simulate(made)
    assert result.matched == result.on_time + result.late + result.lost + result.in_flight
    assert 0 < result.on_time < 0.9 * result.matched
    pieces = simulate(made, Options(chunk_events=11, steps_per_call=17))
    assert msgspec.structs.replace(pieces, wall_s=0.0) == msgspec.structs.replace(result, wall_s=0.0)


AT_HAND = """
duration = "400 s"
seed = 7
{topology}
[links]
propagation = "20 ms"
slowness = {{ distribution = "exponential", mean = "60 ms/kB" }}
{link}
[[publishers]]
name = "p"
at = "a"
rate = "10 /s"
attributes = {{ x = {{ values = [1, 2] }} }}
[[subscribers]]
name = "near"
at = "b"
filter = "x = 1"
max_delay = "400 ms"
[[subscribers]]
name = "far"
at = "{home}"
filter = "x = 2"
max_delay = "400 ms"
price = 2
{access}
"""


def test_an_access_link_is_a_link_to_a_broker_of_its_own() -> None:
    """Exactly: strategies on the way know that it is still to come, and the queue at its end is one like others."""
    behaviour = 'slowness = { distribution = "exponential", mean = "50 ms/kB" }, propagation = "30 ms", loss = 0.05'
    written = AT_HAND.format(
        topology='topology = { kind = "explicit", direction = "forward", brokers = ["a", "b"], links = [["a", "b"]] }',
        link="",
        home="b",
        access=f"access = {{ {behaviour} }}",
    )
    explicit = AT_HAND.format(
        topology='topology = { kind = "explicit", direction = "forward", brokers = ["a", "b", "c"], '
        'links = [["a", "b"], ["b", "c"]] }',
        link='[[link]]\nsource = "b"\ntarget = "c"\n' + behaviour.replace("}, p", "}\np").replace('", loss', '"\nloss'),
        home="c",
        access="",
    )
    found, expected = (simulate(Scenario.parse(text).expand()) for text in (written, explicit))
    assert found.subscribers == expected.subscribers
    assert 0.2 < share_of(found, "far") < 0.95
    assert found.links == {"a -> b": expected.links["a -> b"], "b -> far": expected.links["b -> c"]}
    assert found.brokers.keys() == {"a", "b"}


def test_a_subscriber_may_have_the_name_of_a_broker() -> None:
    written = SCENARIO.replace('name = "s"', 'name = "a"').format(
        publisher="",
        subscriber='access = { propagation = "1 ms" }',
        max_delay="1 s",
        seconds=200,
        policies="",
        failures="",
    )
    result = simulate(Scenario.parse(written).expand())
    assert result.on_time == result.matched
    assert "b -> a (subscriber)" in result.links


def test_predictions_take_a_sample_of_access_links() -> None:
    """20 ms and then an exponential delay of 50 ms, within 120 ms: P[T < 100 ms]; margin .03."""
    made = network('{ propagation = { distribution = "exponential", mean = "50 ms" } }', "120 ms", of="s")
    predicted = predict_network(made).subscribers["s"]
    assert predicted.on_time_reliability == pytest.approx(1 - math.exp(-2), abs=0.03)


def test_access_links_are_kept_in_scenario_files() -> None:
    for of in ("p", "s"):
        made = network('{ slowness = "100 ms/kB", loss = 0.1 }', of=of, policies="")
        assert counts(Scenario.parse(to_toml(made)).expand()) == counts(made)


def counts(made: Network) -> Result:
    return msgspec.structs.replace(simulate(made), wall_s=0.0)


def test_what_cannot_be_is_refused() -> None:
    for of in ("p", "s"):
        with pytest.raises(ScenarioError, match=r"access.bandwidth: both `slowness` and `bandwidth` are given"):
            network('{ slowness = "1 ms/kB", bandwidth = "10 kB/s" }', of=of)
    with pytest.raises(ScenarioError, match=r"access.loss: must be a number, below 1"):
        network("{ loss = 1.0 }")
    with pytest.raises(ConfigurationError, match="publishers have access links, but move"):
        simulate(network("{ loss = 0.1 }", policies='relocation = "pop"'))
    for of in ("p", "s"):
        with pytest.raises(ConfigurationError, match="loses events, but connections lose nothing"):
            play(network("{ loss = 0.1 }", of=of))
    tree = shortest_path_tree(Overlay.of(network("{ loss = 0.1 }").topology), 0, destinations=())
    with pytest.raises(ConfigurationError, match="trees are given, but subscribers have access links"):
        simulate(network("{ loss = 0.1 }", of="s"), Options(trees=[tree]))
