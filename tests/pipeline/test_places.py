"""Where results may go: what cannot be written to is refused before anything is computed."""

from pathlib import Path
from typing import Any

import pytest
from tests.scenarios import SMALL
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import InputError
from tidings.model.scenario import Scenario
from tidings.pipeline._places import local_path, require_writable, spark_place
from tidings.simulation import simulate


def test_a_path_on_this_machine() -> None:
    assert local_path("a/b") == local_path(Path("a/b")) == Path("a/b")
    assert local_path("file:///a/b") == local_path(Path("file:///a/b")) == local_path("FILE:/a/b") == Path("/a/b")
    assert local_path("C:/a") == Path("C:/a")
    assert local_path("a:b") == Path("a:b")


@pytest.mark.parametrize("place", ["s3a://store/x", "hdfs://host:9000/x", "abfss://c@account/x", "s3://store"])
def test_an_address_is_no_path(place: str) -> None:
    for given in (place, Path(place)):  # a Path loses one of the slashes
        with pytest.raises(InputError, match=rf"^{place}: only a path on this machine can be written to; give one"):
            local_path(given)


@pytest.mark.parametrize("command", ["predict", "plan", "what-if", "report"])
def test_what_is_read_without_spark_is_a_path(command: str) -> None:
    needed = {"plan": ["--slo", "90%"]}.get(command, [])
    done = CliRunner().invoke(app, [command, "s3a://store/scores", *needed])
    assert done.exit_code == 2
    shown = " ".join(done.stderr.split())
    assert "s3a://store/scores: only a path on this machine can be read; give one, and mount the store" in shown


def test_places_as_spark_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        spark_place("a") == spark_place(tmp_path / "a") == spark_place(f"file://{tmp_path}/a") == f"file:{tmp_path}/a"
    )
    assert spark_place("s3a://store/x/") == "s3a://store/x"


@pytest.mark.spark
def test_spark_has_to_know_the_file_system(spark: Any, tmp_path: Path) -> None:
    require_writable(spark, spark_place(tmp_path / "new"))
    for place, cause in (
        ("s3a://store/x", "S3AFileSystem not found"),
        ("gopher://x/y", 'No FileSystem for scheme "gopher"'),
    ):
        with pytest.raises(InputError) as raised:
            require_writable(spark, place)
        assert str(raised.value).startswith(f"{place}: Spark cannot write there: ")
        assert cause in str(raised.value)


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to stand in, with a scenario and its trace."""
    (tmp_path / "small.toml").write_text(SMALL)
    simulate(Scenario.parse(SMALL).expand(), out=tmp_path / "trace")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "command",
    [
        "pipeline run trace --out",
        "pipeline watch trace --once --out",
        "order replay trace --out",
        "order watch trace --once --out",
        "place trace --out",
        "place trace --picture",
        "sweep small.toml --out",
        "predict small.toml --spark --out",
        "demo small.toml --out",
        "report trace --out",
    ],
)
def test_no_command_writes_to_a_folder_that_is_called_like_a_store(command: str, given: Path) -> None:
    before = sorted(given.rglob("*"))
    said = CliRunner().invoke(app, [*command.split(), "s3a://store/results.svg"])
    assert said.exit_code == 2
    assert "error: s3a://store/results.svg" in said.stderr
    assert "on this machine" in said.stderr
    assert sorted(given.rglob("*")) == before
