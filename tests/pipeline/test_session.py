"""The session factory: the settings that results depend on, memory, silence, and an error for each thing that lacks."""

import gzip
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tidings.errors import ConfigurationError
from tidings.pipeline._archive import shipped_to_executors, unpackable_environment, zipped_package
from tidings.pipeline._memory import available_memory_bytes, driver_memory
from tidings.pipeline._reachability import call_within, require_reachable
from tidings.pipeline._session import RESULTS, open_session, was_interrupted
from tidings.rehearsal._ports import free_ports

GIB = 1 << 30


def machine(root: Path, *, available_kb: int, groups: str, limits: dict[str, tuple[str, int]]) -> dict[str, Path]:
    """A /proc and a /sys/fs/cgroup as a container sees them."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available_kb} kB\n")
    (root / "proc" / "self" / "cgroup").write_text(groups)
    for path, (limit, used) in limits.items():
        folder = root / "groups" / path
        folder.mkdir(parents=True, exist_ok=True)
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if path.startswith("memory")
            else ("memory.max", "memory.current")
        )
        (folder / names[0]).write_text(f"{limit}\n")
        (folder / names[1]).write_text(f"{used}\n")
    return {"proc": root / "proc", "groups": root / "groups"}


def test_memory_is_what_the_machine_has_left(tmp_path: Path) -> None:
    where = machine(tmp_path, available_kb=8 << 20, groups="0::/a\n", limits={"a": ("max", GIB)})
    assert available_memory_bytes(**where) == 8 * GIB


def test_memory_is_what_the_tightest_control_group_has_left(tmp_path: Path) -> None:
    limits = {"": ("max", 0), "pod": (str(5 * GIB), 2 * GIB), "pod/box": (str(6 * GIB), GIB)}
    where = machine(tmp_path, available_kb=64 << 20, groups="0::/pod/box\n", limits=limits)
    assert available_memory_bytes(**where) == 3 * GIB


def test_memory_respects_the_old_interface_too(tmp_path: Path) -> None:
    limits = {"memory/box": (str(4 * GIB), GIB)}
    where = machine(tmp_path, available_kb=64 << 20, groups="3:cpu:/x\n2:memory,hugetlb:/box\n0::/\n", limits=limits)
    assert available_memory_bytes(**where) == 3 * GIB


def test_memory_of_this_machine_is_less_than_all_of_it() -> None:
    assert 0 < available_memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(("available", "heap"), [(16 * GIB, "8192m"), (GIB, "1024m"), (500 * GIB, "30720m")])
def test_the_drivers_heap_is_a_share_within_bounds(available: int, heap: str) -> None:
    assert driver_memory(available) == heap


@pytest.mark.spark
def test_results_do_not_depend_on_where_a_job_runs(spark: Any) -> None:
    for key, value in RESULTS.items():
        assert spark.conf.get(key) == value, key
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


@pytest.mark.spark
def test_the_jvm_has_room_for_the_code_of_many_runs(spark: Any) -> None:
    """With its first compiler alone it would keep 48 MB, and stop compiling in the third run of a session."""
    java = spark._jvm.java.lang
    beans = java.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    options = java.management.ManagementFactory.getPlatformMXBean(beans)
    assert options.getVMOption("TieredStopAtLevel").getValue() == "1"
    assert int(options.getVMOption("ReservedCodeCacheSize").getValue()) >= 240 << 20


@pytest.mark.spark
def test_a_session_that_is_there_is_taken_and_left_running(spark: Any) -> None:
    with open_session() as same:
        assert same is spark
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_a_session_elsewhere_is_in_the_way(spark: Any) -> None:  # noqa: ARG001
    with (
        pytest.raises(ConfigurationError, match=r"has a Spark session on local\[1\] already"),
        open_session(master="spark://127.0.0.1:7077"),
    ):
        pass
    with pytest.raises(ConfigurationError) as raised, open_session(remote="sc://elsewhere/;token=secret"):
        pass
    assert "secret" not in str(raised.value)


def test_master_and_remote_exclude_each_other() -> None:
    with (
        pytest.raises(ConfigurationError, match="exclude each other") as raised,
        open_session(master="local[1]", remote="sc://host:1/;token=secret"),
    ):
        pass
    assert "secret" not in str(raised.value)


def test_an_archive_has_to_be_there(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match="no such environment archive"),
        open_session(environment=tmp_path / "none.tar.gz"),
    ):
        pass
    (tmp_path / "environment.zip").touch()
    with (
        pytest.raises(ConfigurationError, match=r"environment\.zip: must be one of \.tar\.gz, \.tgz, \.tar"),
        open_session(environment=tmp_path / "environment.zip"),
    ):
        pass


OPEN = "import sys, json; from tidings.pipeline._session import open_session\n"
FAIL = OPEN + (
    "from tidings.errors import ConfigurationError\n"
    "try:\n    with open_session(**json.loads(sys.argv[1])): pass\n"
    "except ConfigurationError as error: print(error)"
)


def run(code: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=1_800, check=False
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"master": "spark://127.0.0.1:{port}"}, "no Spark master answers at 127.0.0.1:{port}"),
        ({"remote": "sc://127.0.0.1:{port}/;token=secret"}, "no Spark Connect server answers at 127.0.0.1:{port}"),
        ({"master": "spark://nowhere"}, "has no host and port"),
        ({"master": "loca[2]"}, "is none of Spark's"),
        ({"environment": "{archive}"}, "an environment is for the workers of a cluster"),
        ({"master": "sc://127.0.0.1"}, "give it as remote"),
        ({"remote": "http://127.0.0.1"}, "is not the address of a Connect server"),
    ],
)
def test_what_cannot_be_reached_is_named_at_once(options: dict[str, str], message: str, tmp_path: Path) -> None:
    port, archive = free_ports(1)[0], tmp_path / "environment.tar.gz"
    archive.touch()
    given = {key: value.format(port=port, archive=archive) for key, value in options.items()}
    ran = run(FAIL, json.dumps(given))
    assert message.format(port=port) in ran.stdout
    assert "secret" not in ran.stdout
    assert ran.stderr == ""


def test_without_java_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    ran = run(FAIL, "{}", PATH=str(tmp_path), JAVA_HOME="")
    assert "there is no Java on this machine" in ran.stdout
    assert "make setup" in ran.stdout
    ran = run(FAIL, "{}", JAVA_HOME=str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}" in ran.stdout


def test_without_pyspark_the_error_says_how_to_install_it() -> None:
    ran = run("import sys; sys.modules['pyspark'] = None\n" + FAIL, "{}")
    assert "pip install 'tidings[spark]'" in ran.stdout


def test_without_pyspark_names_that_need_it_say_so_and_the_others_are_there() -> None:
    """A notebook got ModuleNotFoundError, and the name of a module of ours in it."""
    ran = run(
        "import sys; sys.modules['pyspark'] = None\n"
        "import tidings.pipeline\n"
        "from tidings.errors import ConfigurationError\n"
        "for name in (*tidings.pipeline.__all__, 'scores', 'profiles', 'interest'):\n"
        "    try: getattr(tidings.pipeline, name)\n"
        "    except ConfigurationError as error: print(name, \"pip install 'tidings[spark]'\" in str(error))\n"
    )
    assert ran.stderr == ""
    told = dict(line.split() for line in ran.stdout.splitlines())
    assert {"TidingsSource", "run_pipeline"} <= told.keys()
    assert not {"PipelineOptions", "PipelineResult", "run_in_process", "table_paths"} & told.keys()
    assert set(told.values()) == {"True"}


def test_a_pyspark_without_what_a_name_needs_is_named() -> None:
    ran = run(
        "import sys; sys.modules['pyspark.sql.streaming.datasource'] = None\n"
        "import tidings.pipeline\n"
        "from tidings.errors import ConfigurationError\n"
        "try: tidings.pipeline.TidingsSource\n"
        "except ConfigurationError as error: print(error)\n"
    )
    assert "TidingsSource needs a later pyspark" in ran.stdout, ran.stderr


SAY = "    spark._jvm.java.lang.System.out.println('of the JVM')\n"


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="where output goes is looked up in /proc")
def test_the_jvm_does_not_have_our_standard_output(spark: Any) -> None:
    jvm = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/fd")
    assert (jvm / "1").readlink() == (jvm / "2").readlink() != Path("/proc/self/fd/1").readlink()


@pytest.mark.full
@pytest.mark.spark
def test_what_spark_says_aloud_is_never_on_standard_output() -> None:
    code = OPEN + (
        "with open_session(master='local[1]', memory='1g', verbose=True) as spark:\n" + SAY + "    print('{}')\n"
    )
    ran = run(code)
    assert ran.stdout == "{}\n"
    assert "of the JVM\n" in ran.stderr


@pytest.mark.full
@pytest.mark.spark
def test_spark_is_silent_even_where_a_task_fails() -> None:
    code = OPEN + (
        "def fail(batches):\n    raise ValueError('this cell')\n"
        "with open_session(master='local[1]', memory='1g') as spark:\n" + SAY + "    print(spark.range(5).count())\n"
        "    try: spark.range(1).mapInArrow(fail, 'id long').collect()\n"
        "    except Exception as error: print('this cell' in str(error))\n"
    )
    ran = run(code)
    assert ran.stdout.split() == ["5", "True"]
    assert ran.stderr == ""


def test_a_server_that_answers_nothing_is_given_up() -> None:
    with pytest.raises(ConfigurationError, match=r"no answer: nothing came back within 0.05 s"):
        call_within(0.05, lambda: time.sleep(1), "no answer")
    with pytest.raises(ConfigurationError, match="no answer: because"):
        call_within(5, lambda: _raise("because"), "no answer")
    assert call_within(5, lambda: 3, "no answer") == 3


def _raise(message: str) -> int:
    raise ValueError(message)


def test_one_address_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_reachable([("127.0.0.1", free_ports(1)[0]), server.getsockname()[:2]], what="master", remedy="")
    require_reachable([], what="master", remedy="")


def test_a_plain_archive_travels_as_a_compressed_one(tmp_path: Path) -> None:
    """Spark unpacks a plain one without links and permissions, so that its Python could not be started."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "session").mkdir()
    subprocess.run(["tar", "-cf", tmp_path / "made.tar", "-C", tmp_path / "made", "."], check=True)
    found = unpackable_environment(tmp_path / "made.tar", tmp_path / "session")
    assert found == tmp_path / "session" / "made.tar.gz"
    assert gzip.decompress(found.read_bytes()) == (tmp_path / "made.tar").read_bytes()
    assert unpackable_environment(found, tmp_path) == found


def test_what_travels_is_the_whole_package(tmp_path: Path) -> None:
    code = (
        "import tidings.pipeline._session, tidings.model.filters as f; f.Filter.parse('a = 1'); print(tidings.__file__)"
    )
    ran = run(code, PYTHONPATH=str(zipped_package(tmp_path)))
    assert "tidings-package.zip" in ran.stdout, ran.stderr
    settings = shipped_to_executors(None, tmp_path)
    archive = Path(settings["spark.archives"].partition("#")[0])
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    assert (tmp_path / "tidings" / "pipeline" / "log4j2.properties").exists()
    assert not list((tmp_path / "tidings").rglob("*.pyc"))


def replaced_interrupt() -> ConfigurationError:
    """Ctrl-C as PySpark lets it through: it asks the JVM when it leaves a call, and Ctrl-C has ended that."""
    try:
        try:
            raise KeyboardInterrupt
        finally:
            raise ConnectionError("Answer from Java side is empty")
    except ConnectionError as error:
        reported = ConfigurationError("the workers cannot run a simulation")
        reported.__cause__ = error
        return reported


def test_an_error_that_replaced_ctrl_c_counts_as_ctrl_c() -> None:
    assert was_interrupted(replaced_interrupt())
    assert not was_interrupted(ConfigurationError("no Java"))
