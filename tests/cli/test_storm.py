"""`tidings storm` says what happened, in words or as one document, and how to see a failure again."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.storm import StormReport

SMALL = ["storm", "--minutes", "0.5", "--brokers", "3", "--clients", "6"]


def test_a_storm_as_one_document() -> None:
    result = CliRunner().invoke(app, [*SMALL, "--seeds", "2", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document.keys() >= {"seeds", "violations", "events", "deliveries", "faults"}
    assert document["seeds"] == 2
    assert document["violations"] == []
    assert document["events"] > 0
    assert document["frames_per_event"]["data"] > 1


def test_a_storm_in_words_with_its_trace(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*SMALL, "--seed", "4", "--out", str(tmp_path / "trace")])
    assert result.exit_code == 0
    assert "violations  0" in result.stdout
    assert (tmp_path / "trace" / "deliveries" / "part-00000.parquet").exists()


def test_a_broken_promise_is_shown_with_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    import tidings.storm

    def broken(*_: Any, **__: Any) -> StormReport:
        return StormReport(
            seeds=1,
            violations=((9, "nothing-lost", "it is gone"),),
            events=1,
            accepted=1,
            deliveries=0,
            late=0,
            faults={},
            drops={},
            moves={},
            frames=1,
            sent={},
            converged_s=(),
        )

    monkeypatch.setattr(tidings.storm, "run_storms", broken)
    result = CliRunner().invoke(app, [*SMALL, "--seed", "9"])
    assert result.exit_code == 1
    assert "seed 9: nothing-lost: it is gone" in result.stdout
    assert "replay: tidings storm --seed 9 --minutes 0.5 --brokers 3 --clients 6" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheme", "hope"], "scheme"),
        (["--minutes", "0.1"], "half a minute"),
        (["--seeds", "2", "--out", "x"], "--out writes the trace of one storm"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*SMALL, *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


SCENARIO = """
title = "Two that fail"
seed = 2
duration = "1 h"
topology = { kind = "explicit", brokers = ["left", "right"], links = [["left", "right"]] }
brokers.failures = { availability = 0.9, period = "600 s" }
publishers = [{ name = "p", at = "left", rate = "2 /min", lifetime = "100 s", attributes = { x = 1 } }]
subscribers = [{ name = "s", at = "right", filter = "x = 1" }]
policies.faults = { refresh = "60 s" }
"""


def test_a_scenario_beside_simulator_and_predictor(tmp_path: Path) -> None:
    scenario = tmp_path / "two.toml"
    scenario.write_text(SCENARIO)
    result = CliRunner().invoke(app, ["storm", "--scenario", str(scenario), "--scheme", "buffer", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["scheme"] == "buffer"
    assert document["on_time_reliability"].keys() == {"protocol", "simulator", "predictor"}
    assert 0.5 < document["on_time_reliability"]["protocol"] <= 1.0
    assert document["subscriptions"]["s"]["matched"] == document["matched"] > 60
    assert CliRunner().invoke(app, ["storm", "--scenario", str(scenario), "--seeds", "2"]).exit_code == 2
    in_words = CliRunner().invoke(app, ["storm", "--scenario", str(scenario), "--seed", "5"])
    assert "bypass+buffer" in in_words.stdout
    assert "retransmission per event" in in_words.stdout
