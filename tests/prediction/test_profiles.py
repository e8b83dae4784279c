"""Knowledge from measurements: laws are recognised, and a scenario that was run and measured predicts the same."""

import json
import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import InputError
from tidings.model.distributions import Deterministic, Exponential, LogNormal, ShiftedGamma, Uniform
from tidings.model.scenario import Scenario
from tidings.prediction import (
    PROFILE_TABLES,
    LinkKnowledge,
    from_network,
    from_profiles,
    law_of_duration,
    predict,
    predict_intervals,
    read_profiles,
)
from tidings.prediction._profiles import QUANTILES, _interval, _link, _size, _trees, lifetime_law
from tidings.simulation import simulate


def measured(law, count=20_000, name="service", seed=1):
    """The columns that a profile has of a duration."""
    values = law.sample(np.random.default_rng(seed), count)
    return {
        f"{name}_count": count,
        f"{name}_mean_s": float(values.mean()),
        f"{name}_scv": float(values.var() / values.mean() ** 2),
        f"{name}_min_ns": int(values.min() * 1e9),
        f"{name}_max_ns": int(values.max() * 1e9),
        f"{name}_quantiles_ns": (np.quantile(values, QUANTILES) * 1e9).astype(int).tolist(),
    }


@pytest.mark.parametrize("law", [Exponential(scale=0.1), Uniform(low=0.0, high=0.2), Deterministic(value=0.1)])
def test_simple_laws_are_recognised(law) -> None:
    found = law_of_duration(measured(law), "service")
    assert type(found) is type(law)
    assert found.mean() == pytest.approx(law.mean(), rel=0.03)


def test_other_laws_keep_mean_variance_and_least_value() -> None:
    law = LogNormal(median=0.04, sigma=0.6, low=0.005, high=0.2)
    row = measured(law)
    found = law_of_duration(row, "service")
    assert isinstance(found, ShiftedGamma)
    assert found.mean() == pytest.approx(row["service_mean_s"])
    assert found.scv() == pytest.approx(row["service_scv"])
    assert found.shift == pytest.approx(row["service_min_ns"] / 1e9)


def test_what_was_never_seen_has_no_law() -> None:
    assert law_of_duration({"service_count": 0, "service_mean_s": None}, "service") is None


def test_intervals_keep_the_rate() -> None:
    for law in (
        Exponential(scale=2.0),
        Uniform(low=0.0, high=4.0),
        Deterministic(value=2.0),
        ShiftedGamma(shift=0.0, shape=4.0, scale=0.5),
    ):
        found = _interval(measured(law, name="gap"), 0.5)
        assert found.mean() == pytest.approx(2.0)
        assert found.scv() == pytest.approx(law.scv(), abs=0.03)


def test_lifetimes_and_sizes() -> None:
    assert lifetime_law({None: 3}) is None
    assert lifetime_law({10**9: 3}) == Deterministic(value=1.0)
    mixed = lifetime_law({10**9: 3, 3 * 10**9: 1})
    assert mixed.mean() == pytest.approx(1.5, rel=0.01)
    assert mixed.cdf(2.0) == pytest.approx(0.75, abs=0.01)
    size = {"size_mean_bytes": 500.0, "size_min_bytes": 200, "size_max_bytes": 800}
    assert _size(size) == Uniform(low=0.2, high=0.8)
    assert _size(size | {"size_mean_bytes": 300.0}) == Deterministic(value=0.3)


def test_equal_sizes_are_explained_by_the_wait() -> None:
    """Half a load of 100 ms transmissions, M/D/1: a mean wait of 50 ms; 20 ms of propagation come on top."""
    row = measured(Deterministic(value=0.12), name="delay") | {
        "loss": 0.0,
        "lost": 0,
        "bytes": 2000 * 20_000,
        "wait_mean_s": 0.05,
        "wait_max_ns": 10**9,
        "transmissions_per_s": 5.0,
        "slowness_mean_s_per_kb": None,
        "slowness_variance": None,
        "propagation_s": None,
    }
    found = _link(row, 0, 1)
    assert found.slowness.mean() * 2.0 == pytest.approx(0.1)
    assert found.propagation.mean() == pytest.approx(0.02)
    assert _link(None, 0, 1).propagation == Deterministic(value=0.0)


def test_trees_are_of_links_that_were_used() -> None:
    """In a triangle nothing went from 0 straight to 2: that link is not free, it is in nobody's tree. What no used link
    leads to is still reached."""
    way = Deterministic(value=0.01)
    links = [
        LinkKnowledge(source=0, target=1, propagation=way, observed=50),
        LinkKnowledge(source=1, target=2, propagation=way, observed=50),
        LinkKnowledge(source=0, target=2, propagation=Deterministic(value=0.0)),
        LinkKnowledge(source=2, target=3, propagation=Deterministic(value=0.0)),
    ]
    (tree,) = _trees(["a", "b", "c", "d"], links, np.array([0.3, 0.4, 0.0, 0.0]), [0])
    assert tree.parent.tolist()[1:] == [0, 1, 2]


def test_missing_tables_are_named(tmp_path) -> None:
    with pytest.raises(InputError, match="no table 'publishers'"):
        read_profiles(tmp_path)
    with pytest.raises(InputError, match="'publishers' is missing"):
        from_profiles({})
    result = CliRunner().invoke(app, ["predict", str(tmp_path), "--alpha", "2"])
    assert result.exit_code == 2
    assert "--alpha needs a scenario" in result.stderr


SCENARIO = """
duration = "1500 s"
seed = 4
[topology]
kind = "explicit"
brokers = ["a", "b", "c"]
links = [["a", "b"], ["b", "c"]]
[links]
propagation = { law = "log-normal", median = "40 ms", sigma = 0.6 }
loss = 0.02
[brokers]
service = { law = "exponential", mean = "100 ms" }
[[publishers]]
name = "p"
at = ["a", "c"]
count = 2
rate = "3 /s"
lifetime = "1 s"
attributes = { x = { values = [1, 2, 3, 4], zipf = 1.0 } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x <= {most}"
max_delay = [{ delay = "400 ms" }, { delay = "2 s" }]
parameters = { most = { range = [1, 4] } }
[policies]
scheduling = "fifo"
expired = "forward"
"""


@pytest.mark.full
@pytest.mark.spark
def test_a_scenario_both_ways(spark, tmp_path) -> None:
    """Simulated, traced, profiled, and predicted from the profiles: R' within .03 of the prediction from the scenario
    (1,500 s give rates within 2 % and service times within 1.5 %, one standard error each), which nearly all intervals
    hold."""
    from tidings.pipeline import run_pipeline

    network = Scenario.parse(SCENARIO).expand()
    simulate(network, out=tmp_path / "trace")
    run_pipeline(spark, [tmp_path / "trace"], tmp_path / "profiles")
    tables = read_profiles(tmp_path / "profiles")
    assert set(PROFILE_TABLES) < set(tables)
    assert all(isinstance(table, pa.Table) for table in tables.values())
    knowledge = from_profiles(tables)
    told, found = predict(from_network(network)), predict(knowledge)
    order = [told.knowledge.number_of(name) for name in knowledge.subscriptions]
    assert found.reliability == pytest.approx(told.reliability[order], abs=0.03)
    assert found.brokers["b"].utilisation == pytest.approx(told.brokers["b"].utilisation, abs=0.03)
    assert not knowledge.drops_expired
    intervals = predict_intervals(knowledge, np.random.default_rng(1))
    covered = (intervals.low <= told.reliability[order]) & (told.reliability[order] <= intervals.high)
    assert covered.mean() >= 0.5
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "profiles"), "--json"])
    document = json.loads(result.stdout)
    assert [each["kind"] for each in document["unmodelled"]] == ["policies"]
    assert document["intervals"]["assuming"] == "independent observations"
    first = knowledge.subscriptions[0]
    assert document["subscribers"][first]["on_time_reliability"] == pytest.approx(found.reliability[0])
    low, high = document["intervals"]["subscribers"][first]
    assert low <= found.reliability[0] <= high
    assert math.isfinite(low)
    assert msgspec.json.encode(document)
