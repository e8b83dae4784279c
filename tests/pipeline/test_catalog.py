"""The tables of a run in a catalog, with their views."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import ConfigurationError, InputError
from tidings.model.scenario import Scenario
from tidings.model.tables import table_place
from tidings.pipeline import PipelineOptions, run_in_process
from tidings.simulation import simulate

SCENARIO = """
seed = 2
duration = "4 s"
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
attributes = { x = { range = [1, 6] } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 1
filter = "x <= 4"
max_delay = "60 ms"
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("catalog") / "trace"
    simulate(Scenario.parse(SCENARIO).expand(), out=out)
    return out


@pytest.fixture
def schema(spark: Any, tmp_path: Path) -> Any:
    """A schema whose tables lie in the test's own folder."""
    spark.sql(f"CREATE SCHEMA overlay LOCATION 'file:{tmp_path}/warehouse'")
    yield "overlay"
    spark.sql("DROP SCHEMA overlay CASCADE")


@pytest.mark.spark
def test_tables_and_views(spark: Any, schema: str, trace: Path, tmp_path: Path) -> None:
    from tidings.pipeline import run_pipeline

    options = PipelineOptions(window_ns=1_000_000_000, catalog=schema)
    result = run_pipeline(spark, [trace], tmp_path / "out", options)
    for name in ("subscriber_scores", "window_scores", "links", "subscriptions"):
        theirs = spark.read.parquet(str(table_place(tmp_path / "out", name)))
        assert spark.table(f"{schema}.{name}").schema == theirs.schema
        assert sorted(map(repr, spark.table(f"{schema}.{name}").collect())) == sorted(map(repr, theirs.collect()))
    shown = spark.table(f"{schema}.on_time_by_subscription").collect()
    assert {row.subscription: (row.matched, row.on_time) for row in shown} == {
        name: (score.matched, score.on_time) for name, score in result.subscribers.items()
    }
    assert {row.max_delay_s for row in shown} == {0.06}
    assert {row["filter"] for row in shown} == {"x <= 4"}
    windows = spark.sql(f"SELECT sum(matched) AS matched, count(DISTINCT day) AS days FROM {schema}.on_time_by_window")
    assert windows.head().asDict() == {"matched": result.matched, "days": 1}
    links = spark.table(f"{schema}.slow_links").collect()
    assert [(row.source, row.target) for row in links] == [("a", "b")]
    # With more rows, and with nothing new, the tables are replaced.
    later = tmp_path / "more"
    shutil.copytree(trace, later)
    (later / "deliveries" / "torn.parquet").write_bytes(b"torn")
    again = PipelineOptions(window_ns=1_000_000_000, catalog=schema, max_bad=1.0)
    run_pipeline(spark, [later], tmp_path / "out", again)
    assert spark.table(f"{schema}.quarantine").count() == 1
    with pytest.raises(
        ConfigurationError, match=r"--catalog overlay: the tables cannot be written as marble: .* run itself"
    ):
        run_pipeline(
            spark, [later], tmp_path / "out", PipelineOptions(catalog=schema, table_format="marble", max_bad=1.0)
        )


@pytest.mark.spark
def test_a_catalog_without_views_gets_the_tables() -> None:
    from unittest.mock import MagicMock

    from pyspark.errors import PySparkException

    from tidings.pipeline._catalog import publish_tables

    session, said, problem = MagicMock(), list[str](), "[MISSING_CATALOG_ABILITY.VIEWS] no views"

    def sql(text: str) -> None:
        if "VIEW" in text:
            raise PySparkException(problem)

    session.sql = sql
    published = publish_tables(session, "lake.o", {"links": "/x"}, table_format="iceberg", report=said.append)
    assert published == ["lake.o.links"]
    assert said == [f"lake.o has no views, which its catalog does not keep ({problem})"]
    problem = "[PARSE_SYNTAX_ERROR] what is this"
    with pytest.raises(ConfigurationError, match="cannot be written as iceberg"):
        publish_tables(session, "lake.o", {"links": "/x"}, table_format="iceberg", report=said.append)


def test_what_cannot_be_a_schema_is_refused(trace: Path, tmp_path: Path) -> None:
    given = ["pipeline", "run", str(trace), "--out", str(tmp_path / "out"), "--catalog", "lake"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2
    assert "this session would forget its tables when it ends" in " ".join(done.stderr.split())
    assert CliRunner().invoke(app, [*given, "--engine", "arrow"]).exit_code == 2
    with pytest.raises(InputError, match="a catalog belongs to a Spark session"):
        run_in_process([trace], tmp_path / "out", PipelineOptions(catalog="lake"))
    from tidings.pipeline import run_pipeline

    def no_session() -> Any:
        raise AssertionError("nothing is to be computed")

    for name in ("a.b.c", "a b", "x; DROP SCHEMA y", ""):
        with pytest.raises(ConfigurationError, match=r"write SCHEMA or CATALOG\.SCHEMA"):
            run_pipeline(no_session, [trace], tmp_path / "out", PipelineOptions(catalog=name))
