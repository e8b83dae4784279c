"""The compiled loop of a network that fails and its plain twin: the same counts to the last one."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.simulation.failing_twin import simulate_failing_plainly

from tidings.model import Network
from tidings.simulation import Options, Result, simulate
from tidings.simulation._plan import plan
from tidings.simulation._run import Run

SCHEMES = ("static", "periodic", "buffer", "bypass", "bypass+buffer")
BROKERS = (
    "",
    'processing = "2 s"',
    'service = "800 ms"',
    'service = { law = "exponential", mean = "1 s" }\nprocessing = { law = "exponential", mean = "300 ms" }',
)
SCHEDULING = ('"fifo"', '"rl"', '"eb"', '"pc"', '{ name = "ebpc", r = 0.6 }', '"lookahead"', '"plan"', '"triage"')
FAILURES = (
    '{ availability = 0.8, period = "100 s" }',
    '{ availability = { law = "uniform", low = 0.5, high = 0.95 }, period = "20 s" }',
    '{ up = { law = "weibull", shape = 0.6, scale = "40 s" }, '
    'down = { law = "log-normal", median = "5 s", sigma = 1 } }',
    '"never"',
)


def same(one: Result, other: Result) -> bool:
    return replace(one, wall_s=0.0) == replace(other, wall_s=0.0)


def topologies(brokers: int) -> str:
    if brokers == 1:
        return '{ kind = "explicit", brokers = ["a"] }'
    return f'{{ kind = "random-graph", brokers = {brokers}, mean_degree = {min(2.8, brokers - 1)} }}'


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 10_000),
            "topology": st.integers(1, 7).map(topologies),
            "publishers": st.integers(1, 3),
            "subscribers": st.integers(1, 8),
            "rate": st.sampled_from([0.05, 0.3]),
            "slowness": st.sampled_from(['"0 ms/kB"', '"300 ms/kB"']),
            "propagation": st.sampled_from(['"0 ms"', '"200 ms"', '{ law = "exponential", mean = "1 s" }']),
            "loss": st.sampled_from([0.0, 0.1]),
            "broker": st.sampled_from(BROKERS),
            "broker_failures": st.sampled_from(FAILURES),
            "link_failures": st.sampled_from(
                ['{ availability = 0.9, period = "60 s" }', '{ availability = 0.7, period = "30 s", together = false }']
            ),
            "lifetime": st.sampled_from(["", 'lifetime = "30 s"', 'lifetime = "5 s"']),
            "max_delay": st.sampled_from(["", 'max_delay = { law = "uniform", low = "2 s", high = "60 s" }']),
            "expired": st.sampled_from(["drop", "forward"]),
            "scheduling": st.sampled_from(SCHEDULING),
            "tables": st.sampled_from(["volatile", "durable"]),
        }
    ),
    scheme=st.sampled_from(SCHEMES),
    intervals=st.sampled_from(
        [
            'refresh = "10 s", timeout = "300 s"',
            'refresh = "7 s", timeout = "15 s", detection = "3 s"',
            'refresh = "30 s", timeout = "40 s", retry = "4 s"',
        ]
    ),
    trap=st.sampled_from(["", ', ack = "early"', ', queues = "volatile"', ', ack = "early", queues = "volatile"']),
    drain_s=st.sampled_from([None, 0.0, 20.0]),
)
def test_engine_and_twin_agree(
    mesh: Callable[..., Network],
    changes: dict[str, object],
    scheme: str,
    intervals: str,
    trap: str,
    drain_s: float | None,
) -> None:
    trap = trap if "buffer" in scheme else ""
    network = mesh(faults=f'{{ scheme = "{scheme}", {intervals}{trap} }}', duration=200, **changes)
    assume(network.has_failures)
    options = Options(drain_s=drain_s, chunk_events=40)
    result, plain = simulate(network, options), simulate_failing_plainly(network, options)
    assert same(result, plain)
    assert result.matched == result.on_time + result.late + result.lost + result.in_flight
    assert 0 <= result.dropped <= result.lost


@pytest.mark.parametrize("scheduling", SCHEDULING)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_agree_where_links_are_busy(mesh: Callable[..., Network], scheme: str, scheduling: str) -> None:
    """Queues, deadlines and failures at once: every strategy under every scheme."""
    network = mesh(
        faults=f'{{ scheme = "{scheme}", refresh = "15 s", timeout = "200 s", detection = "1 s" }}',
        scheduling=scheduling,
        topology='{ kind = "random-graph", brokers = 6, mean_degree = 3 }',
        broker_failures='{ availability = 0.97, period = "100 s" }',
        link_failures='{ availability = 0.95, period = "60 s" }',
        rate=1,
        duration=200,
        subscribers=12,
        slowness='{ law = "normal", mean = "250 ms/kB", sd = "80 ms/kB" }',
        propagation='"50 ms"',
        lifetime='lifetime = { law = "uniform", low = "3 s", high = "20 s" }',
        max_delay='max_delay = [{ delay = "4 s", price = 3 }, { delay = "15 s" }]',
    )
    result = simulate(network)
    assert same(result, simulate_failing_plainly(network))
    assert result.dropped > 20
    assert max(result.links.values()) > 0.6
    ordered = replace(network, policies=replace(network.policies, ordering="ours-record"))
    run = Run(plan(ordered, Options()), Options(), None, None)  # what arrives is not put in order yet
    run.go()
    assert same(run.result(), simulate_failing_plainly(ordered))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_agree_where_much_waits(mesh: Callable[..., Network], scheme: str) -> None:
    faults = f'{{ scheme = "{scheme}", refresh = "15 s", timeout = "200 s", detection = "1 s" }}'
    network = mesh(
        faults=faults,
        topology='{ kind = "random-graph", brokers = 8, mean_degree = 3 }',
        rate=0.5,
        duration=300,
        subscribers=12,
        propagation='"50 ms"',
        broker='service = { law = "exponential", mean = "500 ms" }',
    )
    result = simulate(network)
    assert result.faults is not None
    assert same(result, simulate_failing_plainly(network))
    assert (result.faults.storage_peak > 20) == ("buffer" in scheme)
    assert (result.faults.messages["link-state"] > 0) == ("bypass" in scheme)
