"""Subscribers that come and go: events count for who is there when they are published."""

import numpy as np
import pytest

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model.scenario import Scenario
from tidings.planning import to_toml
from tidings.prediction import from_network, predict
from tidings.simulation import simulate, simulate_script
from tidings.storm import play

TEXT = """
duration = "30 min"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
[[publishers]]
name = "p"
at = "a"
rate = "10 /s"
attributes = { x = 1 }
[[subscribers]]
name = "guest"
at = "b"
count = 4
filter = "x = 1"
churn = { stay = { law = "exponential", mean = "20 s" }, away = { law = "exponential", mean = "60 s" } }
[[subscribers]]
name = "member"
at = "b"
filter = "x = 1"
"""


def test_who_is_away_a_share_of_the_time_gets_that_share_less() -> None:
    network = Scenario.parse(TEXT).expand()
    result = simulate(network)
    assert result.subscribers["member"].matched == result.published
    guests = [row.matched / result.published for name, row in result.subscribers.items() if name != "member"]
    assert np.mean(guests) == pytest.approx(0.25, abs=0.08)
    assert len(set(guests)) == 4  # each comes and goes by itself
    assert all(row.on_time == row.matched for row in result.subscribers.values())


def test_stays_are_as_long_as_they_were_said_to_be() -> None:
    text = TEXT.replace('{ law = "exponential", mean = "20 s" }', '"20 s"').replace("count = 4", "count = 1")
    script, _ = simulate_script(Scenario.parse(text).expand())
    there = [event.at_ns * 1e-9 for event in script.publications if 0 in event.matches]
    gaps = np.flatnonzero(np.diff(there) > 5.0)
    begins, ends = np.array(there)[gaps[:-1] + 1], np.array(there)[gaps[1:]]
    lengths = (ends - begins)[(ends - begins) > 5.0]
    assert len(lengths) > 5
    assert np.median(lengths) == pytest.approx(20.0, abs=1.5)


def test_neither_others_nor_the_length_of_a_chunk_move_a_subscriber() -> None:
    network = Scenario.parse(TEXT).expand()
    more = Scenario.parse(TEXT + '[[subscribers]]\nname = "late"\nat = "a"\nfilter = "x = 1"\n').expand()
    before, after = simulate(network).subscribers, simulate(more).subscribers
    assert all(after[name] == row for name, row in before.items())
    assert simulate(Scenario.parse(to_toml(network)).expand()).subscribers == before


def test_who_cannot_follow_it_says_so() -> None:
    network = Scenario.parse(TEXT).expand()
    assert "churn" in {each.kind for each in predict(from_network(network)).unmodelled}
    with pytest.raises(ConfigurationError, match="'guest-1' comes and goes"):
        play(network)
    with pytest.raises(ScenarioError, match=r"subscribers\[0\]\.churn: `away` is missing; write for example away"):
        Scenario.parse(TEXT.replace('away = { law = "exponential", mean = "60 s" }', "").replace('" },', '" }'))
