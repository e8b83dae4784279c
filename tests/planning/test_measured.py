"""Knowledge as a network: the same flows, the same R, and a plan of it holds in the network that was measured."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network, Scenario
from tidings.planning import Objective, apply, plan
from tidings.prediction import _measured, from_network, network_of, network_of_profiles, predict, predict_measured
from tidings.simulation import simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTENT = """
duration = "1 h"
topology = { kind = "balanced-tree", branching = 2, depth = 2 }
brokers = { service = { distribution = "exponential", mean = "20 ms" } }
links = { propagation = "4 ms", slowness = "10 ms/kB", loss = 0.01 }
publishers = [
    { name = "p", at = "random", count = 3, rate = "3 /s", attributes = { x = { range = [1, 9] } }, lifetime = "1 s" },
]
policies = { scheduling = "fifo" }

[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x < {most}"
max_delay = "300 ms"
parameters = { most = { range = [1, 9] } }
"""


def test_the_network_of_knowledge_has_the_same_reliability() -> None:
    knowledge = from_network(Scenario.parse(CONTENT).expand())
    network = network_of(knowledge, strategy="fifo")
    before, after = predict(knowledge), predict(from_network(network))
    assert network.policies.scheduling.name == "fifo"
    assert after.reliability == pytest.approx(before.reliability, abs=1e-6, nan_ok=True)
    assert after.stations.utilisation == pytest.approx(before.stations.utilisation)
    assert np.isnan(after.reliability).tolist() == np.isnan(before.reliability).tolist()


def test_the_network_of_knowledge_runs_with_the_strategy_in_force() -> None:
    network = network_of(from_network(Scenario.parse(CONTENT).expand()), strategy="triage")
    assert network.policies.scheduling.name == "triage"
    assert simulate(msgspec.structs.replace(network, duration_s=60.0)).matched > 0


@pytest.mark.full
@pytest.mark.spark
def test_a_plan_from_profiles_holds_in_the_network_that_was_measured(
    spark: "SparkSession", busy: Network, tmp_path: Path
) -> None:
    """An overloaded broker, seen in a trace of 300 s: the factor found from the profiles is enough for the truth."""
    from tidings.pipeline import run_pipeline

    simulate(msgspec.structs.replace(busy, duration_s=300.0), out=tmp_path / "trace")
    run_pipeline(spark, [tmp_path / "trace"], tmp_path / "profiles")
    measured = network_of_profiles(tmp_path / "profiles", strategy="fifo")
    assert measured.policies.scheduling.name == "fifo"
    assert measured.duration_s == pytest.approx(280.0, rel=0.05)  # less the warm-up
    objective = Objective(reliability=0.99)
    found = plan(measured, objective, allowed=("capacity",), runs=1)
    assert [planned.change.kind for planned in found.changes] == ["capacity"]
    mended = apply(busy, [planned.change for planned in found.changes])
    shares = [row.on_time_reliability for row in simulate(mended).subscribers.values()]
    assert all(share is not None and share >= 0.99 for share in shares)


def test_too_many_kinds_of_events_are_refused(mixed: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_measured, "SIGNATURES_MAX", 1)
    with pytest.raises(ConfigurationError, match="give the scenario instead"):
        network_of(from_network(mixed), strategy="fifo")


def test_a_prediction_from_very_many_kinds_of_events_is_by_formulas(
    mixed: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_measured, "SIGNATURES_MAX", 1)
    assert predict_measured(from_network(mixed), strategy="lookahead").sample is None
