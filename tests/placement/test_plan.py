"""The plan as a value and as a file."""

from pathlib import Path

import msgspec
import pytest

from tidings.errors import InputError
from tidings.placement import Change, Expected, MadeFrom, Move, PlacementPlan, PlanAim, read_plan, write_plan

FIGURES = Expected(
    messages_per_s=Change(now=40.0, then=10.0),
    delay_ms=Change(now=80.0, then=20.0),
    busiest=Change(now=0.5, then=0.25),
    on_time=Change(now=0.6, then=0.9),
)
PLAN = PlacementPlan(
    made_from=MadeFrom(traces=["trace"], from_ns=0, until_ns=10, events=64, deliveries=100),
    aim=PlanAim(objective="load", weight=75.0, hysteresis=0.01),
    moves=[
        Move(client="publisher", name="quotes", origin="a", target="c", benefit=30.0, expected=FIGURES),
        Move(client="subscriber", name="quotes", origin="b", target="c", benefit=1.0, expected=FIGURES),
    ],
    stay={"publisher": 3},
    expected=FIGURES,
)


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    write_plan(PLAN, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == PLAN
    assert [place.name for place in tmp_path.iterdir()] == ["plan.json"]
    document = msgspec.json.decode((tmp_path / "plan.json").read_bytes())
    assert (document["format"], document["version"]) == ("tidings.plan", 1)
    assert document["moves"][0]["from"] == "a"
    assert document["moves"][0]["to"] == "c"


def test_homes_and_shares() -> None:
    assert PLAN.homes("publisher") == {"quotes": "c"}
    assert FIGURES.messages_per_s.share == -0.75
    assert Change(now=0.0, then=1.0).share == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a plan: its format is 'other'"),
        ({"version": 2}, "version 2, and this Tidings knows version 1"),
        ({"extra": 1}, "unknown field `extra`"),
        ({"stay": {"broker": 1}}, "fault"),
        ({"moves": msgspec.to_builtins(PLAN.moves[:1]) * 2}, "publisher 'quotes' moves 2 times"),
        ({"moves": [msgspec.to_builtins(PLAN.moves[0]) | {"to": "a"}]}, "from 'a' to itself"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    place = tmp_path / "plan.json"
    place.write_bytes(msgspec.json.encode(msgspec.to_builtins(PLAN) | change))
    with pytest.raises(InputError, match=message):
        read_plan(place)


def test_a_file_that_is_no_json_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("from a to b")
    with pytest.raises(InputError, match="not a plan"):
        read_plan(tmp_path / "text")
    with pytest.raises(InputError, match="cannot be read"):
        read_plan(tmp_path / "nothing")
    with pytest.raises(InputError, match="cannot be written"):
        write_plan(PLAN, tmp_path / "nowhere" / "plan.json")
