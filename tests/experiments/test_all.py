"""All papers on one page: judgements that follow from the figures, and a page that is there even if a paper fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from typer.testing import CliRunner

from tidings.errors import InputError
from tidings.experiments import (
    EXPERIMENTS,
    Claim,
    Evaluation,
    Experiment,
    FaultScale,
    check_page,
    draw_fault_tolerance,
    fault_tolerance,
    judge,
    reproduce_all,
    verdicts,
    write_page,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

TINY = FaultScale(networks=1, runs=2, days=3.0, interval_s=3600.0, refresh_s=600.0, path_days=8.0)


def tiny_faults(
    scale: str, *, progress: Callable[[float], None] | None
) -> tuple[list[Claim], Callable[[Path], list[Path]]]:
    assert scale == "quick"
    claims, outcomes = fault_tolerance(TINY, progress=progress, workers=1)
    return claims, lambda folder: draw_fault_tolerance(outcomes, folder)


def broken(scale: str, *, progress: Callable[[float], None] | None) -> NoReturn:
    raise RuntimeError(f"the <data> is gone at scale {scale}{'' if progress is None else ', after nothing'}")


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> list[Evaluation]:
    reported: list[tuple[str, float]] = []
    found = reproduce_all(
        figures=tmp_path_factory.mktemp("figures"),
        progress=lambda what, share: reported.append((what, share)),
        experiments=[
            Experiment("E", "relocation", "A paper that fails", broken),
            Experiment("D", "fault-tolerance", "A paper that does not", tiny_faults),
        ],
    )
    assert [share for what, share in reported if "relocation (1 of 2)" in what] == [0.0]
    assert max(share for what, share in reported if "fault-tolerance (2 of 2)" in what) > 0.5
    return found


def claims_of_c(eb: float, literal: float) -> list[Claim]:
    """Paper C's claims with a delivery of EB to be judged, everything else as the paper says."""
    figures = {"fifo": (22.5, 5.0, 100.0), "rl": (11.6, 2.5, 73.0), "pc": (eb, 25.0, 117.0), "eb": (eb, 25.0, 117.0)}
    claims = []
    for setting in ("single-path", "literal-table"):
        for strategy, (delivery, earning, traffic) in figures.items():
            shown = literal if (strategy, setting) == ("eb", "literal-table") else delivery
            for name, value in (("delivery", shown), ("earning", earning), ("traffic.psd", traffic)):
                id = f"{name}.{setting}.15.{strategy}"
                claims.append(Claim(id=id, paper=None, measured=value, unit=""))
        claims.append(Claim(id=f"ebpc.r.{setting}", paper=None, measured=None, unit="r"))
    return claims


@pytest.mark.parametrize(
    ("eb", "literal", "verdict"), [(40.0, 41.0, "holds"), (54.0, 41.0, "in part"), (54.0, 30.0, "does not hold")]
)
def test_a_statement_is_judged_by_the_figures(eb: float, literal: float, verdict: str) -> None:
    first = judge("C", claims_of_c(eb, literal))[0]
    assert first.verdict == verdict
    assert (first.why == "") == (verdict == "holds")
    assert f"{eb:.3g} % (single-path)" in first.measured


def test_what_was_never_found_does_not_hold() -> None:
    last = judge("C", claims_of_c(40.0, 40.0))[-1]
    assert last.verdict == "does not hold"
    assert "never" in last.measured


def test_every_paper_has_statements_and_a_command() -> None:
    from tidings.cli._reproduce import app

    names = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    assert {experiment.name for experiment in EXPERIMENTS} <= names
    assert [experiment.letter for experiment in EXPERIMENTS] == list("ABCDE")


def test_a_paper_that_fails_does_not_stop_the_others(evaluations: list[Evaluation]) -> None:
    failed, good = evaluations
    assert failed.error == "RuntimeError: the <data> is gone at scale quick, after nothing"
    assert good.error is None
    assert {headline.verdict for headline in good.headlines} <= {"holds", "in part", "does not hold"}
    assert len(good.headlines) == 5
    assert good.beyond
    assert "Could not be run: relocation." in verdicts(evaluations)


def test_markdown(evaluations: list[Evaluation], tmp_path: Path) -> None:
    write_page(evaluations, tmp_path / "papers.md", scale="quick")
    text = (tmp_path / "papers.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| equation 3")]
    assert len(rows) == 1
    assert rows[0].count(" | ") == 5
    assert "Could not be run: RuntimeError" in text


@pytest.mark.browser
def test_html(evaluations: list[Evaluation], tmp_path: Path, page: "Page") -> None:
    path = tmp_path / "papers.html"
    write_page(evaluations, path, scale="quick")
    assert "http" not in path.read_text("utf-8").replace("https://", "")
    page.context.set_offline(True)
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text() == "Five papers, run again"
    assert page.locator("#fault-tolerance tbody tr").count() >= 5
    assert page.locator("#relocation .error").inner_text().endswith("after nothing")
    images = page.locator("img").evaluate_all("all => all.map(each => each.naturalWidth)")
    assert images
    assert all(width > 100 for width in images)


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.html or \.md"):
        check_page(tmp_path / "papers.pdf")
    with pytest.raises(InputError, match="there is no directory"):
        check_page(tmp_path / "nowhere" / "papers.html")


def test_command(evaluations: list[Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidings import experiments
    from tidings.cli._app import app

    monkeypatch.setattr(experiments, "reproduce_all", lambda *_, **__: evaluations)
    result = CliRunner().invoke(app, ["reproduce", "all", "--json", "--out", str(tmp_path / "papers.md")])
    assert result.exit_code == 1  # one failed
    document = json.loads(result.stdout)
    assert [paper["error"] is None for paper in document["papers"]] == [False, True]
    assert document["papers"][1]["headlines"][0]["verdict"]
    result = CliRunner().invoke(app, ["reproduce", "all", "--out", str(tmp_path / "papers.doc")])
    assert result.exit_code == 2
