"""A scenario on the protocol, beside simulator and predictor: the same events, the same failures, the same R."""

import msgspec
import pytest

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network, Scenario, Scheme
from tidings.prediction import failing_network, from_network, predict, predict_schemes
from tidings.simulation import simulate, simulate_script
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

FAILING = 'failures = { availability = 0.97, period = "2000 s" }'
MOVING = """
duration = "5 min"
seed = 3

[topology]
kind = "explicit"
brokers = ["a", "b", "c", "d", "e"]
links = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"]]

[links]
slowness = { law = "normal", mean = "20 ms/kB", sd = "5 ms/kB" }
propagation = "10 ms"

[[publishers]]
name = "p"
at = "a"
count = 3
rate = "3 /s"
size = "1 kB"
attributes = { x = { law = "uniform", low = 0, high = 10 } }

[[subscribers]]
name = "s"
at = ["d", "e"]
count = 6
filter = "x < {most}"
parameters = { most = { law = "uniform", low = 2, high = 10 } }
max_delay = "110 ms"

[policies]
relocation = "RELOCATION"
faults = { scheme = "bypass+buffer", refresh = "5 s", timeout = "30 s", retry = "1 s" }
"""

NOISE = 0.003
"""Both see the same events and outages; what differs is the moment at which something is noticed or tried again."""
RUN = 0.04
"""Half a day is some twenty cycles of each component: by so much a run may differ from the long run predicted."""


def ring(scheme: Scheme) -> Network:
    network = Scenario.parse(RING).expand()
    faults = msgspec.structs.replace(network.policies.faults, scheme=scheme)
    return msgspec.structs.replace(network, policies=msgspec.structs.replace(network.policies, faults=faults))


@pytest.mark.parametrize(
    "scheme",
    [
        *(pytest.param(name, marks=pytest.mark.full) for name in ("static", "periodic", "buffer", "bypass")),
        "bypass+buffer",
    ],
)
def test_protocol_simulator_and_predictor_agree(scheme: Scheme) -> None:
    network = ring(scheme)
    played = play(network)
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


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[brokers]", '[brokers]\nservice = "1 ms"', "take no time"),
        ("[links]", "[links]\nloss = 0.1", "connections lose nothing"),
        ("[policies]", '[policies]\nrouting = "balanced"', 'write routing = "single-path"'),
    ],
)
def test_what_the_protocol_has_no_counterpart_of_is_refused(before: str, after: str, message: str) -> None:
    network = Scenario.parse(RING.replace(before, after)).expand()
    with pytest.raises(ConfigurationError, match=message):
        play(network)


def test_access_links_take_their_time() -> None:
    """Nothing waits here: 20 ms at the publisher's end, 30 ms at the subscribers', and an event of 1 kB takes 5 ms at
    each of them."""
    text = RING.replace("failures", "# failures").replace("12 h", "10 min")
    for line, propagation in (('at = "a"', "20 ms"), ('filter = "x = 1"', "30 ms")):
        text = text.replace(line, f'{line}\naccess = {{ slowness = "5 ms/kB", propagation = "{propagation}" }}')
    network = Scenario.parse(text).expand()
    played = play(network)
    simulated = simulate_script(network)[0].delays_ns
    assert played.delays_ns.keys() == simulated.keys()
    assert min(simulated.values()) == pytest.approx(60e6)
    assert all(played.delays_ns[pair] == pytest.approx(simulated[pair], abs=1e6) for pair in simulated)


def test_processing_takes_its_time_at_every_broker_once() -> None:
    """On a ring of four with links of 20 ms, c is two links and three brokers away from a."""
    sound = RING.replace("failures", "# failures").replace("12 h", "10 min")
    network = Scenario.parse(sound.replace("[brokers]", '[brokers]\nprocessing = "50 ms"')).expand()
    played = play(network)
    taken_ms = {delay_ns / 1e6 for (_, subscription), delay_ns in played.delays_ns.items() if subscription == 2}
    assert taken_ms
    assert all(taken == pytest.approx(2 * 20 + 3 * 50) for taken in taken_ms)
    simulated = simulate_script(network)[0].delays_ns
    assert played.delays_ns.keys() == simulated.keys()
    assert all(played.delays_ns[pair] == pytest.approx(simulated[pair], abs=1e4) for pair in simulated)


@pytest.mark.full
@pytest.mark.parametrize("relocation", ["pop", "grape", "on-time"])
def test_publishers_move_to_the_same_places_as_in_the_simulator(relocation: str) -> None:
    """R within .03: links draw on their own here, and a queue of such a line differs by as much between seeds."""
    found = play(Scenario.parse(MOVING.replace("RELOCATION", relocation)).expand())
    assert found.simulated.relocation is not None
    assert found.homes == found.simulated.relocation.homes
    assert set(found.homes.values()) == {"d"}
    assert found.delivery_rate == pytest.approx(found.simulated.delivery_rate, abs=0.03)


def test_moves_where_something_fails_are_simulated_only() -> None:
    text = MOVING.replace("RELOCATION", "pop")
    with pytest.raises(ConfigurationError, match="publishers move only where nothing fails"):
        play(Scenario.parse(text.replace("[links]", "[links]\n" + FAILING)).expand())
    with pytest.raises(ConfigurationError, match="publishers move only where nothing fails"):
        play(Scenario.parse(text.replace("bypass+buffer", "bypass")).expand())
