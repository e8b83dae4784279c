"""Knowledge from measurements: distributions are recognised, and a scenario that was run and measured predicts the
same."""

import json
import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import InputError
from tidings.model.distributions import (
    DelayDistribution,
    Deterministic,
    Discrete,
    Empirical,
    Exponential,
    LogNormal,
    ShiftedGamma,
    Uniform,
    ks_distance,
)
from tidings.model.scenario import Scenario
from tidings.prediction import (
    PROFILE_TABLES,
    LinkKnowledge,
    Newcomer,
    admit,
    admit_measured,
    distribution_of_duration,
    fit_of_duration,
    from_network,
    from_profiles,
    imprecise,
    predict,
    predict_intervals,
    read_profiles,
)
from tidings.prediction._profiles import (
    _doubt,
    _gamma,
    _interval,
    _link,
    _size,
    _trees,
    _unfitting,
    lifetime_distribution,
)
from tidings.simulation import simulate
from tidings.statistics import PROBABILITIES


def measured(distribution, count=20_000, name="service", seed=1):
    """The columns that a profile has of durations of this distribution."""
    return profile_of(distribution.sample(np.random.default_rng(seed), count), name)


def profile_of(values, name="service"):
    """The columns that a profile has of these durations."""
    return {
        f"{name}_count": len(values),
        f"{name}_mean_s": float(values.mean()),
        f"{name}_scv": float(values.var() / values.mean() ** 2),
        f"{name}_min_ns": int(values.min() * 1e9),
        f"{name}_max_ns": int(values.max() * 1e9),
        f"{name}_quantiles_ns": (np.quantile(values, PROBABILITIES) * 1e9).astype(int).tolist(),
    }


@pytest.mark.parametrize("distribution", [Exponential(scale=0.1), Uniform(low=0.0, high=0.2), Deterministic(value=0.1)])
def test_simple_distributions_are_recognised(distribution) -> None:
    found = distribution_of_duration(measured(distribution), "service")
    assert type(found) is type(distribution)
    assert found.mean() == pytest.approx(distribution.mean(), rel=0.03)


def test_a_gamma_is_taken_where_the_quantiles_do_not_speak_against_it() -> None:
    row = measured(ShiftedGamma(shift=0.005, shape=3.0, scale=0.01))
    found = distribution_of_duration(row, "service")
    assert isinstance(found, ShiftedGamma)
    assert found.mean() == pytest.approx(row["service_mean_s"])
    assert found.scv() == pytest.approx(row["service_scv"])
    assert found.shift == pytest.approx(row["service_min_ns"] / 1e9)


def off(found: DelayDistribution, values: np.ndarray) -> float:
    """By how much P[duration <= t] is off, at most."""
    return ks_distance(found, values)


# Durations as radio links have them: two levels with a tail, retransmissions, and a heavy tail. A shifted gamma of the
# same mean, variance and least value is .17 to .60 off.
RADIO = {
    "two levels": lambda rng, n: np.where(rng.random(n) < 0.7, 0.008, 0.030) + rng.gamma(2.0, 0.0005, n),
    "retransmissions": lambda rng, n: 0.010 + 0.008 * rng.geometric(0.6, n) + rng.normal(0.0, 2e-4, n),
    "heavy tail": lambda rng, n: 0.005 + 0.003 * rng.pareto(1.5, n),
}


@pytest.mark.parametrize("name", RADIO)
def test_durations_that_no_formula_has_follow_their_quantiles(name: str) -> None:
    rng = np.random.default_rng(5)
    row, values = profile_of(RADIO[name](rng, 20_000)), RADIO[name](rng, 20_000)  # others than were measured
    fit = fit_of_duration(row, "service")
    assert fit is not None
    assert isinstance(fit.distribution, Empirical)
    assert fit.is_good
    gamma = _gamma(row["service_mean_s"], row["service_scv"] * row["service_mean_s"] ** 2, row["service_min_ns"] / 1e9)
    # Between two quantiles 5 % apart a straight line may be off by as much; two samples of 20,000 differ by .02.
    assert off(fit.distribution, values) < 0.05 < 0.15 < off(gamma, values)
    assert fit.distribution.mean() == pytest.approx(row["service_mean_s"], rel=0.02)


def test_steps_stay_steps_with_the_chances_measured() -> None:
    """20 or 60 ms, three times of ten the latter: the mean says so, where quantiles say between 25 and 35 %."""
    values = np.where(np.random.default_rng(1).random(20_000) < 0.3, 0.060, 0.020)
    fit = fit_of_duration(profile_of(values), "service")
    assert fit is not None
    assert isinstance(fit.distribution, Discrete)
    assert dict(fit.distribution.atoms()) == pytest.approx(
        {0.020: (values < 0.05).mean(), 0.060: (values > 0.05).mean()}
    )
    assert fit.distance <= fit.limit


def test_quantiles_of_another_version_are_refused() -> None:
    row = measured(LogNormal(median=0.04, sigma=0.6)) | {"service_quantiles_ns": [1, 2, 3]}
    with pytest.raises(InputError, match="run `tidings pipeline run` again"):
        distribution_of_duration(row, "service")


def test_delays_that_size_and_slowness_do_not_explain_are_named() -> None:
    """Half of the events of a link take ten times as long: its delays have two humps, a gamma has one."""
    rng = np.random.default_rng(3)
    size_kb = rng.uniform(0.5, 1.5, 20_000)
    two_speeds, one_speed = np.where(rng.random(20_000) < 0.5, 0.002, 0.020), rng.gamma(25.0, 0.011 / 25.0, 20_000)
    for slowness, is_named in ((two_speeds, True), (one_speed, False)):
        row = {**profile_of(size_kb * slowness, "delay"), "wait_max_ns": 10**6, "loss": 0.0, "propagation_s": 0.0}
        row |= {"slowness_mean_s_per_kb": float(slowness.mean()), "slowness_variance": float(slowness.var())}
        distance = _doubt(row, _link(row, 0, 1), Uniform(low=0.5, high=1.5))
        assert (distance is not None) == is_named
    (said,) = _unfitting({"a -> b": 0.21, "b -> c": None})
    assert said.kind == "fit"
    assert said.links == ("a -> b",)
    assert "0.21 off in probability on a -> b" in said.what
    assert _unfitting({"b -> c": None}) == ()


def test_what_was_never_seen_has_no_distribution() -> None:
    assert distribution_of_duration({"service_count": 0, "service_mean_s": None}, "service") is None


def test_intervals_keep_the_rate() -> None:
    for distribution in (
        Exponential(scale=2.0),
        Uniform(low=0.0, high=4.0),
        Deterministic(value=2.0),
        ShiftedGamma(shift=0.0, shape=4.0, scale=0.5),
    ):
        found = _interval(measured(distribution, name="gap"), 0.5)
        assert found.mean() == pytest.approx(2.0)
        assert found.scv() == pytest.approx(distribution.scv(), abs=0.03)


def test_lifetimes_and_sizes() -> None:
    assert lifetime_distribution({None: 3}) is None
    assert lifetime_distribution({10**9: 3}) == Deterministic(value=1.0)
    mixed = lifetime_distribution({10**9: 3, 3 * 10**9: 1})
    assert mixed.mean() == pytest.approx(1.5, rel=0.01)
    assert mixed.cdf(2.0) == pytest.approx(0.75, abs=0.01)
    size = {"size_mean_bytes": 500.0, "size_min_bytes": 200, "size_max_bytes": 800}
    assert _size(size) == Uniform(low=0.2, high=0.8)
    assert _size(size | {"size_mean_bytes": 300.0}) == Deterministic(value=0.3)


def test_equal_sizes_are_explained_by_the_wait() -> None:
    """Half a load of 100 ms transmissions, M/D/1: a mean wait of 50 ms; 20 ms of propagation come on top."""
    row = measured(Deterministic(value=0.12), name="delay") | {
        "loss": 0.0,
        "lost": 0,
        "bytes": 2000 * 20_000,
        "wait_mean_s": 0.05,
        "wait_max_ns": 10**9,
        "transmissions_per_s": 5.0,
        "slowness_mean_s_per_kb": None,
        "slowness_variance": None,
        "propagation_s": None,
    }
    found = _link(row, 0, 1)
    assert _link(row | {"transmissions_per_s": 1.25}, 0, 1, share=0.25) == found  # a quarter of them was seen
    assert found.slowness.mean() * 2.0 == pytest.approx(0.1)
    assert found.propagation.mean() == pytest.approx(0.02)
    assert _link(None, 0, 1).propagation == Deterministic(value=0.0)


def test_trees_are_of_links_that_were_used() -> None:
    """In a triangle nothing went from 0 straight to 2: that link is not free, it is in nobody's tree. What no used link
    leads to is still reached."""
    way = Deterministic(value=0.01)
    links = [
        LinkKnowledge(source=0, target=1, propagation=way, observed=50),
        LinkKnowledge(source=1, target=2, propagation=way, observed=50),
        LinkKnowledge(source=0, target=2, propagation=Deterministic(value=0.0)),
        LinkKnowledge(source=2, target=3, propagation=Deterministic(value=0.0)),
    ]
    (tree,) = _trees(["a", "b", "c", "d"], links, np.array([0.3, 0.4, 0.0, 0.0]), [0])
    assert tree.parent.tolist()[1:] == [0, 1, 2]


def test_missing_tables_are_named(tmp_path) -> None:
    with pytest.raises(InputError, match="no table 'publishers'"):
        read_profiles(tmp_path)
    with pytest.raises(InputError, match="'publishers' is missing"):
        from_profiles({})
    result = CliRunner().invoke(app, ["predict", str(tmp_path), "--seed", "2"])
    assert result.exit_code == 2
    assert "--seed needs a scenario" in result.stderr


class TestWithoutContent:
    """Knowledge of which subscriptions events match, as profiles have it; the truth is the scenario's content."""

    @pytest.fixture
    def network(self):
        text = """
duration = "100 s"
[topology]
kind = "explicit"
brokers = ["a", "b"]
links = [["a", "b"]]
[links]
propagation = "5 ms"
slowness = "60 ms/kB"
[[publishers]]
name = "p"
at = "a"
rate = "8 /s"
size = "1 kB"
lifetime = "300 ms"
attributes = { x = { values = [1, 2, 3, 4], weights = [4, 3, 2, 1] } }
[[subscribers]]
name = "one"
at = "b"
filter = "x = 1"
[[subscribers]]
name = "two"
at = "b"
filter = "x = 2"
[[subscribers]]
name = "few"
at = "a"
filter = "x >= 3"
[policies]
scheduling = "fifo"
expired = "forward"
"""
        return Scenario.parse(text).expand()

    def tables(self, network):
        rows = [{"subscription": each.id, "filter": str(each.filter)} for each in network.subscriptions]
        return {"subscriptions": pa.Table.from_pylist(rows)}

    @pytest.mark.parametrize("wanted", ["x = 2", "x < 3", "x > 2", "TRUE"])
    def test_a_newcomer_whose_matches_follow_from_others_is_judged_as_by_content(self, network, wanted: str) -> None:
        newcomer = Newcomer(broker="b", filter=wanted, max_delay="200 ms")
        by_content = admit(network, newcomer, at_least=0.5)
        found = admit_measured(self.tables(network), from_network(network), newcomer, at_least=0.5)
        assert (found.advice, found.reason) == (by_content.advice, by_content.reason)
        assert found.on_time_reliability == pytest.approx(by_content.on_time_reliability, abs=1e-9)
        assert found.mean_cost == pytest.approx(by_content.mean_cost, abs=1e-9)
        assert not [each for each in found.unmodelled if each.kind == "content"]

    def test_what_may_match_or_not_is_taken_to_and_said(self, network) -> None:
        """x = 4 is one of those that `few` has, and which ones profiles do not tell: 30 % of the events."""
        newcomer = Newcomer(broker="b", filter="x = 4")
        found = admit_measured(self.tables(network), from_network(network), newcomer)
        (said,) = [each for each in found.unmodelled if each.kind == "content"]
        assert said.what.startswith("whether 30.0 % of the events match newcomer")
        assert found.mean_cost >= admit(network, newcomer).mean_cost

    def test_a_newcomer_of_a_name_or_place_that_is_wrong_is_refused(self, network) -> None:
        knowledge = from_network(network)
        for wrong, said in (
            ({"broker": "z", "filter": "x = 1"}, "no broker 'z'"),
            ({"broker": "a", "filter": "x = 1", "id": "one"}, "is already in use"),
            ({"broker": "a", "filter": "x ="}, "newcomer 'newcomer'"),
        ):
            with pytest.raises(InputError, match=said):
                admit_measured(self.tables(network), knowledge, Newcomer(**wrong))

    def test_alpha_blurs_signatures_as_it_blurs_content(self, network) -> None:
        """Each value has a signature of its own but 3 and 4, which share one: without these both are the same."""
        subscriptions = tuple(each for each in network.subscriptions if each.id != "few")
        alone = msgspec.structs.replace(network, subscriptions=subscriptions)
        blurred = imprecise(from_network(alone), 2.0)
        (publisher,) = blurred.publishers
        # .4, .3 and what matches nobody, .3, to the power 2.
        assert sorted(publisher.content.weights.tolist()) == pytest.approx(sorted([0.16 / 0.34, 0.09 / 0.34]))
        assert imprecise(blurred, 1.0) is blurred
        with pytest.raises(InputError, match="must be above 0"):
            imprecise(blurred, 0.0)


SCENARIO = """
duration = "1500 s"
seed = 4
[topology]
kind = "explicit"
brokers = ["a", "b", "c"]
links = [["a", "b"], ["b", "c"]]
[links]
propagation = { distribution = "log-normal", median = "40 ms", sigma = 0.6 }
loss = 0.02
[brokers]
service = { distribution = "exponential", mean = "100 ms" }
[[publishers]]
name = "p"
at = ["a", "c"]
count = 2
rate = "3 /s"
lifetime = "1 s"
attributes = { x = { values = [1, 2, 3, 4], zipf = 1.0 } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x <= {most}"
max_delay = [{ delay = "400 ms" }, { delay = "2 s" }]
parameters = { most = { range = [1, 4] } }
[policies]
scheduling = "fifo"
expired = "forward"
"""


@pytest.mark.full
@pytest.mark.spark
def test_a_scenario_both_ways(spark, tmp_path) -> None:
    """Simulated, traced, profiled, and predicted from the profiles: R' within .03 of the prediction from the scenario
    (1,500 s give rates within 2 % and service times within 1.5 %, one standard error each), which nearly all intervals
    hold."""
    from tidings.pipeline import run_pipeline

    network = Scenario.parse(SCENARIO).expand()
    simulate(network, out=tmp_path / "trace")
    run_pipeline(spark, [tmp_path / "trace"], tmp_path / "profiles")
    tables = read_profiles(tmp_path / "profiles")
    assert set(PROFILE_TABLES) < set(tables)
    assert all(isinstance(table, pa.Table) for table in tables.values())
    knowledge = from_profiles(tables)
    told, found = predict(from_network(network)), predict(knowledge)
    order = [told.knowledge.number_of(name) for name in knowledge.subscriptions]
    assert found.reliability == pytest.approx(told.reliability[order], abs=0.03)
    assert found.brokers["b"].utilisation == pytest.approx(told.brokers["b"].utilisation, abs=0.03)
    assert not knowledge.drops_expired
    intervals = predict_intervals(knowledge, np.random.default_rng(1))
    covered = (intervals.low <= told.reliability[order]) & (told.reliability[order] <= intervals.high)
    assert covered.mean() >= 0.5
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "profiles"), "--json"])
    document = json.loads(result.stdout)
    assert [each["kind"] for each in document["unmodelled"]] == ["policies"]
    assert document["intervals"]["assuming"] == "independent observations"
    first = knowledge.subscriptions[0]
    assert document["subscribers"][first]["on_time_reliability"] == pytest.approx(found.reliability[0])
    low, high = document["intervals"]["subscribers"][first]
    assert low <= found.reliability[0] <= high
    assert math.isfinite(low)
    assert msgspec.json.encode(document)
