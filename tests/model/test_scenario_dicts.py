"""Scenarios from dicts and back to files: whatever goes in comes out, and errors name the key."""

import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import ScenarioError
from tidings.model.distributions import Discrete
from tidings.model.scenario import Numeric, Scenario

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("**/*.toml"))
SMALL: dict[str, Any] = {
    "duration": "10 s",
    "topology": {"kind": "explicit", "brokers": ["a", "b"], "links": [["a", "b"]]},
    "publishers": [{"name": "p", "at": "a", "rate": "5 /s", "attributes": {"x": {"range": [1, 5]}}}],
    "subscribers": [{"name": "s", "at": "b", "filter": "x > 2", "max_delay": "1 s"}],
}
NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12)
TIMES = st.floats(1e-3, 1e3).map(lambda value: f"{value!r} s")
DISTRIBUTIONS = st.one_of(
    TIMES,
    st.builds(lambda mean: {"distribution": "exponential", "mean": mean}, TIMES),
    st.builds(
        lambda values, weight: {"distribution": "discrete", "values": values, "weights": [weight] * len(values)},
        st.lists(TIMES, min_size=1, max_size=4),
        st.floats(0.1, 10.0),
    ),
)
CONTENT = st.one_of(
    st.booleans(),
    st.integers(-(2**62), 2**62),
    NAMES,
    st.builds(lambda values: {"values": values}, st.lists(st.one_of(NAMES, st.floats(-1e9, 1e9)), min_size=1)),
)
TABLES = st.builds(
    lambda title, seed, distributions, content, broker: (
        SMALL
        | {
            "title": title,
            "seed": seed,
            "links": {"propagation": distributions[0]},
            "brokers": {"processing": distributions[1]},
            "topology": {"kind": "explicit", "brokers": [broker, broker + "b"], "links": [[broker, broker + "b"]]},
            "publishers": [
                SMALL["publishers"][0] | {"at": broker, "lifetime": distributions[2], "attributes": content | {"x": 3}}
            ],
            "subscribers": [SMALL["subscribers"][0] | {"at": broker + "b"}],
        }
    ),
    NAMES,
    st.integers(0, 2**63 - 1),
    st.tuples(DISTRIBUTIONS, DISTRIBUTIONS, DISTRIBUTIONS),
    st.dictionaries(NAMES, CONTENT, max_size=4),
    NAMES.map(lambda name: "B" + name),
)


@given(TABLES)
def test_a_dict_goes_to_a_file_and_back(table: dict[str, Any]) -> None:
    scenario = Scenario.from_dict(table)
    again = Scenario.parse(scenario.to_toml())
    assert again == scenario
    assert again.to_toml() == scenario.to_toml()
    assert again.expand() == scenario.expand()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_goes_to_a_dict_and_back(path: Path) -> None:
    if "[[broker]]" in path.read_text("utf-8") and "topology" not in path.read_text("utf-8"):
        pytest.skip("a network of live brokers")
    if path.parent.name == "foreign":
        pytest.skip("a mapping")
    scenario = Scenario.load(path)
    assert scenario.to_toml() == path.read_text("utf-8")
    assert Scenario.from_dict(tomllib.loads(path.read_text("utf-8"))) == scenario


def test_an_error_names_the_key_and_no_line() -> None:
    table = SMALL | {"publishers": [SMALL["publishers"][0] | {"rate": 5}]}
    with pytest.raises(ScenarioError, match=r"<dict>: publishers\[0\].rate: "):
        Scenario.from_dict(table)
    with pytest.raises(ScenarioError, match=r"mine: subscribers\[0\].filter"):
        Scenario.from_dict(SMALL | {"subscribers": [{"name": "s", "at": "b", "filter": "x >"}]}, "mine").expand()
    with pytest.raises(ScenarioError, match=r"publishers\[0\].since: date has no form in TOML"):
        Scenario.from_dict(SMALL | {"publishers": [{"since": date(2026, 1, 1)}]})


def test_a_discrete_distribution_is_written_with_units() -> None:
    text = '{ distribution = "discrete", values = ["10 ms", "0.5 s"], weights = [9, 1] }'
    base = Scenario.from_dict(SMALL).to_toml()
    network = Scenario.parse(base + f"\n[links]\npropagation = {text}\n").expand()
    assert network.topology.links[0].propagation == Discrete(values=(0.01, 0.5), weights=(9.0, 1.0))
    with pytest.raises(ScenarioError, match=r"links\.propagation"):
        Scenario.parse(base + '\n[links]\npropagation = { distribution = "discrete", values = [1, 2] }\n')
    with pytest.raises(ScenarioError, match="one for each value"):
        Scenario.parse(base + f"\n[links]\npropagation = {text.replace('[9, 1]', '[9]')}\n")


def test_a_notebook_shows_what_was_written_as_text() -> None:
    scenario = Scenario.from_dict(SMALL | {"title": "<b>bold</b>"})
    shown = scenario._repr_html_()
    assert "&lt;b&gt;bold" in shown
    assert "<b>" not in shown
    for words in ("10 s", "5 /s", "x &gt; 2", "1 s"):
        assert words in shown


DRAWN = {"KEY": "uniform", "low": "1 ms", "high": {"KEY": "exponential", "mean": "2 s"}}
LIFETIMES = {"by": "x", "KEYS": {"1": "1 s", "2": {"KEY": "exponential", "mean": "3 s"}}, "otherwise": "5 s"}
NUMBER = {"KEY": "uniform", "low": 0, "high": 9, "decimals": 0}


def _spelled(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name.replace("KEY", key).replace("S", "s"): _spelled(item, key) for name, item in value.items()}
    return value


def _with_distributions(key: str) -> dict[str, Any]:
    publisher = SMALL["publishers"][0]
    attributes = publisher["attributes"] | {"y": _spelled(NUMBER, key)}
    return SMALL | {
        "links": {"propagation": _spelled(DRAWN, key)},
        "publishers": [publisher | {"lifetime": _spelled(LIFETIMES, key), "attributes": attributes}],
    }


def test_the_former_keys_law_and_laws_are_still_read() -> None:
    former = Scenario.from_dict(_with_distributions("law"))
    assert "distribution" not in former.to_toml()
    network = former.expand()
    assert network == Scenario.from_dict(_with_distributions("distribution")).expand()
    assert isinstance(network.publishers[0].attributes["y"], Numeric)
    assert list(network.publishers[0].lifetime_by.distributions) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("key", ["distribution", "law"])
def test_errors_name_the_key_that_was_written(key: str) -> None:
    with pytest.raises(ScenarioError, match=rf"links\.propagation\.{key}: there is no distribution 'exponental'; did"):
        Scenario.from_dict(SMALL | {"links": {"propagation": {key: "exponental", "mean": "2 ms"}}})
    lifetime = {"by": "x", f"{key}s": {"9": "1 s"}, "otherwise": "2 s"}
    table = SMALL | {"publishers": [SMALL["publishers"][0] | {"lifetime": lifetime}]}
    with pytest.raises(ScenarioError, match=rf"publishers\[0\]\.lifetime\.{key}s\.9: `x` is never '9'"):
        Scenario.from_dict(table).expand()


def test_both_keys_in_one_table_are_an_error_that_names_both() -> None:
    both = {"distribution": "exponential", "law": "exponential", "mean": "2 ms"}
    with pytest.raises(ScenarioError, match=r"propagation\.law: both `distribution` and `law` are written"):
        Scenario.from_dict(SMALL | {"links": {"propagation": both}})
    publisher = SMALL["publishers"][0]
    with pytest.raises(ScenarioError, match=r"attributes\.x\.law: both `distribution` and `law` are written"):
        Scenario.from_dict(SMALL | {"publishers": [publisher | {"attributes": {"x": both | {"mean": 2}}}]})
    lifetime = {"by": "x", "laws": {"1": "1 s"}, "distributions": {"1": "1 s"}, "otherwise": "2 s"}
    with pytest.raises(ScenarioError, match=r"lifetime\.laws: both `distributions` and `laws` are written"):
        Scenario.from_dict(SMALL | {"publishers": [publisher | {"lifetime": lifetime}]})
