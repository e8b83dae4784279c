"""Paper B again, small: the claims have the right names, and what is far apart is in the right order."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.experiments._timeliness import ALPHAS, TimelinessScale, draw_timeliness, timeliness
from tidings.experiments._timeliness_network import table_3
from tidings.prediction import from_network, predict

SMALL = TimelinessScale(topologies=2, duration_s=1500.0, low_share=0.1, phase_runs=1)
PAIRS = ("exp-exp", "det-exp", "uni-exp", "exp-uni", "det-uni", "uni-uni")


@pytest.fixture(scope="module")
def run():
    return timeliness(SMALL, workers=1)


def test_every_claim_is_there(run) -> None:
    claims = {claim.id: claim for claim in run[0]}
    assert len(claims) == len(run[0])
    wanted = [f"{low}mae.{model}.{pair}" for low in ("", "low.") for model in ("mm1", "gg1", "ours") for pair in PAIRS]
    wanted += ["noise.exp-exp", "bound.det-exp", "bound.det-uni"]
    wanted += ["alpha.0.5", "alpha.0.75", "alpha.1", "alpha.1.5", "alpha.2"]
    assert sorted(claims) == sorted(wanted)
    assert all(claim.measured is not None and 0.0 <= claim.measured <= 1.0 for claim in claims.values())


def test_ours_is_much_nearer_than_the_papers_methods(run) -> None:
    """Sampling noise is about .04 in runs this short; the paper's methods are off by .1 to .35."""
    value = {claim.id: claim.measured for claim in run[0]}
    for pair in PAIRS:
        assert value[f"mae.ours.{pair}"] < 0.75 * value[f"mae.gg1.{pair}"] <= 0.75 * value[f"mae.mm1.{pair}"] + 1e-9
        assert value[f"low.mae.mm1.{pair}"] < 0.02
    assert value["mae.ours.exp-exp"] < 2.0 * value["noise.exp-exp"]
    assert value["alpha.1"] == value["mae.ours.exp-exp"]


def test_figures(run, tmp_path) -> None:
    written = draw_timeliness(run[1], run[2], tmp_path / "figures")
    assert [path.name for path in written] == ["figure-4.png", "figure-5.png", "ours.png", "figure-6.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_the_command_prints_one_document(monkeypatch, run) -> None:
    monkeypatch.setattr("tidings.experiments.timeliness", lambda _scale, progress: run)  # noqa: ARG005
    result = CliRunner().invoke(app, ["reproduce", "timeliness", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["paper"] == "timeliness"
    assert {"id", "paper", "measured", "unit", "note"} <= set(document["claims"][0])
    assert CliRunner().invoke(app, ["reproduce", "timeliness"]).exit_code == 0


def test_table_3_as_it_is_read() -> None:
    network = table_3(publish="uni", service="exp", seed=4, duration_s=100.0)
    assert len(network.topology.brokers) == 20
    assert max(len(network.topology.neighbours(b.name)) for b in network.topology.brokers) <= 4
    assert len(network.publishers) == 8
    assert len({next(iter(p.attributes.values())).value for p in network.publishers}) == 4
    assert all(p.rate_per_s == pytest.approx(1.0) for p in network.publishers)
    assert network.publishers[0].interval.scv() == pytest.approx(1.0 / 3.0)
    assert len(network.subscriptions) == 100
    busiest = predict(from_network(network)).utilisation.max()
    assert 0.6 < busiest < 0.81
    assert network == table_3(publish="uni", service="exp", seed=4, duration_s=100.0)


def test_alphas_hold_precise_knowledge() -> None:
    assert 1.0 in ALPHAS
    assert np.min(ALPHAS) == 0.5
    assert np.max(ALPHAS) == 2.0
