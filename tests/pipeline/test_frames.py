"""Scores and profiles of DataFrames: the tables of a run, without its files and settings; and the notebook."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.pipeline.test_engines import exact

from tidings.errors import InputError
from tidings.model.scenario import Scenario
from tidings.pipeline import PipelineOptions, profiles, run_in_process, scores
from tidings.simulation import simulate

pytestmark = pytest.mark.spark
NOTEBOOK = Path(__file__).parents[2] / "docs" / "guide" / "notebook.ipynb"
SCENARIO = """
seed = 4
duration = "6 s"
[topology]
kind = "explicit"
brokers = ["a", "b"]
links = [["a", "b"]]
[links]
bandwidth = "60 kbit/s"
[[publishers]]
name = "p"
at = ["a"]
rate = "30 /s"
size = "200 B"
attributes = { x = { range = [1, 6] }, topic = { values = ["red", "blue"] } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 1
filter = "x <= 4"
max_delay = "60 ms"
"""
SCORES = ["subscriber_scores", "publisher_scores", "topic_scores", "window_scores", "traffic", "quarantine", "rows"]
PROFILES = ["publishers", "content", "brokers", "arrivals", "links", "components", "pairs", "quarantine", "rows"]
TRACE = ("publications", "subscriptions", "deliveries", "hops", "topology", "transitions")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("frames") / "trace"
    simulate(Scenario.parse(SCENARIO).expand(), out=out)
    return out


def frames(spark: Any, trace: Path) -> dict[str, Any]:
    """The trace's tables, and a delivery of an event that nobody sent."""
    found = {name: spark.read.parquet(str(trace / name)) for name in TRACE if (trace / name).exists()}
    stray = (
        found["deliveries"]
        .limit(1)
        .selectExpr(*(name if name != "sequence" else "12345L AS sequence" for name in found["deliveries"].columns))
    )
    return {**found, "deliveries": found["deliveries"].unionAll(stray)}


def settings(spark: Any) -> dict[str, str]:
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


@pytest.mark.full
def test_tables_are_those_of_a_run(spark: Any, trace: Path, tmp_path: Path) -> None:
    given = frames(spark, trace)
    shutil.copytree(trace, tmp_path / "more", ignore=shutil.ignore_patterns("deliveries"))
    given["deliveries"].coalesce(1).write.parquet(str(tmp_path / "more" / "deliveries"))
    options = PipelineOptions(window_ns=2_000_000_000, warmup_ns=0, max_bad=1.0)
    by_run = run_in_process([tmp_path / "more"], tmp_path / "out", options)
    before = settings(spark)
    found = scores.of(**given, window_ns=2_000_000_000)
    assert list(found) == SCORES
    assert list(profiles.of(**given)) == PROFILES
    shown = {name: found[name].toArrow().to_pylist() for name in ("subscriber_scores", "quarantine", "rows")}
    shown["links"] = profiles.of(**given)["links"].toArrow().to_pylist()
    assert settings(spark) == before
    for name, rows in shown.items():
        theirs = pq.read_table(by_run.tables[name]).to_pylist()
        for row in (*rows, *theirs):
            row.pop("file", None)  # a DataFrame is from no file
        assert sorted(map(exact, rows)) == sorted(map(exact, theirs)), name
    assert [row["reasons"] for row in shown["quarantine"]] == [["unknown-publication"]]


def test_a_frame_of_ones_own(spark: Any) -> None:
    """Timestamps, other cases, and without the columns that have a usual value."""
    moment = "TIMESTAMP '2026-03-02 08:00:00' + make_interval(0, 0, 0, 0, 0, 0, {})"
    sends = spark.range(10).selectExpr(
        "'p' AS publisher", "id AS SEQUENCE", f"{moment.format('id')} AS departure_ns", "struct(id AS n) AS attributes"
    )
    got = spark.range(8).selectExpr(
        "'all' AS subscription", "'p' AS publisher", "id AS sequence", f"{moment.format('id + id * 0.1')} AS arrived_ns"
    )
    columns = "subscriber string, filter string, max_delay_ns bigint"
    wants = spark.createDataFrame([("all", "n >= 0", 450_000_000)], columns)
    row = scores.of(sends, wants, got)["subscriber_scores"].head()
    assert (row["matched"], row["on_time"], row["late"], row["lost"]) == (10, 5, 3, 2)
    with pytest.raises(InputError, match=r"DataFrame of deliveries has no column `arrived_ns` .* rename one"):
        scores.of(sends, wants, got.drop("arrived_ns"))["subscriber_scores"].head()
    with pytest.raises(InputError, match=r"--topic colour: no event has such an attribute; there are: n"):
        scores.of(sends, wants, got, topic="colour")


@pytest.mark.full
def test_the_cells_of_the_notebook_run(spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {"spark": spark}
    for cell in cells:
        exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    assert len(cells) >= 5
    assert {*tmp_path.iterdir()} <= {tmp_path / "trace"}
