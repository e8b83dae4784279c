"""`tidings predict`: the document, the tables, and what is refused."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.cli._predict_tables import REASONS
from tidings.prediction import SAMPLED

SCENARIO = """
title = "two brokers"
duration = "400 s"
warmup = "20 s"
[topology]
kind = "explicit"
brokers = ["left", "right"]
links = [["left", "right"]]
[brokers]
service = { law = "exponential", mean = "100 ms" }
[[publishers]]
name = "source"
at = "left"
rate = "5 /s"
lifetime = "1 s"
attributes = { x = { values = [1, 2], weights = [3, 1] } }
[[subscribers]]
name = "all"
at = "right"
filter = "x >= 1"
[[subscribers]]
name = "none"
at = "right"
filter = "x = 3"
[policies]
scheduling = "fifo"
expired = "forward"
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO, "utf-8")
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, ["predict", *arguments])


def test_the_document(scenario) -> None:
    result = run(scenario, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["model"] == "ours"
    assert document["subscribers"]["all"]["on_time_reliability"] == pytest.approx(0.959572318, abs=1e-6)
    assert document["subscribers"]["all"]["path"] == ["left", "right"]
    assert document["subscribers"]["none"]["on_time_reliability"] is None
    assert document["brokers"]["right"] == pytest.approx(
        {"arrival_rate_per_s": 5.0, "utilisation": 0.5, "wait_s": 0.1}, abs=1e-6
    )
    assert document["links"]["left -> right"]["rate_per_s"] == pytest.approx(5.0)
    assert document["bottleneck"] in ("left", "right")


@pytest.mark.parametrize("model", ["mm1", "gg1"])
def test_the_papers_models(scenario, model) -> None:
    """Two exponential services and .2 s of waiting: Erlang-2 of rate 10 at .8 s."""
    document = json.loads(run(scenario, "--model", model, "--json").stdout)
    assert document["subscribers"]["all"]["on_time_reliability"] == pytest.approx(0.9969808363, abs=1e-6)


def test_the_table(scenario) -> None:
    result = run(scenario)
    assert result.exit_code == 0
    assert "96.0 %" in result.stdout
    assert "left right" in result.stdout


def test_alpha_blurs_the_content(scenario) -> None:
    """3 : 1 to the power 2 is 9 : 1, but a filter for all takes all of it; the rates tell."""
    Path(scenario).write_text(SCENARIO.replace("x = 3", "x = 2"), "utf-8")
    document = json.loads(run(scenario, "--alpha", "2", "--json").stdout)
    assert document["subscribers"]["none"]["matched_per_s"] == pytest.approx(0.5)
    assert run(scenario, "--alpha", "0").exit_code == 2


def test_what_becomes_of_expired_events_can_be_said(scenario) -> None:
    """At 200 ms to live 37 % of the events are expired at the link: dropped, they do not load the second broker."""
    Path(scenario).write_text(SCENARIO.replace('lifetime = "1 s"', 'lifetime = "200 ms"'), "utf-8")
    rates = {
        option: json.loads(run(scenario, "--expired", option, "--json").stdout)["links"]["left -> right"]["rate_per_s"]
        for option in ("drop", "forward")
    }
    assert rates["forward"] == pytest.approx(5.0)
    assert rates["drop"] == pytest.approx(5.0 * 0.632, abs=0.05)


def test_explain(scenario) -> None:
    result = run(scenario, "--explain", "all")
    assert result.exit_code == 0
    assert "The predicted on-time share of all is 96.0 %." in result.stdout
    document = json.loads(run(scenario, "--explain", "all", "--json").stdout)
    assert [hop["place"] for hop in document["explanation"]["journeys"][0]["hops"]] == [
        "left",
        "left -> right",
        "right",
    ]
    refused = run(scenario, "--explain", "al")
    assert refused.exit_code == 2
    assert "did you mean 'all'" in refused.stderr


def test_admit(scenario, tmp_path) -> None:
    newcomer = tmp_path / "newcomer.toml"
    newcomer.write_text('broker = "right"\nfilter = "x = 1"\nmax_delay = "500 ms"\n', "utf-8")
    result = run(scenario, "--admit", str(newcomer), "--at-least", "0.5")
    assert result.exit_code == 0
    assert result.stdout.startswith("admit: no subscription would fall below 50.0 %")
    document = json.loads(run(scenario, "--admit", str(newcomer), "--json").stdout)
    assert document["admission"]["advice"] == "refuse"
    assert document["admission"]["on_time_reliability"] == pytest.approx(0.7127, abs=1e-3)


def test_plot_compares_with_a_simulation(scenario, tmp_path) -> None:
    picture = tmp_path / "both.png"
    result = run(scenario, "--plot", str(picture), "--json")
    assert result.exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    simulated = json.loads(result.stdout)["simulated"]
    assert simulated["mean_absolute_error"] < 0.1  # one run of 380 s: standard error about .02
    assert run(scenario, "--plot", str(tmp_path / "both.txt")).exit_code == 2


def test_routes_that_formulas_do_not_know_are_sampled(scenario) -> None:
    Path(scenario).write_text(SCENARIO + 'routing = "spread"\n', "utf-8")
    result = run(scenario, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["sampled"]["because"] == ["routing"]
    refused = run(scenario, "--model", "gg1", "--json")
    assert refused.exit_code == 2
    assert "takes a sample" in json.loads(refused.stdout)["error"]["message"]


@pytest.mark.parametrize("option", [("--explain", "all"), ("--admit", "new.toml"), ("--plot", "drawn.png")])
def test_what_spark_cannot_do(scenario, option) -> None:
    result = run(scenario, "--spark", *option)
    assert result.exit_code == 2
    assert f"{option[0]} needs all subscriptions in one process" in result.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_on_spark(scenario, tmp_path) -> None:
    result = run(scenario, "--spark", "--out", str(tmp_path / "out"), "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["subscribers"]["count"] == 2
    assert document["subscribers"]["matched"] == 1
    assert document["least_reliable"] == {"all": pytest.approx(0.959572318, abs=1e-6)}
    assert document["brokers"]["right"]["utilisation"] == pytest.approx(0.5)
    assert document["unmodelled"] == []
    rows = {row["subscription"]: row for row in pq.read_table(tmp_path / "out" / "subscribers").to_pylist()}
    assert rows["none"]["on_time_reliability"] is None
    assert rows["all"]["path"] == ["left", "right"]
    shown = run(scenario, "--spark")
    assert shown.exit_code == 0, shown.stderr
    assert "2, of which 1 match something" in shown.stdout
    assert "96.0 %" in shown.stdout


@pytest.fixture
def by_deadline(tmp_path):
    """Links have queues, and send by expected benefit."""
    path = tmp_path / "by-deadline.toml"
    text = SCENARIO.replace("[brokers]", '[links]\nbandwidth = "80 kbit/s"\n[brokers]')
    path.write_text(text.replace('scheduling = "fifo"', 'scheduling = "eb"'), "utf-8")
    return str(path)


LEFT_OUT = 'links with the strategy "eb" (1 link): R is predicted as if links sent first in, first out'


def test_what_is_not_modelled_is_named(by_deadline, scenario, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert f"not modelled  {LEFT_OUT}" in run(by_deadline, "--alpha", "0.9").stdout
    assert f"not modelled: {LEFT_OUT}" in run(by_deadline, "--explain", "all").stdout
    assert "not modelled" not in run(scenario).stdout
    document = json.loads(run(by_deadline, "--alpha", "0.9", "--json").stdout)
    (found,) = document["unmodelled"]
    assert (found["kind"], found["links"]) == ("scheduling", ["left -> right"])
    assert document["subscribers"]["all"]["unmodelled"] == ["scheduling"]
    assert json.loads(run(scenario, "--json").stdout)["unmodelled"] == []


def test_where_distributions_are_not_good_there_is_a_sample(by_deadline, scenario, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run(by_deadline).stdout
    assert "not modelled" not in shown
    assert "since links do not send first in, first out" in shown
    document = json.loads(run(by_deadline, "--json").stdout)
    assert document["unmodelled"] == []
    assert document["sampled"]["because"] == ["scheduling"]
    row = document["subscribers"]["all"]
    assert row["interval"]["low"] <= row["on_time_reliability"] <= row["interval"]["high"]
    assert json.loads(run(scenario, "--json").stdout)["sampled"] is None


def test_advice_on_a_newcomer_names_what_is_not_modelled(by_deadline, tmp_path) -> None:
    newcomer = tmp_path / "newcomer.toml"
    newcomer.write_text('broker = "right"\nfilter = "x = 1"\n', "utf-8")
    assert f"not modelled: {LEFT_OUT}" in run(by_deadline, "--admit", str(newcomer)).stdout


def test_a_newcomer_with_a_string_in_double_quotes_is_warned(scenario, tmp_path) -> None:
    newcomer = tmp_path / "newcomer.toml"
    newcomer.write_text('broker = "right"\nfilter = \'x = "one"\'\n', "utf-8")
    result = run(scenario, "--admit", str(newcomer))
    assert result.exit_code == 0
    assert 'warning: "one" is compared as an attribute' in result.stderr


def test_there_are_words_for_every_reason_to_take_a_sample() -> None:
    assert set(REASONS) == SAMPLED - {"convergence"} | {"dropping"}
