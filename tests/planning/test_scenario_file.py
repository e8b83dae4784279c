"""A network written as a scenario comes back as it was, and runs as it would have."""

from pathlib import Path

import msgspec
import pytest

from tidings.errors import ConfigurationError, InputError
from tidings.model.scenario import Network, Scenario
from tidings.planning import MovePublisher, SpeedUpLink, UseStrategy, apply, to_toml, write_toml
from tidings.simulation import simulate

ROOT = Path(__file__).parents[2]
STRANGE = """
title = "a \\"title\\" with \\\\ and ü"
duration = "1 min"
topology = { kind = "explicit", brokers = ["a b", "c.d"], links = [["a b", "c.d"]] }
brokers = { service = { distribution = "hypoexponential", rates = ["300 /s", "1 /ms"] }, service_per = "subscription" }
links = { failures = { failure_rate = "1 /h", repair_rate = "10 /h", together = false }, propagation = "3 ms" }

[[publishers]]
name = "p"
at = "a b"
interval = { distribution = "phase-type", alpha = [0.4, 0.6], sub_generator = [["-3 /s", "1 /s"], ["0 /s", "-2 /s"]] }
size = { distribution = "log-normal", median = "300 B", sigma = 0.4, low = "50 B", high = "2 kB" }
lifetime = { distribution = "empirical", quantiles = ["1 s", "2 s", "9 s"] }
advertisement = "kind = '{{x}}'"

[publishers.attributes]
kind = "{x}"
flag = true
n = { range = [1, 3], zipf = 1.0 }
v = { distribution = "uniform", low = 0, high = 2, offset = -1, decimals = 2 }

[[subscribers]]
name = "s"
at = "c.d"
filter = "kind = '{{x}}' AND v > 0.5"
max_delay = { distribution = "uniform", low = "1 s", high = "2 s" }
price = 2.5
"""


def same(one: Network, other: Network) -> bool:
    """But for what a file does not hold: groups, layers of brokers, lengths of links."""
    replace, plain = msgspec.structs.replace, []
    for network in (one, other):
        topology = network.topology.map(
            brokers=lambda broker: replace(broker, layer=None), links=lambda link: replace(link, length_km=None)
        )
        publishers = tuple(replace(publisher, group="") for publisher in network.publishers)
        subscribers = tuple(replace(subscriber, group="") for subscriber in network.subscribers)
        plain.append(replace(network, topology=topology, publishers=publishers, subscribers=subscribers))
    return plain[0] == plain[1]


@pytest.mark.parametrize("name", ["quickstart", "faults", "factory", "plan/mixed"])
def test_examples_come_back_as_they_were(name: str) -> None:
    network = Scenario.load(ROOT / "examples" / f"{name}.toml").expand()
    assert same(Scenario.parse(to_toml(network)).expand(), network)


def test_so_do_strange_things() -> None:
    network = Scenario.parse(STRANGE).expand()
    written = to_toml(network)
    assert 'distribution = "hypoexponential"' in written
    assert "law =" not in written
    again = Scenario.parse(written).expand()
    assert same(again, network)
    assert len(set(again.link_components)) == 2


def test_a_changed_network_runs_from_its_file_as_it_does_itself(overloaded: Network, tmp_path: Path) -> None:
    changes = (
        UseStrategy(strategy="ebpc", r=0.3),
        MovePublisher(publisher="p", broker="b"),
        SpeedUpLink(source="b", target="c", factor=1.5),
    )
    changed = apply(overloaded, changes)
    path = tmp_path / "changed.toml"
    write_toml(changed, path, comments=("what was changed",))
    assert path.read_text("utf-8").startswith("# what was changed\n")
    again = Scenario.load(path).expand(99)
    assert simulate(again).subscribers == simulate(msgspec.structs.replace(changed, seed=99)).subscribers


def test_what_no_scenario_describes_is_refused(overloaded: Network, tmp_path: Path) -> None:
    twice = tuple(msgspec.structs.replace(each, subscriber="near") for each in overloaded.subscriptions)
    with pytest.raises(ConfigurationError, match="one subscription for each subscriber"):
        to_toml(msgspec.structs.replace(overloaded, subscriptions=twice))
    with pytest.raises(InputError, match="cannot be written"):
        write_toml(overloaded, tmp_path / "no" / "such.toml")
