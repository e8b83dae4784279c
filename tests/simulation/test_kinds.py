"""Events that are given by kinds: the same network without drawing and matching attributes."""

import msgspec
import numpy as np
import pytest

from tidings.errors import ConfigurationError
from tidings.model.scenario import Scenario
from tidings.prediction import from_network
from tidings.simulation import Options, simulate

NETWORK = Scenario.parse("""
    duration = "4000 s"
    warmup = "10 s"
    links.slowness = { law = "exponential", mean = "100 ms/kB" }
    topology = { kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }

    [[publishers]]
    name = "p"
    at = "a"
    rate = "7 /s"
    size = "1 kB"
    attributes.x = { values = [1, 2, 3, 4, 5], weights = [5, 2, 1, 1, 1] }

    [[subscribers]]
    name = "near"
    at = "b"
    filter = "x <= 2"
    max_delay = "300 ms"

    [[subscribers]]
    name = "far"
    at = "c"
    filter = "x >= 2 AND x <= 4"
    max_delay = "600 ms"

    [policies]
    scheduling = "eb"
    expired = "drop"
""").expand()


def kinds():
    return [
        (each.content.weights, each.content.offsets, each.content.subscriptions)
        for each in from_network(NETWORK).publishers
    ]


def test_they_are_as_frequent_as_they_should_be() -> None:
    """Shares are even within blocks of 512 events, so 28,000 events have them to a few in a thousand."""
    run = simulate(NETWORK, Options(kinds=kinds()))
    assert run.subscribers["near"].matched / run.published == pytest.approx(0.7, abs=0.003)
    assert run.subscribers["far"].matched / run.published == pytest.approx(0.4, abs=0.003)


def test_they_are_on_time_as_often() -> None:
    """Ten runs of 28,000 events each have a standard error of about .002."""
    drawn, given = (
        np.mean(
            [
                [
                    row.on_time_reliability
                    for row in simulate(msgspec.structs.replace(NETWORK, seed=seed), options).subscribers.values()
                ]
                for seed in range(10)
            ],
            axis=0,
        )
        for options in (Options(), Options(kinds=kinds()))
    )
    assert given == pytest.approx(drawn, abs=0.01)


def test_what_needs_attributes_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match=r"leave out Options\.kinds"):
        simulate(NETWORK, Options(kinds=kinds()), out=tmp_path)
