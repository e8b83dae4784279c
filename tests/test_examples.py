"""Every example works: scenarios are good and run, scripts run, and each is told of in examples/README.md."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from tidings.model.scenario import Scenario
from tidings.rehearsal._ports import free_ports
from tidings.simulation import simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SCENARIOS = sorted([*EXAMPLES.glob("*.toml"), *(EXAMPLES / "plan").glob("*.toml")])
EVENTS = 3000
"""So many are simulated of each: enough to meet every part of a scenario."""


def name_of(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def test_there_is_a_line_on_each_example() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    linked = {target.strip("/") for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith("..")}
    there = {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__")}
    assert there == linked


@pytest.mark.parametrize("path", SCENARIOS, ids=name_of)
def test_scenarios_run(path: Path) -> None:
    network = Scenario.load(path).expand()
    rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
    short = replace(network, duration_s=min(network.duration_s, EVENTS / rate_per_s), warmup_s=0.0)
    result = simulate(short)
    assert result.published > EVENTS / 3
    assert result.on_time > 0
    assert all(each.matched for each in result.subscribers.values()) or result.matched > 10 * EVENTS / 100


def test_the_demonstration_has_something_to_show() -> None:
    """Shares that differ, failures, queues: the scenario keeps what the demonstration is about."""
    network = Scenario.load(EXAMPLES / "europe.toml").expand()
    assert network.has_failures
    assert network.policies.scheduling.name == "fifo"
    deadlines = {subscription.max_delay_s for subscription in network.subscriptions}
    assert len(deadlines) > 10
    shares = [
        each.on_time_reliability or 0.0 for each in simulate(replace(network, duration_s=600.0)).subscribers.values()
    ]
    assert min(shares) < 0.8
    assert max(shares) > 0.97


def test_a_list_of_lines_becomes_a_scenario() -> None:
    script = subprocess.run(
        [sys.executable, EXAMPLES / "own_topology.py", EXAMPLES / "lines.csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    network = Scenario.parse(script.stdout, "lines.csv").expand()
    assert [broker.name for broker in network.topology.brokers][:2] == ["Lisbon", "Madrid"]
    assert len(network.topology.links) == 14
    assert simulate(replace(network, duration_s=60.0)).on_time > 0


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[str]]:
    """The three brokers of examples/live on ports that are free, as `tidings up` runs them."""
    text = (EXAMPLES / "live" / "network.toml").read_text("utf-8")
    ports = free_ports(3)
    for number, port in enumerate(ports):
        text = text.replace(f"127.0.0.1:700{number + 1}", f"127.0.0.1:{port}")
    (tmp_path / "network.toml").write_text(text, "utf-8")
    run = [sys.executable, "-c", "from tidings.cli import main; main()", "up", str(tmp_path / "network.toml")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(run, stdout=log, stderr=log)
    try:
        for port in ports:
            _await_listener(port, tmp_path / "log")
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        process.terminate()
        process.wait(timeout=600)


def _await_listener(port: int, log: Path, within_s: float = 300.0) -> None:
    end_s = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            assert time.monotonic() < end_s, log.read_text("utf-8")
            time.sleep(0.05)
        else:
            return


def test_the_client_gets_what_it_asked_for(brokers: list[str]) -> None:
    script = subprocess.run(
        [sys.executable, EXAMPLES / "client.py", brokers[0], brokers[2]],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert script.returncode == 0, script.stderr
    lines = script.stdout.splitlines()
    assert lines[-1] == "3 of 3 on time"
    assert all("'symbol': 'YHOO'" in line for line in lines[:-1])


@pytest.mark.full
@pytest.mark.spark
def test_a_spark_job_gets_what_it_publishes(brokers: list[str], tmp_path: Path) -> None:
    script = subprocess.run(
        [sys.executable, EXAMPLES / "spark_stream.py", brokers[0]],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    assert script.returncode == 0, script.stderr
    assert script.stdout.splitlines() == ["YHOO 16.9", "YHOO 17.2", "YHOO 19.8", "3 quotes came"]


@pytest.mark.spark
def test_logs_of_another_system(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guide shows is what the command prints."""
    from tidings.cli._app import app
    from tidings.pipeline import table_paths

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    page = (ROOT / "docs" / "guide" / "foreign-traces.md").read_text("utf-8")
    command, shown = re.findall(r"```console\ntidings (pipeline run .*)\n```\n\n```text\n(.*?)```", page, re.DOTALL)[0]
    words = command.replace("--out scores", f"--out {tmp_path / 'scores'}").split()
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    printed = [line.rstrip() for line in result.stdout.splitlines()]
    assert [line for line in shown.splitlines() if line.rstrip() not in printed] == []
    bad = spark.read.parquet(table_paths(tmp_path / "scores")["quarantine"]).select("table", "reasons").collect()
    assert [(row["table"], list(row["reasons"])) for row in bad] == [("deliveries", ["unknown-publication"])]


def test_files_of_the_foreign_example_are_as_the_guide_shows_them() -> None:
    page = (ROOT / "docs" / "guide" / "foreign-traces.md").read_text("utf-8")
    for name in ("sends.csv", "receives.csv"):
        first = "\n".join((EXAMPLES / "foreign" / name).read_text("utf-8").splitlines()[:2])
        assert first in page
    mapping = (EXAMPLES / "foreign" / "mapping.toml").read_text("utf-8")
    for line in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0].splitlines():
        assert line in [each.partition("   ")[0].rstrip() for each in mapping.splitlines()]


def test_the_plan_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tutorial shows the plan that the command makes, and the changed scenario is a good one."""
    from tidings.cli._app import app

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    page = (ROOT / "docs" / "guide" / "tutorial.md").read_text("utf-8")
    command, shown = re.findall(r"```console\ntidings (plan .*)\n```\n\n```text\n(.*?)```", page, re.DOTALL)[0]
    better = tmp_path / "better.toml"
    result = CliRunner().invoke(app, command.replace("better.toml", str(better)).split())
    assert result.exit_code == 0, result.output
    printed = [line.rstrip() for line in result.stdout.splitlines()]
    told = [line for line in shown.splitlines() if re.match(r"objective|now|plan|  ", line)]
    assert [line for line in told if line.rstrip() not in printed] == []
    changed = simulate(Scenario.load(better).expand(77))
    assert min(each.on_time_reliability or 0.0 for each in changed.subscribers.values()) > 0.985  # .99, less noise
