"""The table of policies: one name, one meaning and one default, wherever a policy can be written.

`python tests/model/test_policies.py` writes docs/reference/policies.md anew.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from tidings.errors import ConfigurationError
from tidings.faults import SCHEMES
from tidings.live.configuration._config import read_network
from tidings.model import Scenario
from tidings.model.policies import (
    DEFAULT_RELOCATION,
    DEFAULT_ROUTING,
    DEFAULT_SCHEME,
    DEFAULT_STRATEGY,
    DRIVERS,
    KINDS,
    POLICIES,
    Driver,
    Kind,
    Relocation,
    Routing,
    Scheme,
    StrategyName,
    default_of,
    having,
    listed,
    policies,
    policy,
)
from tidings.model.scenario import Policies
from tidings.ordering import Policy as Order
from tidings.protocol import BrokerSettings
from tidings.scheduling import STRATEGIES, strategy
from tidings.storm import StormSettings

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "policies.md"
NAMES = {"strategy": StrategyName, "scheme": Scheme, "routing": Routing, "relocation": Relocation}


def page() -> str:
    """The reference page, from the table."""
    lines = [
        "# Policies",
        "",
        "All policies, their effects, and the drivers that support them. This page is generated from the table in",
        "`tidings.model.policies`, which the command line, scenarios, network files, storms, the simulator and the",
        "planner read: a policy has one name, one meaning and one default everywhere. A driver without a policy",
        "refuses it with the reason given here.",
    ]
    for kind, what in KINDS.items():
        lines += ["", f"## {kind.capitalize()}: {what}", "", f"Default: `{default_of(kind).name}`.", ""]
        lines += ["| name | effect | drivers |", "| --- | --- | --- |"]
        for each in policies(kind):
            given = "".join(f"; `{name}`: {meaning}" for name, meaning in each.parameters.items())
            lines.append(f"| `{each.name}` | {each.does}{given} | {who(each.missing)} |")
    return "\n".join(lines) + "\n"


def who(missing: Mapping[Driver, str]) -> str:
    if not missing:
        return "all"
    reasons: dict[str, list[str]] = {}
    for driver, reason in missing.items():
        reasons.setdefault(reason, []).append(driver)
    return "all but " + "; ".join(f"{', '.join(drivers)} ({reason})" for reason, drivers in reasons.items())


def test_page_is_the_table() -> None:
    assert PAGE.read_text("utf-8") == page()


@pytest.mark.parametrize("kind", list(NAMES))
def test_names_are_those_of_the_table(kind: Kind) -> None:
    assert tuple(each.name for each in policies(kind)) == get_args(NAMES[kind])


@pytest.mark.parametrize("kind", list(KINDS))
def test_one_default(kind: Kind) -> None:
    assert [each.name for each in policies(kind) if each.is_default] == [default_of(kind).name]
    assert default_of(kind).missing.keys() <= {"predictor"}


def test_rows_say_what_they_do() -> None:
    assert len({(each.kind, each.name) for each in POLICIES}) == len(POLICIES)
    assert all(each.does and set(each.missing) <= set(DRIVERS) and all(each.missing.values()) for each in POLICIES)


def test_algorithms_have_what_the_table_has() -> None:
    assert tuple(STRATEGIES) == get_args(StrategyName)
    assert get_args(Scheme) == SCHEMES
    for name in ("P-0.05-25", "CST-30", "Q-0.995", "ours-record", "ours-quantile"):
        assert Order.parse(name)


def test_every_place_has_the_same_defaults(tmp_path: Path) -> None:
    scenario = Policies()
    storm = StormSettings()
    broker = BrokerSettings(name="b")
    file = tmp_path / "network.toml"
    file.write_text('[[broker]]\nname = "b"\nlisten = "127.0.0.1:7001"\n', "utf-8")
    live = read_network(file).settings_of("b")
    assert {scenario.scheduling.name, storm.strategy, broker.strategy.name, live.strategy.name} == {DEFAULT_STRATEGY}
    assert broker.strategy == live.strategy == strategy(DEFAULT_STRATEGY)
    assert {scenario.faults.scheme, storm.scheme, broker.scheme, live.scheme} == {DEFAULT_SCHEME}
    assert {broker.relocation, live.relocation} == {DEFAULT_RELOCATION}
    assert scenario.routing == DEFAULT_ROUTING
    assert scenario.ordering is None
    assert default_of("ordering").name == "none"


def test_a_driver_refuses_what_it_has_not() -> None:
    assert "ebpc" not in having("strategy", "storm")
    with pytest.raises(ConfigurationError, match="not for storms: a storm names a strategy without parameters"):
        StormSettings(strategy="ebpc")


def test_names_are_listed() -> None:
    assert listed("relocation") == "off, pop, grape or on-time"
    assert listed("routing", "live") == "single-path"
    with pytest.raises(KeyError, match="there is no scheme 'none'; write static"):
        policy("scheme", "none")


def test_no_ordering_has_a_name_everywhere() -> None:
    assert Policies(ordering="none") == Policies()
    assert Policies(ordering="ours-record").ordering == "ours-record"
    with pytest.raises(ConfigurationError, match="write one of P-<p>-<n>, CST-<ms>"):
        Order.parse("P-1")


@pytest.mark.parametrize("name", [name for name in get_args(StrategyName) if name != "ebpc"])
def test_scenarios_have_every_strategy(name: str) -> None:
    text = f'duration = "1 s"\ntopology = {{ kind = "explicit", brokers = ["a"] }}\n[policies]\nscheduling = "{name}"\n'
    assert Scenario.parse(text).expand().policies.scheduling.name == name


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
