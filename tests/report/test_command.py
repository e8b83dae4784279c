"""`tidings report`: the page, the document, and what is refused before any work is done."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_a_page_and_what_it_says_in_short(quick: Path, tmp_path: Path) -> None:
    result = run(quick, "--out", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
    assert [line.split("  ")[0] for line in result.stdout.splitlines()[1:3]] == ["on time", "worst"]
    assert "\nfirst       " in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_figures_as_a_document(quick: Path, tmp_path: Path) -> None:
    result = run(quick, "--out", tmp_path / "page.html", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["page"] == str(tmp_path / "page.html")
    assert document["report"]["headline"]["subscriptions"] == 117
    assert document["report"]["subscriptions"][0]["reason"]["words"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such directory; `tidings pipeline run TRACE --out DIR` makes one"),
        (["nowhere", "--out", "page.pdf"], "page.pdf: the name of a page ends in .html, for example page.html"),
        (["nowhere", "--out", "no/page.html"], "no/page.html: there is no directory no"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_replay_that_is_none_is_refused(quick: Path, tmp_path: Path) -> None:
    result = run(quick, "--out", tmp_path / "page.html", "--orders", tmp_path)
    assert result.exit_code == 2
    assert "is not a replay of orders" in result.stderr
