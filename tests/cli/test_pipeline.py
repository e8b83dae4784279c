"""The command `tidings pipeline run`: what it refuses. tests/pipeline/test_job.py has its document and its table."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.cli._shares import parse_share
from tidings.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.01", 0.01), ("0", 0.0), ("100 %", 1.0), (" 99.5%", 0.995)]
)
def test_a_share(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "x", "-1%", "nan", "1%2", "%", "101%"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write 1% or 0\.01"):
        parse_share(text)


def test_a_directory_without_a_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    wrong = CliRunner().invoke(app, ["pipeline", "run", str(tmp_path / "empty"), "--out", str(tmp_path / "other")])
    assert wrong.exit_code == 2
    assert "no files of a trace" in wrong.stderr
