"""The effect of each change, from figures that the caller gives."""

from typing import Any

import pytest

from tidings.errors import InputError
from tidings.report.figures._changes import changes_of

MEASURED = {"a": 0.5, "b": 0.9, "c": 1.0}
MATCHED = {"a": 100, "b": 300, "c": 0}


def changes(*given: dict[str, Any]) -> Any:
    return changes_of(given, MEASURED, MATCHED, ["a", "b"])


def test_now_is_what_was_measured_unless_it_is_given() -> None:
    one = {"name": "buffer", "reliability": {"a": 0.7, "b": 0.9, "c": 1.0}}
    found = changes(one)
    assert found.now.reliability == pytest.approx((100 * 0.5 + 300 * 0.9) / 400)
    assert found.single[0].reliability == pytest.approx((100 * 0.7 + 300 * 0.9) / 400)
    assert (found.compared, found.now.meeting, found.together) == (3, 1, None)
    given = changes({"name": "now", "reliability": {"a": 0.1, "b": 0.2}}, one)
    assert given.now.by_subscription == {"a": 0.1, "b": 0.2}
    assert given.compared == 2


def test_all_is_all_together() -> None:
    share = {"a": 1.0, "b": 1.0, "c": 1.0}
    found = changes({"name": "x", "reliability": share}, {"name": "all", "reliability": share})
    assert [each.name for each in found.single] == ["x"]
    assert found.together.by_subscription == {"a": 1.0, "b": 1.0}


def test_what_is_not_known_does_not_count() -> None:
    found = changes({"name": "x", "description": "try it", "reliability": {"a": 0.7, "b": None, "c": float("nan")}})
    assert found.compared == 1
    assert (found.single[0].description, found.single[0].by_subscription) == ("try it", {"a": 0.7})


def test_nothing_given_is_no_section() -> None:
    assert changes_of([], MEASURED, MATCHED, ["a"]) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"name": "x"}], r"changes\[0\]: give a name, and reliability"),
        ([{"name": "x", "reliability": {"a": 1.2}}], "R of 'a' is 1.2, but a share is from 0 to 1"),
        ([{"name": "x", "reliability": {"a": 1.0}}] * 2, r"changes\[1\]: there are two changes named 'x'"),
        ([{"name": "x", "reliability": {"z": 1.0}}], "no subscription of the run is in all of them"),
    ],
)
def test_wrong_changes_are_refused(given: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        changes(*given)


def test_moves_are_kept_and_checked() -> None:
    share = {"a": 1.0, "b": 1.0, "c": 1.0}
    move = {"client": "p", "origin": "x", "target": "y"}
    found = changes({"name": "moving", "reliability": share, "moves": [move]})
    assert [(each.client, each.origin, each.target) for each in found.single[0].moves] == [("p", "x", "y")]
    with pytest.raises(InputError, match="needs client, origin and target"):
        changes({"name": "moving", "reliability": share, "moves": [{"client": "p"}]})
