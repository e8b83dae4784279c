"""Parquet files that differ are read together, and nothing in them is lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidings.model.trace import TABLES, publications
from tidings.pipeline.ingest import WRONG_TYPE, by_kind, find_files, read_table

Write = Callable[..., Path]
Rows = dict[str, list[Any]]


@pytest.mark.spark
def test_attributes_are_united_by_name_and_kinds_that_differ_are_kept_apart(
    spark: SparkSession, rows: Rows, write: Write, trace: Path
) -> None:
    row = rows["publications"][0]
    other = publications({"s": "number", "n": "whole", "x": "number"})
    write("publications", [{**row, "sequence": 9, "attributes": {"s": 7.0, "n": 2**60 + 1}}], name="b", schema=other)
    plain = TABLES["publications"]
    without = pa.schema([field for field in plain if field.name != "attributes"], plain.metadata)
    write("publications", [{**row, "sequence": 10}], name="c", schema=without)
    read = read_table(spark, "publications", find_files([trace]))
    assert read.schema["attributes"].simpleString() == (
        "attributes:struct<s:struct<number:double,string:string>,n:bigint,x:double>"
    )
    found = {
        (row.publisher, row.sequence): row.attributes.asDict(recursive=True)
        for row in read.where("publisher = 'p'").collect()
    }
    assert found[("p", 0)] == {"s": {"number": None, "string": "red"}, "n": None, "x": 0.5}
    assert found[("p", 9)] == {"s": {"number": 7.0, "string": None}, "n": 2**60 + 1, "x": None}
    assert found[("p", 10)] == {"s": {"number": None, "string": None}, "n": None, "x": None}


def test_a_batch_with_mixed_kinds_is_taken_apart_for_matching() -> None:
    mixed = pa.struct([("number", pa.float64()), ("string", pa.string())])
    attributes = pa.array(
        [
            {"s": {"number": 7.0, "string": None}, "n": 0, "t": {"number": None, "string": "a"}},
            {"s": {"number": None, "string": "red"}, "n": 1, "t": {"number": 1.0, "string": None}},
            {"s": {"number": None, "string": None}, "n": 2, "t": {"number": None, "string": "b"}},
            {"s": {"number": None, "string": "7"}, "n": 3, "t": {"number": None, "string": "c"}},
            {"s": None, "n": 4, "t": None},
        ],
        pa.struct([("s", mixed), ("n", pa.int64()), ("t", mixed)]),
    )
    parts = by_kind(attributes)
    seen: dict[int, Any] = {}
    for positions, batch in parts:
        assert not any(pa.types.is_struct(field.type) for field in batch.schema)
        seen.update(zip(positions.to_pylist(), batch.to_pylist(), strict=True))
    assert seen == {
        0: {"s": 7.0, "n": 0, "t": "a"},
        1: {"s": "red", "n": 1, "t": 1.0},
        2: {"s": None, "n": 2, "t": "b"},
        3: {"s": "7", "n": 3, "t": "c"},
        4: {"s": None, "n": 4, "t": None},
    }
    assert sum(len(positions) for positions, _ in parts) == 5


def test_a_batch_without_mixed_kinds_stays_whole() -> None:
    ((positions, batch),) = by_kind(pa.array([{"n": 1}, {"n": None}], pa.struct([("n", pa.int64())])))
    assert positions.to_pylist() == [0, 1]
    assert batch.to_pylist() == [{"n": 1}, {"n": None}]


@pytest.mark.spark
def test_columns_of_another_type_are_converted_or_are_faults_of_their_rows(
    spark: SparkSession, rows: Rows, write: Write, trace: Path
) -> None:
    row = {**rows["deliveries"][0], "subscription": 12, "broker": None}
    schema = TABLES["deliveries"]
    for name, kind in [("sequence", pa.string()), ("arrived_ns", pa.float64()), ("subscription", pa.int32())]:
        schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    schema = schema.remove(schema.get_field_index("broker"))
    schema = schema.append(pa.field("nobody asked", pa.timestamp("ns")))  # Spark would refuse to read it
    write(
        "deliveries",
        [
            {**row, "sequence": "1", "arrived_ns": 7.0},
            {**row, "sequence": "two", "arrived_ns": 7.0},
            {**row, "sequence": "3", "arrived_ns": 7.5},
            {**row, "sequence": None, "arrived_ns": 7.0},
        ],
        name="odd",
        schema=schema,
    )
    read = read_table(spark, "deliveries", find_files([trace])).orderBy("_file", "sequence", "_raw").collect()
    odd = [row for row in read if row._file.endswith("odd.parquet")]
    assert [(row.sequence, row.arrived_ns, row.subscription, row._faults) for row in odd] == [
        (None, 7, "12", []),
        (None, 7, "12", [WRONG_TYPE]),
        (1, 7, "12", []),
        (3, None, "12", [WRONG_TYPE]),
    ]
    assert '"sequence":"two"' in odd[1]._raw
    assert all(row.broker is None for row in odd)
    assert len(read) == 5


@pytest.mark.spark
def test_paths_with_signs_that_spark_takes_for_patterns(spark: SparkSession, trace: Path) -> None:
    strange = trace.rename(trace.with_name("a [1]{x}* + 20% é"))
    read = read_table(spark, "topology", find_files([strange]))
    assert read.count() == 3


@pytest.mark.spark
def test_a_table_without_files_has_no_rows_but_its_columns(spark: SparkSession) -> None:
    for table, schema in TABLES.items():
        empty = read_table(spark, table, [])
        assert empty.columns == [*schema.names, "_file", "_faults", "_raw"]
    assert empty.count() == 0
