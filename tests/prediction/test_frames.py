"""A prediction as tables: one row per subscription, broker or link, and what a notebook shows."""

from typing import Any

import pytest

from tidings.errors import ConfigurationError
from tidings.model import Scenario
from tidings.prediction import Prediction, from_network, predict, predict_network

TEXT = """
duration = "1 min"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { propagation = "10 ms", slowness = "1 ms/kB" }
brokers = { service = { distribution = "exponential", mean = "20 ms" } }

[[publishers]]
name = "p"
at = "a"
rate = "20 /s"
attributes = { x = { range = [1, 5] } }

[[subscribers]]
name = "quick"
at = "b"
filter = "x > 0"
max_delay = "50 ms"

[[subscribers]]
name = "patient"
at = "b"
filter = "x > 0"
max_delay = "10 s"

[[subscribers]]
name = "nothing"
at = "b"
filter = "x > 9"
"""

QUEUE: dict[str, Any] = {
    "duration": "1 min",
    "topology": {"kind": "explicit", "brokers": ["a", "b"], "links": [["a", "b"]]},
    "links": {"bandwidth": "80 kbit/s"},
    "policies": {"scheduling": "eb"},
    "publishers": [
        {"name": "p", "at": "a", "rate": "6 /s", "lifetime": "1 s", "attributes": {"x": {"range": [1, 2]}}},
    ],
    "subscribers": [{"name": "s", "at": "b", "filter": "x > 0"}],
}


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return predict(from_network(Scenario.parse(TEXT).expand()))


def test_a_row_per_subscription(prediction: Prediction) -> None:
    rows = prediction.to_arrow().to_pylist()
    assert [row["subscription"] for row in rows] == ["quick", "patient", "nothing"]
    assert rows[0]["on_time_share"] == prediction.subscribers["quick"].on_time_reliability
    assert rows[0]["path"] == ["a", "b"]
    assert rows[2]["on_time_share"] is None
    assert [row["low"] for row in rows] == [None, None, None]


def test_a_row_per_broker_and_link(prediction: Prediction) -> None:
    brokers = prediction.to_arrow("brokers").to_pylist()
    assert [row["broker"] for row in brokers] == ["a", "b"]
    assert brokers[0]["utilisation"] == pytest.approx(0.4)
    links = prediction.to_arrow("links").to_pylist()
    assert [(row["source"], row["target"]) for row in links] == [("a", "b"), ("b", "a")]
    assert links[0]["rate_per_s"] == pytest.approx(20.0)
    with pytest.raises(ConfigurationError, match="rows is 'clients'; write one of subscribers, brokers, links"):
        prediction.to_arrow("clients")  # type: ignore[arg-type]


def test_pandas_gives_the_same(prediction: Prediction) -> None:
    pytest.importorskip("pandas")
    frame = prediction.to_pandas().set_index("subscription")
    assert frame["on_time_share"]["quick"] == prediction.subscribers["quick"].on_time_reliability
    assert frame["on_time_share"].isna()["nothing"]


def test_what_is_printed_and_what_a_notebook_shows(prediction: Prediction) -> None:
    assert repr(prediction).startswith("Prediction(3 subscriptions, mean on-time share ")
    shown = prediction._repr_html_()
    assert shown.index("<td>quick</td>") < shown.index("<td>patient</td>") < shown.index("<td>nothing</td>")
    assert "no matches" in shown
    assert "(40.0 %)" in shown


def test_the_interval_of_a_sample_is_in_the_table() -> None:
    sampled = predict_network(Scenario.from_dict(QUEUE).expand())
    assert sampled.sample is not None
    rows = sampled.to_arrow().to_pylist()
    assert all(row["low"] <= row["on_time_share"] <= row["high"] for row in rows)
