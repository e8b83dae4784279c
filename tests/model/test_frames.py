"""Results as tables: the same types whatever the values, escaped HTML, and errors that name the install."""

import sys

import pyarrow as pa
import pytest

from tidings.errors import ConfigurationError
from tidings.model.frames import HTML_ROWS_MAX, Column, arrow_table, html_page, html_table, pandas_frame
from tidings.model.scenario import Network, Scenario

COLUMNS = {
    "name": Column("text", ["a", None]),
    "share": Column("number", [float("nan"), None]),
    "path": Column("texts", [("a", "b"), ()]),
}
TEXT = """
title = "<b>Small</b>"
duration = "10 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { propagation = "10 ms", slowness = "1 ms/kB" }
brokers = { service = "2 ms", failures = { availability = 0.9, period = "100 s" } }

[[publishers]]
name = "p"
at = "a"
rate = "5 /s"
lifetime = "3 s"
attributes = { x = { range = [1, 5] } }

[[subscribers]]
name = "s"
at = "b"
count = 2
filter = "x < 4"
max_delay = "1 s"

[[subscribers]]
name = "t"
at = "b"
filter = "x > 2"
"""


@pytest.fixture
def network() -> Network:
    return Scenario.parse(TEXT).expand()


def test_missing_values_keep_the_type_of_their_column() -> None:
    table = arrow_table(COLUMNS)
    assert table.schema.types == [pa.string(), pa.float64(), pa.list_(pa.string())]
    assert table.to_pydict() == {"name": ["a", None], "share": [None, None], "path": [["a", "b"], []]}


def test_pandas_has_the_columns_of_arrow() -> None:
    pytest.importorskip("pandas")
    frame = pandas_frame(COLUMNS)
    assert list(frame.columns) == ["name", "share", "path"]
    assert frame["share"].isna().all()
    assert list(frame["path"][0]) == ["a", "b"]


@pytest.mark.parametrize("module", ["pandas", "pyarrow"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    make = pandas_frame if module == "pandas" else arrow_table
    with pytest.raises(ConfigurationError, match=f"needs {module}, which is not installed: pip install '{module}"):
        make(COLUMNS)


def test_html_is_escaped_and_bounded() -> None:
    shown = html_page("<i>", html_table(("<b>",), [(f"{number} & more",) for number in range(HTML_ROWS_MAX + 7)]))
    assert "&lt;i&gt;" in shown
    assert "<th>&lt;b&gt;</th>" in shown
    assert shown.count("<tr>") == 1 + HTML_ROWS_MAX
    assert "7 more rows" in shown


def test_a_scenario_has_a_row_per_group() -> None:
    rows = Scenario.parse(TEXT).to_arrow().to_pylist()
    assert [(row["kind"], row["name"], row["at"], row["count"]) for row in rows] == [
        ("publishers", "p", "a", None),
        ("subscribers", "s", "b", "2"),
        ("subscribers", "t", "b", None),
    ]
    assert rows[0]["attributes"] == "x = range = [1, 5]"


def test_a_network_has_a_row_per_client_or_component(network: Network) -> None:
    rows = network.to_arrow().to_pylist()
    assert [row["subscription"] for row in rows] == ["s-1", "s-2", "t"]
    assert rows[0] == {
        "subscription": "s-1",
        "subscriber": "s-1",
        "group": "s",
        "broker": "b",
        "filter": "x < 4",
        "max_delay_s": 1.0,
        "price": 1.0,
    }
    assert rows[2]["max_delay_s"] is None
    assert network.to_arrow("publishers").to_pylist() == [
        {"publisher": "p", "group": "p", "broker": "a", "rate_per_s": 5.0, "mean_size_kb": 1.0, "mean_lifetime_s": 3.0}
    ]
    brokers = network.to_arrow("brokers").to_pylist()
    assert [(row["broker"], row["mean_service_s"]) for row in brokers] == [("a", 0.002), ("b", 0.002)]
    assert brokers[0]["availability"] == pytest.approx(0.9)
    links = network.to_arrow("links").to_pylist()
    assert [(row["source"], row["target"]) for row in links] == [("a", "b"), ("b", "a")]
    assert links[0]["mean_slowness_s_per_kb"] == pytest.approx(0.001)
    with pytest.raises(ConfigurationError, match="rows is 'clients'; write one of subscribers, publishers"):
        network.to_arrow("clients")  # type: ignore[arg-type]


def test_a_notebook_shows_the_size_and_the_subscriptions(network: Network) -> None:
    shown = network._repr_html_()
    assert "&lt;b&gt;Small" in shown
    for words in ("2 brokers, 2 links", "1 publishers, 3 subscribers", "x &lt; 4", "<td>1 s</td>", "<td>none</td>"):
        assert words in shown
