"""Parquet files that differ are read together, and nothing in them is lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tidings.model.trace import TABLES, publications
from tidings.pipeline.ingest import WRONG_TYPE, find_files, read_table
from tidings.pipeline.interest import by_kind

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
    parts = by_kind(5, dict(zip(("s", "n", "t"), attributes.flatten(), strict=True)))
    seen: dict[int, Any] = {}
    for places, columns in parts:
        assert not any(pa.types.is_struct(column.type) for column in columns.values())
        seen.update(zip(places.to_pylist(), pa.table(columns).to_pylist(), strict=True))
    assert seen == {
        0: {"s": 7.0, "n": 0, "t": "a"},
        1: {"s": "red", "n": 1, "t": 1.0},
        2: {"s": None, "n": 2, "t": "b"},
        3: {"s": "7", "n": 3, "t": "c"},
        4: {"s": None, "n": 4, "t": None},
    }
    assert sum(len(places) for places, _ in parts) == 5


def test_a_batch_without_mixed_kinds_stays_whole() -> None:
    ((places, columns),) = by_kind(2, {"n": pa.array([1, None])})
    assert places.to_pylist() == [0, 1]
    assert columns["n"].to_pylist() == [1, None]


MOMENT_NS = 1_700_000_000_123_456_789


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "unit_ns"),
    [
        (pa.timestamp("ns"), 1),
        (pa.timestamp("ns", "Europe/Paris"), 1),
        (pa.timestamp("us"), 10**3),
        (pa.timestamp("us", "UTC"), 10**3),
        (pa.timestamp("ms", "America/New_York"), 10**6),
        (pa.timestamp("s"), 10**9),
        (pa.duration("us"), 10**3),
        ("96 bits", 10**3),
    ],
    ids=str,
)
def test_times_may_be_timestamps_of_any_unit_and_zone(
    spark: SparkSession, rows: Rows, trace: Path, kind: Any, unit_ns: int
) -> None:
    """Those without a zone are UTC; of Parquet's old form of 96 bits Spark keeps microseconds."""
    is_old = isinstance(kind, str)
    times = pa.array([MOMENT_NS // unit_ns, None], pa.timestamp("us") if is_old else kind)
    table = pa.Table.from_pylist([rows["deliveries"][0]] * 2)
    table = table.set_column(table.column_names.index("arrived_ns"), "arrived_ns", times)
    pq.write_table(table, trace / "deliveries" / "part-0.parquet", use_deprecated_int96_timestamps=is_old)
    read = read_table(spark, "deliveries", find_files([trace])).collect()
    assert sorted(((row.arrived_ns, row._faults) for row in read), key=str) == sorted(
        [(MOMENT_NS // unit_ns * unit_ns, []), (None, [])], key=str
    )


@pytest.mark.spark
def test_a_timestamp_beyond_64_bits_of_nanoseconds_is_a_wrong_value_of_its_row(
    spark: SparkSession, rows: Rows, trace: Path
) -> None:
    table = pa.Table.from_pylist([rows["deliveries"][0]] * 2)
    times = pa.array([10**18, 1], pa.timestamp("us"))
    table = table.set_column(table.column_names.index("arrived_ns"), "arrived_ns", times)
    pq.write_table(table, trace / "deliveries" / "part-0.parquet")
    read = read_table(spark, "deliveries", find_files([trace])).collect()
    assert {(row.arrived_ns, *row._faults) for row in read} == {(None, WRONG_TYPE), (1000,)}


@pytest.mark.spark
def test_columns_are_found_in_any_case_and_one_of_nulls_is_as_good_as_absent(
    spark: SparkSession, rows: Rows, trace: Path
) -> None:
    given = pa.Table.from_pylist(rows["publications"])
    nulls = given.set_column(given.column_names.index("lifetime_ns"), "lifetime_ns", pa.nulls(len(given)))
    path = trace / "publications" / "part-0.parquet"
    names = ["PUBLISHER", "Sequence", "departure_NS", "broker", "size_bytes", "lifetime_ns", "Attributes"]
    pq.write_table(nulls.rename_columns(names), path)
    (file,) = [file for file in find_files([trace]) if file.table == "publications"]
    assert (file.fault, file.least_sequence, file.greatest_sequence) == (None, 0, 2)
    read = read_table(spark, "publications", [file])
    found = [row.asDict(recursive=True) for row in read.drop("_file", "_faults", "_raw").collect()]
    assert sorted(found, key=repr) == sorted(rows["publications"], key=repr)


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
