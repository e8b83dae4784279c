"""Paper D's evaluation on a small scale: every claim is there, and means what it says."""

import json
from pathlib import Path

import numpy as np
import pytest

from tidings.experiments import FaultScale, draw_fault_tolerance
from tidings.experiments._fault_tolerance import Case, FaultOutcome, _claims, _noise, _run
from tidings.experiments._fault_tolerance_costs import cost_claims
from tidings.experiments._fault_tolerance_network import (
    CLASSES,
    SCHEMES,
    TOPOLOGIES,
    make_network,
    predict,
    topic_trees,
)

SMALL = FaultScale(networks=1, runs=2, days=3.0, interval_s=1800.0, refresh_s=300.0, path_days=20.0)


@pytest.fixture(scope="module")
def outcomes() -> dict[Case, list[FaultOutcome]]:
    found: dict[Case, list[FaultOutcome]] = {}
    for topology in TOPOLOGIES:
        for quality in CLASSES:
            for case, outcome in _run((topology, quality, 501, SMALL)).items():
                found[case] = [outcome]
    return found


def test_every_claim_is_there(outcomes: dict[Case, list[FaultOutcome]]) -> None:
    claims = {claim.id: claim for claim in _claims(outcomes)}
    for topology in TOPOLOGIES:
        for quality in CLASSES:
            for scheme in SCHEMES:
                for name in ("mae", "noise", "ours.mae", "bias", "ours.bias"):
                    assert claims[f"{name}.{topology}.{quality}.{scheme}"].measured is not None
    for quality in CLASSES:
        order = claims[f"order.{quality}"]
        assert order.measured in (0.0, 1.0)
        assert "arbitrary tree: " in order.note
        assert "publisher tree: " in order.note
    assert json.dumps([claim.note for claim in claims.values()])


def test_predictions_are_near_what_happens(outcomes: dict[Case, list[FaultOutcome]]) -> None:
    """Two runs of three days are five cycles of failure: high-end brokers within .05, low-end within .2."""
    for case, (outcome,) in outcomes.items():
        assert outcome.actual.shape == (2, 500)
        margin = 0.2 if case.quality == "low" else 0.05
        for predicted in (outcome.paper, outcome.ours):
            assert np.all((predicted > 0) & (predicted <= 1))
            assert abs(float((outcome.mean - predicted).mean())) < margin


def test_schemes_share_their_failures(outcomes: dict[Case, list[FaultOutcome]]) -> None:
    """On a tree there is no detour, so bypassing changes next to nothing, run by run."""
    for quality in CLASSES:
        plain, around = (outcomes[Case("tree", quality, "arbitrary", scheme)][0] for scheme in ("periodic", "bypass"))
        assert np.abs(plain.actual - around.actual).max() < 0.02


def test_topic_trees() -> None:
    network = make_network("graph", "low", 501, days=1.0, interval_s=3600.0)
    homes = [network.topology.index[publisher.broker] for publisher in network.publishers]
    for kind in ("arbitrary", "publisher"):
        trees = topic_trees(network, kind)
        assert [tree.root for tree in trees] == homes
        assert all(len(tree.order) == 10 for tree in trees)
    longer, shorter = (
        predict(network, topic_trees(network, kind), "periodic", "paper", refresh_s=60.0).mean()
        for kind in ("arbitrary", "publisher")
    )
    assert longer < shorter  # a tree of fewest hops from the publisher itself has the shortest paths


def test_the_noise_floor_is_that_of_the_mean() -> None:
    generator = np.random.default_rng(3)
    runs, sd = 10, 0.03
    actual = 0.8 + generator.normal(0.0, sd, (runs, 20_000))
    expected = sd * np.sqrt(2 / np.pi) / np.sqrt(runs)
    assert _noise(actual) == pytest.approx(expected, rel=0.02)
    assert np.abs(actual.mean(axis=0) - 0.8).mean() == pytest.approx(expected, rel=0.02)


def test_what_the_traps_cost() -> None:
    found = {claim.id: claim for claim in cost_claims(80.0)}
    assert found["path.periodic"].paper == 0.771307
    assert found["path.buffer"].paper == 0.856083
    measured = {name: claim.measured or 0.0 for name, claim in found.items()}
    assert measured["lag.periodic"] < measured["path.periodic"]
    for trap in ("trap.early", "trap.volatile", "trap.both", "trap.timeout"):
        assert measured[trap] < measured["lag.buffer"]


def test_figures(outcomes: dict[Case, list[FaultOutcome]], tmp_path: Path) -> None:
    drawn = draw_fault_tolerance(outcomes, tmp_path / "figures")
    assert [path.name for path in drawn] == ["figure-6.png", "figure-7.png"]
    assert all(path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for path in drawn)
