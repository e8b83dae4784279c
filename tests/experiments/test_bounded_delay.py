"""Paper C again, small: the claims have the right names, and the order that the paper and the errata found holds."""

import json

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.experiments import Scale, bounded_delay, draw_figures

SMALL = Scale(topologies=3, duration_s=1800.0, rates=(10, 15), mixes=(0.0, 0.6, 1.0))


@pytest.fixture(scope="module")
def run():
    return bounded_delay(SMALL, workers=1)


def test_every_claim_is_there_with_its_spread(run) -> None:
    claims = {claim.id: claim for claim in run[0]}
    assert len(claims) == len(run[0])
    for setting in ("single-path", "literal-table"):
        for rate in SMALL.rates:
            for strategy in ("fifo", "rl", "eb", "pc", "ebpc", "ours"):
                for name in ("delivery", "earning", "traffic.psd", "traffic.ssd"):
                    assert claims[f"{name}.{setting}.{rate}.{strategy}"].sd is not None
        assert f"ebpc.r.{setting}" in claims
    assert claims["delivery.single-path.15.eb"].paper == 40.1


def test_the_order_of_the_strategies(run) -> None:
    """Three short runs show only large differences: those of five standard deviations and more."""
    value = {claim.id: claim.measured for claim in run[0]}
    for setting in ("single-path", "literal-table"):
        for name in ("delivery", "earning"):
            fifo, rl, eb, pc, ours = (value[f"{name}.{setting}.15.{s}"] for s in ("fifo", "rl", "eb", "pc", "ours"))
            assert rl < fifo < pc < eb
            assert ours > 0.99 * eb
        assert value[f"traffic.psd.{setting}.15.rl"] < value[f"traffic.psd.{setting}.15.eb"]
    assert value["delivery.single-path.15.ours"] > 1.08 * value["delivery.single-path.15.ebpc"]
    assert value["earning.single-path.15.ours"] > 1.08 * value["earning.single-path.15.ebpc"]


def test_ebpc_at_its_ends_is_eb_and_pc_exactly(run) -> None:
    outcomes = run[1]
    for case, found in outcomes.items():
        if case.strategy == "ebpc" and case.mix in (0.0, 1.0):
            assert found == outcomes[case._replace(strategy="eb" if case.mix == 1.0 else "pc", mix=0.6)]


def test_figures(run, tmp_path) -> None:
    written = draw_figures(run[1], SMALL, tmp_path / "figures")
    assert len(written) == 6
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_the_command_prints_one_document(monkeypatch, run) -> None:
    monkeypatch.setattr("tidings.experiments.bounded_delay", lambda _scale, progress: run)  # noqa: ARG005
    result = CliRunner().invoke(app, ["reproduce", "bounded-delay", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert {"id", "paper", "measured", "unit", "note", "sd"} <= set(document["claims"][0])


def test_without_congestion_ours_is_no_worse_than_first_in_first_out() -> None:
    """At one event a minute links are busy for less than a tenth of the time; the margin is four standard errors."""
    from tidings.experiments._bounded_delay import Case, _run

    cases = [Case("single-path", "psd", 1, strategy) for strategy in ("fifo", "ours")]
    outcomes = [_run((cases, 3600.0, seed)) for seed in range(3001, 3007)]
    fifo, ours = (sum(found[place].delivery for found in outcomes) / len(outcomes) for place in range(2))
    assert ours > fifo - 0.5
