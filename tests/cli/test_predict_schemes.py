"""`tidings predict --scheme` and `--compare-schemes`: the document, the tables, and what is refused."""

import json

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app

SCENARIO = """
title = "a square that fails"
duration = "14 d"
[topology]
kind = "explicit"
brokers = ["a", "b", "c", "d"]
links = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "a"]]
[brokers]
failures = { availability = 0.92, period = "60000 s" }
[links]
propagation = "20 ms"
failures = { availability = 0.99, period = "60000 s" }
[[publishers]]
name = "p"
at = "a"
rate = "1 /min"
lifetime = "1 h"
attributes = { x = 1 }
[[subscribers]]
name = "near"
at = "a"
filter = "x = 1"
[[subscribers]]
name = "far"
at = "c"
filter = "x = 1"
[[subscribers]]
name = "nobody"
at = "c"
filter = "x = 2"
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "square.toml"
    path.write_text(SCENARIO, "utf-8")
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, ["predict", *arguments])


def test_all_schemes_as_a_document(scenario):
    result = run(scenario, "--compare-schemes", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert list(document["schemes"]) == ["static", "periodic", "buffer", "bypass", "bypass+buffer"]
    far = {name: row["on_time_reliability"] for name, row in document["subscribers"]["far"]["schemes"].items()}
    assert 0.0 < far["static"] == far["periodic"] < min(far["buffer"], far["bypass"])
    assert max(far["buffer"], far["bypass"]) < far["bypass+buffer"] < 0.92
    assert document["subscribers"]["far"]["ranking"][0] == "bypass+buffer"
    assert set(document["subscribers"]["far"]["ranking"][-2:]) == {"static", "periodic"}
    near = document["subscribers"]["near"]
    assert near["suffices"] != "bypass+buffer"  # at the publisher's own broker there is nothing to go around
    assert near["buffer_suffices"]
    nobody = document["subscribers"]["nobody"]
    assert nobody["schemes"]["buffer"]["on_time_reliability"] is None
    assert "ranking" not in nobody
    cost = document["schemes"]["bypass+buffer"]["overhead"]
    parts = ("data", "acknowledgements", "retries", "refreshes", "link_state")
    assert cost["messages"] == pytest.approx(sum(cost[part] for part in parts))
    assert min(cost[part] for part in parts) > 0.0
    assert 0.0 < cost["stored_mean_events"] < cost["stored_peak_events"]


def test_tables_that_a_crash_empties(tmp_path):
    path = tmp_path / "soft.toml"
    path.write_text(SCENARIO + '[policies]\nfaults = { tables = "volatile" }\n', "utf-8")
    document = json.loads(run(str(path), "--compare-schemes", "--json").stdout)
    far = {name: row["on_time_reliability"] for name, row in document["subscribers"]["far"]["schemes"].items()}
    assert far["static"] == 0.0 < far["periodic"]
    assert document["subscribers"]["far"]["ranking"][-1] == "static"


@pytest.mark.parametrize("tables", ["durable", "volatile"])
def test_one_scheme_by_both_models(tmp_path, tables):
    path = tmp_path / "square.toml"
    path.write_text(SCENARIO + f'[policies]\nfaults = {{ tables = "{tables}" }}\n', "utf-8")
    scenario = str(path)
    found = {}
    for model in ("ours", "paper"):
        result = run(scenario, "--scheme", "bypass", "--model", model, "--json")
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert list(document["schemes"]) == ["bypass"]
        found[model] = document["subscribers"]["far"]["schemes"]["bypass"]["on_time_reliability"]
    # Two disjoint paths are all there are, so the paper's form is exact here, but for the empty tables.
    inner = 0.99**2 * 0.92
    assert found["paper"] == pytest.approx(0.92**2 * (1.0 - (1.0 - inner) ** 2), abs=1e-9)
    lost = found["paper"] - found["ours"]
    assert lost == pytest.approx(0.0, abs=1e-9) if tables == "durable" else 0.0 < lost < 0.02


def test_as_text(scenario):
    result = run(scenario, "--compare-schemes")
    assert result.exit_code == 0, result.output
    assert "buffering alone suffices (within 0.005 of the best) for 1 of 2 subscribers" in result.stdout
    result = run(scenario, "--scheme", "buffer")
    assert result.exit_code == 0, result.output
    assert "scheme   buffer (model ours)" in result.stdout
    assert "nobody: –" in result.stdout
    assert "not modelled" not in result.stdout


def test_what_is_not_modelled_is_named(tmp_path):
    path = tmp_path / "early.toml"
    path.write_text(SCENARIO + '[policies]\nordering = "CST-30"\nfaults = { ack = "early" }\n', "utf-8")
    result = run(str(path), "--compare-schemes")
    assert "not modelled: receivers that order events" in result.stdout
    assert "not modelled: brokers that acknowledge an event before they know where it has to go" in result.stdout
    document = json.loads(run(str(path), "--compare-schemes", "--json").stdout)
    kinds = {name: [each["kind"] for each in row["unmodelled"]] for name, row in document["schemes"].items()}
    assert kinds["buffer"] == ["ordering", "acknowledgements"]
    assert kinds["periodic"] == ["ordering"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheme", "buffer", "--model", "mm1"], "does not model failures"),
        (["--scheme", "buffer", "--explain", "far"], "cannot be combined"),
        (["--model", "paper"], "add --scheme"),
        (["--scheme", "buffer", "--checked-every", "5 min"], "measured outages"),
    ],
)
def test_what_is_refused(scenario, arguments, message):
    result = run(scenario, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_scenario_without_failures(tmp_path):
    lines = [line for line in SCENARIO.splitlines() if not line.startswith("failures")]
    path = tmp_path / "sound.toml"
    path.write_text("\n".join(lines), "utf-8")
    result = run(str(path), "--compare-schemes")
    assert result.exit_code == 2
    assert "nothing fails here" in result.stderr
    assert "availability" in result.stderr
