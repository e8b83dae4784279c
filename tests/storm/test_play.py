"""A scenario on the protocol, beside simulator and predictor: the same events, the same failures, the same R."""

import msgspec
import pytest

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network, Scenario, Scheme
from tidings.prediction import failing_network, from_network, predict, predict_schemes
from tidings.simulation import simulate
from tidings.storm import play

RING = """
title = "A ring that fails"
seed = 11
duration = "12 h"

[topology]
kind = "explicit"
brokers = ["a", "b", "c", "d"]
links = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "a"]]

[links]
propagation = "20 ms"
failures = { availability = 0.97, period = "2000 s" }

[brokers]
failures = { availability = 0.92, period = "2000 s" }

[[publishers]]
name = "p"
at = "a"
rate = "2 /min"
lifetime = "200 s"
attributes = { x = 1 }

[[subscribers]]
name = "s"
at = ["a", "b", "c", "d"]
count = 4
filter = "x = 1"

[policies]
faults = { scheme = "periodic", refresh = "200 s" }
"""

NOISE = 0.003
"""Both see the same events and outages; what differs is the moment at which something is noticed or tried again."""
RUN = 0.04
"""Half a day is some twenty cycles of each component: by so much a run may differ from the long run predicted."""


def ring(scheme: Scheme, *, refresh_s: float = 200.0) -> Network:
    network = Scenario.parse(RING).expand()
    faults = msgspec.structs.replace(network.policies.faults, scheme=scheme, refresh_s=refresh_s)
    return msgspec.structs.replace(network, policies=msgspec.structs.replace(network.policies, faults=faults))


@pytest.mark.parametrize("scheme", ["periodic", "buffer", "bypass", "bypass+buffer"])
def test_protocol_simulator_and_predictor_agree(scheme: Scheme) -> None:
    played = play(ring(scheme))
    # Subscriptions are durable in the protocol: the model comes to that when it refreshes all the time.
    network = ring(scheme, refresh_s=1.0)
    simulated = simulate(network)
    predicted = predict_schemes(predict(from_network(network)), failing_network(network), schemes=(scheme,))[scheme]
    assert played.matched == simulated.matched > 4_000
    assert played.delivery_rate == pytest.approx(simulated.delivery_rate, abs=NOISE)
    for number, subscription in enumerate(network.subscriptions):
        mine = played.subscriptions[subscription.id].on_time_reliability
        assert mine == pytest.approx(simulated.subscribers[subscription.id].on_time_reliability, abs=2 * NOISE)
        assert mine == pytest.approx(predicted.reliability[number], abs=RUN)
    assert played.messages["ack"] > 0  # they carry the credit, whether or not events are kept
    assert played.messages_per_event["data"] == pytest.approx(predicted.overhead.data, rel=0.2)


def test_brokers_that_take_time_are_not_played() -> None:
    network = Scenario.parse(RING.replace("[brokers]", '[brokers]\nprocessing = "1 ms"')).expand()
    with pytest.raises(ConfigurationError, match="take no time"):
        play(network)
