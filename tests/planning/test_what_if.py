"""Remedies side by side."""

import msgspec
import numpy as np
import pytest

from tidings.errors import ConfigurationError
from tidings.model.distributions import Deterministic
from tidings.model.scenario import Network, Scenario
from tidings.planning import Estimator, UseStrategy, WhatIf, apply, what_if
from tidings.simulation import simulate


def named(found: WhatIf) -> dict[str, np.ndarray]:
    return {outcome.name: outcome.reliability for outcome in found.changes}


def test_deadline_scheduling_helps_alarms_behind_bulk(mixed: Network) -> None:
    found = what_if(mixed, events_max=5_000)
    assert found.subscribers == ("s", "t")
    assert found.means == "predicted"
    outcomes = named(found)
    assert set(outcomes) >= {"deadline scheduling", "ordering"}
    assert outcomes["deadline scheduling"][0] > found.now[0] + 0.05
    assert found.all[0] > found.now[0] + 0.05
    assert found.best is not None
    assert found.best.mean_reliability == max(outcome.mean_reliability for outcome in found.changes)
    for reliability in (found.now, found.all, *outcomes.values()):
        assert ((reliability >= 0.0) & (reliability <= 1.0)).all()
    assert (found.best_for_each >= found.now).all()
    assert (found.best_for_each >= found.best.reliability).all()


def test_how_the_figures_were_found_is_said(mixed: Network) -> None:
    by_deadline = apply(mixed, [UseStrategy(strategy="eb")])
    found = what_if(by_deadline, events_max=500)
    assert (found.means, found.unpredicted, found.unmodelled) == ("simulated", 'links with the strategy "eb"', ())
    in_step = [msgspec.structs.replace(each, interval=Deterministic(value=0.2)) for each in mixed.publishers]
    regular = msgspec.structs.replace(mixed, publishers=tuple(in_step))
    found = what_if(regular, events_max=500)
    assert (found.means, found.unpredicted) == ("predicted", None)
    assert "regularity" in [each.kind for each in found.unmodelled]


def test_buffering_and_bypassing_helps_where_brokers_crash(crashes: Network) -> None:
    found = what_if(crashes, events_max=2_000)
    outcomes = named(found)
    assert "deadline scheduling" not in outcomes  # no link has a queue
    assert outcomes["buffering and bypassing"][1] > found.now[1]
    assert [outcome.means for outcome in found.changes if outcome.name == "buffering and bypassing"] == ["predicted"]


def test_what_was_held_up_queues_so_buffering_is_simulated_where_links_are_narrow() -> None:
    """Predicted, buffering gains; what it holds up for others than the hasty ones is in their way afterwards."""
    network = Scenario.parse(
        """
        duration = "2 h"
        topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
        links = { bandwidth = "80 kbit/s", failures = { availability = 0.95, period = "60 s" } }
        publishers = [{ name = "p", at = "a", rate = "7 /s", lifetime = "5 min", attributes = { x = 1 } }]
        subscribers = [
            { name = "hasty", at = "b", filter = "x = 1", max_delay = "2 s" },
            { name = "patient", at = "b", filter = "x = 1" },
        ]
        policies = { scheduling = "fifo", faults = { scheme = "periodic", retry = "10 ms" } }
        """
    ).expand()
    found = what_if(network, events_max=20_000)
    (outcome,) = (each for each in found.changes if each.name == "buffering and bypassing")
    assert (found.means, outcome.means) == ("predicted", "simulated")
    better = apply(network, outcome.changes)
    told = Estimator(network).predicted(better)[0] - found.now[0]
    seen = simulate(better).subscribers["hasty"].on_time_reliability
    was = simulate(network).subscribers["hasty"].on_time_reliability
    assert seen is not None
    assert was is not None
    assert outcome.reliability[0] - found.now[0] == pytest.approx(seen - was, abs=0.02)
    assert told - (seen - was) > 0.04  # which the prediction leaves out


def test_a_publisher_moves_to_its_readers(overloaded: Network) -> None:
    alone = msgspec.structs.replace(
        overloaded, subscribers=overloaded.subscribers[1:], subscriptions=overloaded.subscriptions[1:]
    )
    found = what_if(alone, events_max=2_000)
    moving = found.changes[0]
    assert (moving.name, moving.description) == ("moving publishers", "move p to c")
    assert found.now[0] < 0.9
    assert moving.reliability[0] == pytest.approx(1.0)
    assert found.best is moving


def test_where_things_fail_and_queue_scheduling_counts_as_without_failures(mixed: Network) -> None:
    """The simulator has no strategies where things fail: the gain is that of the network without failures, scaled."""
    failing = Scenario.parse(
        """
        duration = "2 h"
        topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
        links = { bandwidth = "80 kbit/s", propagation = "5 ms" }
        broker = [{ name = "b", failures = { availability = 0.9, period = "600 s" } }]
        publishers = [
            { name = "quick", at = "a", rate = "2 /s", size = "200 B", lifetime = "400 ms", attributes = { x = 1 } },
            { name = "bulk", at = "a", rate = "3 /s", size = "2 kB", lifetime = "60 s", attributes = { x = 2 } },
        ]
        subscribers = [{ name = "s", at = "b", filter = "x = 1" }, { name = "t", at = "b", filter = "x = 2" }]
        policies = { scheduling = "fifo", faults = "periodic" }
        """
    ).expand()
    found, calm = what_if(failing, events_max=5_000), what_if(mixed, events_max=5_000)
    gain = named(found)["deadline scheduling"][0] - found.now[0]
    full = named(calm)["deadline scheduling"][0] - calm.now[0]
    left = found.now[0] / calm.now[0]
    assert gain == pytest.approx(left * full, abs=0.03)  # margin: two short runs of different length


def test_all_together_is_near_what_a_run_of_it_shows(overloaded: Network) -> None:
    from tidings.planning import apply

    found = what_if(overloaded, events_max=20_000)
    every = apply(overloaded, [change for outcome in found.changes for change in outcome.changes])
    shown = [row.on_time_reliability for row in simulate(every).subscribers.values()]
    assert found.all == pytest.approx(np.array(shown, np.float64), abs=0.05)  # margin: the model's error under overload


def test_nobody_to_be_on_time_for(mixed: Network) -> None:
    with pytest.raises(ConfigurationError, match="no subscribers"):
        what_if(msgspec.structs.replace(mixed, subscriptions=(), subscribers=()))


def test_scheduling_and_all_together_are_runs_where_things_fail() -> None:
    """Links are narrow and fail. What scheduling brings, and all remedies, is what runs of those networks say."""
    network = Scenario.parse(
        """
        duration = "1 h"
        topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
        links = { bandwidth = "80 kbit/s", failures = { availability = 0.95, period = "60 s" } }
        publishers = [{ name = "p", at = "a", rate = "9 /s", lifetime = "5 min", attributes.x = { range = [1, 2] } }]
        policies = { scheduling = "fifo", faults = { scheme = "buffer", refresh = "10 s", retry = "100 ms" } }

        [[subscribers]]
        name = "hasty"
        at = "b"
        filter = "x = 1"
        max_delay = "400 ms"
        price = 5

        [[subscribers]]
        name = "patient"
        at = "b"
        filter = "x = 2"
        """
    ).expand()
    found = what_if(network, events_max=10_000)
    assert found.means == "simulated"
    shown = {outcome.name: outcome for outcome in found.changes}
    alone = shown["deadline scheduling"]
    asked = Estimator(network, events_max=10_000)
    assert alone.reliability == pytest.approx(asked.simulated(apply(network, alone.changes)))
    assert alone.reliability[0] > found.now[0] + 0.1
    everything = apply(network, [change for outcome in found.changes for change in outcome.changes])
    assert found.all == pytest.approx(asked.simulated(everything))
