"""Paper E again: the figures that follow from the tree's geometry, what the claims say, and the small parts by hand."""

import numpy as np
import pytest

from tidings.experiments._relocation import PAPER, Job, _run_job
from tidings.experiments._relocation_migration import migrate
from tidings.experiments._relocation_network import make_place, make_publishers, read_quotes
from tidings.experiments._relocation_run import run


@pytest.fixture(scope="module")
def one_site() -> dict[str, float]:
    return _run_job(Job("policies", "clustered", 1, 11, 300))


def test_where_all_readers_share_a_broker_the_tree_decides(one_site) -> None:
    """1 - 1 / (mean distance + 1) of the message rate is saved: about 85 %; homes are drawn, so within 4 points."""
    for policy in ("pop", "grape-load100", "grape-delay100"):
        assert one_site[f"rate.clustered.1.{policy}"] == pytest.approx(PAPER[f"rate.clustered.1.{policy}"], abs=4)
        assert one_site[f"delay.clustered.1.{policy}"] == pytest.approx(-68, abs=5)
    assert one_site["hops.clustered.1.pop"] == -100.0


def test_every_claim_of_a_case_is_there(one_site) -> None:
    metrics = ("rate", "delay", "utilisation", "hops", "overhead", "ontime")
    policies = ("pop", "grape-load100", "grape-delay100", "ours-ontime", "ours-joint")
    wanted = {f"{metric}.clustered.1.{policy}" for metric in metrics for policy in policies}
    assert set(one_site) == wanted | {"ontime.clustered.1.baseline"}


def test_publishers_that_stay_change_nothing() -> None:
    generator = np.random.default_rng(1)
    place = make_place(2, generator)
    publishers = make_publishers(place, "random", 3, publishers=2, readers=6, events=200, generator=generator)
    outcome, homes = run(place, publishers, "baseline", seed=1)
    assert homes == [publisher.home for publisher in publishers]
    assert (outcome.moves, outcome.overhead) == (0, 0.0)
    again, _ = run(place, publishers, "baseline", seed=1)
    assert outcome == again


def test_readers_get_the_share_that_their_kind_says(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TIDINGS_DATA", str(tmp_path))  # none there: quotes are made
    quotes = read_quotes(1, 1000, np.random.default_rng(2))[0]
    wants = quotes.matrix(["low", "medium", "high"])
    low, medium, high = wants.mean(axis=1)
    assert low == pytest.approx(0.1, abs=0.01)
    assert medium == pytest.approx(0.5, abs=0.01)
    assert high == 1.0


def test_readers_that_move_save_most_in_the_random_workload() -> None:
    figures = _run_job(Job("readers", "random", 63, 11, 100))
    assert figures["subscribers.random.63.rate"] < -60


@pytest.mark.parametrize("together", [1, 3])
def test_moving_publishers_loses_and_doubles_nothing(together: int) -> None:
    found = migrate(7, together=together, moves=6)
    assert found.moves == 6
    assert found.published == found.accepted > 200
    assert (found.lost, found.duplicated) == (0, 0)
    assert max(found.pauses_ms) < 1000  # handover_ns: from then on the new home takes over


def test_every_figure_of_a_migration_is_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.experiments._relocation.migrate", lambda seed, **_: migrate(seed, moves=2))
    figures = _run_job(Job("migration", "random", 0, 6001, 0))
    assert set(figures) == {
        *(f"migration.{what}" for what in ("lost", "duplicated", "together.lost", "together.duplicated")),
        *(f"migration.pause.{what}" for what in ("median", "max")),
    }
