"""The command `tidings simulate`: its document, its table, its exit codes."""

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tidings.cli._app import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart.toml"
SMALL = """
title = "Small"
duration = "{duration}"
topology = {{ kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }}
policies = {{ scheduling = "fifo" }}
[links]
bandwidth = "1 Mbit/s"
[[publishers]]
name = "p"
at = "a"
rate = "{rate}"
attributes = {{ x = {{ range = [1, 4] }} }}
[[subscribers]]
name = "s"
at = "b"
count = 3
filter = "x <= {{number}}"
max_delay = "{max_delay}"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL.format(duration="30 s", rate="50 /s", max_delay="10 ms"))
    return path


def test_json_is_one_document(scenario: Path) -> None:
    ran = CliRunner().invoke(app, ["simulate", str(scenario), "--seed", "4", "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert list(document["subscribers"]) == ["s-1", "s-2", "s-3"]
    for row in document["subscribers"].values():
        assert row["matched"] == row["on_time"] + row["late"] + row["lost"] + row["in_flight"]
        assert row["on_time_reliability"] == row["on_time"] / row["matched"]
    assert document["seed"] == 4
    assert document["delivery_rate"] == document["on_time"] / document["matched"]
    assert document["earnings"] == document["on_time"]
    assert document["traffic"] > document["published"]
    assert document["trace"] is None


def test_text_is_a_table(scenario: Path) -> None:
    ran = CliRunner().invoke(app, ["simulate", str(scenario)])
    assert ran.exit_code == 0, ran.output
    assert "Small" in ran.stdout
    assert "s-3" in ran.stdout


def test_trace_goes_out(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace"
    ran = CliRunner().invoke(app, ["simulate", str(scenario), "--out", str(out), "--sample", "0.5", "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert 0 < pq.read_table(out / "publications").num_rows < document["published"]
    again = CliRunner().invoke(app, ["simulate", str(scenario), "--out", str(out), "--json"])
    assert again.exit_code == 2
    assert "already holds a trace" in json.loads(again.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"rate": "0 /s"}, "rate"), ({"max_delay": "-1 ms"}, "max_delay"), ({"duration": "0 s"}, "duration")],
)
def test_bad_scenarios_are_bad_input(tmp_path: Path, change: dict[str, str], message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.format(**({"duration": "30 s", "rate": "50 /s", "max_delay": "10 ms"} | change)))
    ran = CliRunner().invoke(app, ["simulate", str(path), "--json"])
    assert ran.exit_code == 2
    assert message in json.loads(ran.stdout)["error"]["message"]


def test_bad_share_is_bad_input(scenario: Path) -> None:
    assert CliRunner().invoke(app, ["simulate", str(scenario), "--sample", "2"]).exit_code == 2


def test_the_example_shows_differences() -> None:
    ran = CliRunner().invoke(app, ["simulate", str(EXAMPLE), "--json"])
    assert ran.exit_code == 0, ran.output
    shares = [row["on_time_reliability"] for row in json.loads(ran.stdout)["subscribers"].values()]
    known = sorted(share for share in shares if share is not None)
    assert known[0] < 0.3
    assert known[len(known) // 2] > 0.8


def test_interruption_leaves_complete_files_and_130(tmp_path: Path) -> None:
    path, out = tmp_path / "long.toml", tmp_path / "trace"
    path.write_text(SMALL.format(duration="100 d", rate="100 /s", max_delay="10 ms"))
    command = [sys.executable, "-c", "from tidings.cli import main; main()"]
    with subprocess.Popen(
        [*command, "simulate", str(path), "--out", str(out)],
        stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    ) as running:
        for _ in range(600):
            if (out / "hops" / "_part-00000.parquet").exists():
                break
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=600)
    assert running.returncode == 130, error
    assert b"Traceback" not in error
    names = [file.name for file in out.rglob("*") if file.is_file()]
    assert names
    assert not [name for name in names if name.startswith("_")]
    assert pq.read_table(out / "hops").num_rows > 0
