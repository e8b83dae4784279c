"""Logs read without Spark: what each system's example means, and the same as Spark reads."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.pipeline.logs import WRITERS, traffic

from tidings.pipeline.ingest import find_files, load_mapping, read_table
from tidings.pipeline.ingest._columns import TYPES
from tidings.pipeline.ingest._mapping import EVENT
from tidings.pipeline.ingest._plain import PlainRow, joined_key, number_events, read_plain

EXAMPLES = Path(__file__).parents[3] / "examples" / "foreign"


@given(st.lists(st.lists(st.text("|\\ab/"), min_size=2, max_size=3), min_size=2, max_size=2, unique_by=tuple))
def test_different_columns_never_make_the_same_key(rows: list[list[str]]) -> None:
    if len(rows[0]) == len(rows[1]):
        columns = tuple(str(place) for place in range(len(rows[0])))
        keys = {joined_key(lambda column, row=row: row[int(column)], columns) for row in rows}
        assert len(keys) == 2


def plain(folder: Path, name: str | Path) -> dict[str, list[PlainRow]]:
    mapping = load_mapping(name if isinstance(name, Path) else EXAMPLES / f"{name}.toml")
    files = find_files([folder], mapping=mapping, needed=["publications"])
    rows = {table: list(read_plain(table, files, mapping)) for table in mapping.tables}
    if any(EVENT in plan.columns for plan in mapping.tables.values()):
        others = {table: some for table, some in rows.items() if table != "publications"}
        number_events(rows["publications"], others, mapping.tables)
    return rows


@pytest.mark.parametrize("system", WRITERS)
def test_an_example_finds_every_event_and_who_received_it(system: str, tmp_path: Path) -> None:
    """Two topics, three hosts: no key is that of two events, and each delivery is one of its own."""
    truth = traffic(edge=0, core=250_000_000, cloud=-120_000_000)
    WRITERS[system](truth, tmp_path)
    rows = plain(tmp_path, system)
    keys = [(row.values["publisher"], row.values["sequence"]) for row in rows["publications"]]
    assert len({*keys}) == len(truth.sent)
    assert not any(row.faults for some in rows.values() for row in some)
    seen = [(row.attributes["topic"], row.host, row.values["departure_ns"]) for row in rows["publications"]]
    step = 1_000_000 if system == "kafka" else 1
    topics = {topic: topic for topic in ("orders", "payments")}
    assert sorted(seen) == sorted((topics[e.topic], e.host, truth.shown_ns(e) // step * step) for e in truth.sent)
    arrivals = {
        (row.values["publisher"], row.values["sequence"], row.values["subscription"]): row.values["arrived_ns"]
        for row in rows["deliveries"]
    }
    assert len(arrivals) == len(truth.received)
    assert {key[:2] for key in arrivals} <= {*keys}
    sent = {key: row.values["departure_ns"] for key, row in zip(keys, rows["publications"], strict=True)}
    clocks = {(e.consumer, e.sent.at_ns): truth.shown_ns(e) - truth.shown_ns(e.sent) for e in truth.received}
    delays = sorted(at - sent[key[:2]] for key, at in arrivals.items())
    assert max(abs(a - b) for a, b in zip(delays, sorted(clocks.values()), strict=True)) < 2 * step


def shown(values: list[Any], faults: list[str], attributes: list[Any], host: str | None) -> str:
    """Of a broken line only that it is: what was in it is nobody's."""
    return "malformed" if "malformed" in faults else repr((values, faults, attributes, host))


def as_read(rows: list[PlainRow], table: str) -> list[str]:
    found = ([row.values[name] for name in TYPES[table]] for row in rows)
    return sorted(
        shown(values, row.faults, list(row.attributes.values()), row.host)
        for values, row in zip(found, rows, strict=True)
    )


def as_spark_reads(spark: SparkSession, folder: Path, path: Path, table: str) -> list[str]:
    mapping = load_mapping(path)
    files = find_files([folder], mapping=mapping, needed=["publications"])
    rows = read_table(spark, table, files, mapping=mapping).collect()
    has_attributes = table == "publications"
    return sorted(
        shown(
            [row[name] for name in TYPES[table]],
            row._faults,
            list(row.attributes) if has_attributes else [],
            row._host,
        )
        for row in rows
    )


@pytest.mark.spark
@pytest.mark.parametrize("system", WRITERS)
def test_against_spark(system: str, spark: SparkSession, tmp_path: Path) -> None:
    """The examples, with lines that are broken or wrong among them."""
    WRITERS[system](traffic(events=12), tmp_path)
    for path in tmp_path.iterdir():
        wrong = path.read_text().splitlines()[0].replace('"partition": 0', '"partition": null').replace("1700", "x")
        path.write_text(path.read_text() + '{"not": \n\n[1]\n' + ("" if system == "otel" else f"{wrong}\n"))
    rows = plain(tmp_path, system)
    for table in ("publications", "deliveries"):
        assert as_read(rows[table], table) == as_spark_reads(spark, tmp_path, EXAMPLES / f"{system}.toml", table)


VALUES = '''n,x,b,at,iso,name
1,1.5,true,5,2026-01-31T00:00:00Z,a
2.0,1e3,F,1.0000000006,2026-01-31 01:00:00.5+01:00,"say ""hi"""
3.5,x,maybe,-7.25,2026-01-31T01:00:00+0100,"a,b"
1e2,NaN,yes,99999999999999,2026-02-31T00:00:00Z,
,,,,,
9223372036854775808,-0.0,1,abc,2026-01-31T00:00:00.1234567891Z,é
12,7,n,3,2026-01-31T25:00:00Z,z
1,2
'''
MAPPING = """[time]
unit = "{unit}"
[publications]
files = "*.csv*"
format = "csv"
columns = {{ sequence = "n", departure_ns = "{time}", publisher = ["name", "b"] }}
attributes = {{ x = "number", b = "boolean", n = "whole", name = "string" }}
[clocks]
"""


@pytest.mark.spark
@pytest.mark.parametrize(("unit", "time"), [("s", "at"), ("ns", "at"), ("iso", "iso")])
def test_values_against_spark(unit: str, time: str, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mapping.toml").write_text(MAPPING.format(unit=unit, time=time))
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write(VALUES)
    rows = plain(tmp_path, tmp_path / "mapping.toml")["publications"]
    found = as_read(rows, "publications")
    assert found == as_spark_reads(spark, tmp_path, tmp_path / "mapping.toml", "publications")
