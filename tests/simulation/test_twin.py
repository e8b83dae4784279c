"""The compiled event loop and its plain twin, on random small networks: the same counts to the last one."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.simulation.plain_twin import simulate_plainly

from tidings.model import Network
from tidings.model.distributions import TruncatedNormal
from tidings.simulation import Options, Result, simulate
from tidings.simulation._plan import plan
from tidings.simulation._run import Run

SCHEDULING = (
    '"lookahead"',
    '"fifo"',
    '"rl"',
    '"eb"',
    '"pc"',
    '{ name = "ebpc", r = 0.6 }',
    '"plan"',
    '"triage"',
)
BROKERS = (
    "",
    'processing = "2 ms"',
    'service = "10 ms"',
    'service = { law = "exponential", mean = "2 ms" }\nservice_per = "subscription"',
    'service = { law = "uniform", low = "0 ms", high = "20 ms" }\nprocessing = { law = "exponential", mean = "3 ms" }',
)
SLOWNESS = (
    '"0 ms/kB"',
    '"30 ms/kB"',
    '{ law = "normal", mean = "40 ms/kB", sd = "20 ms/kB" }',
    '{ law = "replay", values = ["10 ms/kB", "70 ms/kB", "20 ms/kB"] }',
)
ACCESS = TruncatedNormal(location=0.03, scale=0.01)


def same(one: Result, other: Result) -> bool:
    return msgspec.structs.replace(one, wall_s=0.0) == msgspec.structs.replace(other, wall_s=0.0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 10_000),
            "brokers": st.integers(1, 7),
            "publishers": st.integers(1, 3),
            "subscribers": st.integers(1, 9),
            "rate": st.sampled_from([0.5, 3, 12]),
            "slowness": st.sampled_from(SLOWNESS),
            "propagation": st.sampled_from(['"0 ms"', '"20 ms"', '{ law = "exponential", mean = "10 ms" }']),
            "loss": st.sampled_from([0.0, 0.1]),
            "broker": st.sampled_from(BROKERS),
            "lifetime": st.sampled_from(["", 'lifetime = "1 s"']),
            "max_delay": st.sampled_from(["", 'max_delay = [{ delay = "500 ms", price = 3 }, { delay = "2 s" }]']),
            "scheduling": st.sampled_from(SCHEDULING),
            "routing": st.sampled_from(["single-path", "balanced", "spread", "multi-path", "literal-table"]),
            "expired": st.sampled_from(["drop", "forward"]),
        }
    ),
    has_access=st.booleans(),
    drain_s=st.sampled_from([None, 0.0, 0.7]),
)
def test_engine_and_twin_agree(
    mesh: Callable[..., Network], changes: dict[str, object], has_access: bool, drain_s: float | None
) -> None:
    network = mesh(duration=8, warmup=1, **changes)
    access = [ACCESS] * len(network.publishers) if has_access else None
    options = Options(access_slowness=access, drain_s=drain_s, chunk_events=40)
    result = simulate(network, options)
    assert same(result, simulate_plainly(network, options))
    assert result.matched == result.on_time + result.late + result.lost + result.in_flight
    assert 0 <= result.dropped <= result.lost


@pytest.mark.parametrize("scheduling", SCHEDULING)
@pytest.mark.parametrize("routing", ["single-path", "balanced", "spread", "multi-path", "literal-table"])
def test_agree_under_congestion(mesh: Callable[..., Network], scheduling: str, routing: str) -> None:
    network = mesh(rate=15, duration=15, subscribers=12, scheduling=scheduling, routing=routing, loss=0.01)
    result = simulate(network)
    assert same(result, simulate_plainly(network))
    assert result.dropped > 0


@pytest.mark.parametrize("scheduling", SCHEDULING)
def test_agree_where_receivers_want_order(mesh: Callable[..., Network], scheduling: str) -> None:
    """What arrives is not put in order yet: what differs is the sequence in which it leaves its queues."""
    network = mesh(rate=15, duration=15, subscribers=12, scheduling=scheduling, loss=0.01)
    policies = msgspec.structs.replace(network.policies, ordering="ours-record")
    ordered = msgspec.structs.replace(network, policies=policies)
    run = Run(plan(ordered, Options()), Options(), None, None)
    run.go()
    assert same(run.result(), simulate_plainly(ordered))
    assert same(run.result(), simulate(network)) == (scheduling == '"fifo"')


def test_access_scheduling_is_the_publishers_own(mesh: Callable[..., Network]) -> None:
    network = mesh(rate=15, scheduling='"eb"')
    slow = [TruncatedNormal(location=0.02, scale=0.005)] * len(network.publishers)
    for scheduling in ("same", "fifo"):
        options = Options(access_slowness=slow, access_scheduling=scheduling)
        assert same(simulate(network, options), simulate_plainly(network, options))
