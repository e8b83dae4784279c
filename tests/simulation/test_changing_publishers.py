"""Publishers whose events are not alike: lifetimes and sizes by content, rates that follow the day."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import ScenarioError
from tidings.model.distributions import Discrete, Empirical
from tidings.model.scenario import Day, Scenario
from tidings.planning import to_toml
from tidings.prediction import from_network, predict
from tidings.simulation import simulate, simulate_script
from tidings.storm import play

TEXT = """
duration = "DURATION"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { propagation = "100 ms", slowness = "10 ms/kB" }
[[publishers]]
name = "p"
at = "a"
rate = "4 /s"
MORE
[publishers.attributes]
kind = { values = ["alarm", "report"], weights = [1, 3] }
level = { law = "uniform", low = 0, high = 1 }
[[subscribers]]
name = "alarms"
at = "b"
filter = "kind = 'alarm'"
[[subscribers]]
name = "reports"
at = "b"
filter = "kind = 'report'"
"""
BY = """
lifetime = { by = "kind", laws = { alarm = "50 ms" }, otherwise = "10 s" }
size = { by = "kind", laws = { alarm = "100 B", report = { law = "exponential", mean = "2 kB" } } }
"""


def scenario(more: str, duration: str = "5 min") -> Scenario:
    return Scenario.parse(TEXT.replace("MORE", more).replace("DURATION", duration))


def test_lifetimes_and_sizes_follow_what_an_event_says() -> None:
    network = scenario(BY).expand()
    script, result = simulate_script(network)
    kinds = {"alarm": [], "report": []}  # type: ignore[var-annotated]
    for event in script.publications:
        kinds[str(event.attributes["kind"])].append(event)
    assert {event.lifetime_ns for event in kinds["alarm"]} == {50_000_000}
    assert {event.lifetime_ns for event in kinds["report"]} == {10_000_000_000}
    assert {event.size_bytes for event in kinds["alarm"]} == {100}
    assert np.mean([event.size_bytes for event in kinds["report"]]) == pytest.approx(2_000, rel=0.15)
    # An alarm needs 101 ms and has 50; a report has time enough.
    assert result.subscribers["alarms"].on_time_reliability == 0.0
    assert result.subscribers["reports"].on_time_reliability == 1.0
    publisher = network.publishers[0]
    assert publisher.lifetime == Discrete(values=(0.05, 10.0), weights=(0.25, 0.75))
    assert isinstance(publisher.size_kb, Empirical)
    assert publisher.size_kb.mean() == pytest.approx(0.25 * 0.1 + 0.75 * 2.0, rel=0.01)


def test_the_protocol_carries_the_same_events() -> None:
    played = play(scenario(BY, "60 s").expand())
    assert played.subscriptions["alarms"].on_time_reliability == 0.0
    assert played.subscriptions["reports"].on_time_reliability == 1.0


def test_what_the_predictor_leaves_out_is_named() -> None:
    more = BY + "day = { factors = [1, 3] }\n"
    found = predict(from_network(scenario(more).expand()))
    assert {"content", "day"} <= {each.kind for each in found.unmodelled}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('lifetime = { by = "kinds", laws = { alarm = "1 s" } }', "no attribute `kinds`; did you mean `kind`"),
        ('lifetime = { by = "kind", laws = { alarm = "1 s" } }', "there is no distribution for kind = 'report'"),
        ('lifetime = { by = "kind", laws = { alrm = "1 s" }, otherwise = "1 s" }', "did you mean `alarm`"),
        ('lifetime = { by = "level", laws = { a = "1 s" } }', "this attribute is continuous"),
        ('lifetime = { by = "kind" }', "`distributions` is missing"),
        ('lifetime = { by = "kind", laws = { alarm = 3 } }', r"publishers\[0\]\.lifetime\.laws\.alarm"),
        ('lifetime = { by = "kind", laws = { alarm = "1 s" }, else = "1 s" }', "unknown key `else`"),
        ("day = { factors = [0, 0] }", "all factors are 0"),
        ("day = { factors = [1] }", "at least 2 elements"),
        ("day = { factors = [1, -1] }", r"publishers\[0\]\.day\.factors"),
        ('day = { period = "1 d" }', "`factors` is missing"),
    ],
)
def test_errors_name_the_key_and_the_remedy(more: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        scenario(more).expand()


def test_a_rate_follows_the_day() -> None:
    network = scenario('day = { factors = [0, 1, 3, 0], period = "40 s" }', "20 min").expand()
    script, result = simulate_script(network)
    at_s = np.array([event.at_ns * 1e-9 for event in script.publications])
    quarter = ((at_s % 40.0) // 10.0).astype(int)
    counts = np.bincount(quarter, minlength=4)
    assert counts[0] == counts[3] == 0
    assert counts[2] / counts[1] == pytest.approx(3.0, rel=0.15)
    assert len(at_s) == pytest.approx(4 * 1_200, rel=0.06)  # the mean rate is what was written
    assert (np.diff(at_s) >= 0.0).all()
    assert result.published == len(at_s)


@given(
    st.lists(st.floats(0.0, 5.0), min_size=2, max_size=8).filter(lambda factors: sum(factors) > 0.1),
    st.lists(st.floats(0.0, 1e6), min_size=2, max_size=30),
)
def test_clocks_never_go_back_and_keep_the_period(factors: list[float], times: list[float]) -> None:
    mean = sum(factors) / len(factors)
    day = Day(factors=tuple(factor / mean for factor in factors), period_s=100.0)
    found = day.clock_s(np.sort(np.array(times)))
    assert (np.diff(found) >= -1e-6).all()
    assert (found <= np.ceil(np.sort(np.array(times)) / 100.0 + 1e-9) * 100.0 + 1e-6).all()
    assert day.clock_s(np.array([1_000.0]))[0] >= 1_000.0 - 1e-6


def test_a_network_is_written_out_with_all_of_it() -> None:
    network = scenario(BY + 'day = { factors = [1, 3], period = "40 s" }\n').expand()
    again = Scenario.parse(to_toml(network)).expand()
    assert simulate(again).subscribers == simulate(network).subscribers
