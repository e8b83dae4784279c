"""Plans and what-if answers as tables, and what a notebook shows of them."""

import pytest

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network
from tidings.planning import Objective, SpeedUpLink, plan, what_if

GOAL = Objective(reliability=0.99)


def test_a_plan_has_a_row_per_change_and_per_subscription(overloaded: Network) -> None:
    found = plan(overloaded, GOAL, allowed=("capacity",), runs=0)
    rows = found.to_arrow().to_pylist()
    assert [(row["change"], row["cost"]) for row in rows] == [(each.words, each.cost) for each in found.changes]
    assert {row["kind"] for row in rows} == {"capacity"}
    shares = found.to_arrow("subscribers").to_pylist()
    assert [row["subscription"] for row in shares] == list(found.subscribers)
    assert all(row["on_time_share_then"] >= 0.99 for row in shares)
    assert repr(found).startswith("Plan(99.0 % on time with ")
    shown = found._repr_html_()
    assert found.changes[0].words in shown
    with pytest.raises(ConfigurationError, match="rows is 'links'; write one of changes, subscribers"):
        found.to_arrow("links")  # type: ignore[arg-type]


def test_an_impossible_plan_shows_its_obstacles(too_far: Network) -> None:
    found = plan(too_far, GOAL, allowed=("scheme",), runs=0)
    assert found.to_arrow().num_rows == 0
    assert found.to_arrow().schema.names == ["kind", "change", "cost"]
    assert repr(found) == "Plan(99.0 % on time is not possible with the allowed changes)"
    assert "has a deadline of 200 ms" in found._repr_html_()


def test_what_if_has_a_column_per_change(overloaded: Network) -> None:
    link = overloaded.topology.links[0]
    found = what_if(overloaded, [SpeedUpLink(source=link.source, target=link.target, factor=2.0)])
    table = found.to_arrow()
    name = found.changes[0].name
    assert table.schema.names == ["subscription", "now", name, "all"]
    assert table["now"].to_pylist() == found.now.tolist()
    assert repr(found).startswith("WhatIf(mean on-time share now: ")
    assert "points" in found._repr_html_()


def test_pandas_gives_the_same(overloaded: Network) -> None:
    pytest.importorskip("pandas")
    found = plan(overloaded, GOAL, allowed=("capacity",), runs=0)
    assert found.to_pandas()["change"].tolist() == [each.words for each in found.changes]
