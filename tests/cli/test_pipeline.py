"""The command `tidings pipeline run`: its document, its table, its exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.cli._pipeline import parse_share
from tidings.errors import ConfigurationError
from tidings.model.scenario import Scenario
from tidings.simulation import simulate

SMALL = """
duration = "3 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
policies = { scheduling = "fifo" }
[links]
bandwidth = "1 Mbit/s"
[[publishers]]
name = "p"
at = "a"
rate = "20 /s"
attributes = { x = { range = [1, 4] } }
[[subscribers]]
name = "s"
at = "b"
count = 3
filter = "x <= {number}"
max_delay = "1 s"
"""


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.01", 0.01), ("0", 0.0), ("100 %", 1.0)])
def test_a_share(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "x", "-1%", "2", "nan"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write 1% or 0\.01"):
        parse_share(text)


@pytest.mark.spark
def test_run(tmp_path: Path, spark: object) -> None:
    """The document, then the table of a run with nothing new, then bad input."""
    assert spark is not None
    trace, out = tmp_path / "trace", tmp_path / "out"
    truth = simulate(Scenario.parse(SMALL).expand(), out=trace)
    done = CliRunner().invoke(app, ["pipeline", "run", str(trace), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    for name, score in truth.subscribers.items():
        found = document["subscribers"][name]
        assert (found["matched"], found["on_time"], found["late"]) == (score.matched, score.on_time, score.late)
        assert found["on_time_reliability"] == score.on_time_reliability
    assert document["quarantined"] == {}
    assert all(Path(place).is_dir() for place in document["tables"].values())
    assert "looking for files" in done.stderr
    shown = CliRunner().invoke(app, ["pipeline", "run", str(trace), "--out", str(out)])
    assert shown.exit_code == 0
    assert "the least reliable first" in shown.stdout
    assert "0 of them new" in shown.stdout
    (tmp_path / "empty").mkdir()
    wrong = CliRunner().invoke(app, ["pipeline", "run", str(tmp_path / "empty"), "--out", str(tmp_path / "other")])
    assert wrong.exit_code == 2
    assert "no files of a trace" in wrong.stderr
