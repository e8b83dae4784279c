"""`tidings rehearse` and `tidings compare`: documents, pages, exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "rehearsal.toml"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*arguments])
    return result.exit_code, result.stdout, result.stderr


def test_ways_that_agree(tmp_path: Path) -> None:
    page = tmp_path / "ways.html"
    code, out, _ = run("compare", str(EXAMPLE), "--without", "rehearsal", "--json", "--page", str(page))
    assert code == 0
    document = json.loads(out)
    assert document["agrees"]
    assert document["skipped"] == {"rehearsal": "not requested"}
    assert document["subscriptions"]["archive"]["shares"]["protocol"]["share"] > 0.5
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_ways_that_disagree_are_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "soft.toml"
    path.write_text(EXAMPLE.read_text("utf-8").replace('retry = "1 s"', 'tables = "volatile"'), "utf-8")
    code, out, _ = run("compare", str(path), "--without", "rehearsal", "--without", "predictor")
    assert code == 1
    assert "protocol differs from simulator by" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--without", "simulator"), "must be one of protocol, rehearsal, predictor"),
        (("--duration", "3"), "--duration: "),
        (("--duration", "1 s"), "longer than the warm-up (20 s)"),
        (("--scale", "0"), "a scale of 0"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], message: str) -> None:
    code, _, err = run("compare", str(EXAMPLE), *arguments)
    assert code == 2
    assert message in err


def test_a_short_rehearsal(tmp_path: Path) -> None:
    code, out, _ = run("rehearse", str(EXAMPLE), "--duration", "60 s", "--scale", "20", "--out", str(tmp_path / "r"))
    assert code == 0
    assert "operator-1" in out
    assert "this machine adds" in out
    assert (tmp_path / "r" / "network.toml").exists()
