"""`tidings autopilot`: its log shown, its kill switch, and its mistakes. What it does live is in tests/autopilot."""

import fcntl
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tidings.autopilot import AuditLog, Files, Measure, Record
from tidings.autopilot._audit import Forecast
from tidings.cli._app import app
from tidings.planning import MovePublisher

NETWORK = '[[broker]]\nname = "a"\nlisten = "127.0.0.1:1"\n'
RUN = CliRunner()


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(NETWORK, "utf-8")
    return path


def written(network: Path) -> list[Record]:
    """A log of a change that was kept."""
    before = Measure(on_time_share=0.25, shortfall=2.0, error=0.1, subscriptions=4, below=3, is_short=True)
    after = Measure(on_time_share=1.0, shortfall=0.0, error=0.0, subscriptions=4, below=0, is_short=False)
    change, forecast = (
        MovePublisher(publisher="p", broker="b"),
        Forecast(now=2.0, then=0.0, gain=2.0, rehearsed_gain=1.9),
    )
    records = [
        Record(
            at_s=0.0, kind="planned", words="move it", changes=(change,), predicted=forecast, advice=("buy a link",)
        ),
        Record(
            at_s=60.0,
            kind="kept",
            words="it helped",
            changes=(change,),
            measured=before,
            predicted=forecast,
            after=after,
        ),
    ]
    log = AuditLog(Files.of(network).log)
    for record in records:
        log.write(record)
    log.close()
    return records


def test_the_log_is_shown_with_what_predictions_were_worth(network: Path) -> None:
    records = written(network)
    shown = RUN.invoke(app, ["autopilot", str(network), "--show"])
    assert shown.exit_code == 0
    assert "move it (gain 2, 1.9 in the simulator)" in shown.stdout
    assert "advice          buy a link" in shown.stdout
    assert "predictions for moves of publishers were worth 100% (1 judged)" in shown.stdout
    document = RUN.invoke(app, ["autopilot", str(network), "--show", "--json"])
    assert msgspec.json.decode(document.stdout, type=list[Record]) == records


def test_the_kill_switch_keeps_an_autopilot_from_flying_until_it_is_removed(network: Path) -> None:
    stopped = RUN.invoke(app, ["autopilot", str(network), "--stop", "--json"])
    switch = network.with_name("network.autopilot.stop")
    assert json.loads(stopped.stdout) == {"switch": str(switch), "was_running": False}
    assert switch.exists()
    trace = network.with_name("trace")
    refused = RUN.invoke(app, ["autopilot", str(network), "--traces", str(trace)])
    assert refused.exit_code == 2
    assert "kill switch is set; remove this file" in refused.output


def test_mistakes_are_named(network: Path) -> None:
    network.write_text(network.read_text("utf-8") + "\n[profiles]\nrecord = false\n", "utf-8")
    for arguments, words in (
        ([], "has record = false under [profiles] and no `directory` under [trace]"),
        (["--traces", "trace", "--slo", "1.0"], "must be a share above 0 and below 1"),
        (["--show"], "cannot be read"),
        (["--traces", "trace", "--log", str(network.with_name("no") / "log")], "cannot be written"),
    ):
        found = RUN.invoke(app, ["autopilot", str(network), *arguments])
        assert found.exit_code == 2, found.output
        assert words in found.output


def test_a_log_has_one_writer(network: Path) -> None:
    with Files.of(network).log.open("ab") as log:
        fcntl.flock(log.fileno(), fcntl.LOCK_EX)
        found = RUN.invoke(app, ["autopilot", str(network), "--traces", "trace"])
        assert found.exit_code == 2
        assert "another autopilot writes this log" in found.output
