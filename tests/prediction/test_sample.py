"""Predictions by a sample: where distributions are not good enough, what they say, and how sure they are."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tidings.model.scenario import Network, Scenario
from tidings.prediction import explain, from_network, predict, predict_network
from tidings.prediction._paths import PathDelays
from tidings.prediction._sample import sampled_or_formula
from tidings.simulation import simulate

EXAMPLES = Path(__file__).parents[2] / "examples"


def network(*policies: str, load: float = 0.7, departures: str = "", more: str = "") -> Network:
    """Three links in a row, 100 ms an event, two publishers of the same rate, deadlines of .5 and 1.5 s."""
    lines = "\n".join(policies)
    departures = departures or f'rate = "{5.0 * load} /s"'
    return Scenario.parse(f"""
        duration = "2000 s"
        warmup = "20 s"
        links.slowness = {{ distribution = "exponential", mean = "100 ms/kB" }}
        {more}

        [topology]
        kind = "explicit"
        brokers = ["a", "b", "c", "d"]
        links = [["a", "b"], ["b", "c"], ["c", "d"]]

        [[publishers]]
        name = "p"
        at = "a"
        count = 2
        {departures}
        size = "1 kB"
        attributes.x = {{ distribution = "uniform", low = 0, high = 1 }}

        [[subscribers]]
        name = "urgent"
        at = "d"
        filter = "x < 0.4"
        max_delay = "500 ms"
        price = 3

        [[subscribers]]
        name = "bulk"
        at = "d"
        filter = "x >= 0.4"
        max_delay = "1500 ms"

        [policies]
        {lines}
    """).expand()


def simulated(of: Network) -> np.ndarray:
    """R over 25 runs of 40,000 events, under seeds that nothing else has: as many draws of phases."""
    rate_per_s = sum(publisher.rate_per_s for publisher in of.publishers)
    runs = [
        simulate(msgspec.structs.replace(of, seed=seed, duration_s=20.0 + 40_000 / rate_per_s))
        for seed in range(700, 725)
    ]
    return np.mean([[row.on_time_reliability for row in run.subscribers.values()] for run in runs], axis=0)


BURSTS = '{ distribution = "shifted-gamma", shift = "0 s", shape = 0.125, scale = "2.4 s" }'
FIFO = ('scheduling = "fifo"', 'expired = "forward"')
LONG_OUTAGES = network(
    'scheduling = "eb"',
    'expired = "drop"',
    'ordering = "P-0.05-25"',
    'faults = "bypass+buffer"',
    load=0.6,
    more='links.failures = { up = "90 s", down = { distribution = "weibull", shape = 0.6, scale = "3 s" } }',
)
CASES = {
    "lookahead": network('scheduling = "lookahead"', load=0.9),
    "eb in overload": network('scheduling = "eb"', load=1.2),
    "triage in overload": network('scheduling = "triage"', load=1.2),
    "first in first out, dropping in overload": network('scheduling = "fifo"', 'expired = "drop"', load=1.2),
    "order": network(*FIFO, 'ordering = "P-0.05-25"'),
    "regular": network(*FIFO, departures='interval = "300 ms"'),
    "bursts": network(
        *FIFO, departures='interval = { distribution = "shifted-gamma", shift = "0 s", shape = 0.125, scale = "2.4 s" }'
    ),
    # Outages are rare and long, so samples differ by .026 (a standard deviation): the seed is one near the middle.
    "order, failures with Weibull repairs, deadlines and a strategy": msgspec.structs.replace(
        LONG_OUTAGES, seed=LONG_OUTAGES.seed + 2
    ),
    "failures": network(
        *FIFO, 'faults = "bypass+buffer"', load=0.3, more='links.failures = { availability = 0.9, period = "100 s" }'
    ),
}


class TestHowGoodItIs:
    # 12,000 events of two subscriptions; the intervals of 95 % are a few hundredths wide, and have to hold their
    # truth, which a million events know to about .005. In a fixed sample nothing is left to chance.
    @pytest.mark.parametrize("name", CASES)
    def test_a_sample_is_near_a_long_run(self, name: str) -> None:
        answer, truth = predict_network(CASES[name]), simulated(CASES[name])
        assert answer.sample is not None
        assert np.abs(answer.reliability - truth).max() < 0.03
        for interval, share in zip(answer.sample.intervals, truth, strict=True):
            assert interval.low - 0.01 <= share <= interval.high + 0.01

    def test_deadline_scheduling_is_not_taken_for_first_in_first_out(self) -> None:
        scenario = (EXAMPLES / "shops.toml").read_text().replace('scheduling = "fifo"', 'scheduling = "eb"')
        shops = Scenario.parse(scenario).expand()
        answer = predict_network(shops)
        till = list(answer.knowledge.subscriptions).index("till-10")
        assert answer.by_formulas[till] < 0.6  # first in, first out
        assert answer.reliability[till] > 0.7


class TestWhenThereIsOne:
    def test_not_where_distributions_are_good(self) -> None:
        answer = predict_network(network(*FIFO))
        assert answer.sample is None
        assert answer.left_out_by_formulas == ()
        np.testing.assert_array_equal(answer.reliability, predict(from_network(network(*FIFO))).reliability)

    def test_not_behind_an_overload_that_forwards_everything(self) -> None:
        answer = predict_network(network('scheduling = "eb"', 'expired = "forward"', load=1.2))
        assert answer.sample is None
        assert "overload" in {each.kind for each in answer.unmodelled}

    def test_not_for_the_papers_models_or_content_that_is_half_known(self) -> None:
        busy = network('scheduling = "eb"')
        assert predict_network(busy, model="gg1").sample is None
        assert predict_network(busy, alpha=0.5).sample is None

    def test_what_it_has_is_not_left_out(self) -> None:
        answer = predict_network(network('scheduling = "eb"', load=1.2))
        assert answer.left_out_by_formulas == ("dropping", "scheduling")
        assert answer.unmodelled == ()
        row = answer.subscribers["urgent"]
        assert row.unmodelled == ()
        assert row.interval is not None
        assert row.mean_delay_s is None
        assert answer.links["a -> b"].wait_s is None
        assert 0.9 < answer.links["a -> b"].utilisation <= 1.0
        # A link of 100 ms an event that is always busy sends ten a second.
        assert answer.links["a -> b"].rate_per_s == pytest.approx(10.0 * answer.links["a -> b"].utilisation)

    def test_the_same_network_gives_the_same_answer(self) -> None:
        one, other = (predict_network(network('scheduling = "eb"')) for _ in range(2))
        np.testing.assert_array_equal(one.reliability, other.reliability)

    def test_a_simulation_is_no_part_of_it(self) -> None:
        busy = network('scheduling = "eb"', load=0.95)
        run = simulate(msgspec.structs.replace(busy, duration_s=100.0, warmup_s=0.0))
        sampled = predict_network(busy).sample
        assert sampled is not None
        assert sampled.reliability[0] != run.subscribers["urgent"].on_time_reliability

    def test_who_is_too_rare_for_a_sample_has_what_distributions_say(self) -> None:
        np.testing.assert_array_equal(
            sampled_or_formula(np.array([np.nan, 0.5, np.nan]), np.array([0.7, 0.9, np.nan])), [0.7, 0.5, np.nan]
        )

    def test_explanations_are_by_distributions(self) -> None:
        answer = predict_network(network('scheduling = "eb"'))
        told = explain(answer, "urgent")
        by_formulas = predict(answer.knowledge)  # to the end of its search, which a sample does not need
        assert told.on_time_reliability == pytest.approx(by_formulas.reliability[0], abs=1e-3)
        assert {each.kind for each in told.unmodelled} == {"scheduling"}


def test_a_search_that_was_given_up_is_named() -> None:
    knowledge = from_network(network('scheduling = "fifo"', 'expired = "drop"', load=1.2))
    given_up = predict(knowledge, rounds=2)
    assert not given_up.has_converged
    assert "convergence" in {each.kind for each in given_up.unmodelled}
    assert "convergence" not in {each.kind for each in predict(replace(knowledge, drops_expired=False)).unmodelled}


def test_a_search_that_was_given_up_at_a_load_of_nothing_needs_a_sample() -> None:
    """On its way it may drop everything; then no link looked busy, and nothing was sampled."""
    given_up = predict(from_network(network('scheduling = "eb"', load=1.2)), rounds=2)
    idle = replace(
        given_up.stations,
        rate_per_s=0.0 * given_up.stations.rate_per_s,
        total_per_s=0.0 * given_up.stations.total_per_s,
    )
    plain = replace(given_up.waits, sigma=0.0 * given_up.waits.sigma, idle=np.ones(given_up.waits.sigma.shape))
    empty = replace(given_up, stations=idle, waits=plain, delays=PathDelays(given_up.layout, idle, plain))
    assert empty.delays.is_whole
    assert empty.left_out_by_formulas == ("dropping", "scheduling")
    assert empty.needs_sample


class TestHowFarItIsOff:
    def test_by_a_sample_it_is_what_its_intervals_say(self) -> None:
        answer = predict_network(network('scheduling = "eb"', load=0.9))
        assert answer.sample is not None
        assert answer.expected_error == pytest.approx(0.407 * answer.sample.mean_half_width)

    def test_by_formulas_it_is_known_from_other_networks(self) -> None:
        assert predict_network(network(*FIFO)).expected_error == pytest.approx(0.01)

    def test_nobody_knows_where_something_is_left_out(self) -> None:
        assert predict(from_network(network('scheduling = "eb"'))).expected_error is None

    def test_a_sample_that_is_unsure_is_taken_again(self) -> None:
        """Bursts of scv 8 at load .67: 12,000 events would leave intervals of about .1."""
        bursty = predict_network(CASES["bursts"])
        assert bursty.sample is not None
        assert bursty.sample.events > 50_000
        assert bursty.sample.mean_half_width < 0.06


def test_publishers_that_move_are_sampled_where_they_move_to() -> None:
    """All subscribers are at the far end: who moves there is on time."""
    text = """
        duration = "2000 s"
        links.slowness = { distribution = "exponential", mean = "100 ms/kB" }
        [topology]
        kind = "explicit"
        brokers = ["a", "b", "c"]
        links = [["a", "b"], ["b", "c"]]
        direction = "both"
        [[publishers]]
        name = "p"
        at = "a"
        rate = "3 /s"
        size = "1 kB"
        [[subscribers]]
        name = "s"
        at = "c"
        filter = "TRUE"
        max_delay = "150 ms"
        [policies]
        relocation = "%s"
        """
    stays, moves = (predict_network(Scenario.parse(text % name).expand()) for name in ("off", "pop"))
    assert moves.sample is not None
    assert stays.subscribers["s"].on_time_reliability < 0.5 < moves.subscribers["s"].on_time_reliability
