"""Queues and failures in one R': check values, sums of delays, costs, and failures that were measured."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import ConfigurationError, InputError
from tidings.faults import FaultGraph, Route, SchemePredictor
from tidings.model.distributions import Exponential, LogNormal, Uniform, Weibull
from tidings.model.failures import Failures
from tidings.model.scenario import Scenario
from tidings.model.tables import table_place
from tidings.model.trace import TABLES
from tidings.prediction import (
    Failing,
    failing_network,
    failing_profiles,
    from_network,
    predict,
    predict_schemes,
    transitions_of_outages,
)
from tidings.simulation import simulate
from tidings.statistics import fit_durations

DATA = Path(os.environ.get("TIDINGS_DATA", Path(__file__).parents[3] / "shared" / "data"))
SECOND = 10**9

PATH = """
title = "the path of the check values"
duration = "14 d"
[topology]
kind = "explicit"
brokers = ["b0", "b1", "b2"]
links = [["b0", "b1"], ["b1", "b2"]]
[links]
propagation = "0 s"
failures = { availability = 0.99, period = "60000 s" }
[[broker]]
name = "b0"
failures = { availability = 0.92, period = "60000 s" }
[[broker]]
name = "b1"
failures = { availability = 0.94, period = "60000 s" }
[[broker]]
name = "b2"
failures = { availability = 0.91, period = "60000 s" }
[[publishers]]
name = "p"
at = "b0"
rate = "1 /min"
lifetime = "1 h"
attributes = { x = 1 }
[[subscribers]]
name = "s"
at = "b2"
filter = "x = 1"
[[subscribers]]
name = "nobody"
at = "b2"
filter = "x = 2"
"""


def at_once(network, **changes):
    """Failures of a network whose subscriptions are refreshed all the time."""
    known = failing_network(network)
    given = {"refresh_s": 0.0, "timeout_s": math.inf} | changes
    return Failing(brokers=known.brokers, links=known.links, components=known.components, **given)


@pytest.fixture(scope="module")
def path():
    return Scenario.parse(PATH).expand()


@pytest.mark.parametrize("model", ["ours", "paper"])
def test_check_values(path, model):
    found = predict_schemes(predict(from_network(path)), at_once(path), model=model)
    wanted = {"static": 0.0, "periodic": 0.771307, "buffer": 0.856083, "bypass": 0.771307, "bypass+buffer": 0.856083}
    for scheme, value in wanted.items():
        assert found[scheme].reliability[0] == pytest.approx(value, abs=1e-6), scheme
        assert math.isnan(found[scheme].reliability[1])  # nobody publishes what it wants


def test_what_it_costs(path):
    soft = replace(failing_network(path), has_durable_tables=False)
    found = predict_schemes(predict(from_network(path)), soft)
    none, periodic, buffer, both = (found[name].overhead for name in ("static", "periodic", "buffer", "bypass+buffer"))
    assert none.messages == 0.0
    assert periodic.data == pytest.approx(0.92 + 0.92 * 0.99 * 0.94, abs=0.02)  # over two links, if it got there
    assert periodic.acknowledgements == periodic.retries == periodic.link_state == 0.0
    assert periodic.refreshes == pytest.approx(0.91 * 2 / 600.0 * 60.0)  # two links every ten minutes, if it is up
    assert buffer.acknowledgements == buffer.data == pytest.approx(0.92 * (0.977 + 0.925), abs=0.02)
    blocked = 0.92 * (1.0 - 0.99 * 0.94) + 0.94 * (1.0 - 0.99 * 0.91)
    assert buffer.retries == pytest.approx(60.0 * blocked)  # once a second, per event of a minute
    noticed = 2.0 * (4 + 4) / 60_000.0  # failures and repairs: four ends of connections, four neighbours of brokers
    assert both.link_state == pytest.approx(60.0 * noticed * (2 * 2 - 3 + 1))
    # Little: rate times the time to get from one broker to the next, within the lifetime.
    graph = FaultGraph.exponential(ends=[(0, 1), (1, 2)], brokers=[0.92, 0.94, 0.91], links=0.99, period_s=60_000.0)
    times = np.linspace(0.0, 3_600.0, 2_001)
    arrived = SchemePredictor(graph=graph, refresh_s=600.0).on_time("buffer", Route.of(graph, 0, [-1, 0, 1]), times)
    stored = np.trapezoid(arrived[:, 0] - arrived[:, 2], times) / 60.0
    assert buffer.stored_mean_events == pytest.approx(stored, rel=0.01)
    assert buffer.stored_peak_events == pytest.approx(60.0)
    assert buffer.stored_mean_kb == pytest.approx(buffer.stored_mean_events)  # of 1 kB each


def test_queues_and_outages_add_up():
    """Two M/M/1 brokers take Erlang-2 of rate 5; what outages add is convolved with that."""
    text = """
    duration = "1 h"
    topology = { kind = "explicit", brokers = ["left", "right"], links = [["left", "right"]] }
    brokers.service = { distribution = "exponential", mean = "100 ms" }
    brokers.failures = { availability = 0.8, period = "4 s" }
    links.propagation = "0 s"
    publishers = [{ name = "p", at = "left", rate = "5 /s", lifetime = "1 s", attributes = { x = 1 } }]
    subscribers = [{ name = "s", at = "right", filter = "x = 1" }]
    policies.expired = "forward"
    """
    network = Scenario.parse(text).expand()
    found = predict_schemes(predict(from_network(network)), at_once(network))
    graph = FaultGraph.exponential(ends=[(0, 1)], brokers=[0.8, 0.8], links=1.0, period_s=4.0)
    route, predictor = Route.of(graph, 0, [-1, 0]), SchemePredictor(graph=graph)
    q = np.linspace(0.0, 1.0, 4_001)
    density = 25.0 * q * np.exp(-5.0 * q)
    by_outages = predictor.on_time("buffer", route, 1.0 - q)[:, 1]
    exact = float(np.trapezoid(density * by_outages, q))
    assert found["buffer"].reliability[0] == pytest.approx(exact, abs=5e-4)
    queued = 1.0 - 6.0 * math.exp(-5.0)
    assert found["periodic"].reliability[0] == pytest.approx(0.64 * queued, abs=1e-6)
    assert found["bypass"].reliability[0] == pytest.approx(0.64 * queued, abs=1e-6)


def test_lifetimes_that_vary():
    varied = Scenario.parse(
        PATH.replace('lifetime = "1 h"', 'lifetime = { distribution = "uniform", low = "1 s", high = "2 h" }')
    )
    network = varied.expand()
    graph = FaultGraph.exponential(ends=[(0, 1), (1, 2)], brokers=[0.92, 0.94, 0.91], links=0.99, period_s=60_000.0)
    lives = Uniform(low=1.0, high=7_200.0).quantile((np.arange(400) + 0.5) / 400)
    exact = SchemePredictor(graph=graph).on_time("buffer", Route.of(graph, 0, [-1, 0, 1]), lives)[:, 2].mean()
    found = predict_schemes(predict(from_network(network)), at_once(network), schemes=["buffer"])
    assert found["buffer"].reliability[0] == pytest.approx(exact, abs=1e-4)
    endless = Scenario.parse(PATH.replace('lifetime = "1 h"\n', "")).expand()
    found = predict_schemes(predict(from_network(endless)), at_once(endless), schemes=["buffer"])
    assert found["buffer"].reliability[0] == pytest.approx(0.92)
    assert found["buffer"].overhead.stored_mean_events is None


def test_directions_that_fail_apart():
    apart = Scenario.parse(
        PATH.replace('"60000 s" }\n[[broker]]', '"60000 s", together = false }\n[[broker]]', 1)
    ).expand()
    answer = predict(from_network(apart))
    found = predict_schemes(answer, at_once(apart), schemes=["periodic", "buffer"])
    assert found["buffer"].reliability[0] == pytest.approx(0.856083, abs=1e-6)  # one direction is used
    with pytest.raises(ConfigurationError, match="directions of b0 -> b1 fail separately"):
        predict_schemes(answer, at_once(apart), schemes=["bypass"])


def test_what_is_refused():
    sound = Scenario.parse(PATH.replace('failures = { availability = 0.99, period = "60000 s" }', "")).expand()
    with pytest.raises(InputError, match="nothing fails here"):
        Failing(brokers=(None,) * 3, links=(None,) * 4, components=(0, 0, 1, 1))
    known = failing_network(sound)
    with pytest.raises(InputError, match="2 brokers, but the network has 3"):
        predict_schemes(
            predict(from_network(sound)),
            Failing(brokers=known.brokers[:2], links=known.links, components=known.components),
        )


def test_against_the_simulator():
    """Six brokers, 600 days: the components alone, 860 cycles each, make a noise of about .003 in every scheme."""
    text = """
    seed = 5
    duration = "600 d"
    topology = { kind = "random-graph", brokers = 6, mean_degree = 3 }
    brokers.failures = { availability = { distribution = "uniform", low = 0.9, high = 0.95 }, period = "60000 s" }
    links.failures = { availability = 0.99, period = "60000 s" }
    links.propagation = "20 ms"
    publishers = [{ name = "p", count = 3, at = "random", rate = "1 /h", lifetime = "1 h", attributes = { x = 1 } }]
    subscribers = [{ name = "s", count = 6, at = "random", filter = "x = 1" }]
    policies.faults = { scheme = "SCHEME", refresh = "600 s", tables = "TABLES" }
    """
    cases = (("periodic", "volatile"), ("bypass+buffer", "volatile"), ("static", "durable"), ("buffer", "durable"))
    for scheme, tables in cases:
        network = Scenario.parse(text.replace("SCHEME", scheme).replace("TABLES", tables)).expand()
        found = predict_schemes(predict(from_network(network)), failing_network(network), schemes=[scheme])
        result = simulate(network)
        seen = np.array([row.on_time_reliability for row in result.subscribers.values()])
        assert np.abs(found[scheme].reliability - seen).max() < 0.015, scheme
        sent, cost = result.faults.messages, found[scheme].overhead
        if scheme == "static":
            assert cost.refreshes == sent["refresh"] == 0
            continue
        assert cost.refreshes == pytest.approx(sent["refresh"] / result.published, rel=0.1)
        if scheme == "periodic":
            assert cost.data == pytest.approx(sent["data"] / result.published, rel=0.05)
        else:
            assert cost.acknowledgements == pytest.approx(sent["ack"] / result.published, rel=0.05)
            assert cost.link_state == pytest.approx(sent["link-state"] / result.published, rel=0.15)


def component(name, moves, end_s):
    """A row of the table `components`, as far as failures are taken from it, by its transitions."""
    downs = [at for at, up in moves if not up]
    ups = [at for at, up in moves if up]
    down_s = sum(up - down for down, up in zip(downs, ups, strict=True))
    return {
        "kind": "broker",
        "source": name,
        "target": None,
        "first_ns": 0,
        "last_ns": round(end_s * SECOND),
        "failures": len(downs),
        "failure_rate_per_s": len(downs) / (end_s - down_s),
        "repair_rate_per_s": len(ups) / down_s if ups else None,
    }


def test_measured_failures_have_the_shape_and_the_mean_of_what_was_seen():
    rng = np.random.default_rng(2)
    up, down = Weibull(shape=0.7, scale=8_000.0), LogNormal(median=600.0, sigma=1.1)
    now, moves = 0.0, []
    for _ in range(800):
        now += up.sample(rng)
        moves.append((now, False))
        now += down.sample(rng)
        moves.append((now, True))
    few = [(1_000.0, False), (2_000.0, True)]
    rows = [component("often", moves, now), component("once", few, now)]
    outages = [("often", begin, end) for (begin, _), (end, _) in zip(moves[::2], moves[1::2], strict=True)]
    outages.append(("once", 1_000.0, 2_000.0))
    names, begins, ends = zip(*outages, strict=True)
    topology = [{"kind": "broker", "source": name, "target": None} for name in ("often", "once", "never")]
    tables = {
        "components": pa.Table.from_pylist(rows),
        "transitions": transitions_of_outages(names, begins, ends),
        "topology": pa.Table.from_pylist(
            topology, schema=pa.schema([("kind", pa.string()), ("source", pa.string()), ("target", pa.string())])
        ),
    }
    often, once, never = failing_profiles(tables).brokers
    assert never is None
    assert once == Failures.by_rates(
        failure_per_s=rows[1]["failure_rate_per_s"], repair_per_s=rows[1]["repair_rate_per_s"]
    )
    assert isinstance(often.up, Weibull)
    assert isinstance(often.down, LogNormal)
    assert often.up.shape == pytest.approx(0.7, rel=0.1)
    assert often.down.sigma == pytest.approx(1.1, rel=0.1)
    assert often.failure_rate_per_s == pytest.approx(rows[0]["failure_rate_per_s"])
    assert often.repair_rate_per_s == pytest.approx(rows[0]["repair_rate_per_s"])


def test_outages_become_transitions():
    found = transitions_of_outages(
        ["a", "b", "a", "a"], [10.0, 5.0, 12.0, 30.0], [20.0, None, 25.0, math.nan], origin_s=5.0
    )
    assert found.schema.equals(TABLES["transitions"])
    assert [(row["source"], row["at_ns"] // SECOND, row["up"]) for row in found.to_pylist()] == [
        ("b", 0, False),
        ("a", 5, False),
        ("a", 20, True),  # two that overlap are one
        ("a", 25, False),
    ]
    with pytest.raises(InputError, match="before it went down"):
        transitions_of_outages(["a"], [10.0], [9.0])
    with pytest.raises(InputError, match="give one of each"):
        transitions_of_outages(["a"], [10.0], [])


def real_outages():
    place = DATA / "upptime_availability" / "outages.csv.gz"
    if not place.is_file():
        pytest.skip(f"{place} is absent; set TIDINGS_DATA to the directory that holds it")
    import pandas as pd

    return pd.read_csv(place).query("server_side == 1")


def test_repairs_of_real_services_are_log_normal():
    """Checks every five minutes at best; 403 and 429 are blocking, not failure, and are left out."""
    own = real_outages().query("source == 'dhbern' and duration_s > 0")
    best, second, *_ = fit_durations(own.duration_s, own.right_censored == 0, check_s=300.0)
    assert isinstance(best.distribution, LogNormal)
    assert second.criterion - best.criterion > 100.0
    assert best.distribution.median == pytest.approx(1_300.0, abs=30.0)
    assert best.distribution.sigma == pytest.approx(0.89, abs=0.03)
    known = own.query("prior_left_truncated == 0 and prior_uptime_s > 0")  # others have an unknown age
    up = fit_durations(known.prior_uptime_s, np.ones(len(known), bool), check_s=300.0)[0].distribution
    assert isinstance(up, LogNormal)
    assert not isinstance(up, Exponential)
    assert up.sigma > 2.0  # failures come in bunches


@pytest.mark.full
@pytest.mark.spark
def test_from_real_outages_through_the_pipeline(spark, tmp_path):
    """A network that was run, with outages of three real services as those of its brokers, measured and predicted."""
    from tidings.pipeline import run_pipeline

    outages = real_outages().query("source == 'dhbern'")
    hosts = outages.host.value_counts().index[:3].tolist()
    own = outages[outages.host.isin(hosts)]
    broker = {host: f"b{number}" for number, host in enumerate(hosts)}
    start_s = float(own.down_s.min()) - 86_400.0
    days = math.ceil((float(own.up_s.max()) - start_s) / 86_400.0) + 1
    text = "\n".join(line for line in PATH.splitlines() if not line.startswith("failures"))
    text = text.replace('duration = "14 d"', f'duration = "{days} d"').replace("1 /min", "4 /d")
    simulate(Scenario.parse(text).expand(), out=tmp_path / "trace")
    table = transitions_of_outages(
        [broker[host] for host in own.host], own.down_s.tolist(), own.up_s.tolist(), origin_s=start_s
    )
    (tmp_path / "trace" / "transitions").mkdir(exist_ok=True)
    pq.write_table(table, tmp_path / "trace" / "transitions" / "outages.parquet")
    run_pipeline(spark, [tmp_path / "trace"], tmp_path / "profiles")
    arguments = [str(tmp_path / "profiles"), "--compare-schemes", "--checked-every", "300 s", "--json"]
    result = CliRunner().invoke(app, ["predict", *arguments])
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)["subscribers"]["s"]["schemes"]
    up = pq.read_table(table_place(tmp_path / "profiles", "components")).to_pylist()
    available = math.prod(each["availability"] for each in up if each["kind"] == "broker")
    # Brokers keep their tables on disk: what periodic refreshes lose is what meets a broker that is down.
    assert row["periodic"]["on_time_reliability"] == pytest.approx(available, rel=1e-9)
    assert row["periodic"]["on_time_reliability"] < row["buffer"]["on_time_reliability"] < 1.0
