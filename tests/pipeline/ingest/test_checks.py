"""Every reason for the quarantine, one spoiled row each; and good rows are not touched."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertSchemaEqual

from tidings.model.trace import TABLES
from tidings.pipeline.ingest import (
    QUARANTINE,
    REASONS,
    check_rows,
    find_files,
    known_brokers,
    quarantine_rows,
    read_table,
    split,
    unreadable_files,
)

Write = Callable[..., Path]
Rows = dict[str, list[Any]]
TOO_LATE = 2**63 - 1

SPOILED: list[tuple[str, dict[str, Any], set[str]]] = [
    ("publications", {"publisher": None}, {"missing-id"}),
    ("publications", {"sequence": -1}, {"bad-value"}),
    ("publications", {"size_bytes": -1}, {"bad-value"}),
    ("publications", {"lifetime_ns": 0}, {"bad-value"}),
    ("publications", {"broker": "c"}, {"unknown-broker"}),
    ("publications", {"attributes": {"x": float("nan"), "s": None}}, {"bad-value"}),
    ("publications", {"attributes": {"x": float("inf"), "s": None}}, {"bad-value"}),
    ("publications", {"attributes": {"x": None, "s": None}}, set()),
    ("publications", {"departure_ns": TOO_LATE}, {"bad-value"}),
    ("hops", {"sent_ns": -10}, {"negative-delay"}),
    ("hops", {"sent_ns": -3}, set()),
    ("hops", {"sent_ns": None, "received_ns": -10, "began_ns": None, "ended_ns": None}, {"negative-delay"}),
    ("hops", {"ended_ns": 4}, {"negative-delay"}),
    ("hops", {"began_ns": None, "ended_ns": None}, set()),
    ("hops", {"outcome": "vanished"}, {"bad-value"}),
    ("hops", {"source": "c", "target": "d"}, {"unknown-broker"}),
    ("hops", {"target": None, "sent_ns": -10}, {"missing-id", "negative-delay"}),
    ("hops", {"ended_ns": TOO_LATE}, {"bad-value"}),
    ("deliveries", {"delivered_ns": 50}, {"negative-delay"}),
    ("deliveries", {"delivered_ns": 98}, set()),
    ("deliveries", {"subscription": "t"}, {"unknown-subscription"}),
    ("deliveries", {"subscription": None}, {"missing-id"}),
    ("deliveries", {"arrived_ns": -TOO_LATE}, {"bad-value"}),
    ("subscriptions", {"subscription": "1", "filter": "x >"}, {"bad-filter"}),
    ("subscriptions", {"subscription": "2", "filter": None}, {"missing-id"}),
    ("subscriptions", {"subscription": "3", "price": float("nan")}, {"bad-value"}),
    ("subscriptions", {"subscription": "4", "max_delay_ns": 0}, {"bad-value"}),
    ("subscriptions", {"subscription": "5", "until_ns": -1}, {"bad-value"}),
    ("subscriptions", {"broker": "a"}, set()),
    ("topology", {"kind": "bridge", "source": "a"}, {"bad-value"}),
    ("topology", {"kind": "link", "source": "a", "target": "z"}, {"unknown-broker"}),
    ("topology", {"kind": "link", "source": "b"}, {"bad-value"}),
    ("transitions", {"kind": "broker", "source": "a", "at_ns": 1, "up": True}, set()),
    ("transitions", {"kind": "broker", "source": "z", "at_ns": 1, "up": True}, {"unknown-broker"}),
]


def checked(spark: SparkSession, trace: Path, table: str, *, clock_tolerance_ns: int = 5) -> DataFrame:
    files = find_files([trace])
    return check_rows(
        table,
        read_table(spark, table, files),
        clock_tolerance_ns=clock_tolerance_ns,
        brokers=known_brokers(read_table(spark, "topology", files)),
        subscriptions=read_table(spark, "subscriptions", files),
    )


@pytest.mark.spark
@pytest.mark.parametrize("table", list(TABLES))
def test_a_spoiled_row_has_its_reasons(table: str, spark: SparkSession, rows: Rows, write: Write, trace: Path) -> None:
    cases = [(change, reasons) for name, change, reasons in SPOILED if name == table]
    # Each row is a file of its own, so that its name says which case it is.
    for number, (change, _) in enumerate(cases):
        like = rows[table][0] if rows[table] else {}
        write(table, [{**like, **change}], name=f"case-{number:02}")
    result = checked(spark, trace, table).select("_file", "reasons").collect()
    found = {row._file.rpartition("/")[2]: set(row.reasons) for row in result if "case" in row._file}
    wanted = {f"case-{number:02}.parquet": reasons for number, (_, reasons) in enumerate(cases)}
    if table == "subscriptions":  # the same id again, and the earlier broker comes first: the original is the duplicate
        assert {tuple(row.reasons) for row in result if "part-0" in row._file} == {("duplicate",)}
    elif table != "topology":
        assert all(not row.reasons for row in result if "part-0" in row._file)
    assert found == wanted
    assert set().union(*found.values()) <= set(REASONS)


@pytest.mark.spark
def test_good_rows_keep_the_contract_and_bad_ones_go_to_the_quarantine(
    spark: SparkSession, rows: Rows, write: Write, trace: Path
) -> None:
    bad_row = {**rows["deliveries"][0], "subscription": None, "delivered_ns": 1}
    path = write("deliveries", [bad_row], name="bad one")
    good, bad = split("deliveries", checked(spark, trace, "deliveries"))
    assert good.columns == TABLES["deliveries"].names
    (kept,) = good.collect()
    assert kept.asDict() == rows["deliveries"][0]
    (row,) = bad.collect()
    assert (row.table, row.file, row.reasons) == ("deliveries", str(path), ["missing-id", "negative-delay"])
    assert json.loads(row.row) == bad_row
    assertSchemaEqual(bad.schema, spark.createDataFrame([], QUARANTINE).schema, ignoreNullable=True)
    assert quarantine_rows("deliveries", good.selectExpr("*", "array('duplicate') AS reasons")).first().file is None


@pytest.mark.spark
def test_a_truncated_file_is_in_the_quarantine_and_the_others_are_read(
    spark: SparkSession, rows: Rows, write: Write, trace: Path
) -> None:
    path = write("deliveries", rows["deliveries"] * 3, name="cut")
    path.write_bytes(path.read_bytes()[:300])
    files = find_files([trace])
    assert read_table(spark, "deliveries", files).count() == 1
    (row,) = unreadable_files(files).to_pylist()
    assert (row["table"], row["file"], row["reasons"]) == ("deliveries", str(path), ["unreadable-file"])
    assert json.loads(row["row"])["size_bytes"] == 300
    assert row["rows"] == 1


NAMES = TABLES["deliveries"].names
LINES = st.lists(
    st.fixed_dictionaries(
        {
            "publisher": st.sampled_from(["p", None]),
            "sequence": st.integers(-1, 1),
            "subscription": st.sampled_from(["s", "t"]),
            "broker": st.sampled_from(["a", "c"]),
            "arrived_ns": st.integers(0, 9),
            "delivered_ns": st.integers(0, 9),
        }
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.spark
@settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each try is a Spark job: too slow to shrink a failure
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(lines=LINES, places=st.lists(st.integers(0, 3), min_size=20, max_size=20))
def test_how_rows_are_spread_over_files_does_not_matter(
    spark: SparkSession, trace: Path, lines: list[Any], places: list[int]
) -> None:
    """The reasons of each row are those that plain Python finds, whatever file it is in."""
    with tempfile.TemporaryDirectory(dir=trace.parent) as place:
        for number in set(places):
            some = [line for line, at in zip(lines, places, strict=False) if at == number]
            folder = Path(place) / "deliveries"
            folder.mkdir(exist_ok=True)
            loose = pa.schema([field.with_nullable(True) for field in TABLES["deliveries"]])
            pq.write_table(pa.Table.from_pylist(some, loose), folder / f"{number}.parquet")
        small = find_files([trace])
        files = find_files([place], needed=())
        found = check_rows(
            "deliveries",
            read_table(spark, "deliveries", files),
            brokers=known_brokers(read_table(spark, "topology", small)),
            subscriptions=read_table(spark, "subscriptions", small),
        ).collect()
    wanted = Counter((*(line[name] for name in NAMES), *plain_reasons(line)) for line in lines)
    assert Counter((*(row[name] for name in NAMES), *row.reasons) for row in found) == wanted


def plain_reasons(line: dict[str, Any]) -> list[str]:
    tests = {
        "missing-id": line["publisher"] is None,
        "bad-value": line["sequence"] < 0,
        "negative-delay": line["delivered_ns"] < line["arrived_ns"],
        "unknown-broker": line["broker"] == "c",
        "unknown-subscription": line["subscription"] == "t",
    }
    return [reason for reason, applies in tests.items() if applies]
