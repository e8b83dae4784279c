"""What holds for every run of a network that fails, and what its trace says."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from tidings.errors import ConfigurationError
from tidings.model import Network, Scenario
from tidings.model.distributions import Exponential
from tidings.model.trace import TABLES
from tidings.simulation import Options, simulate

SCHEMES = ("static", "periodic", "buffer", "bypass", "bypass+buffer")
EUROPE = Path(__file__).parents[3] / "examples" / "europe.toml"
QUICK = 'refresh = "10 s", timeout = "300 s"'


def faults(scheme: str) -> str:
    return f'{{ scheme = "{scheme}", {QUICK} }}'


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_subscription_gets_an_event_at_most_once_and_after_it_was_published(
    mesh: Callable[..., Network], tmp_path: Path, scheme: str
) -> None:
    result = simulate(mesh(faults=faults(scheme), duration=2000, warmup=0), out=tmp_path / "trace")
    deliveries = pq.read_table(tmp_path / "trace" / "deliveries").to_pandas()
    published = pq.read_table(tmp_path / "trace" / "publications").to_pandas().set_index(["publisher", "sequence"])
    assert not deliveries.duplicated(["publisher", "sequence", "subscription"]).any()
    assert len(deliveries) == result.on_time + result.late
    departed = published.loc[list(zip(deliveries.publisher, deliveries.sequence, strict=True)), "departure_ns"]
    delay_s = (deliveries.arrived_ns.to_numpy() - departed.to_numpy()) / 1e9
    assert (delay_s >= 0).all()
    assert int((delay_s < 30).sum()) == result.on_time


@pytest.mark.parametrize("scheme", ["periodic", "bypass+buffer"])
def test_nothing_passes_a_component_that_is_down(mesh: Callable[..., Network], tmp_path: Path, scheme: str) -> None:
    """The transitions of the trace are what happened: no hop begins or ends at, or uses, what is down."""
    network = mesh(
        faults=faults(scheme),
        duration=2000,
        broker='service = "700 ms"',
        propagation='"300 ms"',
        link_failures='{ availability = 0.8, period = "50 s" }',
    )
    simulate(network, out=tmp_path / "trace")
    changes: dict[tuple[str, ...], list[tuple[int, bool]]] = {}
    for row in pq.read_table(tmp_path / "trace" / "transitions").to_pylist():
        name = (row["source"],) if row["kind"] == "broker" else (row["source"], row["target"])
        changes.setdefault(name, []).append((row["at_ns"], row["up"]))
    assert changes.keys() == {(b.name,) for b in network.topology.brokers} | {
        (link.source, link.target) for link in network.topology.links
    }
    for each in changes.values():
        times, ups = zip(*each, strict=True)
        assert list(times) == sorted(times)
        assert all(one != other for one, other in pairwise(ups))

    def was_up(name: tuple[str, ...], at_ns: int) -> bool:
        """Just before or just after: a broker that comes back sends at once."""
        before, after = [up for time, up in changes[name] if time < at_ns], [u for t, u in changes[name] if t <= at_ns]
        return not before or before[-1] or after[-1]

    received = 0
    for hop in pq.read_table(tmp_path / "trace" / "hops").to_pylist():
        if hop["outcome"] != "received":
            continue
        received += 1
        assert was_up((hop["target"],), hop["ended_ns"])
        assert was_up((hop["target"],), hop["received_ns"])
        if hop["source"] is not None:
            assert was_up((hop["source"],), hop["sent_ns"])
            assert was_up((hop["source"], hop["target"]), hop["received_ns"])
    assert received > 100


def test_the_trace_follows_the_contract(mesh: Callable[..., Network], tmp_path: Path) -> None:
    simulate(mesh(faults=faults("bypass+buffer")), out=tmp_path / "trace")
    for name, schema in TABLES.items():
        if name != "publications":
            assert pq.read_table(tmp_path / "trace" / name).schema.remove_metadata() == schema.remove_metadata()
    outcomes = set(pq.read_table(tmp_path / "trace" / "hops").column("outcome").to_pylist())
    assert {"received", "failed", "expired"} <= outcomes


def test_availability_in_the_trace(mesh: Callable[..., Network], tmp_path: Path) -> None:
    network = mesh(faults=faults("periodic"), duration=200_000, rate=0.001)
    simulate(network, out=tmp_path / "trace")
    rows = pq.read_table(tmp_path / "trace" / "transitions").to_pylist()
    for broker in network.topology.brokers:
        mine = [(row["at_ns"], row["up"]) for row in rows if row["kind"] == "broker" and row["source"] == broker.name]
        ends = [*(time for time, _ in mine[1:]), 200_000 * 10**9]
        up_ns = sum(max(0, min(end, ends[-1]) - time) for (time, up), end in zip(mine, ends, strict=True) if up)
        first = mine[0][0] if not mine[0][1] else 0
        # 2,000 cycles: the availability of .8 is known to about .008, one standard deviation .007
        assert (up_ns + first) / ends[-1] == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_same_seed_same_bytes(mesh: Callable[..., Network], tmp_path: Path, scheme: str) -> None:
    network = mesh(faults=faults(scheme))
    one = simulate(network, out=tmp_path / "one")
    other = simulate(network, Options(chunk_events=7, steps_per_call=11), out=tmp_path / "other")
    assert msgspec.structs.replace(one, wall_s=0.0) == msgspec.structs.replace(other, wall_s=0.0)
    for file in sorted((tmp_path / "one").rglob("*.parquet")):
        assert file.read_bytes() == (tmp_path / "other" / file.relative_to(tmp_path / "one")).read_bytes()
    again = simulate(msgspec.structs.replace(network, seed=network.seed + 1))
    assert again.on_time != one.on_time


def test_schemes_share_failures_and_publications(mesh: Callable[..., Network], tmp_path: Path) -> None:
    for scheme in SCHEMES:
        simulate(mesh(faults=faults(scheme)), out=tmp_path / scheme)
    for table in ("publications", "transitions"):
        tables = [pq.read_table(tmp_path / scheme / table) for scheme in SCHEMES]
        end_ns = 400 * 10**9  # after the end a run only goes on while something is on its way
        if table == "transitions":
            tables = [each.filter(np.asarray(each.column("at_ns")) < end_ns) for each in tables]
        assert all(each == tables[0] for each in tables)


def test_nothing_fails_nothing_changes(mesh: Callable[..., Network]) -> None:
    """A component that fails once in a thousand years leaves the figures of a network that never fails."""
    changes = {"link_failures": '"never"', "propagation": '"200 ms"', "broker": 'service = "300 ms"', "warmup": 0}
    plain = simulate(mesh(broker_failures='"never"', **changes))
    for scheme in SCHEMES:
        rarely = '{ failure_rate = "0.000001 /d", repair_rate = "1 /s" }'
        failing = simulate(mesh(broker_failures=rarely, faults=faults(scheme), **changes))
        assert plain.faults is None
        assert failing.faults is not None
        assert (failing.on_time, failing.matched) == (plain.on_time, plain.matched)
        assert failing.brokers == plain.brokers


def test_messages_of_each_scheme(mesh: Callable[..., Network]) -> None:
    found = {}
    for scheme in SCHEMES:
        figures = simulate(mesh(faults=faults(scheme))).faults
        assert figures is not None
        found[scheme] = figures
    assert found["static"].messages["refresh"] == 0
    assert found["periodic"].messages.keys() == {"data", "ack", "retransmission", "refresh", "link-state"}
    assert found["buffer"].messages["ack"] > 0
    assert found["buffer"].storage_peak > 0
    assert found["periodic"].storage_peak == 0
    assert found["bypass"].messages["link-state"] > 0
    assert found["bypass+buffer"].duplicates > 0


def test_combinations_that_cannot_be(mesh: Callable[..., Network]) -> None:
    network = mesh()
    policies = network.policies
    several = msgspec.structs.replace(network, policies=msgspec.structs.replace(policies, routing="multi-path"))
    with pytest.raises(ConfigurationError, match=r"routing is 'multi-path'.*single-path"):
        simulate(several)
    with pytest.raises(ConfigurationError, match="no link back"):
        simulate(mesh(topology='{ kind = "layered-mesh", layers = [1, 2], fan_in = [1] }'))


def test_strategies_and_failures_meet() -> None:
    """The European example, whose links are narrow and fail: deadline scheduling brings more on time under failures."""
    network = msgspec.structs.replace(Scenario.load(EUROPE).expand(), duration_s=600.0)
    earned = {}
    for name in ("fifo", "lookahead"):
        scheduling = msgspec.structs.replace(network.policies.scheduling, name=name)
        policies = msgspec.structs.replace(network.policies, scheduling=scheduling)
        result = simulate(msgspec.structs.replace(network, policies=policies))
        assert result.faults is not None
        assert result.matched == result.on_time + result.late + result.lost + result.in_flight
        earned[name] = result.earnings
    assert earned["lookahead"] > 1.02 * earned["fifo"]


def test_access_links_that_cost_a_transmission(mesh: Callable[..., Network]) -> None:
    network = mesh(faults=faults("buffer"), lifetime='lifetime = "5 s"', rate=0.3)
    slow = [Exponential(scale=0.2)] * len(network.publishers)
    free, costly = simulate(network), simulate(network, Options(access_slowness=slow))
    assert costly.matched == free.matched
    assert costly.on_time < free.on_time


def test_too_much_stored_is_an_error(mesh: Callable[..., Network]) -> None:
    network = mesh(faults=faults("buffer"), rate=5, lifetime="", expired="forward", duration=2000)
    with pytest.raises(ConfigurationError, match=r"overload: after .* copies in flight or stored"):
        simulate(network, Options(copies_max=200))
