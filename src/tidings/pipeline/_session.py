"""Opening Spark: on this machine, on a cluster, or through Spark Connect, with the same settings for results.

What does not depend on where a job runs: ANSI mode, UTC, Arrow between the JVM and Python, adaptive plans, sketches
that stay in the hash aggregate. What does: the memory of a local driver (a share of what the machine or its control
group has left), the address (loopback, unless the master is another machine), and how the package reaches the workers:

- on this machine they import what the driver imports;
- on a cluster (`spark://`) and through Connect (`sc://`) the driver's own package travels with the job, so that workers
  which have its dependencies run the same code as the driver; or `environment` names an archive of a whole Python
  environment with the package in it, for workers that have none of that (docs/guide/spark-cluster.md).

Kernels are compiled once and kept beside the package's files. A cluster's executors get the driver's kernels with the
package and compile only what these lack; where the package lies in a folder that may not be written to, the workers
of this machine get a folder of their own for as long as the session lasts.

Spark's own words, those of the JVM and those of Python workers go to a file without a name, which is quoted if Spark
does not start and otherwise vanishes; `verbose` lets them through to standard error. Nothing of them ever goes to
standard output, which is for results.

Ctrl-C stays what it was before: whoever has no handler of its own gets a KeyboardInterrupt, and the session ends with
the block that it was opened for. Spark would put a handler in its place that talks to the JVM from within whatever
call the main thread is in.
"""

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final

from tidings.errors import ConfigurationError
from tidings.pipeline._archive import (
    existing_environment,
    kernels_for_workers,
    shipped_to_executors,
    unpackable_environment,
    zipped_package,
)
from tidings.pipeline._memory import available_memory_bytes, driver_memory
from tidings.pipeline._reachability import call_within, require_reachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cause_in_jvm", "once", "open_session", "require_pyspark", "was_interrupted"]

_THROWN: Final = re.compile(r": [\w.$]+(Exception|Error): ")

WORKERS_WAIT_S = 60.0  # how long a cluster may take to give the first executor
CONNECT_WAIT_S = 30.0  # how long a Connect server may take for its first answer
CONNECT_PORT = 15002
STANDARD_ERROR = 2  # the file descriptor
JVM_TAIL_BYTES = 2_000
RESULTS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Attributes are known by their names; two that differ only in case are different.
    "spark.sql.caseSensitive": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # No limit: with one, Spark adds up the size of the batch so far, lists and all, for every row that it writes.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # Sketches are objects: beyond this many groups in a task Spark would sort all its rows instead of hashing them.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
}
LOUD_LOGGERS = ("py4j", "pyspark", "DataFrameQueryContextLogger", "SQLQueryContextLogger")


@contextmanager
def open_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    verbose: bool = False,
    app_name: str = "tidings",
    memory: str | None = None,
    environment: str | PathLike[str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Iterator["SparkSession"]:
    """A Spark session, stopped at the end unless it was there before.

    `master` is Spark's (`local[*]` unless given), `remote` the address of a Connect server (`sc://host:15002`);
    `memory` is the driver's heap (`4g`); `environment` is an archive of a Python environment for the workers; `extra`
    are settings of Spark that go before ours.
    """
    if master is not None and remote is not None:
        raise ConfigurationError(f"master {master} and remote {_host(remote)} exclude each other; give one of them")
    require_pyspark()
    here = None if environment is None else existing_environment(Path(environment))
    found = _active(master, remote)
    if found is not None:
        yield found
        return
    with _quiet(verbose):
        settings = {**RESULTS, **(extra or {})}
        # Executors that join late fetch from this folder too, so it stays as long as the session does.
        with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
            here = None if here is None else unpackable_environment(here, Path(folder))
            if remote is not None:
                session = _connect(remote, app_name, here, Path(folder), settings)
            else:
                where = master or "local[*]"
                session = _start(where, app_name, memory, here, Path(folder), settings, verbose=verbose)
            try:
                yield session
            except BaseException as error:
                # Ctrl-C has reached the JVM too: it may be gone already.
                with suppress(Exception) if was_interrupted(error) else nullcontext():
                    _stop(session)
                if was_interrupted(error):
                    raise KeyboardInterrupt from error
                raise
            _stop(session)


def was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind this error.

    PySpark talks to the JVM when it leaves a call, and Ctrl-C ends the JVM as well: the error of that replaces the
    KeyboardInterrupt, which is then only its context.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def once(session: "SparkSession | Callable[[], SparkSession]") -> "Callable[[], SparkSession]":
    """The session, begun when it is first asked for. No class is asked for: one of Connect is of another."""
    begun: list[SparkSession] = []

    def start() -> "SparkSession":
        if not begun:
            begun.append(session() if callable(session) else session)
        return begun[0]

    return start


def require_pyspark() -> None:
    """A ConfigurationError that names the remedy if PySpark cannot be imported."""
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"this needs Spark, and PySpark cannot be imported ({error}); install it: pip install 'tidings[spark]'"
        ) from error


def _active(master: str | None, remote: str | None) -> "SparkSession | None":
    """The session that this process has already, if it is where the caller wants to go."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if session is None or session.sparkContext._jsc is None:
        return None
    has = session.sparkContext.master
    if remote is not None or master not in (None, has):
        wanted = master if remote is None else _host(remote)
        raise ConfigurationError(f"this process has a Spark session on {has} already; stop it before going to {wanted}")
    return session


def _start(
    master: str,
    app_name: str,
    memory: str | None,
    environment: Path | None,
    folder: Path,
    settings: dict[str, str],
    *,
    verbose: bool,
) -> "SparkSession":
    """A session whose driver is this process: on this machine, or with its workers on a cluster."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if master.startswith("sc://"):
        raise ConfigurationError(f"{_host(master)} is a Connect server, not a master; give it as remote (--remote)")
    _require_java()
    is_local = master.startswith("local")
    if is_local and environment is not None:
        raise ConfigurationError(
            f"{environment}: an environment is for the workers of a cluster, and those of this machine use its own; "
            "leave it out, or name the cluster (--master, --remote)"
        )
    hosts = [] if is_local else _masters(master)
    require_reachable(hosts, what="Spark master", remedy="is it running, and is this its address?")
    given = {**_driver(master, memory, is_local, [host for host, _ in hosts]), **_java_options(is_local, verbose)}
    given |= kernels_for_workers(folder) if is_local else shipped_to_executors(environment, folder)
    for name, between in (("spark.archives", ","), ("spark.driver.extraJavaOptions", " ")):
        if name in given and name in settings:  # of two options that say the same, Java takes the last
            settings = {**settings, name: f"{given[name]}{between}{settings[name]}"}
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(master).setAppName(app_name).setAll(list({**given, **settings}.items()))
    with _environment(_python(is_local, environment)), _jvm_words(verbose) as words, _same_interrupt():
        try:
            gateway = SparkContext._gateway or _launch(conf, words)
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            raise ConfigurationError(f"Spark did not start on {master}: {_cause(error, words)}") from error
    session = SparkSession(context)
    try:
        if hosts:
            _wait_for_workers(context, master)
    except BaseException:
        session.stop()
        raise
    return session


def _driver(master: str, memory: str | None, is_local: bool, hosts: list[str]) -> dict[str, str]:
    settings = {
        "spark.driver.memory": memory or (driver_memory(available_memory_bytes()) if is_local else "2g"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # A run has more stages than the 100 whose code Spark keeps: the next one would compile all of them again.
        "spark.sql.codegen.cache.maxEntries": "1000",
    }
    if is_local:
        # Adaptive plans join small partitions, but each still is a file: a few for each core, not 200.
        settings["spark.sql.shuffle.partitions"] = str(max(4, 2 * _local_cores(master)))
    if is_local or all(host in ("localhost", "::1") or host.startswith("127.") for host in hosts):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _local_cores(master: str) -> int:
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside else 1


def _masters(master: str) -> list[tuple[str, int]]:
    """The addresses in `spark://host:port,host:port`; other kinds of master have none that we could try."""
    if not master.startswith("spark://"):
        if master.startswith(("k8s://", "yarn")):
            return []
        raise ConfigurationError(
            f"master {master!r} is none of Spark's; write local[*], local[4], spark://host:7077, k8s://... or yarn"
        )
    addresses = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError(f"master {master!r} has no host and port; write spark://host:7077")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def _python(is_local: bool, environment: Path | None) -> dict[str, str]:
    """The interpreter of the workers: this one, unless it comes in an archive or the caller has named another."""
    workers = sys.executable if is_local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    return {
        "PYSPARK_PYTHON": "./environment/bin/python" if environment is not None else workers,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **({"SPARK_LOCAL_IP": "127.0.0.1"} if is_local else {}),
    }


def _java_options(is_local: bool, verbose: bool) -> dict[str, str]:
    """Whole collections at once: nobody waits for an answer within milliseconds, and a run takes a tenth less.

    On this machine the JVM's second compiler is left out: rows are read and counted by the Python workers, so it would
    take more time than its code saves (a quarter of a run of a million hops, a fifth of one of ten million). Without
    it the JVM would keep 48 MB of compiled code, which the plans of three runs fill; then it stops compiling. So it
    gets as much as with both.
    """
    options = ["-XX:+UseParallelGC"]
    options += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"] if is_local else []
    if not verbose:
        options.append(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}")
    return {"spark.driver.extraJavaOptions": " ".join(options)}


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    remedy = "Spark needs Java 17 or later: run `make setup`, or install the package openjdk-17-jre-headless"
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        raise ConfigurationError(f"JAVA_HOME is {home}, where there is no bin/java. {remedy} and unset JAVA_HOME")
    if not home and shutil.which("java") is None:
        raise ConfigurationError(f"there is no Java on this machine. {remedy}")


def _launch(conf: Any, words: IO[bytes] | None) -> Any:
    """The JVM, with its output and errors where `words` goes: it warns before any logging is set up, on either."""
    from pyspark.java_gateway import launch_gateway

    where = STANDARD_ERROR if words is None else words
    with _interrupt_later():
        return launch_gateway(conf, popen_kwargs={"stdout": where, "stderr": where})  # type: ignore[no-untyped-call]


@contextmanager
def _jvm_words(verbose: bool) -> Iterator[IO[bytes] | None]:
    if verbose:
        yield None
        return
    with tempfile.TemporaryFile() as words:
        yield words


def _cause(error: Exception, words: IO[bytes] | None) -> str:
    """What a JVM that came up has thrown, the end of the output of one that did not, or else the error itself."""
    output = ""
    if hasattr(error, "java_exception"):
        return cause_in_jvm(error)
    if words is not None:
        words.seek(max(0, words.seek(0, os.SEEK_END) - JVM_TAIL_BYTES))
        lines = words.read().decode(errors="replace").splitlines()
        output = "\n".join(line for line in lines if not line.startswith(("WARNING: Using incubator", "\tat ")))
    if "UnsupportedClassVersionError" in output:
        return "this Java is too old; Spark needs Java 17 or later: run `make setup`, and look at JAVA_HOME"
    return output.strip() or str(error)


@contextmanager
def _same_interrupt() -> Iterator[None]:
    """Put back the handler of Ctrl-C that Spark replaces as it starts."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if _has_signals():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Hold back Ctrl-C for the seconds in which the JVM comes up, as until then nothing ends it with this process.

    A second one interrupts at once.
    """
    if not _has_signals():
        yield
        return
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(number)

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        signal.raise_signal(signal.SIGINT)


def _has_signals() -> bool:
    """Whether handlers can be set here; one that was not set from Python (None) could not be put back."""
    return threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not None


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for as long as Spark starts: it reads them once."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _wait_for_workers(context: Any, master: str) -> None:
    if context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return
    until = time.monotonic() + WORKERS_WAIT_S
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # one of them is the driver
        if context._jsc.sc().isStopped() or time.monotonic() > until:
            raise ConfigurationError(
                f"{master} gave no worker within {WORKERS_WAIT_S:g} s: has it workers with free cores and enough "
                "memory for spark.executor.memory (1g unless set), and can they reach this machine?"
            )
        time.sleep(0.1)


def _connect(
    remote: str, app_name: str, environment: Path | None, folder: Path, settings: dict[str, str]
) -> "SparkSession":
    """A session on a Connect server, which owns the driver: only settings of SQL can be made from here."""
    host = _host(remote)
    if not remote.startswith("sc://"):
        raise ConfigurationError(f"remote {host!r} is not the address of a Connect server; write sc://host:15002")
    try:
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except Exception as error:  # PySpark raises a class of its own for each missing package
        raise ConfigurationError(
            f"Spark Connect lacks a package ({error}); install what it needs: pip install 'tidings[spark]'"
        ) from error
    from pyspark.sql import SparkSession

    try:
        name, _, port = DefaultChannelBuilder(remote).endpoint.rpartition(":")
    except Exception as error:
        raise ConfigurationError(f"remote {host!r} cannot be read: {error}; write sc://host:15002") from error
    require_reachable(
        [(name.strip("[]"), int(port))], what="Spark Connect server", remedy="is it running, and is this its address?"
    )

    def begin() -> "SparkSession":
        session = SparkSession.builder.remote(remote).appName(app_name).getOrCreate()
        for key, value in settings.items():
            session.conf.set(key, value)
        return session

    session = call_within(CONNECT_WAIT_S, begin, f"{host} does not answer as a Spark Connect server")
    try:
        if environment is not None:
            session.addArtifacts(f"{environment}#environment", archive=True)
            session.conf.set("spark.sql.execution.pyspark.python", "environment/bin/python")
        else:
            session.addArtifacts(str(zipped_package(folder)), pyfile=True)
    except BaseException:
        session.stop()
        raise
    return session


def _host(remote: str) -> str:
    """The address without its parameters, among which may be a token that no message must show."""
    return remote.partition("/;")[0].partition(";")[0]


@contextmanager
def _quiet(verbose: bool) -> Iterator[None]:
    """Keep the Python side of Spark from logging what it also raises; some of that it logs as nobody (root)."""
    loggers = [] if verbose else [logging.getLogger(name) for name in LOUD_LOGGERS]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    if not verbose:
        logging.root.addFilter(_is_not_of_py4j)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
        logging.root.removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _stop(session: "SparkSession") -> None:
    """Stop streams first, each at the end of its batch, so that no checkpoint is left half-written."""
    try:
        for query in session.streams.active:
            query.stop()
    finally:
        session.stop()


def cause_in_jvm(error: Exception) -> str:
    """What went wrong in the JVM, out of the pages that Spark and Py4J wrap it in: the exception at the bottom."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    thrown = [line.removeprefix(": ") for line in lines if _THROWN.match(line)]
    return (causes[-1:] or thrown or lines or [type(error).__name__])[0]
