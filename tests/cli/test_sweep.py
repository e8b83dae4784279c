"""The command `tidings sweep`: its document, its table, its exit codes."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app

ROOT = Path(__file__).parents[2]
SMALL = """
seed = 5
duration = "20 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { bandwidth = "1 Mbit/s" }
[[publishers]]
name = "p"
at = "a"
rate = "50 /s"
[[subscribers]]
name = "s"
at = "b"
filter = "TRUE"
max_delay = "10 ms"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["sweep", *map(str, arguments)])


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_json_is_one_document(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = invoke(scenario, "--vary", "links.loss=0,0.1", "--seeds", 2, "--out", out, "--json")
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["seeds"] == [5, 6]
    assert (document["cells"], document["found"], document["failures"]) == (4, 0, [])
    assert [row["setting"] for row in document["settings"]] == [{"links.loss": 0}, {"links.loss": 0.1}]
    figure = document["settings"][1]["figures"]["delivery_rate"]
    assert figure["low"] < figure["mean"] < figure["high"]
    again = invoke(scenario, "--vary", "links.loss=0,0.1", "--seeds", 2, "--out", out)
    assert again.exit_code == 0
    assert "4 of 4 cells were already there" in again.stderr
    assert "links.loss" in again.stdout


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_failed_cell_is_exit_code_1_with_its_command(scenario: Path) -> None:
    ran = invoke(scenario, "--vary", "subscribers.at=b,nowhere", "--seed", 9, "--json")
    assert ran.exit_code == 1
    document = json.loads(ran.stdout)
    assert [row["runs"] for row in document["settings"]] == [1, 0]
    assert "failed: subscribers.at=nowhere, seed 9: ScenarioError" in ran.stderr
    assert f"alone: tidings sweep {scenario} --vary subscribers.at=nowhere --seed 9 --seeds 1" in ran.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vary", "links.los=1"], "did you mean `loss`?"),
        (["--vary", "links.loss"], "is not key=values"),
        (["--list", "none.csv"], "cannot be read"),
        (["--master", "local", "--remote", "sc://here"], "exclude each other"),
    ],
)
def test_bad_input_is_exit_code_2(scenario: Path, options: list[str], message: str) -> None:
    ran = invoke(scenario, *options, "--json")
    assert ran.exit_code == 2
    assert message in json.loads(ran.stdout)["error"]["message"]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_page_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    page = (ROOT / "docs" / "reference" / "sweeps.md").read_text("utf-8")
    found = re.search(r"```sh\ntidings sweep ([^\n]*)\n```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert found is not None
    ran = invoke(*shlex.split(found.group(1)))
    assert [line.rstrip() for line in ran.stdout.splitlines()] == found.group(2).splitlines()
