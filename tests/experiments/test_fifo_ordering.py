"""Paper A again, small: the claims have the right names, and what the errata found holds, with room for a short run."""

import json

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.experiments._fifo_ordering import POLICIES, OrderingScale, fifo_ordering
from tidings.experiments._fifo_ordering_network import make_traffic
from tidings.experiments._fifo_ordering_statistics import draw_adaptivity

SMALL = OrderingScale(runs=1, share=0.03)
CASES = [(setting, model) for setting in ("8", "46") for model in ("independent", "stall")]


@pytest.fixture(scope="module")
def run():
    return fifo_ordering(SMALL, workers=1)


@pytest.fixture(scope="module")
def value(run):
    return {claim.id: claim.measured for claim in run[0]}


def test_every_claim_is_there_once(run) -> None:
    wanted = {"fit.laplace2.k5", "fit.hypoexponential", "independence.wilcoxon", "independence.ks", "cst.optimal"}
    wanted.add("adaptivity")
    for setting, model in CASES:
        wanted.add(f"unordered.{setting}.{model}")
        for policy in POLICIES:
            wanted.add(f"mitigation.{setting}.{model}.{policy}")
            for name in ("hold_ms", "assessed_ms"):
                wanted |= {f"{name}.{setting}.{model}.{policy}{part}" for part in ("", ".p50", ".p90")}
    ids = [claim.id for claim in run[0]]
    assert len(ids) == len(set(ids))
    assert set(ids) == wanted


@pytest.mark.parametrize(
    ("claim", "errata"),
    [
        ("mitigation.8.independent.P-0.05-0", 82.0),
        ("mitigation.8.independent.P-0.05-25", 81.0),
        ("mitigation.8.independent.P-0.2-0", 42.0),
        ("mitigation.8.independent.CST-30", 100.0),
        ("mitigation.8.stall.P-0.05-0", 98.0),
        ("mitigation.8.stall.P-0.05-25", 97.0),
        ("mitigation.8.stall.P-0.2-0", 90.0),
        ("mitigation.8.stall.CST-30", 99.8),
    ],
)
def test_the_papers_policies_are_where_the_errata_found_them(value, claim: str, errata: float) -> None:
    """The whole run is within 3 points; one of 9 s depends on where two publishers sit, and has 6."""
    assert abs(value[claim] - errata) < 6.0


@pytest.mark.parametrize(("setting", "model"), CASES)
def test_ours(value, setting: str, model: str) -> None:
    """Whole runs give 99.2 % and 1.6 times the hold, and .3 points; one of 9 s has fewer late events and more room."""
    end = f"{setting}.{model}"
    assert value[f"mitigation.{end}.ours-record"] >= 99.0
    assert value[f"hold_ms.{end}.ours-record"] <= 1.8 * value[f"hold_ms.{end}.P-0.05-25"]
    assert abs(value[f"mitigation.{end}.ours-quantile"] - 99.0) < 1.5


def test_a_record_spares_half_of_the_pairs_any_wait(value) -> None:
    for setting, model in CASES:
        assert value[f"hold_ms.{setting}.{model}.P-0.05-25.p50"] < 0.01


def test_the_model_of_the_paper_fits_its_own_brokers(value) -> None:
    assert value["fit.laplace2.k5"] < 0.03
    assert value["fit.hypoexponential"] < 0.02
    assert value["adaptivity"] > 0.8


def test_figure_7(run, tmp_path) -> None:
    assert draw_adaptivity(run[1], tmp_path).read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_one_document(monkeypatch, run) -> None:
    monkeypatch.setattr(
        "tidings.experiments.fifo_ordering",
        lambda _scale, progress: run,  # noqa: ARG005
    )
    result = CliRunner().invoke(app, ["reproduce", "fifo-ordering", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["paper"] == "fifo-ordering"
    assert {"id", "paper", "measured", "unit", "note"} <= set(document["claims"][0])


def test_the_same_seed_is_the_same_traffic() -> None:
    first, again = (make_traffic("8", "stall", 7, share=0.01) for _ in range(2))
    for one, other in zip(first.each(), again.each(), strict=True):
        assert (one.arrival_ns == other.arrival_ns).all()
        assert (one.wanted == other.wanted).all()
