"""Jobs on a real standalone cluster and on a real Spark Connect server, as processes on this machine.

Each job runs in a process of its own, as it would from the command line: a process can hold one kind of session only.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidings.model.scenario import Scenario
from tidings.rehearsal._ports import free_ports
from tidings.simulation import simulate

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'tidings[spark]'")
pytestmark = pytest.mark.spark

SPARK = Path(pyspark.__file__).parent
START_WAIT_S = 600
JOB_WAIT_S = 1_800
SMALL = """
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
count = 2
filter = "TRUE"
max_delay = "10 ms"
"""
WHERE_THE_WORKER_IS = """
import json, sys
from tidings.pipeline._session import open_session

def look(batches):
    import sys
    import pyarrow as pa
    import tidings.simulation
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable], "package": [tidings.__file__]})

with open_session(**json.loads(sys.argv[1])) as spark:
    row = spark.range(1).mapInArrow(look, "python string, package string").collect()[0]
    print(json.dumps(row.asDict()))
"""


def die_with_parent() -> None:
    """Ask Linux to end this process when the tests end, even if they are killed and clean up nothing."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


@contextmanager
def running(folder: Path, name: str, *command: str, port: int | None = None, python: str = "") -> Iterator[Path]:
    """A process of Spark's, until the end; with `port`, once it listens there. Yields the file with its words.

    `python` is the interpreter of its workers, where it is not the driver of a job who names that.
    """
    words = folder / f"{name}.log"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "PYTHONPATH"))}
    environment |= {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder / "local")}
    if python:
        environment["PYSPARK_PYTHON"] = python
    with words.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            env=environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
    try:
        if port is not None:
            wait_for_port(process, port, words)
        yield words
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def wait_for_port(process: "subprocess.Popen[bytes]", port: int, words: Path) -> None:
    until = time.monotonic() + START_WAIT_S
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"nothing listens on {port}: {words.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master with one worker of one core."""
    folder = tmp_path_factory.mktemp("cluster")
    (port,) = free_ports(1)
    deploy = (str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy")
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    url = f"spark://127.0.0.1:{port}"
    size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
    with (
        running(folder, "master", deploy[0], f"{deploy[1]}.master.Master", *here, "--port", str(port), port=port),
        running(folder, "worker", deploy[0], f"{deploy[1]}.worker.Worker", *here, *size, url),
    ):
        yield url


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server that runs its jobs on one core of this machine."""
    pytest.importorskip("grpc", reason="Spark Connect needs more packages: pip install 'pyspark[connect]'")
    folder = tmp_path_factory.mktemp("connect")
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "1g"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    with running(folder, "connect", *command, "spark-internal", port=port, python=sys.executable):
        yield f"sc://127.0.0.1:{port}"


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    return subprocess.run(command, capture_output=True, text=True, timeout=JOB_WAIT_S, env=environment, check=False)


def sweep(folder: Path, *where: str) -> "subprocess.CompletedProcess[str]":
    scenario = folder / "small.toml"
    scenario.write_text(SMALL)
    options = ("--vary", "policies.scheduling=fifo", "--seed", "3", "--seeds", "2", "--json")
    return run("-c", "from tidings.cli import main; main()", "sweep", str(scenario), *options, *where)


def check_sweep(ran: "subprocess.CompletedProcess[str]") -> None:
    """The sweep succeeded, in silence, with the figures that the simulator gives in this process."""
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"(sweeping: \d+%\n)*", ran.stderr), "nothing but progress"
    figures = json.loads(ran.stdout)["settings"][0]["figures"]
    text = SMALL + '[policies]\nscheduling = "fifo"\n'
    expected = [simulate(Scenario.parse(text).expand(seed)) for seed in (3, 4)]
    for name in ("published", "on_time", "traffic"):
        assert figures[name]["mean"] == sum(getattr(result, name) for result in expected) / 2


@pytest.mark.full
def test_a_sweep_on_a_standalone_cluster(master: str, tmp_path: Path) -> None:
    check_sweep(sweep(tmp_path, "--master", master))


@pytest.mark.full
def test_a_sweep_through_connect(remote: str, tmp_path: Path) -> None:
    """With a directory for the results, in which it finds nothing at first and everything later."""
    where = ("--remote", remote, "--out", str(tmp_path / "out"))
    for found in (0, 2):
        ran = sweep(tmp_path, *where)
        check_sweep(ran)
        assert json.loads(ran.stdout)["found"] == found


def where_the_worker_is(**options: str) -> dict[str, str]:
    ran = run("-c", WHERE_THE_WORKER_IS, json.dumps(options))
    assert ran.returncode == 0, ran.stderr
    found: dict[str, str] = json.loads(ran.stdout)
    return found


@pytest.mark.full
def test_the_package_travels_to_a_cluster(master: str) -> None:
    assert "tidings-package" in where_the_worker_is(master=master)["package"]


@pytest.mark.full
def test_the_package_travels_through_connect(remote: str) -> None:
    assert "tidings-package.zip" in where_the_worker_is(remote=remote)["package"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment as an archive: the package and all that it imports, native libraries included."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "made", symlinks=True)
    here = next(Path(each) for each in sys.path if each.endswith("site-packages"))
    there = folder / "made" / here.relative_to(sys.prefix)
    left_out = shutil.ignore_patterns("pyspark*", "mypy*", "ruff*", "__editable__*", "*.pth", "pip*", "__pycache__")
    shutil.copytree(here, there, ignore=left_out, dirs_exist_ok=True)
    package = Path(sys.modules["tidings"].__file__ or "").parent
    shutil.copytree(package, there / "tidings", dirs_exist_ok=True)
    target = folder / "environment.tar"
    with tarfile.open(target, "w") as archive:
        archive.add(folder / "made", ".")
    return target


@pytest.mark.full
@pytest.mark.parametrize("kind", ["master", "remote"])
def test_a_whole_environment_travels(
    kind: str, environment: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(kind)
    found = where_the_worker_is(**{kind: url}, environment=str(environment))
    for path in found.values():
        assert "environment" in path
        assert not path.startswith(sys.prefix)
    check_sweep(sweep(tmp_path, f"--{kind}", url, "--environment", str(environment)))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["master", "remote"])
def test_the_pipeline_runs_there_too(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(kind)
    truth = simulate(Scenario.parse(SMALL).expand(3), out=tmp_path / "trace")
    where = (f"--{kind}", url, "--out", str(tmp_path / "out"), "--json")
    ran = run("-c", "from tidings.cli import main; main()", "pipeline", "run", str(tmp_path / "trace"), *where)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)["subscribers"]
    assert list(found) == list(truth.subscribers)
    for name, expected in truth.subscribers.items():
        assert (found[name]["matched"], found[name]["on_time"]) == (expected.matched, expected.on_time)
