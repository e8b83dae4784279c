"""The schemes against published check values, against each other, and against a simulation of their own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ConfigurationError, InputError
from tidings.faults import SCHEMES, FaultGraph, Route, SchemePredictor
from tidings.model.distributions import Exponential, LogNormal
from tidings.model.failures import Failures

HOUR_S = 3_600.0
EQUATION_3, EQUATION_4 = 0.771307, 0.856083


def at_end(graph, scheme, lifetime_s=HOUR_S, **options):
    route = Route.of(graph, 0, [-1, *range(graph.broker_count - 1)])
    return float(SchemePredictor(graph=graph, **options).on_time(scheme, route, np.array([lifetime_s]))[0, -1])


@pytest.mark.parametrize("model", ["paper", "ours"])
def test_check_values(chain_of_three, model):
    assert at_end(chain_of_three, "static", model=model) == 0.0
    assert at_end(chain_of_three, "periodic", model=model) == pytest.approx(EQUATION_3, abs=1e-6)
    assert at_end(chain_of_three, "buffer", model=model) == pytest.approx(EQUATION_4, abs=1e-6)
    assert at_end(chain_of_three, "bypass", model=model) == pytest.approx(EQUATION_3, abs=1e-6)
    assert at_end(chain_of_three, "bypass+buffer", model=model) == pytest.approx(EQUATION_4, abs=1e-6)


def test_equation_13_as_printed_exceeds_one(chain_of_three):
    """r_A + (1 - r_A) P[d <= D] / P[d > 0], from the same parts that the corrected form is made of."""
    start = 0.92
    at_once = at_end(chain_of_three, "buffer", 0.0, model="paper") / start
    in_time = at_end(chain_of_three, "buffer", model="paper") / start
    by_bypass = at_end(chain_of_three, "bypass", model="paper")
    assert by_bypass + (1.0 - by_bypass) * in_time / (1.0 - at_once) == pytest.approx(2.087982, abs=1e-6)


def test_without_a_lifetime_buffering_is_equation_3_and_with_endless_ones_the_home_broker_decides(chain_of_three):
    for scheme in ("buffer", "bypass+buffer"):
        assert at_end(chain_of_three, scheme, 0.0) == pytest.approx(at_end(chain_of_three, "periodic"), abs=1e-12)
        assert at_end(chain_of_three, scheme, np.inf) == pytest.approx(0.92, abs=1e-12)


def test_a_refresh_interval_of_ten_minutes_costs_about_a_hundredth(chain_of_three):
    lost = at_end(chain_of_three, "periodic") - at_end(chain_of_three, "periodic", refresh_s=600.0)
    assert lost == pytest.approx(0.0125, abs=0.001)
    # On a tree a detour does not help; second-order terms of links that were down at a refresh are left out there.
    bypassed = at_end(chain_of_three, "bypass", refresh_s=600.0)
    assert bypassed == pytest.approx(at_end(chain_of_three, "periodic", refresh_s=600.0), abs=2e-4)
    assert at_end(chain_of_three, "buffer", refresh_s=600.0) < EQUATION_4
    assert at_end(chain_of_three, "periodic", refresh_s=600.0, timeout_s=600.0) < at_end(
        chain_of_three, "periodic", refresh_s=600.0
    )


def test_a_refresh_interval_against_a_simulation_of_tables(chain_of_three):
    """Independent: alternating components on a fine clock, tables that empty at a repair and fill at a refresh."""
    rng = np.random.default_rng(5)
    samples, interval_s, step_s = 40_000, 600.0, 20.0
    a = np.concatenate((chain_of_three.broker_availability, chain_of_three.link_availability))
    fails, repairs = 1.0 / (a * 60_000.0), 1.0 / ((1.0 - a) * 60_000.0)
    up = rng.random((samples, 5)) < a
    table = up[:, :3].copy()
    # Exact over a step: the chance of being up again after it, by the two-state chain.
    back = (1.0 - np.exp(-(fails + repairs) * step_s)) * a
    gone = (1.0 - np.exp(-(fails + repairs) * step_s)) * (1.0 - a)
    total, asked = 0, 0
    for step in range(1, 241):
        draw = rng.random((samples, 5))
        after = np.where(up, draw >= gone, draw < back)
        table &= up[:, :3] & after[:, :3]
        up = after
        if step % int(interval_s / step_s) == 0:
            through = up[:, 2].copy()
            table[:, 2] |= through
            for broker in (1, 0):
                through &= up[:, 3 + broker] & up[:, broker]
                table[:, broker] |= through
        if step > 120:  # settled
            total += int((table.all(axis=1) & up.all(axis=1)).sum())
            asked += samples
    found = total / asked
    # 40,000 independent networks, each seen for two hours: below .0021 at four standard errors; the step adds .0002.
    assert at_end(chain_of_three, "periodic", refresh_s=interval_s) == pytest.approx(found, abs=0.0025)


@given(
    availability=st.lists(st.floats(0.3, 0.999), min_size=2, max_size=5),
    link=st.floats(0.5, 1.0),
    times=st.tuples(st.floats(0.0, 1e5), st.floats(0.0, 1e5)),
)
@settings(deadline=None, max_examples=25)
def test_properties_on_trees(availability, link, times):
    graph = FaultGraph.exponential(
        ends=[(b, b + 1) for b in range(len(availability) - 1)], brokers=availability, links=link, period_s=60_000.0
    )
    short, long = sorted(times)
    assert at_end(graph, "buffer", short) <= at_end(graph, "buffer", long) + 1e-9
    assert at_end(graph, "bypass+buffer", short) == pytest.approx(at_end(graph, "buffer", short), abs=1e-9)
    paper = {scheme: at_end(graph, scheme, short, model="paper") for scheme in SCHEMES}
    assert paper["bypass+buffer"] == pytest.approx(paper["buffer"], abs=1e-9)
    assert 0.0 <= paper["periodic"] <= paper["buffer"] + 1e-12 <= 1.0 + 2e-12


def test_buffering_against_a_simulation(random_graph, shortest_parents, simulate_buffered):
    rng = np.random.default_rng(2)
    graph = random_graph(7, 10, rng, low=0.8, high=0.95, links=0.95)
    parents = shortest_parents(graph, 0)
    seen = simulate_buffered(graph, 0, parents, HOUR_S, 20_000, rng, bypass=False)
    predictor, start = SchemePredictor(graph=graph), graph.broker_availability[0]
    predicted = predictor.on_time("buffer", Route.of(graph, 0, parents), np.array([HOUR_S]))[0] / start
    assert np.abs(predicted - seen).max() < 4.0 * 0.5 / np.sqrt(20_000)  # exact: sampling alone


def test_bypass_and_buffering_against_a_simulation(random_graph, shortest_parents, simulate_buffered):
    rng = np.random.default_rng(4)
    graph = random_graph(8, 14, rng)
    parents = shortest_parents(graph, 0)
    seen = simulate_buffered(graph, 0, parents, HOUR_S, 20_000, rng, bypass=True)
    predictor, start = SchemePredictor(graph=graph), graph.broker_availability[0]
    predicted = predictor.on_time("bypass+buffer", Route.of(graph, 0, parents), np.array([HOUR_S]))[0] / start
    # Around .95 the standard error is .0016; the model itself is allowed .001.
    assert np.abs(predicted - seen).max() < 4.0 * 0.0016 + 0.001


def test_repairs_that_are_not_exponential_against_a_simulation(simulate_buffered):
    repair = LogNormal(median=1_500.0, sigma=1.2)
    broker = Failures(up=Exponential(scale=40_000.0), down=repair)
    link = Failures.exponential(availability=0.99, period_s=60_000.0)
    graph = FaultGraph(brokers=(broker,) * 3, links=(link, link), ends=np.array([(0, 1), (1, 2)]))
    rng = np.random.default_rng(8)
    # What is left of a repair that is met at random: a uniform part of a length-biased one, log-normal as well.
    longer = LogNormal(median=1_500.0 * np.exp(1.2**2), sigma=1.2)

    def rest(component, count):
        if component >= 3:
            return link.down.sample(rng, count)
        return rng.random(count) * longer.sample(rng, count)

    parents = [-1, 0, 1]
    seen = simulate_buffered(graph, 0, parents, HOUR_S, 40_000, rng, bypass=False, rest=rest)
    route, start = Route.of(graph, 0, parents), graph.broker_availability[0]
    ours = SchemePredictor(graph=graph).on_time("buffer", route, np.array([HOUR_S]))[0] / start
    paper = SchemePredictor(graph=graph, model="paper").on_time("buffer", route, np.array([HOUR_S]))[0] / start
    error = 4.0 * np.sqrt(seen[2] * (1.0 - seen[2]) / 40_000)
    assert abs(ours[2] - seen[2]) < error + 0.001
    assert abs(paper[2] - seen[2]) > error + 0.002  # taking them for exponential shows


def test_bad_input_gets_a_clear_answer(chain_of_three):
    for availability in (0.0, -0.1, 1.1):
        with pytest.raises(ConfigurationError, match="availability"):
            FaultGraph.exponential(ends=[(0, 1)], brokers=[0.9, availability], links=0.99, period_s=1.0)
    with pytest.raises(ConfigurationError, match="repair rate"):
        Failures.by_rates(failure_per_s=1.0, repair_per_s=0.0)
    never = FaultGraph.exponential(ends=[(0, 1)], brokers=[1.0, 1.0], links=1.0, period_s=1.0)
    for scheme in SCHEMES[1:]:
        assert at_end(never, scheme) == 1.0
    apart = FaultGraph.exponential(ends=[(0, 1)], brokers=[0.9, 0.9, 0.9], links=0.9, period_s=60_000.0)
    for model in ("ours", "paper"):
        for scheme in SCHEMES:
            found = SchemePredictor(graph=apart, model=model).on_time(scheme, Route.of(apart, 0, [-1, 0, -1]), [1e9])
            assert found[0, 2] == 0.0, (model, scheme)
    route = Route.of(chain_of_three, 0, [-1, 0, 1])
    predictor = SchemePredictor(graph=chain_of_three)
    with pytest.raises(InputError, match="no scheme 'magic'"):
        predictor.on_time("magic", route, [1.0])
    with pytest.raises(InputError, match="lifetime"):
        predictor.on_time("buffer", route, [-1.0])
    with pytest.raises(InputError, match="no connection joins broker 2 to 0"):
        Route.of(chain_of_three, 0, [-1, 0, 0])
    with pytest.raises(InputError, match="cycle"):
        Route.of(FaultGraph.exponential(ends=[(1, 2)], brokers=[0.9] * 3, links=0.9, period_s=1.0), 0, [-1, 2, 1])
    with pytest.raises(ConfigurationError, match="refreshed every"):
        SchemePredictor(graph=chain_of_three, refresh_s=10.0, timeout_s=5.0)
    with pytest.raises(ConfigurationError, match="no model"):
        SchemePredictor(graph=chain_of_three, model="mm1")
    with pytest.raises(InputError, match="same brokers"):
        FaultGraph.exponential(ends=[(0, 1), (1, 0)], brokers=[0.9, 0.9], links=0.9, period_s=1.0)


def test_very_quick_repairs_are_as_good_as_none():
    graph = FaultGraph.exponential(ends=[(0, 1)], brokers=[0.9, 0.9], links=0.9, period_s=1e-3)
    assert at_end(graph, "buffer") == pytest.approx(0.9, abs=1e-6)
