"""Logs of any broker, in CSV and JSON lines, read through a mapping."""

import gzip
import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidings.pipeline.ingest import check_rows, find_files, load_mapping, read_table, split

SENDS = """[time]
unit = "{unit}"
{time}
[publications]
files = "sends*"
format = "{format}"
columns = {{ {columns} }}
attributes = {{ {attributes} }}
"""


def mapping_of(folder: Path, text: str) -> Any:
    (folder / "mapping.toml").write_text(text)
    return load_mapping(folder / "mapping.toml")


@pytest.mark.spark
def test_events_are_numbered_by_departure_and_deliveries_follow(spark: SparkSession, tmp_path: Path) -> None:
    """Two files of sends in disorder, one event logged twice; receives know nothing but the event's id."""
    (tmp_path / "sends-1.csv").write_text(
        'id;producer;at;symbol;px;note\nE3;p;30.5;"A;B";1.5;x\nE1;p;10;YHOO;2;y\nF1;q;7;YHOO;3;"say ""hi"""\n'
    )
    with gzip.open(tmp_path / "sends-2.csv.gz", "wt") as file:
        file.write("producer;id;at;symbol;px\np;E2;20.000001;;\np;E1;11;YHOO;2\n")
    (tmp_path / "receives.csv").write_text("id;who;at\nE2;billing;21\nF1;billing;8\nE9;billing;9\n")
    mapping = mapping_of(
        tmp_path,
        SENDS.format(
            unit="ms",
            time="origin = 5",
            format="csv",
            columns='event = "id", publisher = "producer", departure_ns = "at"',
            attributes='symbol = "string", price = { column = "px", kind = "number" }',
        )
        + """delimiter = ";"
        defaults = { size_bytes = 100 }
        [deliveries]
        files = "receives.csv"
        format = "csv"
        delimiter = ";"
        columns = { event = "id", subscription = "who", arrived_ns = "at" }
        [[subscribers]]
        subscriber = "billing"
        filter = "price > 1"
        max_delay = "2.5 ms"
        """,
    )
    files = find_files([tmp_path], mapping=mapping)
    read = read_table(spark, "publications", files, mapping=mapping).orderBy("publisher", "departure_ns").collect()
    assert [(row.publisher, row.sequence, row.departure_ns, *row.attributes) for row in read] == [
        ("p", 0, 5_000_000, "YHOO", 2.0),
        ("p", 0, 6_000_000, "YHOO", 2.0),
        ("p", 1, 15_000_001, None, None),
        ("p", 2, 25_500_000, "A;B", 1.5),
        ("q", 0, 2_000_000, "YHOO", 3.0),
    ]
    assert {(row.broker, row.size_bytes, row.lifetime_ns, *row._faults) for row in read} == {("broker", 100, None)}
    subscriptions = read_table(spark, "subscriptions", files, mapping=mapping)
    (given,) = subscriptions.collect()
    assert (given.subscription, given.max_delay_ns, given.price, given.until_ns) == ("billing", 2_500_000, 1.0, None)
    deliveries = check_rows(
        "deliveries", read_table(spark, "deliveries", files, mapping=mapping), subscriptions=subscriptions
    )
    found = {(row.publisher, row.sequence, row.arrived_ns, row.delivered_ns): row for row in deliveries.collect()}
    assert {key: row.reasons for key, row in found.items()} == {
        ("p", 1, 16_000_000, 16_000_000): [],
        ("q", 0, 3_000_000, 3_000_000): [],
        (None, None, 4_000_000, 4_000_000): ["unknown-publication"],
    }
    assert json.loads(found[(None, None, 4_000_000, 4_000_000)]._raw) == {"id": "E9", "who": "billing", "at": "9"}


@pytest.mark.spark
def test_wrong_values_in_csv_are_faults_of_their_rows_only(spark: SparkSession, tmp_path: Path) -> None:
    lines = {
        "p,1,2026-01-31T00:00:00.000000001Z,5,true": [],
        "p,2.0,2026-01-31 01:00:00.5+01:00,5.0,false": [],
        "p,3,2026-01-31T01:00:00+0100,,": [],
        "p,4,2026-01-31T00:00:00,5,true": [],
        "p,five,2026-01-31T00:00:00Z,5,true": ["wrong-type"],
        "p,6.5,2026-01-31T00:00:00Z,5,true": ["wrong-type"],
        "p,7,yesterday,5,true": ["wrong-type"],
        "p,8,2026-02-31T00:00:00Z,5,true": ["wrong-type"],
        "p,9,2026-01-31T00:00:00Z,5,maybe": ["wrong-type"],
        "p,10,2026-01-31T00:00:00Z,99999999999999999999,true": ["wrong-type"],
        "p,11,2026-01-31T00:00:00Z": ["malformed"],
        "p,12,2026-01-31T00:00:00Z,5,true,more": ["malformed"],
        ",13,2026-01-31T00:00:00Z,5,true": ["missing-id"],
        "p,-14,2026-01-31T00:00:00Z,5,true": ["bad-value"],
    }
    (tmp_path / "sends.csv").write_text("\n".join(["who,n,at,Count,count", *lines, ""]))
    mapping = mapping_of(
        tmp_path,
        SENDS.format(
            unit="iso",
            time="origin = 2026-01-31T00:00:00Z",
            format="csv",
            columns='publisher = "who", sequence = "n", departure_ns = "at"',
            attributes='n = { column = "Count", kind = "whole" }, b = { column = "count", kind = "boolean" }',
        ),
    )
    files = find_files([tmp_path], mapping=mapping, needed=["publications"])
    checked = check_rows("publications", read_table(spark, "publications", files, mapping=mapping))
    found = checked.collect()
    assert [row.reasons for row in found] == list(lines.values())
    good = [(row.sequence, row.departure_ns, *row.attributes) for row in found[:4]]
    assert good == [(1, 1, 5, True), (2, 500_000_000, 5, False), (3, 0, None, None), (4, 0, 5, True)]
    bad = [json.loads(row.row) for row in split("publications", checked)[1].collect()]
    assert bad[0] == {"who": "p", "n": "five", "at": "2026-01-31T00:00:00Z", "Count": "5", "count": "true"}
    assert bad[6] == {"line": "p,11,2026-01-31T00:00:00Z"}
    assert len(bad) == 10


@pytest.mark.spark
def test_json_lines_with_paths_into_objects(spark: SparkSession, tmp_path: Path) -> None:
    lines = {
        '{"id": "E1", "by": "p", "at": 1.5, "payload": {"price": 2.5, "tags": ["x", "y"]}, "a.b": "c"}': [],
        '{"id": "E2", "by": "p", "at": "1.75", "payload": null}': [],
        '{"id": "E3", "by": "p", "at": true}': ["wrong-type"],
        '{"id": "E4", "by": "p", "at": 1e999}': ["wrong-type"],
        '{"id": "E5", "by": "p", "at": 2, "payload": {"price": "dear"}}': ["wrong-type"],
        '{"id": "E6", "by": ': ["malformed"],
        "[1, 2]": ["malformed"],
        '{"id": "E7", "at": 2}': ["missing-id"],
    }
    (tmp_path / "sends.jsonl").write_text("\n\n".join([*lines, ""]))
    mapping = mapping_of(
        tmp_path,
        SENDS.format(
            unit="s",
            time='durations = "ms"',
            format="json-lines",
            columns='event = "id", publisher = "by", departure_ns = "at", lifetime_ns = "ttl"',
            attributes="""price = { column = "$.payload.price", kind = "number" },
            dotted = { column = "a.b", kind = "string" },
            tag = { column = "$.payload.tags[1]", kind = "string" }""".replace(chr(10), " "),
        ),
    )
    files = find_files([tmp_path], mapping=mapping, needed=["publications"])
    checked = check_rows("publications", read_table(spark, "publications", files, mapping=mapping))
    good, bad = split("publications", checked)
    assert [(row.sequence, row.departure_ns, *row.attributes) for row in good.orderBy("sequence").collect()] == [
        (0, 1_500_000_000, 2.5, "c", "y"),
        (1, 1_750_000_000, None, None, None),
    ]
    reasons = {row.row: row.reasons for row in bad.collect()}
    assert reasons['{"id": "E5", "by": "p", "at": 2, "payload": {"price": "dear"}}'] == ["wrong-type"]
    assert reasons[json.dumps({"line": "[1, 2]"}, separators=(",", ":"))] == ["malformed"]
    assert sorted(chain(*reasons.values())) == sorted(chain(*lines.values()))


KEYS = """[time]
unit = "ms"
[publications]
files = "sends.csv"
format = "csv"
columns = {{ {publication}, departure_ns = "at" }}
[deliveries]
files = "receives.csv"
format = "csv"
columns = {{ {delivery}, subscription = "who", arrived_ns = "at" }}
"""


def keyed(spark: SparkSession, folder: Path, publication: str, delivery: str) -> tuple[list[Any], list[Any]]:
    """What is read of publications and of deliveries, in the order of their times."""
    mapping = mapping_of(folder, KEYS.format(publication=publication, delivery=delivery))
    files = find_files([folder], mapping=mapping, needed=["publications"])
    read = [
        check_rows(table, read_table(spark, table, files, mapping=mapping)).orderBy(time).collect()
        for table, time in (("publications", "departure_ns"), ("deliveries", "arrived_ns"))
    ]
    return read[0], read[1]


@pytest.mark.spark
def test_a_key_of_several_columns_never_collides(spark: SparkSession, tmp_path: Path) -> None:
    """Two topics count from 0 each, and a name that looks like two columns is not taken for them."""
    (tmp_path / "sends.csv").write_text(
        'topic,partition,offset,at\na,0,0,1\nb,0,0,2\na|b,c,0,3\na,b|c,0,4\n"a\\",|b,0,5\n"a\\|",b,0,6\n,0,0,7\n'
    )
    (tmp_path / "receives.csv").write_text("topic,partition,offset,at,who\nb,0,0,12,x\na,b|c,0,14,x\nc,0,0,15,x\n")
    columns = 'publisher = ["topic", "partition"], sequence = "offset"'
    sends, receives = keyed(spark, tmp_path, columns, columns)
    names = [row.publisher for row in sends]
    assert names[:4] == ["a|0", "b|0", "a\\|b|c", "a|b\\|c"]
    assert len({*names}) == 7
    assert [row.reasons for row in sends] == [[]] * 6 + [["missing-id"]]
    assert [row.publisher for row in receives] == ["b|0", "a|b\\|c", "c|0"]
    # The same columns as an id: events are numbered at whoever sent them, here all at one.
    id = 'event = ["topic", "partition", "offset"]'
    sends, receives = keyed(spark, tmp_path, id + ', publisher = "offset"', id)
    assert [row.sequence for row in sends] == [0, 1, 2, 3, 4, 5, None]
    assert [(row.publisher, row.sequence, row.reasons) for row in receives] == [
        ("0", 1, []),
        ("0", 3, []),
        (None, None, ["unknown-publication"]),
    ]


@pytest.mark.spark
def test_an_id_that_two_publishers_have_sent_is_ambiguous(spark: SparkSession, tmp_path: Path) -> None:
    """It used to be taken for the event that departed first, whoever had sent it."""
    (tmp_path / "sends.csv").write_text("id,by,at\n1,p,1\n1,q,2\n2,q,3\n2,q,4\n,q,5\n3,,6\n3,p,7\n")
    (tmp_path / "receives.csv").write_text("id,by,at,who\n1,q,11,x\n2,q,12,x\n3,p,13,x\n9,p,14,x\n")
    sends = 'event = "id", publisher = "by"'
    _, receives = keyed(spark, tmp_path, sends, 'event = "id"')
    assert [(row.publisher, row.sequence, row.reasons) for row in receives] == [
        (None, None, ["ambiguous-event"]),
        ("q", 1, []),
        ("p", 1, []),
        (None, None, ["unknown-publication"]),
    ]
    assert json.loads(receives[0]._raw) == {"id": "1", "by": "q", "at": "11", "who": "x"}
    _, receives = keyed(spark, tmp_path, sends, sends)
    assert [(row.publisher, row.sequence) for row in receives[:2]] == [("q", 0), ("q", 1)]


@pytest.mark.spark
def test_rows_of_a_table_are_chosen_by_their_values(spark: SparkSession, tmp_path: Path) -> None:
    """One log of both: each table takes its own rows, and a broken line is lost by neither."""
    lines = ['{"op": "send", "n": 0, "at": 1}', '{"op": "receive", "n": 0, "at": 2}', '{"op": "send", "n"', '{"n": 5}']
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    text = """[time]
    unit = "ms"
    [publications]
    files = "*.jsonl"
    format = "json-lines"
    where = { op = ["send", "publish"] }
    columns = { sequence = "n", departure_ns = "at" }
    defaults = { publisher = "p" }
    [deliveries]
    files = "*.jsonl"
    format = "json-lines"
    where = { op = "receive" }
    columns = { sequence = "n", arrived_ns = "at" }
    defaults = { publisher = "p", subscription = "s" }
    """
    mapping = mapping_of(tmp_path, text)
    files = find_files([tmp_path], mapping=mapping, needed=["publications"])
    for table, time, at_ns in (("publications", "departure_ns", 1_000_000), ("deliveries", "arrived_ns", 2_000_000)):
        read = read_table(spark, table, files, mapping=mapping).collect()
        assert sorted((row._faults, row[time]) for row in read) == [([], at_ns), (["malformed"], None)]
