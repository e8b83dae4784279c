"""Routing over several paths at once: refused where it would lose events."""

import random

import msgspec
import pytest

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model import Network, Scenario
from tidings.model.scenario import Policies, unserved
from tidings.routing import Overlay, downstream_links, reachability_table
from tidings.simulation import simulate

SCENARIO = """
duration = "30 s"
seed = {seed}
topology = {topology}
[[publishers]]
name = "p"
at = {publishers}
count = {count}
rate = "5 /s"
attributes = {{ x = 1 }}
[[subscribers]]
name = "s"
at = "all"
per_broker = 1
filter = "x = 1"
[policies]
routing = "{routing}"
"""
RING = '{ kind = "explicit", brokers = ["a", "b", "c", "d"], links = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "a"]] }'


def scenario(routing: str, *, topology: str = RING, publishers: str = '"random"', count: int = 2, seed: int = 0) -> str:
    return SCENARIO.format(routing=routing, topology=topology, publishers=publishers, count=count, seed=seed)


@pytest.mark.parametrize("routing", ["multi-path", "literal-table"])
def test_publishers_at_two_brokers_of_a_ring_are_refused(routing: str) -> None:
    with pytest.raises(
        ScenarioError, match=rf"""^mine.toml:17: policies.routing: "{routing}" cannot carry events """
    ) as error:
        Scenario.parse(scenario(routing, publishers='["a", "c"]'), "mine.toml").expand()
    assert "from publishers at 'a' to subscribers at 'c'" in str(error.value)
    assert 'write routing = "balanced" or "single-path", put all publishers at one broker' in str(error.value)


@pytest.mark.parametrize("routing", ["multi-path", "literal-table"])
def test_publishers_at_one_broker_lose_nothing(routing: str) -> None:
    result = simulate(Scenario.parse(scenario(routing, publishers='"a"')).expand())
    assert result.on_time == result.matched > 0


def test_an_overlay_that_runs_downstream_is_used_as_it_is() -> None:
    mesh = '{ kind = "layered-mesh", layers = [2, 3], fan_in = ["all"] }'
    text = scenario("multi-path", topology=mesh, publishers='"layer:1"').replace('at = "all"', 'at = "layer:2"')
    result = simulate(Scenario.parse(text).expand())
    assert result.on_time == result.matched > 0


def test_a_network_that_was_changed_is_refused_by_the_simulator() -> None:
    network = Scenario.parse(scenario("single-path", publishers='["a", "c"]')).expand()
    several = msgspec.structs.replace(network, policies=Policies(routing="multi-path"))
    with pytest.raises(ConfigurationError, match="cannot carry events from publishers at 'a' to subscribers at 'c'"):
        simulate(several)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_refused_is_what_the_table_does_not_reach(seed: int) -> None:
    dice = random.Random(seed)
    kind = dice.choice(
        ['{ kind = "random-graph", brokers = 6, mean_degree = 3 }', '{ kind = "random-tree", brokers = 5 }']
    )
    text = scenario("balanced", topology=kind, count=dice.choice([1, 2]), seed=seed)
    network = Scenario.parse(text).expand()
    several = msgspec.structs.replace(network, policies=Policies(routing="multi-path"))
    assert (unserved(several) is None) == all_reached(several)
    if unserved(several) is None:
        assert simulate(several).lost == 0


def all_reached(network: Network) -> bool:
    index = network.topology.index
    roots = sorted({index[publisher.broker] for publisher in network.publishers})
    homes = {index[subscriber.broker] for subscriber in network.subscribers}
    overlay = Overlay.of(network.topology)
    table = reachability_table(overlay, downstream_links(overlay, roots))
    return all(home == root or len(table.links_towards(root, [home])) for root in roots for home in homes)
