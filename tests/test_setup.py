"""The set-up scripts on machines that lack something: what they install, and what they say when they may not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def fake(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that is the whole PATH: a few plain tools, a user who is not root, and what a test adds."""
    for tool in ("sh", "sed", "head", "cat", "rm"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    fake(tmp_path, "id", "echo 1000")
    return tmp_path


def run(script: str, machine: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / script), *arguments],
        capture_output=True, text=True, check=False, cwd=machine,
        env={"PATH": str(machine), "HOME": os.environ.get("HOME", "/"), **environment},
    )  # fmt: skip


def java(version: str) -> str:
    return f"""echo 'openjdk version "{version}" 2025-01-01' >&2"""


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough_is_left_alone(machine: Path, version: str) -> None:
    fake(machine, "java", java(version))
    done = run("setup-java", machine)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_without_the_right_to_install_the_exact_command_is_shown(machine: Path, version: str) -> None:
    fake(machine, "java", java(version))
    fake(machine, "apt-get", "exit 99")
    done = run("setup-java", machine)
    assert done.returncode == 2
    assert "Type:  sudo apt-get install -y --no-install-recommends openjdk-17-jre-headless" in done.stderr


def test_with_the_right_to_install_it_says_what_it_installs_and_does(machine: Path) -> None:
    fake(machine, "id", "echo 0")
    fake(machine, "apt-get", f"""[ "$1" = update ] || cat > {machine}/java <<'X'\n#!/bin/sh\n{java("17.0.1")}\nX""")
    shutil.copymode(machine / "apt-get", machine / "apt-get")
    (machine / "java").touch()
    (machine / "java").chmod(0o755)
    done = run("setup-java", machine)
    assert "Installing a Java runtime" in done.stderr
    assert "openjdk-17-jre-headless" in done.stderr
    assert done.returncode == 0


def test_an_installation_that_fails_is_reported_with_the_command(machine: Path) -> None:
    fake(machine, "id", "echo 0")
    fake(machine, "dnf", "exit 1")
    done = run("setup-java", machine)
    assert done.returncode == 2
    assert "dnf install -y java-21-openjdk-headless" in done.stderr.splitlines()[-1]


def test_no_package_manager(machine: Path) -> None:
    done = run("setup-java", machine)
    assert done.returncode == 2
    assert "Install one by hand" in done.stderr


def test_a_stale_java_home_is_named(machine: Path) -> None:
    fake(machine, "java", java("17.0.1"))
    done = run("setup-java", machine, JAVA_HOME=str(machine / "nowhere"))
    assert done.returncode == 2
    assert "unset JAVA_HOME" in done.stderr


def test_without_a_python_that_is_new_enough(machine: Path) -> None:
    fake(machine, "python3", "exit 1")
    done = run("setup-python", machine, "venv")
    assert done.returncode == 2
    assert "Python 3.11 or later" in done.stderr


def test_a_python_without_venv(machine: Path) -> None:
    fake(machine, "python3", """case "$1" in -m) exit 1;; --version) echo Python 3.12;; esac""")
    done = run("setup-python", machine, "venv")
    assert done.returncode == 2
    assert "sudo apt-get install python3-venv" in done.stderr
