"""`tidings place`: what it says, writes and draws, and what it refuses before Spark is started."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.cli._place import print_plan
from tidings.model import Scenario
from tidings.placement import Change, Expected, MadeFrom, Move, PlacementPlan, PlanAim, read_plan
from tidings.simulation import simulate

runner = CliRunner()

SCENARIO = """
duration = "30 s"
seed = 3
topology = { kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }
[links]
propagation = "10 ms"
[brokers]
service = { law = "exponential", mean = "2 ms" }
[[publishers]]
name = "far"
at = "a"
rate = "10 /s"
attributes = { topic = "far" }
[[publishers]]
name = "near"
at = "c"
rate = "10 /s"
attributes = { topic = "near" }
[[subscribers]]
name = "reader"
at = "c"
filter = "topic = 'far' OR topic = 'near'"
max_delay = "20 ms"
[policies]
expired = "forward"
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    simulate(Scenario.parse(SCENARIO).expand(), out=place)
    return place


@pytest.mark.full
@pytest.mark.spark
def test_a_plan_as_json_as_a_file_and_as_a_picture(spark: Any, trace: Path, tmp_path: Path) -> None:  # noqa: ARG001
    out, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    asked = ["place", str(trace), "--objective", "delay", "--traced", "128", "--json"]
    said = runner.invoke(app, [*asked, "--out", str(out), "--picture", str(picture)])
    assert said.exit_code == 0, said.output
    plan = json.loads(said.stdout)
    (move,) = plan["moves"]
    assert (move["client"], move["name"], move["from"], move["to"]) == ("publisher", "far", "a", "c")
    assert plan["stay"] == {"publisher": 1}
    assert move["expected"]["on_time"]["then"] > 0.95 > 0.05 > move["expected"]["on_time"]["now"]
    assert plan["expected"]["messages_per_s"]["then"] == pytest.approx(20.0, rel=0.1)
    assert read_plan(out).homes("publisher") == {"far": "c"}
    drawn = picture.read_text("utf-8")
    assert "after the plan" in drawn
    assert "utilisation of a broker" in drawn


def test_a_plan_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    expected = Expected(
        messages_per_s=Change(now=30.0, then=10.0),
        delay_ms=Change(now=25.0, then=2.0),
        busiest=Change(now=0.06, then=0.04),
        on_time=Change(now=0.0, then=1.0),
    )
    moves = [
        Move(client="publisher", name=f"p{number}", origin="a", target="c", benefit=20.0 - number, expected=expected)
        for number in range(25)
    ]
    plan = PlacementPlan(
        made_from=MadeFrom(traces=["t"], from_ns=0, until_ns=30_000_000_000, events=128, deliveries=256),
        aim=PlanAim(objective="on-time", weight=80.0, hysteresis=0.01),
        moves=moves,
        stay={"publisher": 1},
        expected=expected,
    )
    print_plan(plan)
    said = capsys.readouterr().out
    assert "128 events, 256 deliveries, over 30 s" in said
    assert "on-time, weight 80" in said
    assert "25 should move, 1 stay" in said
    assert "30 -> 10 (-67%)" in said
    assert "0.0 % -> 100.0 %" in said
    assert "p19" in said
    assert "p20" not in said
    assert "and 5 more; --json shows all" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "speed"], "there is no objective 'speed': choose load, delay or on-time"),
        (["--weight", "120"], "it must be from 0 to 100"),
        (["--hysteresis", "often"], "write 1% or 0.01"),
        (["--hysteresis", "100%"], "below 1"),
        (["--joint"], "needs objective delay and weight 100"),
        (["--traced", "0"], "must be from 1 to"),
        (["--picture", "plan.gif"], "a picture ends in"),
        (["--out", "nowhere/plan.json"], "must be a file in an existing directory"),
        (["--picture", "nowhere/plan.svg"], "must be a file in an existing directory"),
        (["--out", "s3a://store/plan.json"], "s3a://store/plan.json: only a path on this machine can be written to"),
        ([], "there is no such directory"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: list[str], message: str) -> None:
    said = runner.invoke(app, ["place", "no-such-trace", *arguments])
    assert said.exit_code == 2
    assert message in said.stderr
    assert len(said.stderr.strip().splitlines()) <= 2
