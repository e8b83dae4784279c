"""The commands on Spark as processes: without PySpark, and with Ctrl-C as a terminal sends it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.scenarios import SMALL

from tidings.model.scenario import Scenario
from tidings.simulation import simulate

TIDINGS = (sys.executable, "-c", "from tidings.cli import main; main()")
WAIT_S = 120
WITHOUT_PYSPARK = """
import sys


class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Nowhere())
"""
ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
from tidings.cli import main

for command in json.loads(sys.argv[1]):
    sys.argv = ["tidings", *command.split()]
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as left:
            code = left.code
    print(json.dumps([command, code, errors.getvalue()]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a scenario, its trace and what stands for a run of the pipeline."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "small.toml").write_text(SMALL)
    (folder / "scores").mkdir()
    simulate(Scenario.parse(SMALL).expand(), out=folder / "trace")
    return folder


def test_without_pyspark_every_command_says_how_to_install_it(place: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PYSPARK)
    commands = [
        "pipeline run trace --out out",
        "pipeline watch trace --out out --once",
        "order replay trace",
        "order watch trace --out out --once",
        "place trace",
        "sweep small.toml",
        "predict small.toml --spark",
        "predict scores --out out",
        "demo small.toml --out out --engine spark",
    ]
    before = sorted(place.rglob("*"))
    ran = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(commands)],
        capture_output=True,
        text=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=WAIT_S,
    )
    assert ran.returncode == 0, ran.stderr
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [command for command, _, _ in said] == commands
    for command, code, errors in said:
        assert code == 2, (command, errors)
        assert errors == (
            "error: this needs Spark, and PySpark cannot be imported (No module named 'pyspark'); "
            "install it: pip install 'tidings[spark]'\n"
        ), command
    assert sorted(place.rglob("*")) == before


def heed_ctrl_c() -> None:
    """As on a terminal, also where the tests themselves run in a script's background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(command: str, place: Path) -> "Iterator[subprocess.Popen[str]]":
    """A command in a session and a group of its own, as on a terminal; nothing of it outlives the test."""
    process = subprocess.Popen(
        [*TIDINGS, *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    try:
        yield process
    finally:
        for each in living(process.pid):
            os.kill(each, signal.SIGKILL)
        process.communicate()


def living(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):  # it has just ended
            continue
        if int(of) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_for(session: int, word: str, until_s: float) -> None:
    """Until one of the processes has this word in its command line."""
    while True:
        for each in living(session):
            command = Path(f"/proc/{each}/cmdline")
            if command.exists() and word in command.read_text():
                return
        assert time.monotonic() < until_s, f"no {word}"
        time.sleep(0.05)


RUN = "pipeline run trace --json --master local[1] --out {out}"
STAGES = (
    "looking for files",
    "starting Spark",
    "reading subscriptions and topology",
    "computing units",
    "computing arrivals",
    "writing tables",
    "summing up",
)
JVM = "org.apache.spark.deploy.SparkSubmit"
WORKER = "pyspark.daemon"  # there is one, so the command waits for a job's end


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the processes are looked up in /proc")
@pytest.mark.parametrize(
    ("command", "stage", "process_with"),
    [
        pytest.param(RUN, "starting Spark", JVM, id="run-starting"),
        pytest.param("sweep small.toml --json --master local[1]", None, WORKER, id="sweep"),
        pytest.param(RUN, "computing units", WORKER, id="run-computing", marks=pytest.mark.full),
        pytest.param(RUN, "writing tables", WORKER, id="run-writing", marks=pytest.mark.full),
    ],
)
def test_ctrl_c_ends_a_command_in_one_line(
    command: str, stage: str | None, process_with: str, place: Path, tmp_path: Path
) -> None:
    with started(command.format(out=tmp_path / "out"), place) as process:
        assert process.stderr is not None
        told = [line.rstrip() for line in iter(process.stderr.readline, f"{stage}\n")] if stage else []
        until_s = time.monotonic() + WAIT_S
        wait_for(process.pid, process_with, until_s)
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 130, errors
        assert out == ""
        *rest, last = errors.splitlines()
        assert last == "interrupted"
        expected = STAGES[len(told) + 1 :] if stage else ()
        assert tuple(rest) == expected[: len(rest)]
        # The JVM ends when it finds that nobody talks to it any more.
        while living(process.pid):
            assert time.monotonic() < until_s
            time.sleep(0.1)
    assert not (tmp_path / "out" / "commits").exists()
