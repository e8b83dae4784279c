"""`tidings order`: what it says, with and without Spark."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.cli._order import _print as print_replay
from tidings.model import Scenario
from tidings.pipeline.ordering import OrderReplay
from tidings.simulation import simulate

runner = CliRunner()

SCENARIO = """
duration = "20 s"
seed = 3
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
[links]
bandwidth = "100 Mbit/s"
[brokers]
processing = { law = "exponential", mean = "4 ms" }
[[publishers]]
name = "p"
at = "a"
rate = "100 /s"
attributes = { x = { law = "uniform", low = 0, high = 10 } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 1
filter = "x < 7"
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("order")
    simulate(Scenario.parse(SCENARIO).expand(), out=place)
    return place


@pytest.mark.spark
def test_replay_as_json_and_as_text(
    spark: Any,  # noqa: ARG001 - it is used
    trace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["order", "replay", str(trace), "--policy", "P-0.05-25", "--policy", "CST-30"]
    said = runner.invoke(app, [*asked, "--json", "--out", str(tmp_path / "out")])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert [row["policy"] for row in found["policies"]] == ["P-0.05-25", "CST-30"]
    assert found["pairs"] == 2
    assert found["policies"][1]["repaired"] > found["policies"][0]["repaired"] > 0.3
    assert list((tmp_path / "out" / "pairs").glob("*.parquet"))
    print_replay(msgspec.json.decode(said.stdout, type=OrderReplay))
    text = capsys.readouterr().out
    assert "out of order" in text
    assert "CST-30" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "nowhere", "--policy", "P-1"], "'P-1' is not an ordering policy"),
        (["replay", "nowhere"], "there is no such directory"),
        (["replay", "nowhere", "--late", "never"], "must be deliver or drop"),
        (["replay", "nowhere", "--false-matches", "2"], "write 2% or 0.02"),
        (["watch", "nowhere", "--out", "x"], "there is no such directory"),
        (["watch", "nowhere", "--out", "x", "--buckets", "0"], "at least 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    said = runner.invoke(app, ["order", *arguments])
    assert said.exit_code == 2
    assert message in said.stderr


def test_simulate_with_ordering(tmp_path: Path) -> None:
    scenario = tmp_path / "s.toml"
    scenario.write_text(SCENARIO)
    found = json.loads(runner.invoke(app, ["simulate", str(scenario), "--ordering", "ours-record", "--json"]).stdout)
    assert found["ordering"]["policy"] == "ours-record"
    assert found["ordering"]["repaired"] > 0.9
    text = runner.invoke(app, ["simulate", str(scenario), "--ordering", "CST-3"])
    assert "out of order" in text.stdout
    assert "by CST-3" in text.stdout
    wrong = runner.invoke(app, ["simulate", str(scenario), "--ordering", "CST"])
    assert wrong.exit_code == 2
    assert "'CST' is not an ordering policy" in wrong.stderr
