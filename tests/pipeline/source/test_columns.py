"""Events as rows: the columns that a filter implies, and values that do not fit."""

import pytest

pytest.importorskip("pyspark.sql", reason="PySpark is not installed: pip install 'tidings[spark]'")

from pyspark.sql.types import ArrayType, StringType, StructType

from tidings.errors import ConfigurationError, InputError
from tidings.live.client.columns import EventRow
from tidings.pipeline.source._columns import (
    METADATA,
    attribute_columns,
    batches,
    checked_schema,
    schema_of_filter,
)

NAMES = {"bigint": "long", "int": "integer", "tinyint": "byte"}
"""Spark's names of types in a schema, where they differ from those of SQL."""


def schema(text: str) -> StructType:
    """Of `name type, name type`, without a session: Spark reads such a text in the JVM."""
    found = StructType()
    for each in text.split(", "):
        name, kind = each.rsplit(" ", 1)
        found = found.add(
            name.strip("`"), ArrayType(StringType()) if kind.startswith("array") else NAMES.get(kind, kind)
        )
    return found


def record(**attributes: int | float | str | bool) -> EventRow:
    return EventRow("p", 1, 5, 1_000_000, 2_000, False, attributes, b"body")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("symbol = 'YHOO' AND price > 10", "symbol string, price double"),
        ("b + a > c AND c = d", "b double, a double, c double, d double"),
        ("urgent AND name LIKE 'A%' AND n IN (1, 2)", "urgent boolean, name string, n double"),
        ("a = b AND b = c AND c = 'x'", "a string, b string, c string"),
        ('price BETWEEN 1 AND "the most"', "price double, `the most` double"),
        ("a IS NOT NULL AND a <> 'x'", "a string"),
    ],
)
def test_a_filter_implies_columns(text: str, columns: str) -> None:
    assert schema_of_filter(text, ()) == schema(columns)
    with_metadata = schema_of_filter(text, ("_sequence", "_payload"))
    assert with_metadata.fields[-2:] == schema("_sequence bigint, _payload binary").fields


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a IS NULL OR b = 1", "compares a with no number, string or boolean, .* give the columns: .schema"),
        ("a < b", "compares a with no number"),
        ("a = 1 OR a = 'x'", "compares a with numbers, strings or booleans at once"),
        ("TRUE", "names no attribute, so there are no columns"),
    ],
)
def test_what_a_filter_does_not_say_has_to_be_given(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        schema_of_filter(text, ())


def test_metadata_is_about_the_event() -> None:
    (batch,) = batches(iter([record(n=1)]), schema_of_filter("TRUE", tuple(METADATA)), fails_fast=False)
    row = batch.to_pylist()[0]
    assert row.pop("_published").timestamp() == 1.0
    assert row == {
        "_publisher": "p",
        "_epoch": 1,
        "_sequence": 5,
        "_age_ns": 2_000,
        "_late": False,
        "_payload": b"body",
    }


def test_a_value_of_another_type_is_null_or_an_error() -> None:
    """In the way of the filter language: to a column of numbers a string is as good as missing."""
    columns = schema("s string, b boolean, d double, n bigint, small tinyint")
    rows = [
        record(s="x", b=True, d=1, n=2**62, small=-128),
        record(s=1, b=1, d="1", n=1.5, small=128),
        record(d=True, n=3.0),
    ]
    (batch,) = batches(iter(rows), columns, fails_fast=False)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        ("x", True, 1.0, 2**62, -128),
        (None,) * 5,
        (None, None, None, 3, None),
    ]
    list(batches(iter(rows[:1]), columns, fails_fast=True))
    with pytest.raises(InputError, match=r"attribute s of event 5 of 'p' is 1, which is no string; .*permissive"):
        list(batches(iter(rows), columns, fails_fast=True))


def test_columns_that_events_cannot_have() -> None:
    with pytest.raises(ConfigurationError, match=r"column _late is of type string in the schema, but must be boolean"):
        checked_schema(schema("_late string"))
    with pytest.raises(ConfigurationError, match=r"column tags is of type array<string> in the schema; attributes are"):
        checked_schema(schema("tags array<string>"))


def test_rows_that_cannot_be_events() -> None:
    assert attribute_columns(schema("a int, body binary, b string"), "body") == ["a", "b"]
    with pytest.raises(ConfigurationError, match=r"column t is of type timestamp, and attributes are .*: cast it"):
        attribute_columns(schema("a int, t timestamp"), None)
    with pytest.raises(ConfigurationError, match="option payload: column body is not there"):
        attribute_columns(schema("a int"), "body")
    with pytest.raises(ConfigurationError, match="option payload: column a is of type int"):
        attribute_columns(schema("a int"), "a")
