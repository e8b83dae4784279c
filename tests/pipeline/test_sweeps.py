"""Sweeps: what is written into the scenario, that every cell is the simulator's own, that nothing is run twice."""

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tidings.errors import InputError
from tidings.model.scenario import Scenario
from tidings.pipeline.sweeps import Setting, grid, read_list, read_vary, run_sweep
from tidings.pipeline.sweeps import _run as running
from tidings.pipeline.sweeps._cells import make_cells
from tidings.pipeline.sweeps._settings import Base
from tidings.pipeline.sweeps._summary import estimate
from tidings.pipeline.sweeps._written import read_value, read_values, to_toml, write_value
from tidings.simulation import simulate

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "quickstart.toml"
SMALL = """
seed = 5
duration = "20 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
[links]
bandwidth = "1 Mbit/s"
[[publishers]]
name = "p"
at = "a"
rate = "50 /s"
attributes = { x = { range = [1, 4] } }
[[subscribers]]
name = "s"
at = "b"
count = 3
filter = "x <= {number}"
max_delay = "10 ms"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))


@given(VALUES)
def test_a_value_is_read_back_as_it_was_written(value: Any) -> None:
    assert read_values(write_value(value)) == (value,)
    assert read_value(write_value(value)) == value


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_a_table_survives_as_toml(table: dict[str, Any]) -> None:
    import tomllib

    assert tomllib.loads(to_toml(table)) == table


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_a_scenario_with_nothing_written_into_it_is_itself(path: Path) -> None:
    base = Base(path)
    assert Scenario.parse(base.text(Setting(()))).document == base.scenario.document


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("fifo,eb", ("fifo", "eb")),
        ("1:15:2", (1, 3, 5, 7, 9, 11, 13, 15)),
        ("1:3", (1, 2, 3)),
        ("3:1:-1", (3, 2, 1)),
        ("0:0.3:0.1", (0.0, 0.1, 0.2, 0.3)),
        ("10:30:10 /s, 1 /min", ("10 /s", "20 /s", "30 /s", "1 /min")),
        ('{name="ebpc",r=0.5},fifo', ({"name": "ebpc", "r": 0.5}, "fifo")),
        ("['a','b'],'c,d'", (["a", "b"], "c,d")),
        ("true,0.5,2020-01-01", (True, 0.5, "2020-01-01")),
        ("topohub:sndlib/polska", ("topohub:sndlib/polska",)),
    ],
)
def test_values_are_read_as_people_write_them(text: str, values: tuple[Any, ...]) -> None:
    assert read_values(text) == values


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("policies.schedulng=fifo", "policies.schedulng: unknown key `schedulng`; did you mean `scheduling`?"),
        ("policies.routing=shortest", "'shortest' is not possible here; write one of single-path, balanced"),
        ("polices.routing=balanced", "did you mean `policies`?"),
        ("links.loss=0.1,2", "with links.loss=2: links.loss: 2 is not possible"),
        ("publishers.rate=5", "publishers[0].rate: 5 has no unit"),
        ("publishers.exchnge.rate=4 /s", "there is no 'exchnge'; the groups are exchange"),
        ("publishers[3].rate=4 /s", "[3] is not possible; there are 1"),
        ("policies.scheduling.r=0.5", "`policies.scheduling` is written as eb, which is not a table"),
        ("links.propagation_kb=4", "'kB' is a unit of size, but a time is expected here"),
        ("seed=4", "--seeds 10"),
        ("policies.scheduling", "is not key=values"),
        ("links.loss=0:1:0", "does not get from 0 to 1"),
        ("links.loss=0.1,,0.2", "has an empty value"),
        ("links..loss=1", "is not a key of a scenario"),
        ("links.loss={x", "is not a TOML value"),
        ("link.loss=0.1", "with link.loss=0.1: link: expected an array, got a table"),
    ],
)
def test_a_wrong_key_or_value_is_named_before_anything_runs(vary: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Base(EXAMPLE).check(grid([read_vary(vary)]))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("vary", "found"),
    [
        ("publishers.rate_per_s=7", lambda network: network.publishers[0].rate_per_s == pytest.approx(7)),
        ("publishers.exchange.rate=7 /s", lambda network: network.publishers[1].rate_per_s == pytest.approx(7)),
        ("subscribers.archive.max_delay_ms=3", lambda network: network.subscriptions[-1].max_delay_s == 0.003),
        ("publishers[0].count=4", lambda network: len(network.publishers) == 4),
        ("policies.routing=balanced", lambda network: network.policies.routing == "balanced"),
        ("duration_s=40", lambda network: network.duration_s == 40),
    ],
)
def test_a_setting_is_what_the_network_has(vary: str, found: Any) -> None:
    (setting,) = grid([read_vary(vary)])
    assert found(Scenario.parse(Base(EXAMPLE).text(setting)).expand())


def test_a_users_own_attribute_keeps_its_name(scenario: Path) -> None:
    table = Base(scenario).table(Setting((("publishers.attributes.age_s", 4),)))
    assert table["publishers"][0]["attributes"]["age_s"] == 4


def test_a_grid_is_every_combination_in_order() -> None:
    settings = grid([read_vary("links.loss=0,0.1"), read_vary("policies.scheduling=eb,fifo")])
    assert [str(setting) for setting in settings] == [
        "links.loss=0 policies.scheduling=eb",
        "links.loss=0 policies.scheduling=fifo",
        "links.loss=0.1 policies.scheduling=eb",
        "links.loss=0.1 policies.scheduling=fifo",
    ]
    assert grid([]) == [Setting(())]
    with pytest.raises(InputError, match="given twice"):
        grid([read_vary("links.loss=0"), read_vary("links.loss=1")])
    with pytest.raises(InputError, match="is there twice"):
        grid([read_vary("links.loss=0,0")])
    with pytest.raises(InputError, match="settings; at most"):
        grid([read_vary("links.loss=1:2000"), read_vary("links.slowness=1:2000 s/kB")])


def test_lists_are_csv_or_json_lines(tmp_path: Path) -> None:
    rows, lines = tmp_path / "rows.csv", tmp_path / "rows.jsonl"
    rows.write_text('policies.scheduling,links.loss\nfifo,0.1\n"{name=""ebpc"",r=0.5}",0\n')
    lines.write_text(
        '{"policies.scheduling": "fifo", "links.loss": 0.1}\n\n'
        '{"policies.scheduling": {"name": "ebpc", "r": 0.5}, "links.loss": 0}\n'
    )
    assert read_list(rows) == read_list(lines)
    assert len(grid([read_vary("policies.routing=balanced,multi-path")], read_list(rows))) == 4
    with pytest.raises(InputError, match="both in the list and in --vary"):
        grid([read_vary("links.loss=0")], read_list(rows))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "links.loss,policies.routing\n0.1\n", "a.csv:2: 1 values for 2 keys"),
        ("a.csv", "links.loss\n", "there is no setting"),
        ("a.jsonl", '{"links.loss": 1}\n[1]\n', "a.jsonl:2: a setting is an object"),
        ("a.jsonl", "{\n", "a.jsonl:1: not JSON"),
        ("a.xls", "", "is CSV (.csv) or JSON lines"),
    ],
)
def test_a_bad_list_is_refused_at_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        read_list(tmp_path / name)


def test_estimates_against_scipy() -> None:
    values = np.random.default_rng(1).normal(5, 2, size=12)
    found = estimate(values)
    low, high = stats.t.interval(0.95, 11, loc=values.mean(), scale=stats.sem(values))
    assert found.mean == pytest.approx(values.mean())
    assert found.sd == pytest.approx(values.std(ddof=1))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert estimate([3.0]).mean == 3
    assert estimate([3.0]).sd is None
    assert estimate([]).mean is None


def test_a_cells_name_says_all_that_decides_its_result(scenario: Path) -> None:
    settings = grid([read_vary("links.loss=0,0.1")])
    names = [cell.name for cell in make_cells(Base(scenario), settings, [1, 2])]
    assert len(set(names)) == 4
    assert [cell.name for cell in make_cells(Base(scenario), settings[1:], [2])] == names[3:]
    scenario.write_text(SMALL.replace("20 s", "30 s"))
    assert not set(names) & {cell.name for cell in make_cells(Base(scenario), settings, [1, 2])}


@pytest.mark.spark
@pytest.mark.full
def test_every_cell_is_what_the_simulator_says(spark: Any, scenario: Path, tmp_path: Path) -> None:
    settings = grid([read_vary("links.loss=0,0.2")])
    seen: list[float] = []
    result = run_sweep(spark, scenario, settings, seeds=[3, 4], out=tmp_path / "out", progress=seen.append)
    assert result.failures == []
    assert seen[-1] == 1
    cells = pq.read_table(tmp_path / "out" / "cells").to_pylist()
    subscribers = pq.read_table(tmp_path / "out" / "subscribers").to_pylist()
    assert [(json.loads(row["setting"]), row["seed"]) for row in cells] == [
        ({"links.loss": loss}, seed) for loss in (0, 0.2) for seed in (3, 4)
    ]
    base = Base(scenario)
    for row, setting, seed in zip(
        cells, [settings[0], settings[0], settings[1], settings[1]], [3, 4, 3, 4], strict=True
    ):
        expected = simulate(Scenario.parse(base.text(setting)).expand(seed))
        for name in ("published", "matched", "on_time", "lost", "traffic", "delivery_rate"):
            assert row[name] == getattr(expected, name)
        mine = [each for each in subscribers if each["number"] == row["number"]]
        assert [each["subscriber"] for each in mine] == list(expected.subscribers)
        assert [each["on_time"] for each in mine] == [each.on_time for each in expected.subscribers.values()]
    rates = [row["delivery_rate"] for row in cells[2:]]
    figure = result.settings[1].figures["delivery_rate"]
    assert figure.mean == pytest.approx(sum(rates) / 2)
    assert figure.runs == 2
    assert result.settings[1].figures["lost"].mean > result.settings[0].figures["lost"].mean


@pytest.mark.spark
@pytest.mark.full
def test_cells_that_are_there_do_not_run_again(
    spark: Any, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, at_once = tmp_path / "out", tmp_path / "at-once"
    ran: list[int] = []
    simulate_wave = running._Waves._simulate
    monkeypatch.setattr(
        running._Waves, "_simulate", lambda self, cells: (ran.append(len(cells)), simulate_wave(self, cells))[1]
    )
    few, many = grid([read_vary("links.loss=0.2")]), grid([read_vary("links.loss=0,0.2")])
    assert run_sweep(spark, scenario, few, seeds=[4], out=out).found == 0
    torn = out / "runs" / "torn" / "_temporary"
    torn.mkdir(parents=True)
    (torn / "part.parquet").write_bytes(b"PAR1 half")  # what a run that was killed leaves behind
    assert run_sweep(spark, scenario, many, seeds=[3, 4], out=out).found == 1
    assert ran == [1, 3]
    whole = run_sweep(spark, scenario, many, seeds=[3, 4], out=at_once)
    for table in ("cells", "subscribers"):
        assert pq.read_table(out / table).equals(pq.read_table(at_once / table))
    again = run_sweep(spark, scenario, many, seeds=[3, 4], out=out)
    assert (again.found, again.settings) == (4, whole.settings)
    assert ran == [1, 3, 4]


@pytest.mark.spark
def test_a_failed_cell_is_reported_and_the_rest_goes_on(spark: Any, scenario: Path, tmp_path: Path) -> None:
    """A subscriber on a broker that is not there is found only when the network is made: in the task."""
    settings = grid([read_vary("subscribers.at=b,nowhere"), read_vary("links.loss=0,0.1")])
    result = run_sweep(spark, scenario, settings, seeds=[7], out=tmp_path / "out")
    assert [failure.setting["subscribers.at"] for failure in result.failures] == ["nowhere"] * 2
    assert [(row.runs, row.failed) for row in result.settings] == [(1, 0), (1, 0), (0, 1), (0, 1)]
    failure = result.failures[1]
    assert "nowhere" in failure.error
    assert failure.command == (
        f"tidings sweep {scenario} --vary subscribers.at=nowhere --vary links.loss=0.1 --seed 7 --seeds 1"
    )
    errors = pq.read_table(tmp_path / "out" / "cells")["error"].to_pylist()
    assert [error is None for error in errors] == [True, True, False, False]
    assert run_sweep(spark, scenario, settings, seeds=[7], out=tmp_path / "out").found == 2


@pytest.mark.spark
@pytest.mark.full
def test_a_cell_that_takes_its_worker_down_is_found(
    spark: Any, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_cells = running.simulate_cells

    def deadly(base: Base, cells: Any) -> Any:
        inner, seeds = simulate_cells(base, cells), [cell.seed for cell in cells]

        def each(batches: Any) -> Any:
            for batch in batches:
                if any(seeds[number] == 2 for number in batch.column(0).to_pylist()):
                    os._exit(9)
                yield from inner(iter([batch]))

        return each

    monkeypatch.setattr(running, "simulate_cells", deadly)
    result = run_sweep(spark, scenario, grid([]), seeds=[1, 2, 3])
    assert [failure.seed for failure in result.failures] == [2]
    assert result.settings[0].runs == 2
    assert math.isfinite(result.settings[0].figures["delivery_rate"].mean or math.nan)


@pytest.mark.spark
def test_a_directory_with_something_else_is_left_alone(spark: Any, scenario: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a sweep"):
        run_sweep(spark, scenario, grid([]), out=tmp_path)
    with pytest.raises(InputError, match="is a file"):
        run_sweep(spark, scenario, grid([]), out=scenario)
    with pytest.raises(InputError, match="at least one"):
        run_sweep(spark, scenario, [], out=tmp_path / "out")
