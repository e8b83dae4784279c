"""The wheel and the sdist, each installed into an environment of its own, as users have it."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.rehearsal._ports import free_ports

ROOT = Path(__file__).parent.parent
PARTS = (
    "examples",
    "src",
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "setup.py",
)
MOST_BYTES = 15_000_000
"""Of a client, without the byte code that pip adds."""
PATIENCE_S = 300.0

pytestmark = pytest.mark.full

CLIENT = """
import asyncio, sys
import tidings

async def main(address):
    async with tidings.connect(address, name="sender") as sender, tidings.connect(address, name="reader") as reader:
        await sender.advertise("price > 0")
        events = await reader.subscribe("price > 10 AND symbol = 'A'", max_delay_s=60.0)
        await sender.publish({"symbol": "B", "price": 12})
        await sender.publish({"symbol": "A", "price": 11}, payload=b"x", lifetime_s=60.0)
        print((await anext(events)).attributes)
        for asked in ({"filter": "price >"}, {"filter": "TRUE", "order": "ours-record", "name": "o"}):
            try:
                await reader.subscribe(**asked)
            except tidings.TidingsError as error:
                print(type(error).__name__, str(error).splitlines()[-1])

asyncio.run(main(sys.argv[1]))
with tidings.connect_blocking(sys.argv[1], name="other") as client:
    client.publish({"price": 1})
"""


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A program that finds no Tidings but the installed one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )


def pip(*arguments: str | Path, python: Path | None = None, cwd: Path | None = None) -> None:
    chosen = () if python is None else ("--python", python)
    done = run(sys.executable, "-m", "pip", *chosen, *arguments, cwd=cwd)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"the package index cannot be reached: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy of what they are made of."""
    source = tmp_path_factory.mktemp("source")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / part, source / part)
    built = tmp_path_factory.mktemp("built")
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(built)!r})"
    done = run(sys.executable, "-c", code, cwd=source)
    assert done.returncode == 0, done.stderr
    pip("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", built, source)
    return built


@pytest.fixture(scope="module", params=["*.whl", "*.tar.gz"])
def client(request: pytest.FixtureRequest, packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with nothing but `pip install tidings`."""
    (package,) = packages.glob(request.param)
    venv = tmp_path_factory.mktemp("venv")
    done = run(sys.executable, "-m", "venv", "--without-pip", venv)
    assert done.returncode == 0, done.stderr
    python = venv / "bin" / "python"
    # An sdist is built with the setuptools of this environment, so that the test needs nothing but the dependencies.
    if package.suffix == ".gz":
        folder = tmp_path_factory.mktemp("from-sdist")
        pip("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, package)
        (package,) = folder.glob("*.whl")
    pip("install", "-q", "--no-compile", "-c", ROOT / "constraints.txt", package, python=python)
    return python


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker of the full environment."""
    (port,) = free_ports(1)
    file = tmp_path / "network.toml"
    file.write_text(f'[network]\nstore = "store"\n[[broker]]\nname = "b"\nlisten = "127.0.0.1:{port}"\n', "utf-8")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "tidings", "broker", str(file)], stdout=log, stderr=log)
    try:
        ends_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "log").read_text("utf-8")
                assert time.monotonic() < ends_s
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_a_client_is_small_and_talks_to_a_broker(client: Path, broker: str, tmp_path: Path) -> None:
    (site,) = (client.parent.parent / "lib").glob("python*/site-packages")
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < MOST_BYTES
    (tmp_path / "client.py").write_text(CLIENT, "utf-8")
    done = run(client, "-B", tmp_path / "client.py", broker, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "{'symbol': 'A', 'price': 11}"
    assert lines[1].startswith("FilterError")
    assert lines[2].startswith("ConfigurationError")
    assert lines[2].endswith("is not installed: pip install 'tidings[order]'")


def test_the_command_says_what_to_install(client: Path, tmp_path: Path) -> None:
    done = run(client, "-B", "-m", "tidings", "demo", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: tidings demo needs typer, which is not installed: pip install 'tidings[lab]'\n"


def test_examples_are_inside(client: Path) -> None:
    code = "from pathlib import Path; import tidings; print(Path(tidings.__file__).parent / 'examples')"
    folder = Path(run(client, "-B", "-c", code).stdout.strip())
    there = {str(path.relative_to(folder)) for path in folder.rglob("*.toml")}
    assert there == {str(path.relative_to(ROOT / "examples")) for path in (ROOT / "examples").rglob("*.toml")}
