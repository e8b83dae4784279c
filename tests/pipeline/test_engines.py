"""Both engines on the same traces: every table the same, row for row; and the engine arrow by itself, without Spark.

Columns that come of merged sketches are compared to the bit where a sketch is exact, and by their accuracy beyond:
Spark's merges throw coins, so two of its own runs differ there too.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.pipeline.logs import WRITERS, traffic
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import InputError
from tidings.model.scenario import Scenario
from tidings.model.tables import table_place
from tidings.pipeline import PipelineOptions, PipelineResult, run_in_process, run_pipeline
from tidings.pipeline._manifest import FORMAT
from tidings.pipeline.ingest._json import double_text, json_text
from tidings.pipeline.rows import SKETCH_K, merged_sketches, sketch_quantiles, sketches
from tidings.simulation import simulate

SCENARIO = """
seed = 11
duration = "8 s"
warmup = "1 s"
[topology]
kind = "explicit"
brokers = ["a", "b", "c", "d"]
links = [["a", "b"], ["b", "c"], ["a", "d"], ["d", "c"]]
[links]
bandwidth = "60 kbit/s"
loss = 0.03
[brokers]
[[publishers]]
name = "p"
at = ["a", "b"]
count = 2
rate = "40 /s"
size = { law = "uniform", low = "100 B", high = "300 B" }
lifetime = "2 s"
attributes = { x = { range = [1, 6] }, topic = { values = ["red", "blue", "grün"] } }
[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x <= {number}"
max_delay = [ { delay = "40 ms", price = 3 }, { delay = "150 ms", price = 0.1 } ]
[[subscribers]]
name = "nobody"
at = "c"
filter = "x > 9"
[policies]
scheduling = "eb"
"""
EXAMPLES = Path(__file__).parents[2] / "examples" / "foreign"
TABLES = [
    "subscriber_scores",
    "publisher_scores",
    "topic_scores",
    "window_scores",
    "traffic",
    "quarantine",
    "rows",
    "publishers",
    "content",
    "brokers",
    "arrivals",
    "links",
    "components",
    "pairs",
    "subscriptions",
    "topology",
    "transitions",
]
KEYS = ("publisher", "subscription", "subscriber", "topic", "window_ns", "source", "target", "table", "broker", "kind")
OPTIONS = PipelineOptions(window_ns=2_000_000_000, clock_tolerance_ns=1_000, max_bad=1.0)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traces") / "trace"
    simulate(Scenario.parse(SCENARIO).expand(), out=out)
    return out


@pytest.fixture(scope="module")
def dirty(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with bad rows of every kind, names in upper case, timestamps, and an attribute of two kinds."""
    place = tmp_path_factory.mktemp("traces") / "dirty"
    shutil.copytree(trace, place)
    _spoil(place / "deliveries", "d", {"sequence": 10**7}, {"subscription": "nobody"}, {"subscription": "stranger"})
    _spoil(place / "deliveries", "e", {"broker": "x"}, {"publisher": None}, {"arrived_ns": -(10**15)}, {}, {})
    _spoil(place / "deliveries", "f", {"sequence": None}, {"delivered_ns": 2**63 - 1}, {"subscription": None})
    _spoil(place / "hops", "h", {"outcome": "vanished"}, {"sent_ns": -5}, {"target": None}, {"sequence": 10**7}, {}, {})
    _spoil(place / "publications", "p", {"sequence": -1}, {"size_bytes": -1, "broker": "x"}, {"lifetime_ns": 0}, {})
    _spoil(place / "subscriptions", "s", {"subscription": "t", "filter": "x >"}, {"price": float("nan")}, {})
    _spoil(place / "topology", "t", {"kind": "bridge"}, {"source": "z"}, {})
    path = next(path for path in (place / "publications").iterdir() if path.name.startswith("part"))
    rows = pq.read_table(path)
    number = rows.schema.get_field_index("attributes")
    attributes = rows["attributes"].combine_chunks()
    doubles = np.asarray(attributes.field("x").cast(pa.float64())).copy()
    doubles[:3] = [float("nan"), float("inf"), 0.1 + 0.2]
    other = pa.StructArray.from_arrays([pa.array(doubles), attributes.field("topic")], names=["x", "topic"])
    departure = rows.schema.get_field_index("departure_ns")
    times = rows["departure_ns"].cast(pa.timestamp("ns", "UTC"))
    changed = rows.set_column(number, "attributes", other).set_column(departure, "departure_ns", times)
    changed = changed.rename_columns([name.upper() for name in changed.column_names])
    pq.write_table(changed.slice(0, len(rows) // 2), path)
    pq.write_table(rows.slice(len(rows) // 2), path.with_name("later.parquet"))
    (place / "deliveries" / "torn.parquet").write_bytes(b"PAR1 torn")
    return place


def _spoil(folder: Path, name: str, *changes: dict[str, Any]) -> None:
    """A file of rows like the first of the table, but for these changes."""
    rows = ds.dataset(folder, format="parquet").to_table()
    loose = pa.schema([field.with_nullable(True) for field in rows.schema], rows.schema.metadata)
    row = rows.slice(0, 1).to_pylist()[0]
    pq.write_table(pa.Table.from_pylist([{**row, **change} for change in changes], loose), folder / f"{name}.parquet")


def table(out: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(table_place(out, name), format="parquet").to_table().to_pylist()
    return rows


def is_sketched(name: str) -> bool:
    return "sketch" in name or "quantiles" in name or name in ("delay_p50_ns", "delay_p90_ns", "delay_p99_ns")


def is_estimated_from_sketch(name: str) -> bool:
    return name.endswith("_distance")


def exact(row: dict[str, Any]) -> str:
    """All that does not come of a sketch of more values than it holds one by one, to the last bit."""
    count = row.get("delay_count", row.get("matched", 0)) or 0
    shown = {}
    for name, value in row.items():
        if "sketch" in name:
            shown[name] = None if value is None else contents(value)
        elif not (is_sketched(name) or is_estimated_from_sketch(name)) or count <= SKETCH_K:
            shown[name] = value
    return json.dumps(shown, default=repr, sort_keys=True)


def contents(sketch: bytes) -> Any:
    """How many values a sketch stands for; and where they are few, which."""
    held = pa.array([sketch], pa.binary())
    count = int.from_bytes(sketch[8:16], "little") if len(sketch) > 16 else (len(sketch) - 8) // 8
    if count == 0 or count > SKETCH_K:
        return count
    return sketch_quantiles(held, tuple((i + 0.5) / count for i in range(count)))[0].tolist()


def assert_same(by_spark: PipelineResult, by_arrow: PipelineResult, place: Path) -> None:
    """The results, and all tables below `place/spark` and `place/arrow`."""
    one, other = msgspec.to_builtins(by_spark), msgspec.to_builtins(by_arrow)
    del one["tables"], other["tables"]
    assert one == other
    assert by_spark.tables.keys() == by_arrow.tables.keys()
    for each in TABLES:
        mine, theirs = table(place / "arrow", each), table(place / "spark", each)
        assert [*map(list, mine[:1])] == [*map(list, theirs[:1])], each  # the columns, in order
        assert sorted(map(exact, mine)) == sorted(map(exact, theirs)), each
        kinds = [ds.dataset(table_place(place / e, each), format="parquet").schema for e in ("arrow", "spark")]
        types = [[str(field.type).replace(" not null", "") for field in schema] for schema in kinds]
        assert types[0] == types[1], each


@pytest.mark.spark
@pytest.mark.parametrize("name", [pytest.param("trace", marks=pytest.mark.full), "dirty"])
def test_both_engines_give_the_same_tables(
    name: str, request: pytest.FixtureRequest, spark: Any, tmp_path: Path
) -> None:
    given = request.getfixturevalue(name)
    by_spark = run_pipeline(spark, [given], tmp_path / "spark", OPTIONS)
    by_arrow = run_in_process([given], tmp_path / "arrow", OPTIONS)
    assert_same(by_spark, by_arrow, tmp_path)
    if name == "dirty":
        assert len(by_arrow.quarantined) >= 9


@pytest.mark.spark
@pytest.mark.parametrize(
    "name", ["csv", "kafka", *(pytest.param(n, marks=pytest.mark.full) for n in ("mqtt", "nats", "otel"))]
)
def test_both_engines_read_a_foreign_log_alike(name: str, spark: Any, tmp_path: Path) -> None:
    """The examples, with broken, wrong and repeated lines among them; clocks of three hosts are compared."""
    logs = tmp_path / "logs"
    if name == "csv":
        logs.mkdir()
        for path in EXAMPLES.glob("*.csv"):
            shutil.copy(path, logs)
        bad = ["boiler-1,x,2026-03-02T08:00:00Z,t\t\u00e9,1.0", "boiler-1,7", "boiler-1,2,2026-03-02T07:00:00Z,t,nan"]
        with (logs / "sends.csv").open("a") as file:
            file.write("\n".join([*bad, "boiler-9,1,2026-03-02T08:00:09Z,,", ""]))
        with (logs / "receives.csv").open("a") as file:
            file.write("stranger,boiler-1,1,2026-03-02T08:00:01Z\nalarm,boiler-1,999999,2026-03-02T08:00:01Z\n")
    else:
        WRITERS[name](traffic(events=60, core=250_000_000, cloud=-120_000_000), logs)
        for path in logs.iterdir():
            lines = path.read_text().splitlines()
            wrong = lines[0].replace("1700", "x").replace('"partition": 0', '"partition": null')
            path.write_text("\n".join([*lines, '{"not": "\u00e9', "[1]", lines[1], wrong, ""]))
    mapping = EXAMPLES / ("mapping.toml" if name == "csv" else f"{name}.toml")
    options = PipelineOptions(window_ns=2_000_000_000, max_bad=1.0, mapping=mapping)
    by_spark = run_pipeline(spark, [logs], tmp_path / "spark", options)
    by_arrow = run_in_process([logs], tmp_path / "arrow", options)
    assert_same(by_spark, by_arrow, tmp_path)
    assert by_arrow.bad >= 5
    assert bool(by_arrow.clocks) == (name != "csv")


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None  # importing it fails
from tidings.cli._app import app
sys.argv = ["tidings", "pipeline", "run", *sys.argv[1:]]
app()
"""


def in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_SPARK, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_runs_where_there_is_no_pyspark(trace: Path, tmp_path: Path) -> None:
    done = in_process(str(trace), "--out", str(tmp_path / "out"), "--engine", "arrow", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["matched"] == document["on_time"] + document["late"] + document["lost"] > 1_000
    needs = in_process(str(trace), "--out", str(tmp_path / "other"))
    assert needs.returncode == 2
    assert "pip install 'tidings[spark]'" in needs.stderr


def test_a_foreign_log_needs_no_pyspark(tmp_path: Path) -> None:
    given = (str(EXAMPLES), "--mapping", str(EXAMPLES / "mapping.toml"), "--out", str(tmp_path / "out"))
    done = in_process(*given, "--engine", "arrow", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["matched"], document["on_time"], document["late"], document["lost"]) == (135, 127, 3, 5)
    assert document["quarantined"] == {"unknown-publication": 1}


def test_nothing_new_is_not_computed_again_and_new_files_are(trace: Path, tmp_path: Path) -> None:
    shutil.copytree(trace, tmp_path / "trace")
    first = run_in_process([tmp_path / "trace"], tmp_path / "out", OPTIONS)
    stages: list[str] = []
    again = run_in_process([tmp_path / "trace"], tmp_path / "out", OPTIONS, progress=stages.append)
    assert (again.new_files, stages) == (0, ["looking for files"])
    assert again.subscribers == first.subscribers
    _spoil(tmp_path / "trace" / "deliveries", "more", {"subscription": "stranger"})
    more = run_in_process([tmp_path / "trace"], tmp_path / "out", OPTIONS)
    assert more.quarantined == {"unknown-subscription": 1}
    assert more.recomputed is not None
    record = json.loads(next((tmp_path / "out" / "runs").glob("000002-*/manifest.json")).read_text())
    assert (record["format"], record["options"]["engine"]) == (FORMAT, "arrow")


def test_parts_of_any_number_give_the_same_tables(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The units go through a file then, and the receptions of brokers through several pieces."""
    from tidings.pipeline.arrow import _job

    whole = run_in_process([trace], tmp_path / "whole", OPTIONS)
    monkeypatch.setattr(_job, "ROWS_PER_PART", 500)
    monkeypatch.setattr(_job, "RECEPTIONS_PER_PART", 300)
    parts = run_in_process([trace], tmp_path / "parts", OPTIONS)
    assert parts.subscribers == whole.subscribers
    for each in TABLES:
        assert sorted(map(exact, table(tmp_path / "parts", each))) == sorted(
            map(exact, table(tmp_path / "whole", each))
        ), each


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["pipeline", "run", *arguments])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--master", "local[2]"], "--master: for Spark only"),
        (["--conf", "spark.a=1", "--remote", "sc://x"], "--remote, --conf: for Spark only"),
        (["--topic", "price"], "no event has such an attribute; there are: x, topic"),
    ],
)
def test_what_only_spark_has_is_refused_by_name(options: list[str], message: str, trace: Path, tmp_path: Path) -> None:
    done = command(str(trace), "--out", str(tmp_path / "out"), "--engine", "arrow", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_an_engine_that_there_is_not_and_places_elsewhere_are_refused(trace: Path, tmp_path: Path) -> None:
    done = command(str(trace), "--out", str(tmp_path / "out"), "--engine", "duck")
    assert done.exit_code == 2
    assert "--engine duck: there is no such engine; write spark or arrow" in done.stderr
    with pytest.raises(InputError, match=r"s3a://b/x: is not on this machine.*--engine spark"):
        run_in_process([trace], "s3a://b/x")


def test_a_column_of_text_is_refused_by_name_and_not_read_differently(trace: Path, tmp_path: Path) -> None:
    shutil.copytree(trace, tmp_path / "trace")
    path = next((tmp_path / "trace" / "deliveries").iterdir())
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(1, "sequence", rows["sequence"].cast(pa.string())), path)
    with pytest.raises(InputError, match=r"column 'sequence' is of type string.*--engine spark"):
        run_in_process([tmp_path / "trace"], tmp_path / "out")


def test_a_damaged_page_is_named(trace: Path, tmp_path: Path) -> None:
    shutil.copytree(trace, tmp_path / "trace")
    path = next((tmp_path / "trace" / "hops").iterdir())
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"hops/part-00000\.parquet: .* damaged; bring a whole copy"):
        run_in_process([tmp_path / "trace"], tmp_path / "out")


def test_merged_sketches_are_exact_while_there_is_room_and_near_beyond() -> None:
    rng = np.random.default_rng(3)
    groups = [rng.lognormal(12, 2, size).astype(np.int64) for size in (1, 0, 60, 139, 5_000, 40_000)]
    made = sketches(np.concatenate(groups), np.array([len(each) for each in groups]))
    merged = merged_sketches(made, np.arange(6), np.array([0, 4]))
    ranks = tuple((i + 0.5) / 200 for i in range(200))
    found, known = sketch_quantiles(merged, ranks)
    assert known.all()
    assert found[0].tolist() == np.sort(np.concatenate(groups[:4])).tolist()
    ordered = np.sort(np.concatenate(groups[4:]))
    reached = np.searchsorted(ordered, found[1]) / len(ordered)
    assert np.abs(reached - np.array(ranks)).max() < 0.0133 + 1 / 100  # a merge of sketches that were halved already
    nothing, is_known = sketch_quantiles(pa.array([None, made[1].as_py()], pa.binary()), (0.5,))
    assert (nothing.tolist(), is_known.tolist()) == ([[0], [0]], [False, False])


@pytest.mark.spark
def test_spark_reads_merged_sketches_and_numbers_as_text_alike(spark: Any) -> None:
    from pyspark.sql import functions as fn

    values = np.random.default_rng(5).integers(-(10**9), 10**9, 30_000)
    made = sketches(values, np.array([10, 990, 9_000, 20_000]))
    merged = merged_sketches(made, np.arange(4), np.array([0, 1, 3]))
    ranks = (0.01, 0.07, 0.25, 0.5, 0.9, 0.99)
    frame = spark.createDataFrame(pa.table({"n": [0, 1, 2], "sketch": merged})).select(
        "n",
        fn.kll_sketch_get_n_bigint("sketch"),
        fn.kll_sketch_get_quantile_bigint("sketch", fn.array(*map(fn.lit, ranks))),
    )
    theirs = [(count, quantiles) for _, count, quantiles in sorted(map(tuple, frame.collect()))]
    assert theirs == list(zip([10, 9_990, 20_000], sketch_quantiles(merged, ranks)[0].tolist(), strict=True))
    numbers = [0.0, -0.0, 0.001, 0.00099, 1e7, 9999999.5, 1.5e300, -2.25e-7, 12.0, 123456.789, float("inf")]
    texts = spark.createDataFrame([(each,) for each in numbers], "x double").selectExpr(
        "string(x)", "to_json(struct(x))"
    )
    for (text, document), number in zip(texts.collect(), numbers, strict=True):
        assert (text, document) == (double_text(number), json_text({"x": number}))
    words = ['a"b\\', "\n\t\x01é\u2028"]
    shown = spark.createDataFrame([(each,) for each in words], "x string").selectExpr("to_json(struct(x))").collect()
    assert [row[0] for row in shown] == [json_text({"x": each}) for each in words]
