"""`tidings plan` at the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.model.scenario import Scenario
from tidings.simulation import simulate

ROOT = Path(__file__).parents[2]
MIXED = str(ROOT / "examples" / "plan" / "mixed.toml")
OVERLOAD = str(ROOT / "examples" / "plan" / "overload.toml")


def test_the_plan_as_a_document_and_as_a_scenario(tmp_path: Path) -> None:
    out, better = tmp_path / "plan.json", tmp_path / "better.toml"
    result = CliRunner().invoke(
        app, ["plan", MIXED, "--slo", "0.99", "--json", "--out", str(out), "--apply", str(better)]
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document == json.loads(out.read_text())
    assert document["format"] == "tidings.slo-plan"
    assert document["possible"] is True
    assert [change["change"] for change in document["changes"]] == ["scheduling"]
    assert document["verification"]["low_ends_met"] is True
    assert document["verification"]["level"] == 0.95
    assert document["subscribers"]["operator"]["now"] < 0.99 <= document["subscribers"]["operator"]["simulated"]
    assert "looking for further changes" in result.stderr
    shown = simulate(Scenario.load(better).expand(4711))
    assert all((row.on_time_reliability or 0.0) >= 0.99 for row in shown.subscribers.values())


def test_for_people_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = CliRunner().invoke(app, ["plan", OVERLOAD, "--without", "move", "--without", "scheduling", "--runs", "1"])
    assert result.exit_code == 0, result.output
    assert "give middle - south 1.5 times the bandwidth (5)" in result.stdout
    assert "1 of 1 simulations with fresh seeds meet it" in result.stdout


def test_what_stands_in_the_way_and_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    without = [word for kind in ("move", "capacity", "scheduling") for word in ("--without", kind)]
    better = tmp_path / "better.toml"
    result = CliRunner().invoke(app, ["plan", OVERLOAD, *without, "--apply", str(better)])
    assert result.exit_code == 1
    assert "link middle -> south is 99.6 % busy: its bandwidth must rise from 80 kbit/s to" in result.stdout
    assert not better.exists()


def test_a_prediction_alone_says_so() -> None:
    result = CliRunner().invoke(app, ["plan", OVERLOAD, "--without", "scheduling", "--runs", "0"])
    assert result.exit_code == 0, result.output
    assert "predicted, not simulated" in result.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--slo", "99"], "write 99% or 0.99"),
        (["--share", "0"], "at most 1"),
        (
            ["--allow", "magic"],
            "unknown kind of change 'magic': must be one of scheduling, scheme, move, capacity, lifetime",
        ),
        (["--cost", "capacity"], "such as --cost capacity=20"),
        (["--cost", "capacity=much"], "such as --cost capacity=20"),
        (["--cost", "capactiy=3"], "did you mean 'capacity'"),
        (["--costs", "nothing.toml"], "cannot be read"),
        (["--strategy", "eb"], "--strategy is for profiles"),
    ],
)
def test_wrong_options_tell_the_way_out(options: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["plan", MIXED, *options])
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_directory_that_is_no_pipeline_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["plan", str(tmp_path), "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["kind"] == "InputError"
    assert "tidings pipeline run" in result.stderr


def test_strategies_of_profiles(tmp_path: Path) -> None:
    """Every strategy that a plan can be made with is taken, and the one that it cannot be is refused by name."""
    refused = CliRunner().invoke(app, ["plan", str(tmp_path), "--strategy", "ebpc"])
    assert refused.exit_code == 2
    assert "--strategy ebpc is not for plans: `r` would have to be searched too" in refused.stderr
    taken = CliRunner().invoke(app, ["plan", str(tmp_path), "--strategy", "triage"])
    assert "tidings pipeline run" in taken.stderr
