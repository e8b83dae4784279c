"""Access links of publishers: a delay, a queue, loss, with every strategy, scheme and route."""

import math

import msgspec
import pytest

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model import Network, Scenario
from tidings.model.distributions import Deterministic
from tidings.model.scenario import Access
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
access = {access}
[[subscribers]]
name = "s"
at = "b"
filter = "TRUE"
max_delay = "{max_delay}"
[policies]
expired = "forward"
{policies}
"""


def network(
    access: str, max_delay: str = "1 s", *, seconds: int = 4_000, policies: str = "", failures: str = ""
) -> Network:
    text = SCENARIO.format(access=access, max_delay=max_delay, seconds=seconds, policies=policies, failures=failures)
    return Scenario.parse(text).expand()


def share(result: Result) -> float:
    found = result.subscribers["s"].on_time_reliability
    assert found is not None
    return found


def test_propagation_is_added_to_every_delay() -> None:
    assert share(simulate(network('{ propagation = "30 ms" }', "50 ms", seconds=200))) == 0.0  # strictly before
    assert share(simulate(network('{ propagation = "30 ms" }', "50.001 ms", seconds=200))) == 1.0


def test_a_lossy_access_link_loses_its_share() -> None:
    """Margin: four standard errors of a share of 19,500."""
    result = simulate(network("{ loss = 0.2 }"))
    assert share(result) == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / result.matched))
    assert result.lost == result.matched - result.on_time


def test_a_slow_access_link_is_a_queue() -> None:
    """M/M/1 of 1 kB at 100 ms/kB and 5 events a second, then 20 ms: P[T < t]; margin .02 of 19,500 dependent events."""
    made = network(
        '{ slowness = { law = "exponential", mean = "100 ms/kB" } }', "320 ms", policies='scheduling = "fifo"'
    )
    assert share(simulate(made)) == pytest.approx(1 - math.exp(-5 * 0.3), abs=0.02)
    by_bandwidth = network('{ bandwidth = "10 kB/s" }').publishers[0].access
    assert by_bandwidth == Access(slowness=Deterministic(value=0.1))


def test_a_scenario_says_what_options_say() -> None:
    law = Deterministic(value=0.1)
    written = simulate(network('{ slowness = "100 ms/kB" }', "200 ms", policies='scheduling = "lookahead"'))
    plain = network('{ slowness = "100 ms/kB" }', "200 ms", policies='scheduling = "lookahead"')
    bare = tuple(msgspec.structs.replace(publisher, access=None) for publisher in plain.publishers)
    option = simulate(msgspec.structs.replace(plain, publishers=bare), Options(access_slowness=[law]))
    assert msgspec.structs.replace(written, wall_s=0.0) == msgspec.structs.replace(option, wall_s=0.0)


@pytest.mark.parametrize("scheduling", ["fifo", "eb", "lookahead", "plan"])
@pytest.mark.parametrize("scheme", [None, "periodic", "bypass+buffer"])
def test_every_event_is_accounted_for(scheduling: str, scheme: str | None) -> None:
    policies, failures = f'scheduling = "{scheduling}"', ""
    if scheme is not None:
        policies += f'\nfaults = {{ scheme = "{scheme}", refresh = "5 s", timeout = "30 s", retry = "1 s" }}'
        failures = 'failures = { availability = 0.9, period = "10 s" }'
    access = '{ bandwidth = "6 kB/s", propagation = "5 ms", loss = 0.1 }'
    made = network(access, "500 ms", seconds=300, policies=policies, failures=failures)
    result = simulate(made)
    assert result.matched == result.on_time + result.late + result.lost + result.in_flight
    assert 0 < result.on_time < 0.9 * result.matched
    pieces = simulate(made, Options(chunk_events=11, steps_per_call=17))
    assert msgspec.structs.replace(pieces, wall_s=0.0) == msgspec.structs.replace(result, wall_s=0.0)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"access.bandwidth: both `slowness` and `bandwidth` are given"):
        network('{ slowness = "1 ms/kB", bandwidth = "10 kB/s" }')
    with pytest.raises(ScenarioError, match=r"access.loss: must be a number, below 1"):
        network("{ loss = 1.0 }")
    with pytest.raises(ConfigurationError, match="publishers have access links, but move"):
        simulate(network("{ loss = 0.1 }", policies='relocation = "pop"'))
    with pytest.raises(ConfigurationError, match="'p' has an access link"):
        play(network("{ loss = 0.1 }"))
