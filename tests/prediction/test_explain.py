"""Explanations: the parts add up to the delay, quantiles are quantiles, and the first remedy is the one that helps."""

import msgspec
import pytest

from tidings.errors import InputError
from tidings.model.distributions import Deterministic, Exponential
from tidings.prediction import explain, from_network, predict


def with_slow_broker(network, name: str, scale: float):
    slow = network.topology.map(
        brokers=lambda b: msgspec.structs.replace(b, service=Exponential(scale=scale)) if b.name == name else b
    )
    return msgspec.structs.replace(network, topology=slow)


def test_parts_add_up(chain) -> None:
    network = chain(3, slowness=Exponential(scale=0.02), propagation=Deterministic(value=0.05))
    prediction = predict(from_network(network))
    found = explain(prediction, "s0")
    (journey,) = found.journeys
    assert [hop.place for hop in journey.hops] == ["b0", "b0 -> b1", "b1", "b1 -> b2", "b2"]
    total_s = sum(hop.wait_s + hop.service_s + hop.way_s for hop in journey.hops)
    assert journey.mean_delay_s == pytest.approx(total_s)
    assert prediction.subscribers["s0"].mean_delay_s == pytest.approx(total_s)
    assert journey.share == pytest.approx(1.0)
    assert journey.on_time == pytest.approx(found.on_time_reliability)
    for q, delay_s in journey.delay_quantiles_s.items():
        import numpy as np

        chance = prediction.delays.chances(0, np.array([2], np.int32), np.array([delay_s]))[0]
        assert chance == pytest.approx(float(q), abs=1e-6)


def test_the_slow_broker_is_named_first(chain) -> None:
    network = with_slow_broker(chain(3), "b1", 0.17)
    found = explain(predict(from_network(network)), "s0")
    assert found.remedies[0].change == "make broker b1 twice as fast"
    assert found.remedies[0].on_time_reliability > found.on_time_reliability + 0.2
    assert "waiting at b1" in found.words
    assert "The most effective single change: make broker b1 twice as fast" in found.words


def test_a_long_way_and_a_loss_are_named(chain) -> None:
    far = chain(2, service=Deterministic(value=0.001), propagation=Exponential(scale=1.0))
    assert explain(predict(from_network(far)), "s0").remedies[0].change == "halve the propagation delay of b0 -> b1"
    lossy = chain(2, loss=0.3, lifetime=Deterministic(value=20.0))
    assert explain(predict(from_network(lossy)), "s0").remedies[0].change == "stop the losses of b0 -> b1"
    narrow = chain(2, service=Deterministic(value=0.001), slowness=Exponential(scale=0.15))
    assert explain(predict(from_network(narrow)), "s0").remedies[0].change == "double the bandwidth of b0 -> b1"


def test_a_tight_deadline_can_be_what_to_change(chain) -> None:
    found = explain(predict(from_network(chain(1, max_delay_s=0.3))), "s0")
    assert "extend the deadline to 0.45 s" in [remedy.change for remedy in found.remedies]


def test_overload_is_told(chain) -> None:
    found = explain(predict(from_network(with_slow_broker(chain(2), "b1", 0.3))), "s0")
    assert found.overloaded_at == "b1"
    assert "b1 is overloaded" in found.words
    assert found.journeys[0].hops[-1].wait_s is None
    assert found.journeys[0].delay_quantiles_s["0.5"] is None


def test_nothing_to_explain(chain) -> None:
    prediction = predict(from_network(chain(1, filters=("x > 9",))))
    assert "No publisher can match s0" in explain(prediction, "s0").words
    with pytest.raises(InputError, match="no subscription 'nobody'"):
        explain(prediction, "nobody")
