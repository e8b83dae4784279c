"""Predictions on Spark: the answer of one process, whatever the partitioning, from scenarios and from profiles."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertSchemaEqual

from tidings.errors import InputError
from tidings.model.distributions import Uniform
from tidings.model.scenario import Network, Scenario
from tidings.pipeline import run_pipeline
from tidings.pipeline.prediction import SparkPrediction, _scenario, predict_on_spark
from tidings.pipeline.prediction._rows import SUBSCRIBERS
from tidings.prediction import Prediction, from_network, from_profiles, predict, read_profiles
from tidings.simulation import simulate

pytestmark = pytest.mark.spark

MEASURED = """
duration = "60 s"
seed = 3
[topology]
kind = "explicit"
brokers = ["a", "b", "c"]
links = [["a", "b"], ["b", "c"]]
[links]
bandwidth = "200 kbit/s"
propagation = "5 ms"
loss = 0.01
[brokers]
service = { law = "uniform", low = "0 ms", high = "10 ms" }
[[publishers]]
name = "p"
at = "a"
rate = "10 /s"
lifetime = "1 s"
attributes = { x = { range = [1, 6] }, topic = { values = ["a", "b", "c"] } }
[[publishers]]
name = "q"
at = "c"
rate = "10 /s"
lifetime = { law = "uniform", low = "100 ms", high = "400 ms" }
attributes = { x = { range = [1, 6] }, topic = { values = ["a", "b", "c"] } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 4
filter = "x <= {most} OR topic = 'a'"
max_delay = [{ delay = "40 ms" }, { delay = "200 ms" }]
parameters = { most = { range = [0, 6] } }
[[subscribers]]
name = "nothing"
at = "b"
filter = "x > 9"
"""
SCENARIO = """
duration = "1 h"
seed = 9
[topology]
kind = "random-tree"
brokers = 12
max_degree = 3
[links]
propagation = { law = "log-normal", median = "40 ms", sigma = 0.6 }
loss = 0.02
[brokers]
service = { law = "uniform", low = "0 ms", high = "80 ms" }
[[publishers]]
name = "p"
at = "all"
count = 6
interval = { law = "uniform", low = "0 s", high = "1.2 s" }
lifetime = "1 s"
attributes = { topic = { values = ["a", "b", "c"], zipf = 1.0 }, x = { range = [1, 6] } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 4
filter = "topic = 'a' AND x <= {most}"
max_delay = [{ delay = "300 ms" }, { delay = "2 s" }]
parameters = { most = { range = [0, 6] } }
[[subscribers]]
name = "t"
at = "all"
per_broker = 2
filter = "x >= {least} OR topic = 'b'"
parameters = { least = { range = [1, 6] } }
[[subscribers]]
name = "nothing"
at = "all"
per_broker = 1
filter = "topic = 'none'"
[policies]
scheduling = "fifo"
expired = "forward"
"""


@pytest.fixture(scope="module")
def network() -> Network:
    return Scenario.parse(SCENARIO).expand()


@pytest.fixture
def released() -> Iterator[list[SparkPrediction]]:
    made: list[SparkPrediction] = []
    yield made
    for each in made:
        each.release()


def assert_same(found: SparkPrediction, told: Prediction) -> None:
    rows = {row["subscription"]: row for row in found.subscribers.collect()}
    assert set(rows) == set(told.knowledge.subscriptions)
    for name, one in told.subscribers.items():
        other = rows[name]
        for field in ("on_time_reliability", "matched_per_s", "mean_delay_s"):
            value = getattr(one, field)
            assert other[field] == (value if value is None else pytest.approx(value, rel=1e-12, abs=1e-15)), (
                name,
                field,
            )
        assert tuple(other["path"]) == one.path
        assert other["overloaded_at"] == one.overloaded_at
    assert found.network.brokers == told.brokers
    assert found.network.links == told.links
    assert found.network.bottleneck == told.bottleneck
    assert found.network.overloaded == told.overloaded


def test_the_same_answer_as_in_one_process(
    spark: SparkSession, network: Network, released: list[SparkPrediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 6 blocks, with the union masses of a content in several slices, and all at once: not a bit is different."""
    told, answers = predict(from_network(network)), []
    for block, slice_ in ((15, 5), (1000, 1000)):
        monkeypatch.setattr(_scenario, "BLOCK", block)
        monkeypatch.setattr(_scenario, "CELLS_PER_SLICE", slice_)
        found = predict_on_spark(spark, network)
        released.append(found)
        assert_same(found, told)
        answers.append({row["subscription"]: row["on_time_reliability"] for row in found.subscribers.collect()})
    assertSchemaEqual(found.subscribers.schema, spark.createDataFrame([], SUBSCRIBERS).schema)
    assert answers[0] == answers[1]
    assert None in answers[0].values()


@pytest.mark.full
def test_what_is_dropped_and_balanced_routes(
    spark: SparkSession, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropping needs the latest deadlines of everybody behind a link, balanced routes what samples of events match."""
    monkeypatch.setattr(_scenario, "BLOCK", 40)
    policies = msgspec.structs.replace(network.policies, routing="balanced", expired="drop")
    changed = msgspec.structs.replace(network, policies=policies)
    busy = msgspec.structs.replace(
        changed,
        publishers=tuple(msgspec.structs.replace(p, interval=Uniform(low=0.0, high=0.45)) for p in changed.publishers),
    )
    found = predict_on_spark(spark, busy, out=tmp_path / "out")
    told = predict(from_network(busy))
    assert_same(found, told)
    assert told.reliability != pytest.approx(
        predict(replace(told.knowledge, drops_expired=False)).reliability, abs=0.01
    )
    read = spark.read.parquet(str(tmp_path / "out" / "subscribers"))
    assert read.count() == len(network.subscriptions)


@pytest.mark.full
def test_from_profiles(spark: SparkSession, tmp_path: Path, released: list[SparkPrediction]) -> None:
    """The tables that a pipeline run leaves; one subscription is never matched, lifetimes differ."""
    simulate(Scenario.parse(MEASURED).expand(), out=tmp_path / "trace")
    run_pipeline(spark, [tmp_path / "trace"], tmp_path / "scores")
    found = predict_on_spark(spark, tmp_path / "scores")
    released.append(found)
    told = predict(from_profiles(read_profiles(tmp_path / "scores")))
    assert_same(found, told)
    shares = [each.on_time_reliability for each in told.subscribers.values()]
    assert shares.count(None) == 1
    assert len(set(shares)) > 5


def test_what_is_refused(spark: SparkSession, network: Network, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pipeline run is complete here; `tidings pipeline run"):
        predict_on_spark(spark, tmp_path)
    with pytest.raises(InputError, match="alpha needs a scenario"):
        predict_on_spark(spark, tmp_path, alpha=2.0)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not a prediction"):
        predict_on_spark(spark, network, out=tmp_path)
    with pytest.raises(InputError, match="is a file"):
        predict_on_spark(spark, network, out=tmp_path / "notes.txt")
