"""A look into a log without Spark: what is understood, what is bad, and what to change."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.logs import CONSUMERS, WRITERS, traffic
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.pipeline.ingest._inspection import inspect_log

EXAMPLES = Path(__file__).parents[3] / "examples" / "foreign"
AHEAD = {"edge": 0, "core": 250_000_000, "cloud": -120_000_000}


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    WRITERS["kafka"](traffic(**AHEAD), tmp_path / "logs")
    return tmp_path / "logs"


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The mapping for Kafka with some text replaced."""
    text = (EXAMPLES / "kafka.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "mapping.toml").write_text(text)
    return folder / "mapping.toml"


@pytest.mark.parametrize("system", WRITERS)
def test_an_example_is_understood(system: str, tmp_path: Path) -> None:
    truth = traffic(**AHEAD)
    WRITERS[system](truth, tmp_path)
    found = inspect_log([tmp_path], EXAMPLES / f"{system}.toml")
    assert (found.bad, found.collision, found.advice) == ([], None, [])
    assert found.topics == {"orders": 60, "payments": 60}
    assert {*found.hosts} == {*AHEAD}
    assert found.tables["publications"].rows == len(truth.sent)
    assert found.tables["deliveries"].rows == len(truth.received)
    assert found.subscriptions.keys() == CONSUMERS.keys()
    assert sum(counts["received"] or 0 for counts in found.subscriptions.values()) == len(truth.received)
    assert found.clocks is not None
    base = min(found.clocks, key=lambda host: found.clocks[host]["error_s"])  # type: ignore[index]
    for host, clock in found.clocks.items():
        assert abs(clock["ahead_s"] - (AHEAD[host] - AHEAD[base]) / 1e9) <= clock["error_s"] < 0.005
    delays = [delay for event in found.events for delay in event["received_after_ms"].values()]
    assert delays
    assert min(delays) >= 0


def test_keys_that_collide_and_the_column_that_tells_them_apart(kafka: Path, tmp_path: Path) -> None:
    found = inspect_log([kafka], changed(tmp_path, ('["topic", "partition"]', '"partition"'), ("[clocks]", "")))
    assert found.collision is not None
    assert found.collision.rows == 120
    assert found.collision.remedy[0] == "topic"
    assert "add topic" in found.advice[0]
    assert not any("clocks differ" in line for line in found.advice)  # nothing follows from delays of mixed events
    duplicates = {bad.table: bad.rows for bad in found.bad if bad.reason == "duplicate"}
    assert duplicates["publications"] == 60


def test_clocks_that_nobody_asked_for(kafka: Path, tmp_path: Path) -> None:
    found = inspect_log([kafka], changed(tmp_path, ("[clocks]", "")))
    assert found.negative_delays > 100
    assert any("clocks differ; write [clocks]" in line for line in found.advice)
    assert {bad.reason for bad in found.bad} == {"negative-delay"}


def test_every_kind_of_bad_row_has_an_example(kafka: Path, tmp_path: Path) -> None:
    lines = (kafka / "received.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    wrong = [
        {**first, "offset": 10_000},
        {**first, "group": "nobody"},
        {**first, "at": "soon"},
        {**first, "partition": None},
        first,
    ]
    text = "\n".join([*lines, *map(json.dumps, wrong), "{"])
    (kafka / "received.jsonl").write_text(text)
    mapping = changed(tmp_path, ("topic IN ('orders', 'payments')", "topic = 'orders'"))
    found = inspect_log([kafka], mapping)
    reasons = {bad.reason: bad for bad in found.bad}
    assert {*reasons} == {
        "unknown-publication",
        "unknown-subscription",
        "wrong-type",
        "missing-id",
        "duplicate",
        "malformed",
        "not-matching",
    }
    assert json.loads(reasons["wrong-type"].row)["at"] == "soon"
    assert reasons["malformed"].file.endswith("received.jsonl")
    counts = found.subscriptions["billing"]
    assert counts["matched"] == 60


@pytest.mark.parametrize("system", ["kafka", "otel"])
def test_rows_that_are_not_read_are_not_judged(system: str, tmp_path: Path) -> None:
    """By numbers of the log's own, and by ids."""
    WRITERS[system](traffic(), tmp_path)
    found = inspect_log([tmp_path], EXAMPLES / f"{system}.toml", rows_max=50)
    assert not found.tables["publications"].is_whole
    assert found.bad == []


def test_logs_without_hosts_name_none() -> None:
    found = inspect_log([EXAMPLES], EXAMPLES / "mapping.toml")
    assert found.hosts == {}
    assert [(bad.reason, bad.rows) for bad in found.bad] == [("unknown-publication", 1)]
    assert found.advice == []


def command(*words: str) -> Any:
    return CliRunner().invoke(app, ["import", "check", *words])


def test_the_command(kafka: Path, tmp_path: Path) -> None:
    mapping = str(EXAMPLES / "kafka.toml")
    said = command(str(kafka), "--mapping", mapping)
    assert said.exit_code == 0, said.stderr
    for text in ("publications: 120 rows, 1 file, json-lines", "topic + partition", "hosts: ", "bad rows: none"):
        assert text in said.stdout
    assert (
        said.stdout.splitlines()[-1]
        == f"next: tidings pipeline run {kafka} --mapping {mapping} --out scores --engine arrow"
    )
    document = json.loads(command(str(kafka), "--mapping", mapping, "--json").stdout)
    assert document["clocks"].keys() == AHEAD.keys()
    bad = command(str(kafka), "--mapping", str(changed(tmp_path, ('["topic", "partition"]', '"partition"'))))
    assert bad.exit_code == 1
    assert "fix: " in bad.stdout
    missing = command(str(tmp_path / "nowhere"), "--mapping", mapping)
    assert missing.exit_code == 2
    assert "there is no such directory" in missing.stderr


def test_it_needs_no_spark(kafka: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; from tidings.pipeline.ingest._inspection import inspect_log; "
        f"print(len(inspect_log([{str(kafka)!r}], {str(EXAMPLES / 'kafka.toml')!r}).hosts))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr
