"""`tidings doctor` and `tidings examples`: what an installation has, and where its examples are."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidings.cli import _doctor
from tidings.cli._app import app
from tidings.cli._examples import examples_directory


def test_every_check_has_a_line_and_every_note_a_remedy() -> None:
    done = CliRunner().invoke(app, ["doctor"])
    found = list(_doctor.checks())
    assert len(done.stdout.splitlines()) == len(found)
    assert [each.name for each in found if each.state == "problem" and not each.remedy] == []
    names = {each.name for each in found}
    assert {"Python", "Tidings", "tidings[broker]", "Java", "kernels", "disk", "open files", "clock"} <= names
    assert done.exit_code == (1 if any(each.state == "problem" for each in found) else 0)


def test_as_json() -> None:
    document = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert all(set(each) == {"name", "state", "found", "remedy"} for each in document["checks"])


def test_a_java_home_without_java_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    (line,) = (line for line in done.stdout.splitlines() if "Java:" in line)
    assert line.startswith("problem  Java: JAVA_HOME is ")
    assert line.endswith("(unset JAVA_HOME, or correct it)")


@pytest.mark.parametrize(("version", "state"), [("1.8.0_392", "problem"), ("17.0.1", "ok"), ("21", "ok")])
def test_the_version_of_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, state: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (found,) = (each for each in _doctor.checks() if each.name == "Java")
    assert found.state == state


def test_examples_are_copied_once(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    done = CliRunner().invoke(app, ["examples", str(target)])
    assert done.exit_code == 0
    assert (target / "europe.toml").read_bytes() == (examples_directory() / "europe.toml").read_bytes()
    again = CliRunner().invoke(app, ["examples", str(target)])
    assert again.exit_code == 2
    assert "exists: give another directory" in again.stderr
    shutil.rmtree(target)
    assert json.loads(CliRunner().invoke(app, ["examples", str(target), "--json"]).stdout)["directory"] == str(target)
