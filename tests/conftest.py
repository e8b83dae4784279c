"""What all tests share: one Spark session, and a browser, started only if a test asks for them.

And how they are dealt to processes. A JVM needs half a minute of a processor until it is warm, so all tests that use
the Spark session go to the same process, in whichever files they are; the others go file by file, as the tests of a
file share its fixtures. Three things decide who goes first: the tests with Spark are the longest chain; those that
wait for processes and sockets leave the processor to others; and where no kernel is compiled yet, the rooms that use
the simulator come after the process with Spark has compiled it, so that only one does. Where there are fewer processors
than processes, the others give way to the process with Spark: all wait for it in the end.
"""

import ast
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOMS_FIRST = ("live", "model", "protocol", "storm", "experiments", "test_examples.py", "test_documentation.py", "cli")

GIVES_WAY = 2
"""By how much nicer to others a process without Spark is: together they still get more than the one that has it."""

WITHOUT_SPARK = pytest.StashKey[bool]()

JAVA_OPTIONS = "-Xmn1g -XX:ParallelGCThreads=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Rare collections, by a thread that shares its processor with no other of its kind, and Spark's own classes as they
are: without these the tests with Spark take a fifth more of a processor."""

PAGE_WAIT_MS = 300_000
"""How long a test waits for what a page should show: on a busy machine a minute may pass."""

# How long an example takes is no property of the code: it depends on what else the machine does.
settings.register_profile("tidings", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidings")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where this is one of several processes; alone, tests run in the order of their files."""
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A process that begins with other tests never gets those with Spark, which are dealt first."""
    stash = item.config.stash
    if hasattr(item.config, "workerinput") and WITHOUT_SPARK not in stash:
        stash[WITHOUT_SPARK] = not _is_with_spark(item.path, item.name)
        if stash[WITHOUT_SPARK]:
            os.nice(GIVES_WAY)


def _turn(item: pytest.Item) -> int:
    room = item.path.relative_to(Path(__file__).parent).parts[0]
    if _is_with_spark(item.path, item.name):
        return 0 if room == "report" else 1  # whose runs of the pipeline other processes use later
    return 2 + (ROOMS_FIRST.index(room) if room in ROOMS_FIRST else len(ROOMS_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With `--dist=loadfile`: the tests with Spark to one process, the others file by file."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadSparkAndFiles(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            return "spark" if _is_with_spark(config.rootpath / file, test) else file

    return LoadSparkAndFiles(config, log)


def _is_with_spark(file: Path, test: str) -> bool:
    marked = _marked_spark(file)
    return marked is None or test.partition("[")[0] in marked


@cache
def _marked_spark(file: Path) -> frozenset[str] | None:
    """The tests of a file that are marked `spark`, None if all are; by its text, as who deals them out imports none.

    A file that is marked `browser` as well looks at pages of what another has computed.
    """
    body = ast.parse(file.read_text("utf-8")).body
    for each in body:
        if isinstance(each, ast.Assign) and "mark.spark" in ast.unparse(each):
            return frozenset() if "mark.browser" in ast.unparse(each) else None
    return frozenset(
        each.name
        for each in body
        if isinstance(each, ast.FunctionDef) and any("mark.spark" in ast.unparse(mark) for mark in each.decorator_list)
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A local Spark session: one core, one shuffle partition, no UI, bound to this machine only."""
    pytest.importorskip("pyspark.sql", reason="PySpark is not installed: pip install 'tidings[spark]'")
    from tidings.pipeline._session import open_session

    single = {
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }
    with open_session(master="local[1]", app_name="tidings-tests", memory="2g", extra=single) as session:
        yield session


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """The system's Chromium, without a window; closed after each module, as Playwright's event loop bars all others."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on the PATH: sh scripts/setup-chromium installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: "Browser") -> "Iterator[Page]":
    """A page without a network but this machine's; whatever it complains of in its console fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PAGE_WAIT_MS)
    complaints: list[str] = []
    page = context.new_page()
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert not complaints
