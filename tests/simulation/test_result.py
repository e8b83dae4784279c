"""The result of a run as tables and in a notebook."""

import sys

import pytest

from tidings.errors import ConfigurationError
from tidings.model import Scenario
from tidings.simulation import Result, simulate

SCENARIO = """
title = "Two <hops>"
duration = "100 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { propagation = "100 ms" }
[[publishers]]
name = "p"
at = "a"
interval = "1 s"
attributes = { x = 1 }
[[subscribers]]
name = "near"
at = "a"
filter = "x = 1"
max_delay = "50 ms"
[[subscribers]]
name = "far"
at = "b"
filter = "x = 1"
max_delay = "50 ms"
[[subscribers]]
name = "other"
at = "b"
filter = "x = 2"
"""


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(Scenario.parse(SCENARIO).expand())


def test_a_row_per_subscription(result: Result) -> None:
    rows = result.to_arrow().to_pylist()
    assert [row["subscription"] for row in rows] == list(result.subscribers)
    for row in rows:
        found = result.subscribers[row["subscription"]]
        assert (row["matched"], row["on_time"], row["late"]) == (found.matched, found.on_time, found.late)
        assert row["on_time_share"] == found.on_time_reliability
        assert row["low"] == (None if found.interval is None else found.interval.low)
    assert {row["on_time_share"] for row in rows} == {1.0, 0.0, None}


def test_pandas_gives_the_same(result: Result) -> None:
    pytest.importorskip("pandas")
    frame = result.to_pandas().set_index("subscription")
    assert frame["on_time_share"].to_dict()["near"] == 1.0
    assert frame["on_time_share"].isna()["other"]


def test_without_pandas_the_error_names_the_install(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match="needs pandas, which is not installed: pip install 'pandas"):
        result.to_pandas()


def test_a_notebook_shows_the_lowest_share_first(result: Result) -> None:
    shown = result._repr_html_()
    assert "Two &lt;hops&gt;" in shown
    assert shown.index("<td>far</td>") < shown.index("<td>near</td>") < shown.index("<td>other</td>")
    assert "<td>0.0 %</td>" in shown
    assert "no matches" in shown
