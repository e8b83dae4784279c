"""Strategies in the simulator: where nothing is congested none costs anything, and they are those of live brokers."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.dataset as ds
import pytest
from tests.scenarios import BACKBONE

from tidings.model import Network, Scenario
from tidings.model.policies import DEFAULT_STRATEGY, StrategyName, strategies
from tidings.model.scenario import Scheduling
from tidings.simulation import Result, simulate

NAMES = [name for name in strategies("simulator") if name != "ebpc"]
TOPOLOGIES = ('{ kind = "random-graph", brokers = 16, mean_degree = 3 }', '"topohub:sndlib/nobel-eu"')


def by(network: Network, name: StrategyName, out: Path | None = None) -> Result:
    policies = msgspec.structs.replace(network.policies, scheduling=Scheduling(name=name))
    return simulate(msgspec.structs.replace(network, policies=policies), out=out)


@pytest.mark.parametrize("name", NAMES)
def test_where_nothing_waits_all_are_alike(mesh: Callable[..., Network], tmp_path: Path, name: StrategyName) -> None:
    """Every event finds its links idle, so there is nothing to choose and nothing to give up."""
    network = mesh(rate=0.05, duration=600, subscribers=4, lifetime='lifetime = "1 min"', max_delay="", loss=0.0)
    fifo = by(network, "fifo", tmp_path)
    hops = ds.dataset(tmp_path / "hops").to_table(columns=["enqueued_ns", "sent_ns"])
    assert hops["enqueued_ns"] == hops["sent_ns"]
    assert fifo.on_time == fifo.matched > 30
    assert msgspec.structs.replace(by(network, name), wall_s=0.0) == msgspec.structs.replace(fifo, wall_s=0.0)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_default_is_not_worse_than_fifo_where_little_waits(topology: str) -> None:
    """Links are busy less than a third of the time. Over several seeds the default earns what FIFO does, up to noise.

    The order of events decides which draw of slowness each gets, so two strategies differ by about .1 % either way.
    """
    names: tuple[StrategyName, ...] = ("fifo", DEFAULT_STRATEGY)
    earned = dict.fromkeys(names, 0.0)
    for seed in range(4):
        network = Scenario.parse(BACKBONE.format(duration="30 min", rate="0.15 /s", topology=topology)).expand(seed)
        for name in names:
            result = by(network, name)
            assert max(result.links.values()) < 0.3
            earned[name] += result.earnings
    assert earned[DEFAULT_STRATEGY] > 0.998 * earned["fifo"] > 0.0


@pytest.mark.parametrize("name", NAMES)
def test_more_than_fifo_under_overload(mesh: Callable[..., Network], name: StrategyName) -> None:
    network = mesh(rate=12, duration=60, brokers=8, subscribers=20)
    assert by(network, name).steps > 0
    if name not in ("fifo", "rl"):
        assert by(network, name).earnings > 1.2 * by(network, "fifo").earnings
