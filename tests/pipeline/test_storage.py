"""One contract over three drivers, and whole runs from and to addresses that are no paths of this machine."""

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.scenarios import SMALL

from tidings.cli._spark_options import parse_conf
from tidings.errors import ConfigurationError, InputError
from tidings.model.scenario import Scenario
from tidings.rehearsal._ports import free_ports
from tidings.simulation import simulate

pytest.importorskip("pyspark.sql")

from tidings.pipeline import PipelineOptions, run_pipeline, table_paths
from tidings.pipeline._run_store import open_store
from tidings.pipeline._storage import Log, Storage, _Connect, _Hadoop, _Local, storage_of

pytestmark = pytest.mark.spark

SERVER_WAIT_S = 60


@pytest.fixture(params=["local", "hadoop", "connect"])
def driver(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> tuple[Storage, str]:
    """A driver, and a folder as it names it. The one for Connect uses nothing that other sessions have not."""
    if request.param == "local":
        return _Local(), str(tmp_path)
    return (_Hadoop(spark) if request.param == "hadoop" else _Connect(spark)), f"file:{tmp_path}"


def test_every_driver_keeps_the_contract(driver: tuple[Storage, str], tmp_path: Path) -> None:
    storage, folder = driver
    assert storage.list(f"{folder}/data") == []
    assert not storage.exists(f"{folder}/data")
    (tmp_path / "data" / "a [b]").mkdir(parents=True)
    (tmp_path / "data" / "a [b]" / "one.bin").write_bytes(bytes(range(100)))
    (tmp_path / "data" / "_half").write_bytes(b"x")
    (tmp_path / "data" / ".hidden").write_bytes(b"x")
    (tmp_path / "data" / "other").write_bytes(b"o")
    found = {file.below: file for file in storage.list(f"{folder}/data")}
    assert set(found) == {"a [b]/one.bin", "other"}
    one = found["a [b]/one.bin"]
    assert one.size_bytes == 100
    changed_ns = (tmp_path / "data" / "a [b]" / "one.bin").stat().st_mtime_ns
    assert abs(one.modified_ns - changed_ns) < 1_000_000_000  # stores know seconds
    assert storage.pieces({one.path: (90, 100), found["other"].path: (0, 1)}) == {
        one.path: bytes(range(90, 100)),
        found["other"].path: b"o",
    }
    assert storage.read(one.path) == bytes(range(100))
    storage.delete(f"{folder}/data/a [b]")
    storage.delete(f"{folder}/data/nothing")
    assert [file.below for file in storage.list(f"{folder}/data")] == ["other"]


def test_a_log_by_every_driver(driver: tuple[Storage, str]) -> None:
    storage, folder = driver
    log = Log(storage, f"{folder}/log")
    assert log.append(1, b'{"n": 1}')
    assert log.append(2, b'{"n": 2}')
    assert not Log(storage, f"{folder}/log").append(2, b'{"n": 3}')
    assert log.append(3, b'{"n": 3}')
    assert log.records() == [(3, b'{"n": 3}'), (2, b'{"n": 2}')]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traces") / "trace"
    simulate(Scenario.parse(SMALL).expand(), out=out)
    return out


@pytest.fixture
def mounted(spark: Any, tmp_path: Path) -> Iterator[str]:
    """An address of another file system, which Hadoop mounts: it is at home where no path leads."""
    (tmp_path / "store").mkdir()
    name = "fs.viewfs.mounttable.lab.link./data"
    spark.conf.set(name, f"file://{tmp_path / 'store'}")
    yield "viewfs://lab/data"
    spark.conf.unset(name)


def plain(result: Any) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(result).items() if name != "tables"}


@pytest.mark.full
def test_a_run_from_and_to_an_address_is_that_of_paths(
    spark: Any, mounted: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trace, tmp_path / "store" / "trace")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    far = run_pipeline(spark, [f"{mounted}/trace"], f"{mounted}/scores")
    near = run_pipeline(spark, [trace], tmp_path / "scores")
    assert plain(far) == plain(near)
    assert far.matched > 0
    again = run_pipeline(spark, [f"{mounted}/trace"], f"{mounted}/scores")
    assert (again.new_files, again.tables) == (0, far.tables)
    paths = table_paths(f"{mounted}/scores", spark)
    assert far.tables.items() <= paths.items()
    assert spark.read.parquet(paths["subscriber_scores"]).count() == len(far.subscribers)
    shutil.copy(tmp_path / "store/trace/hops/part-00000.parquet", tmp_path / "store/trace/hops/part-00001.parquet")
    more = run_pipeline(spark, [f"{mounted}/trace"], f"{mounted}/scores", PipelineOptions(max_bad=1.0))
    assert (more.new_files, more.recomputed) == (1, None)
    assert more.quarantined == {"duplicate": far.rows["hops"]}
    assert open_store(f"{mounted}/scores", spark).last() is not None
    assert os.listdir() == [], "no folder is called like the address"  # noqa: PTH208


def test_an_address_that_spark_does_not_know(spark: Any, trace: Path, tmp_path: Path) -> None:
    for traces, out in (([trace], "gopher://x/y"), (["gopher://x/y"], tmp_path / "out")):
        with pytest.raises(InputError, match=r'gopher://x/y: .*No FileSystem for scheme "gopher"; give a path'):
            run_pipeline(spark, traces, out)
    with pytest.raises(InputError, match="can be read with Spark only"):
        storage_of("s3a://store/x", None)


def test_settings_of_spark_as_people_write_them() -> None:
    assert parse_conf(["spark.a=1", "spark.b = x=y"]) == {"spark.a": "1", "spark.b": "x=y"}
    assert parse_conf(None) == {}
    for wrong in ("spark.a", "a=1"):
        with pytest.raises(ConfigurationError, match=r"write --conf spark\.name=value"):
            parse_conf([wrong])


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    """The address of a local S3 server with a bucket."""
    command = os.environ.get("TIDINGS_S3_SERVER")
    if not command:
        pytest.skip("TIDINGS_S3_SERVER names no local S3 server (moto_server of a private environment)")
    (port,) = free_ports(1)
    with (tmp_path / "server.log").open("wb") as words:
        server = subprocess.Popen([command, "-H", "127.0.0.1", "-p", str(port)], stdout=words, stderr=words)
    try:
        until_s = time.monotonic() + SERVER_WAIT_S
        while True:
            try:
                put(f"http://127.0.0.1:{port}/bucket", b"")
                break
            except OSError:
                assert time.monotonic() < until_s, (tmp_path / "server.log").read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def put(address: str, data: bytes) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    urllib.request.urlopen(urllib.request.Request(address, data=data, headers=headers, method="PUT")).close()


@pytest.mark.full
def test_a_run_from_and_to_an_s3_store(bucket: str, trace: Path, tmp_path: Path) -> None:
    """By a process of its own: jars have to be there when the JVM starts."""
    jars = os.environ.get("TIDINGS_S3_JARS")
    if not jars:
        pytest.skip("TIDINGS_S3_JARS names no jars (hadoop-aws, the AWS SDK's bundle, analyticsaccelerator-s3)")
    for file in trace.rglob("*.parquet"):
        put(f"{bucket}/bucket/trace/{file.relative_to(trace).as_posix()}", file.read_bytes())
    settings = {
        "spark.driver.extraClassPath": jars,
        "spark.hadoop.fs.s3a.endpoint": bucket,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": "key",
        "spark.hadoop.fs.s3a.secret.key": "secret",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    start = [sys.executable, "-c", "from tidings.cli import main; main()", "pipeline", "run"]

    def run(traces: str, out: str, *options: str) -> dict[str, Any]:
        done = subprocess.run(
            [*start, traces, "--out", out, "--json", *options],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = msgspec.json.decode(done.stdout)
        return {name: value for name, value in document.items() if name not in ("tables", "new_files")}

    far = run("s3a://bucket/trace", "s3a://bucket/scores", *conf)
    assert far == run("s3a://bucket/trace", "s3a://bucket/scores", *conf) == run(str(trace), str(tmp_path / "scores"))
    assert not list(tmp_path.glob("s3a*"))
