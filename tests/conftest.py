"""What all tests share: one Spark session, and a browser, started only if a test asks for them."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A local Spark session: one core, one shuffle partition, no UI, bound to this machine only."""
    pytest.importorskip("pyspark.sql", reason="PySpark is not installed: pip install 'tidings[spark]'")
    from tidings.pipeline._session import open_session

    single = {
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
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
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: "Browser") -> "Iterator[Page]":
    """A page without a network but this machine's; whatever it complains of in its console fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    page = context.new_page()
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert not complaints
