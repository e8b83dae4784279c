"""What a worker finds suspect is what Spark's checks find bad, and what it makes of good rows is what they make."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark.sql")

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from tidings.model.trace import TABLES, publications
from tidings.pipeline.gathering._direct import Judging, fitting, in_own_form
from tidings.pipeline.gathering._forms import with_faults
from tidings.pipeline.ingest import check_rows, find_files, read_table
from tidings.pipeline.interest import Matcher, parse_filters, ship, with_matches
from tidings.pipeline.rows import GATHERED_SCHEMA, audience_of

MANY = 4_000
BROKERS = ["a", "b"]
SUBSCRIPTIONS = pa.table(
    {
        "number": pa.array([0, 1], pa.int32()),
        "subscription": ["s", "t"],
        "subscriber": ["me", "me"],
        "broker": ["a", "b"],
        "filter": ["x > 0", "s = 'red'"],
        "price": [1.0, 2.0],
        "max_delay_ns": pa.array([30, None], pa.int64()),
        "from_ns": pa.array([0, 5], pa.int64()),
        "until_ns": pa.array([None, None], pa.int64()),
    }
)
FAR = 2**62
TIMES = [0, 1, 4, 7, 9, 12, 50, -3, FAR, -FAR, FAR + 1, -FAR - 1, 2**63 - 1, -(2**63)]
POOLS: dict[str, list[Any]] = {
    "publisher": ["p", "q", None],
    "sequence": [0, 1, 70_000, -1, None],
    "size_bytes": [10, 0, -1, None],
    "lifetime_ns": [None, 5, 0, -4, FAR + 1],
    "broker": ["a", "b", "z", None],
    "source": ["a", "b", "z", None],
    "target": ["a", "b", "z", None],
    "subscription": ["s", "t", "nobody", None],
    "outcome": ["received", "lost", "vanished", None],
    "attributes": [
        {"x": 1.5, "s": "red"},
        {"x": None, "s": None},
        {"x": float("nan"), "s": "blue"},
        {"x": float("inf"), "s": None},
        {"x": -2.0, "s": "red"},
        None,
    ],
}
GOOD = 0.93
"""Share of the values that are the first of their pool, so that some rows have no fault and few have many."""


def random_rows(table: str, generator: np.random.Generator) -> list[dict[str, Any]]:
    def value(name: str) -> Any:
        pool = POOLS.get(name, TIMES)
        return pool[0] if generator.random() < GOOD else pool[int(generator.integers(len(pool)))]

    rows = [{field.name: value(field.name) for field in TABLES[table]} for _ in range(MANY)]
    for row in rows:
        for name in ("sent_ns", "received_ns", "began_ns", "ended_ns"):
            if name in row and generator.random() < 0.3:
                row[name] = [None, 5, 8, 11][int(generator.integers(4))]
    return rows


@pytest.mark.spark
@pytest.mark.parametrize(
    ("table", "tolerance_ns"),
    [
        ("publications", 3),  # which have one time each, and so none to compare with another
        *((table, tolerance_ns) for table in ("hops", "deliveries") for tolerance_ns in (0, 3, 2**62)),
    ],
)
def test_a_worker_judges_and_forms_rows_as_spark_does(
    table: str, tolerance_ns: int, spark: SparkSession, tmp_path: Path
) -> None:
    rows = random_rows(table, np.random.default_rng([len(table), tolerance_ns % 1000]))
    schema = publications({"x": "number", "s": "string"}) if table == "publications" else TABLES[table]
    # Fields that are never NULL are so here: that is one of the faults.
    loose = pa.schema([field.with_nullable(True) for field in schema])
    for name in ("publications", "subscriptions"):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / table).mkdir(exist_ok=True)
    pq.write_table(SUBSCRIPTIONS.select(TABLES["subscriptions"].names), tmp_path / "subscriptions" / "s.parquet")
    path = tmp_path / table / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows, loose), path, row_group_size=1_500)
    if table != "publications":
        empty = publications({"x": "number", "s": "string"}).empty_table()
        pq.write_table(empty, tmp_path / "publications" / "none.parquet")
    files = [file for file in find_files([tmp_path]) if file.table == table]
    assert fitting(files, topic="s") == files

    interests, _ = parse_filters(SUBSCRIPTIONS)
    known = spark.createDataFrame(SUBSCRIPTIONS.select(["subscription", "number"]))
    brokers = spark.createDataFrame(pa.table({"broker": BROKERS}))
    checked = check_rows(
        table,
        read_table(spark, table, files),
        clock_tolerance_ns=tolerance_ns,
        brokers=brokers,
        subscriptions=known,
    )
    if table == "publications":
        checked = with_matches(checked.withColumn("topic", fn.col("attributes.s")), interests)
    wanted = with_faults(table, checked).toArrow().to_pylist()

    judging = Judging(
        brokers=frozenset(BROKERS),
        audience=ship(spark, audience_of(SUBSCRIPTIONS)),
        matcher=ship(spark, Matcher(interests)),
        attributes=interests.attributes,
        topic="s",
        clock_tolerance_ns=tolerance_ns,
    )
    names = [field.name for field in schema if pa.types.is_string(field.type)]
    with pq.ParquetFile(path, read_dictionary=names) as file:
        batches = [in_own_form(table, batch, judging, str(path)) for batch in file.iter_batches(1_000)]
    found = [
        {field.name: row.get(field.name) for field in GATHERED_SCHEMA} for batch in batches for row in batch.to_pylist()
    ]
    assert len(found) == len(wanted) == MANY
    bad = 0
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        mark, reasons = mine.pop("bad"), theirs.pop("bad")
        assert (mark is None) == (reasons is None), (rows[number], reasons)
        if mark is None:
            assert mine == theirs, rows[number]
        else:
            bad += 1
            assert mark == {"file": str(path), "reasons": None, "row": None}
            assert (mine["publisher"], mine["sequence"]) == (theirs["publisher"], theirs["sequence"])
    assert MANY // 20 < bad < MANY - MANY // 20, "both kinds are tried"


@pytest.mark.spark
def test_files_that_do_not_fit_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:  # noqa: ARG001
    hops = TABLES["hops"].empty_table()
    events = publications({"x": "number", "topic": "whole"}).empty_table()
    tables = {
        "hops/fits.parquet": hops,
        "hops/more.parquet": hops.append_column("more", pa.array([], pa.timestamp("ns"))),
        "hops/other-type.parquet": hops.set_column(4, "enqueued_ns", pa.array([], pa.int32())),
        "publications/events.parquet": events,
        "subscriptions/none.parquet": TABLES["subscriptions"].empty_table(),
    }
    for name, table in tables.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / name)
    files = find_files([tmp_path])
    own = {table: [file for file in files if file.table == table] for table in ("hops", "publications")}
    found = [Path(file.path).name for file in fitting(own["hops"], topic="topic")]
    assert found == ["fits.parquet", "more.parquet"], "columns that nobody asks for are not read"
    assert fitting(own["publications"], topic="x") == [], "a topic that is a number is Spark's to write as text"
    assert fitting(own["publications"], topic="topic") == []
    assert fitting(own["publications"], topic="colour") == own["publications"]
    left_out = [msgspec.structs.replace(file, left_out={"at": "timestamp[ns]"}) for file in own["publications"]]
    assert fitting(left_out, topic="colour") == [], "workers would read all attributes"
    pq.write_table(publications({"x": "string"}).empty_table(), tmp_path / "publications" / "unlike.parquet")
    unlike = [file for file in find_files([tmp_path]) if file.table == "publications"]
    assert fitting(unlike, topic="colour") == [], "events whose attributes differ are read together"
    assert fitting([], topic="topic") == []
